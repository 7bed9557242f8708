//! rig-agent 0.46 doing the benchmark's work: `rig-peer WORKLOAD --secs S --n N --path FILE --conc C`.

mod runs;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use holdpoint_bench_harness::work::{FINAL, FREE_TURN, GATED_TURN};
use holdpoint_bench_harness::{Arguments, Deviations, Expect, Line, Timing, Workload, usage};

use crate::runs::Peer;
use crate::work::{record, recorded};

/// Runs before the clock starts.
const WARM_UP: u64 = 20;

fn main() {
    let started = Instant::now();
    let arguments = Arguments::parse("rig-peer").unwrap_or_else(|message| {
        eprintln!("{message}");
        std::process::exit(2)
    });
    // One at a time needs no second thread; many at a time may use both cores.
    let mut runtime = match arguments.conc {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_time().build().expect("a runtime");
    runtime.block_on(measure(arguments, started));
}

async fn measure(arguments: Arguments, started: Instant) {
    let workload = arguments.workload;
    let mut line = Line::new("rig", workload.name());
    line.set("conc", arguments.conc);
    let durable = matches!(workload, Workload::W3 | Workload::W4A | Workload::W4B);
    if durable && workload != Workload::W4B {
        usage::remove_database(&arguments.path);
    }
    let db = durable.then(|| runs::open(&arguments.path).expect("a database"));
    let calls: &[_] = if workload == Workload::W1 { &FREE_TURN } else { &GATED_TURN };
    let peer = Peer::new(calls, workload == Workload::W2, db);
    let ready_s = started.elapsed().as_secs_f64();
    match workload {
        Workload::W1 | Workload::W2 | Workload::W3 => timed(peer, &arguments, line).await,
        Workload::W4A => suspend_many(peer, &arguments, line).await,
        Workload::W4B => {
            line.number("startup_import_s", ready_s);
            list_and_resume(peer, &arguments, line).await;
        }
        Workload::Growth => {
            eprintln!("rig-peer has no GROWTH");
            std::process::exit(2)
        }
    }
}

async fn one(peer: &Peer, workload: Workload, n: u64, found: &mut Deviations, latency: &mut Vec<f64>) {
    recorded(async {
        let text = match workload {
            Workload::W1 => peer.free().await,
            Workload::W2 => peer.gated().await,
            _ => {
                let id = format!("run-{n}");
                peer.suspend(&id).await;
                record(|r| found.check_suspended(r));
                let decided = Instant::now();
                let text = peer.resume(&id).await;
                if let Some(bash_at) = record(|r| r.bash_at) {
                    latency.push((bash_at - decided).as_secs_f64() * 1e3);
                }
                text
            }
        };
        let expect = if workload == Workload::W1 { Expect::Free } else { Expect::Gated };
        record(|r| found.check(&text, r, expect));
    })
    .await;
}

/// W1 to W3: as many runs as the seconds take.
async fn timed(peer: Peer, arguments: &Arguments, mut line: Line) {
    let (workload, secs) = (arguments.workload, arguments.secs);
    let peer = Arc::new(peer);
    let (mut found, mut latency) = (Deviations::default(), Vec::new());
    for n in 0..WARM_UP {
        one(&peer, workload, n, &mut found, &mut latency).await;
    }
    latency.clear();
    let next = Arc::new(AtomicU64::new(WARM_UP));
    let timing = Timing::start();
    let lanes = (0..arguments.conc).map(|_| {
        let (peer, next) = (Arc::clone(&peer), Arc::clone(&next));
        tokio::spawn(async move {
            let (mut found, mut latency) = (Deviations::default(), Vec::new());
            while timing.wall_s() < secs {
                let n = next.fetch_add(1, Ordering::Relaxed);
                one(&peer, workload, n, &mut found, &mut latency).await;
                // A run that never waits would keep the thread from the other lanes.
                tokio::task::yield_now().await;
            }
            (found, latency)
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        let (more, ms) = lane.await.expect("no lane panicked");
        found.merge(more);
        latency.extend(ms);
    }
    let (wall_s, cpu_s) = (timing.wall_s(), timing.cpu_s());
    let runs = next.load(Ordering::Relaxed) - WARM_UP;
    line.measured(runs, wall_s, cpu_s);
    line.latency("decide_to_tool", latency);
    if workload == Workload::W3 {
        // One to suspend and one to end; no decision is kept.
        line.set("commits_per_run", 2);
        Arc::into_inner(peer).expect("all lanes ended").close();
        line.set("bytes_per_run", usage::file_bytes(&arguments.path) / (runs + WARM_UP));
    }
    line.print(&found);
}

async fn suspend_many(peer: Peer, arguments: &Arguments, mut line: Line) {
    line.number("rss_start_mb", usage::peak_rss_mb());
    let timing = Timing::start();
    for n in 0..arguments.n {
        recorded(peer.suspend(&format!("run-{n}"))).await;
    }
    let (wall_s, cpu_s, n) = (timing.wall_s(), timing.cpu_s(), arguments.n as f64);
    peer.close();
    line.set("n", arguments.n);
    line.number("wall_s", wall_s);
    line.number("cpu_s", cpu_s);
    line.number("suspends_per_s", n / wall_s);
    line.number("cpu_ms_per_suspend", 1e3 * cpu_s / n);
    line.set("bytes_per_pending", usage::file_bytes(&arguments.path) / arguments.n as u64);
    line.print(&Deviations::default());
}

async fn list_and_resume(peer: Peer, arguments: &Arguments, mut line: Line) {
    let mut found = Deviations::default();
    let timing = Timing::start();
    let pending = peer.list();
    line.set("pending_calls_listed", pending);
    line.number("list_s", timing.wall_s());
    line.number("list_cpu_s", timing.cpu_s());
    if pending != 2 * arguments.n {
        found.note("pending_count", pending.to_string());
    }
    recorded(async {
        let decided = Instant::now();
        let text = peer.resume(&format!("run-{}", arguments.n / 2)).await;
        line.number("resume_one_ms", decided.elapsed().as_secs_f64() * 1e3);
        record(|r| {
            if let Some(bash_at) = r.bash_at {
                line.number("resume_to_tool_ms", (bash_at - decided).as_secs_f64() * 1e3);
            }
            if r.tools != ["Bash"] || text != FINAL {
                found.note("resume", format!("{:?} {text}", r.tools));
            }
        });
    })
    .await;
    line.print(&found);
}
