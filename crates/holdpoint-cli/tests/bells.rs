//! What an instance does that others do not hear, that cannot renew its lease, or that is told to stop: as real processes on one
//! PostgreSQL database.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::http::{self, Server};
use common::process::{Serving, command};
use common::site::{Site, script};
use common::until;
use holdpoint_faults::{Pooler, shared};
use serde_json::{Value, json};

/// A configuration on a database, and perhaps on another way to it for listening.
struct Place {
    site: Site,
    database: String,
    listen_url: Option<String>,
}

impl Place {
    fn new(calls: &[(&str, Value)], server: &str, agent: &str, pooler: Option<&Pooler>) -> Self {
        let database = shared().database_name();
        let listen_url = pooler.map(|pooler| shared().url_through(pooler.address(), &database));
        let site = Site::new(&script(calls));
        let listen = listen_url.as_ref().map_or("", |_| "database_listen_url_env = \"THE_LISTENER\"\n");
        site.configure(&format!("{listen}{server}"), agent);
        let config = std::fs::read_to_string(site.config()).unwrap();
        let of_a_file = "database = \"data/holdpoint.db\"";
        assert!(config.contains(of_a_file));
        site.write("holdpoint.toml", &config.replace(of_a_file, "database_url_env = \"THE_DATABASE\""));
        Self { site, database, listen_url }
    }

    fn bash(commands: &[&str], server: &str, agent: &str) -> Self {
        let calls: Vec<_> = commands.iter().map(|command| ("Bash", json!({ "command": command }))).collect();
        Self::new(&calls, server, agent, None)
    }

    fn environment(&self, mut command: Command) -> Command {
        command.env("THE_DATABASE", shared().url(&self.database));
        if let Some(url) = &self.listen_url {
            command.env("THE_LISTENER", url);
        }
        command
    }

    fn instance(&self) -> Serving {
        Serving::start(self.environment(self.site.serve()))
    }

    fn doctor(&self) -> Output {
        self.environment(command(&["doctor", "--config", &self.site.config()])).output().unwrap()
    }

    /// Waits until each instance knows of the others, and stands so with their bells.
    fn know_each_other(&self, instances: &[&Serving], hearing: &str) {
        for instance in instances {
            let hears = format!("holdpoint_bells_hearing{{state=\"{hearing}\"}}");
            until(hearing, || (figure(&instance.server, &hears) == 1.0).then_some(()));
            let others = instances.len() as f64 - 1.0;
            until("the others", || {
                (figure(&instance.server, "holdpoint_instances_other") == others).then_some(())
            });
        }
    }
}

