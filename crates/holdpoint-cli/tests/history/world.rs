//! The instances, the database, and the ways between them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

use holdpoint_faults::{Cluster, Disk, Proxy};

use crate::common::http::Server;
use crate::common::process::Serving;
use crate::common::site::{Database, Site};
use crate::jobs;

pub const INSTANCES: usize = 3;

/// Debian's place for the library that shifts a process's clock.
const SHIFTED: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// One place where an instance runs, and the way from there to the database.
pub struct Seat {
    pub proxy: Proxy,
    pub serving: Mutex<Option<Serving>>,
    server: RwLock<Option<Server>>,
}

/// Commands expire; an order that nobody decides about is put to a preset, and a note waits on and is escalated.
fn agent(jobs: u64) -> String {
    let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pay-server.mjs");
    format!(
        "execution = \"parallel\"\napproval_timeout = \"20s\"\nmcp = [\"shop\"]\n\n\
         [[agents.approvals]]\ntools = [\"shop__pay\"]\ntimeout = \"6s\"\non_timeout = \"policy\"\npreset = \"orders\"\n\n\
         [[agents.approvals]]\ntools = [\"Write\"]\ntimeout = \"4s\"\non_timeout = \"wait\"\nescalate_to = [\"leads\"]\n\n\
         [[presets]]\nname = \"orders\"\n\
         releases = [{{ tool = \"shop__pay\", when = {{ order = {{ one_of = {:?} }} }} }}]\n\n\
         [mcp.shop]\ncommand = \"node\"\nargs = [{shop:?}]\ncwd = \"work\"\nbusiness_keys = {{ pay = \"order\" }}\n",
        jobs::released(jobs)
    )
}

pub struct World {
    pub cluster: Arc<Cluster>,
    pub site: Site,
    pub seats: Vec<Seat>,
    pub jobs: u64,
    pub next_job: AtomicU64,
    pub is_over: AtomicBool,
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

impl World {
    pub fn new(jobs: u64) -> Self {
        let cluster = Arc::new(Cluster::start(Disk::Quick));
        let site = Site::on(Database::in_cluster(&cluster), &jobs::script(jobs));
        site.configure("shutdown_grace = \"1s\"", &agent(jobs));
        let seats = (0..INSTANCES)
            .map(|_| Seat {
                proxy: Proxy::to(cluster.address()),
                serving: Mutex::default(),
                server: RwLock::default(),
            })
            .collect();
        let world = Self {
            cluster,
            site,
            seats,
            jobs,
            next_job: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            faults: Mutex::default(),
        };
        (0..INSTANCES).for_each(|seat| world.start(seat, 0));
        world
    }

    pub fn count(&self, fault: &'static str) {
        *self.faults.lock().unwrap().entry(fault).or_default() += 1;
    }

    pub fn faults(&self) -> String {
        let faults = self.faults.lock().unwrap();
        faults.iter().map(|(fault, times)| format!("{fault} {times}")).collect::<Vec<_>>().join(", ")
    }

    /// Starts an instance whose clock is so many seconds off. One that cannot start - its database may be away - is left out.
    pub fn start(&self, seat: usize, off: i64) {
        let Seat { proxy, serving, server } = &self.seats[seat];
        let mut command = self.site.serve_through(proxy);
        if off != 0 && can_shift_clocks() {
            command.env("LD_PRELOAD", SHIFTED).env("FAKETIME", format!("{off:+}s"));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let mut place = serving.lock().unwrap();
        if let Ok(started) = Serving::try_start(command) {
            *server.write().unwrap() = Some(started.server.clone());
            *place = Some(started);
        }
    }

    /// The instance in that seat, or in another.
    pub fn server(&self, seat: u64) -> Option<Server> {
        self.seats[seat as usize % INSTANCES].server.read().unwrap().clone()
    }

    /// Everything is well again: every instance new, with the right time and an open way.
    pub fn heal(&self) {
        for seat in &self.seats {
            seat.proxy.open();
        }
        for seat in 0..INSTANCES {
            let before = self.seats[seat].serving.lock().unwrap().take();
            if let Some(before) = before {
                before.signal("-CONT");
                before.kill();
            }
            self.start(seat, 0);
            assert!(self.seats[seat].serving.lock().unwrap().is_some(), "it starts where all is well");
        }
    }
}

pub fn can_shift_clocks() -> bool {
    Path::new(SHIFTED).exists()
}