/// A figure of an instance.
fn figure(server: &Server, name: &str) -> f64 {
    let (status, page) = http::send(&server.url, Some(&server.token), "GET", "/metrics", None);
    assert_eq!(status, 200, "{page}");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

fn start(server: &Server) -> String {
    let (status, answer) = server.chat("go");
    assert_eq!(status, 202, "{answer}");
    answer["runId"].as_str().unwrap().to_owned()
}

fn approve(server: &Server, call: &str) {
    let request = until("a request", || {
        server.pending().into_iter().find(|request| request["request"]["toolCallId"] == call)
    });
    let (status, answer) = server.decide(&request, "approve", json!({}));
    assert_eq!(status, 200, "{answer}");
}

fn in_doubt(server: &Server) -> Value {
    until("a question", || server.pending().into_iter().find(|request| request["kind"] == "in_doubt"))
}

/// Somebody holds the row of an instance's lease until this is dropped: it cannot be renewed.
struct Held {
    client: Child,
    database: String,
}

impl Held {
    fn the_first_lease_of(place: &Place) -> Self {
        let sql =
            "BEGIN; SELECT * FROM instance ORDER BY instance_id LIMIT 1 FOR UPDATE; SELECT pg_sleep(60)";
        let mut psql = Command::new("psql");
        psql.args([&shared().url(&place.database), "-Atqc", sql]);
        let client = psql.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' AND wait_event = 'PgSleep'";
        until("the lock", || (shared().sql(&place.database, waits) != "0").then_some(()));
        Self { client, database: place.database.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The server would not notice before the sleep is over that its client is gone.
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' \
                   AND datname = current_database()";
        shared().sql(&self.database, end);
        let _ = self.client.wait();
    }
}

/// LISTEN is accepted by a pooler in transaction mode and never delivers. It is found out, said, and done without.
#[test]
fn where_no_bell_comes_through_what_others_store_is_found_by_looking() {
    let pooler = Pooler::before(shared());
    let calls = [
        ("Bash", json!({ "command": "sleep 6; echo first >> log.txt" })),
        ("Bash", json!({ "command": "echo second >> log.txt" })),
    ];
    let place = Place::new(&calls, "", "execution = \"parallel\"", Some(&pooler));
    let (mut a, b) = (place.instance(), place.instance());
    place.know_each_other(&[&a, &b], "poll_only");
    let said = String::from_utf8(place.doctor().stdout).unwrap();
    assert!(said.contains("poll-only") && said.contains("database_listen_url_env"), "{said}");
    let run = start(&a.server);
    approve(&a.server, "c0");
    let decided = Instant::now();
    approve(&b.server, "c1");
    until("the second", || (place.site.lines("log.txt") == 1).then_some(()));
    println!("decided elsewhere, and found by looking after {:?}", decided.elapsed());
    assert_eq!(figure(&a.server, "holdpoint_bells_heard_total"), 0.0);
    assert_eq!(b.server.ended(&run)["text"], "done");
    assert_eq!(place.site.lines("log.txt"), 2);
    a.signal("-TERM");
    assert!(a.wait().success());
    assert!(a.said().contains("LISTEN is accepted and nothing is delivered"));
}

/// STORE of many servers: every connection of everybody is ended at once, the listeners' among them.
#[test]
fn when_all_connections_are_ended_the_bells_are_heard_again() {
    let place = Place::bash(
        &["sleep 4; echo first >> log.txt", "echo second >> log.txt"],
        "",
        "execution = \"parallel\"",
    );
    let (a, b) = (place.instance(), place.instance());
    place.know_each_other(&[&a, &b], "proven");
    let run = start(&a.server);
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert!(shared().sql(&place.database, end).parse::<u32>().unwrap() >= 6);
    until("both back", || [&a, &b].iter().all(|it| ready(&it.server).0 == 200).then_some(()));
    place.know_each_other(&[&a, &b], "proven");
    approve(&a.server, "c0");
    let heard = figure(&a.server, "holdpoint_bells_heard_total");
    approve(&b.server, "c1");
    until("the second", || (place.site.lines("log.txt") == 1).then_some(()));
    assert!(figure(&a.server, "holdpoint_bells_heard_total") > heard);
    assert_eq!(b.server.ended(&run)["text"], "done");
    assert_eq!(figure(&a.server, "holdpoint_lease_lapses_total"), 0.0);
}

fn ready(server: &Server) -> (u16, String) {
    http::send(&server.url, Some(&server.token), "GET", "/readyz", None)
}

/// A process that works and cannot renew its lease has lost its runs: it begins nothing, and says so.
#[test]
fn an_instance_that_cannot_renew_its_lease_begins_nothing_and_says_so() {
    let place =
        Place::bash(&["echo first >> log.txt; sleep 10; echo late", "echo second >> log.txt"], "", "");
    let (mut a, b) = (place.instance(), place.instance());
    let run = start(&a.server);
    approve(&a.server, "c0");
    approve(&a.server, "c1");
    until("the first", || (place.site.lines("log.txt") == 1).then_some(()));
    let held = Held::the_first_lease_of(&place);
    let began = Instant::now();
    let said = until("that it is not ready", || Some(ready(&a.server)).filter(|said| said.0 == 503)).1;
    println!("not ready {:?} after its last renewal could be", began.elapsed());
    assert!(said.contains("lease_lapsed"), "{said}");
    assert_eq!(figure(&a.server, "holdpoint_lease_held"), 0.0);
    assert_eq!(ready(&b.server).0, 200);
    let (status, answer) = a.server.chat("another");
    assert_eq!((status, &answer["code"]), (503, &json!("store_unavailable")), "{answer}");
    let doubt = in_doubt(&b.server);
    println!("taken over after {:?}", began.elapsed());
    // The command of the first ends meanwhile, and nothing follows from it.
    std::thread::sleep(Duration::from_secs(10).saturating_sub(began.elapsed()) + Duration::from_secs(1));
    assert_eq!(place.site.lines("log.txt"), 1);
    let late = in_doubt(&b.server)["request"]["lateResult"].to_string();
    assert!(late.contains("it was told to stop when its run was taken over"), "{late}");
    drop(held);
    until("its lease", || (ready(&a.server).0 == 200).then_some(()));
    assert_eq!(figure(&a.server, "holdpoint_lease_lapses_total"), 1.0);
    let (status, answer) = a.server.decide(&doubt, "leave", json!({}));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(b.server.ended(&run)["text"], "done");
    let log = std::fs::read_to_string(place.site.path("work/log.txt")).unwrap();
    assert_eq!(log, "first\nsecond\n");
    a.signal("-TERM");
    assert!(a.wait().success());
    let said = a.said();
    assert!(said.contains("the lease could not be renewed in time"), "{said}");
    assert!(said.contains("letting go"), "{said}");
}

/// A tool that runs when its process is told to stop is let run, for longer than a lease lasts; what follows is for another.
#[test]
fn an_instance_that_is_told_to_stop_keeps_its_lease_until_its_tool_has_ended() {
    let place = Place::bash(
        &["echo first >> log.txt; sleep 9", "echo second >> log.txt"],
        "shutdown_grace = \"30s\"",
        "",
    );
    let (mut a, b) = (place.instance(), place.instance());
    let run = start(&a.server);
    approve(&a.server, "c0");
    approve(&a.server, "c1");
    until("the first", || (place.site.lines("log.txt") == 1).then_some(()));
    let told = Instant::now();
    a.signal("-TERM");
    while told.elapsed() < Duration::from_secs(7) {
        let pending = b.server.pending();
        assert!(pending.is_empty(), "it was taken over while its tool ran: {pending:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(b.server.ended(&run)["text"], "done");
    println!("told to stop, and at its end elsewhere after {:?}, 9 s of which its tool took", told.elapsed());
    assert!(a.wait().success());
    let log = std::fs::read_to_string(place.site.path("work/log.txt")).unwrap();
    assert_eq!(log, "first\nsecond\n", "each ran once, the second at the other");
}
