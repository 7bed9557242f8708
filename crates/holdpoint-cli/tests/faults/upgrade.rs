//! Runs that were suspended under an older schema, and runs that a newer version has written.
//!
//! `fixtures/schema-1.sql` and `fixtures/schema-1.sqlite` are what version 1 of the schema left: three runs, suspended - one that
//! waits for its first decision, one of whose two calls one is decided, and one whose command may have run. They were written by
//! `HOLDPOINT_WRITE_FIXTURES=1 cargo test -p holdpoint-cli --all-features --test faults` and are not to be written again:
//! a later schema gets files of its own, by the same command.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::{asked, decide, path, serve, start};
use crate::common::http::{self, Server};
use crate::common::process::Serving;
use crate::common::site::{Database, Site, script};
use crate::common::until;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/faults/fixtures").join(name)
}

fn two_commands() -> String {
    script(&[
        ("Bash", json!({ "command": "echo first >> log.txt" })),
        ("Bash", json!({ "command": "echo second >> log.txt" })),
    ])
}

/// The sites of the fixtures: with what version 1 left in their databases.
fn left_by_version_1() -> [Site; 2] {
    let file = Site::new(&two_commands());
    std::fs::create_dir(file.path("data")).unwrap();
    std::fs::copy(fixture("schema-1.sqlite"), file.path("data/holdpoint.db")).unwrap();
    let database = Site::on(Database::postgres(), &two_commands());
    database.sql(&std::fs::read_to_string(fixture("schema-1.sql")).unwrap());
    [file, database]
}

pub fn runs_suspended_under_the_first_schema_go_on_under_this_one() {
    for site in left_by_version_1() {
        let serving = serve(&site);
        let server = &serving.server;
        let pending = server.pending();
        let mut kinds: Vec<_> = pending.iter().map(|row| row["kind"].as_str().unwrap()).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["approval", "approval", "approval", "approval", "in_doubt"], "{pending:?}");
        for request in &pending {
            decide(server, request, if request["kind"] == "in_doubt" { "leave" } else { "approve" });
        }
        let runs = server.get("/v1/runs")["items"].as_array().unwrap().clone();
        assert_eq!(runs.len(), 3);
        for run in &runs {
            let run = run["runId"].as_str().unwrap();
            assert_eq!(server.ended(run)["text"], "done");
            assert_eq!(server.get(&format!("/v1/audit/verify?run={run}"))["items"][0]["whole"], true);
        }
        let mut log = site.log("log.txt");
        log.sort();
        // Of the run in doubt the first command ran when the fixture was written, and did not now.
        assert_eq!(log, ["first", "second", "second", "second"]);
        // And it can be used like any other.
        let run = start(server);
        for request in server.pending() {
            decide(server, &request, "decline");
        }
        assert_eq!(server.ended(&run)["text"], "done");
    }
}

const SLOW_OR_NOT: &str = "rules:
  - when: {has_tool_result: true}
    answer: {text: done}
  - when: {user_contains: slow}
    answer: {calls: [{id: c0, name: Bash, arguments: {command: echo slow >> slow.txt; sleep 60}}]}
  - answer: {calls: [{id: c0, name: Bash, arguments: {command: echo ran >> log.txt}}]}
";

/// Instances of one version and the next on one site: the same program, told to be the next.
struct Upgrade {
    site: Site,
    /// Commands that are to have run by now.
    ran: usize,
}

impl Upgrade {
    fn older(&self) -> Serving {
        serve(&self.site)
    }

    fn newer(&self) -> Serving {
        let mut command = self.site.serve();
        command.env("HOLDPOINT_NEXT_VERSION", "1");
        Serving::start(command)
    }

    /// Takes these requests off the list and approves them here.
    fn approve(&self, server: &Server, count: usize, requests: &mut Vec<Value>) -> Vec<String> {
        let taken = requests.split_off(requests.len() - count);
        at_once(&taken, |request| decide(server, request, "approve"));
        taken.iter().map(|request| request["runId"].as_str().unwrap().to_owned()).collect()
    }

    /// These runs come to their end, seen from this instance, and their commands ran once each.
    fn end(&mut self, server: &Server, runs: &[String]) {
        at_once(runs, |run| assert_eq!(server.ended(run)["text"], "done"));
        self.ran += runs.len();
        assert_eq!(self.site.lines("log.txt"), self.ran);
    }
}

/// Does something with each, a few at a time.
fn at_once<T: Sync, R: Send>(all: &[T], what: impl Fn(&T) -> R + Sync) -> Vec<R> {
    const CLIENTS: usize = 8;
    std::thread::scope(|scope| {
        let parts = all.chunks(all.len().div_ceil(CLIENTS).max(1));
        let threads: Vec<_> =
            parts.map(|part| scope.spawn(|| part.iter().map(&what).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Starts runs that wait; gives what they ask.
fn start_some(server: &Server, count: usize) -> Vec<Value> {
    at_once(&vec![(); count], |()| {
        let (status, answer) = server.chat("go");
        assert_eq!(status, 202, "{answer}");
        answer["interactions"][0].clone()
    })
}

fn pending(server: &Server) -> u64 {
    let (_, page) = http::send(&server.url, Some(&server.token), "GET", "/metrics", None);
    let line = page.lines().find_map(|line| line.strip_prefix("holdpoint_pending "));
    line.unwrap().parse().unwrap()
}

fn stop(mut serving: Serving) -> String {
    serving.signal("-TERM");
    assert!(serving.wait().success());
    serving.said()
}

/// To the next version and back, with a thousand runs that wait. What the older one has written the newer one carries on; what the
/// newer one has, the older one leaves to it, and says so; a decision is taken by either.
pub fn slow_a_thousand_suspended_runs_go_through_an_upgrade_and_back() {
    const OLD: usize = 600;
    const NEW: usize = 400;
    const SOME: usize = 50;
    for database in [Database::File, Database::postgres()] {
        let is_shared = matches!(database, Database::Postgres { .. });
        let mut all = Upgrade { site: Site::on(database, SLOW_OR_NOT), ran: 0 };
        let older = all.older();
        let mut old = start_some(&older.server, OLD);
        let beside = if is_shared {
            Some(older)
        } else {
            drop(stop(older));
            None
        };
        let newer = all.newer();
        let mut new = start_some(&newer.server, NEW);
        if let Some(older) = beside {
            // Both at work: each takes decisions on what the other has written.
            for server in [&older.server, &newer.server] {
                for requests in [&mut old, &mut new] {
                    let runs = all.approve(server, SOME, requests);
                    all.end(&newer.server, &runs);
                }
            }
            stop(older);
        }
        // The newer one alone; it dies at work on a run of its own.
        let runs = all.approve(&newer.server, SOME, &mut old);
        all.end(&newer.server, &runs);
        let slow = newer.server.chat("slow").1["interactions"][0].clone();
        decide(&newer.server, &slow, "approve");
        until("the slow command", || (all.site.lines("slow.txt") == 1).then_some(()));
        newer.kill();
        all.site.dead_are_known_to_be();
        // And back, started more often than a run may be taken up without getting any further.
        let waiting = (old.len() + new.len()) as u64;
        for _ in 0..5 {
            stop(all.older());
        }
        let older = all.older();
        let server = &older.server;
        assert_eq!(pending(server), waiting, "no request is lost");
        let runs = all.approve(server, SOME, &mut old);
        let left = all.approve(server, SOME, &mut new);
        all.end(server, &runs);
        for run in left.iter().chain([&slow["runId"].as_str().unwrap().to_owned()]) {
            let (status, answer) = server.try_get(&format!("/v1/runs/{run}")).unwrap();
            assert_eq!((status, &answer["code"]), (503, &json!("newer_version")), "{answer}");
        }
        // An edit has to be looked at by who can read the run.
        let edit = json!({ "decision": "approve_with", "digest": new[0]["request"]["digest"],
                           "arguments": "{\"command\":\"true\"}" });
        let (status, answer) = server.post(&path(&new[0]), &edit);
        assert_eq!((status, &answer["code"]), (503, &json!("newer_version")), "{answer}");
        assert_eq!(all.site.lines("log.txt"), all.ran, "nothing of the newer ones has run");
        assert!(stop(older).contains("a newer version has written this run"));
        // What was decided meanwhile goes on by itself; what was at work is in doubt, once.
        let newer = all.newer();
        let server = &newer.server;
        all.end(server, &left);
        // The first page of all that waits is full of others.
        let of_it = format!("/v1/interactions?status=pending&run={}", slow["runId"].as_str().unwrap());
        let doubt = until("the doubt", || server.get(&of_it)["items"].as_array().unwrap().first().cloned());
        assert_eq!(doubt["kind"], "in_doubt");
        decide(server, &doubt, "leave");
        server.ended(slow["runId"].as_str().unwrap());
        assert_eq!(pending(server), (old.len() + new.len()) as u64);
        for requests in [&mut old, &mut new] {
            let runs = all.approve(server, requests.len(), requests);
            all.end(server, &runs);
        }
        assert_eq!((all.ran, all.site.lines("slow.txt")), (OLD + NEW, 1));
        for run in [&left[0], slow["runId"].as_str().unwrap()] {
            assert_eq!(server.get(&format!("/v1/audit/verify?run={run}"))["items"][0]["whole"], true);
        }
    }
}

/// Writes the fixtures.
pub fn write_fixtures() {
    let cluster = holdpoint_faults::shared();
    for database in [Database::File, Database::in_cluster(&cluster)] {
        let is_file = matches!(database, Database::File);
        let site = Site::on(database, &two_commands());
        // One that dies when the tool of the third run has returned.
        let mut command = site.serve();
        command.env("HOLDPOINT_FAIL", "after_tool:kill:2");
        let mut serving = Serving::start(command);
        let runs: Vec<String> = (0..3).map(|_| start(&serving.server)).collect();
        let first = |server: &Server, run: &str| -> Value {
            let find = |row: &Value| row["runId"] == run && row["request"]["toolCallId"] == "c0";
            server.pending().into_iter().find(find).unwrap()
        };
        decide(&serving.server, &first(&serving.server, &runs[1]), "approve");
        until("its command", || (site.lines("log.txt") == 1).then_some(()));
        until("its result", || (serving.server.run(&runs[1])["status"] == "suspended").then_some(()));
        let request = first(&serving.server, &runs[2]);
        let _ = serving.server.try_post(&path(&request), &crate::bed::body(&request, "approve"), None);
        serving.wait();
        site.dead_are_known_to_be();
        let mut serving = serve(&site);
        asked(&serving.server, &runs[2], "in_doubt");
        serving.signal("-TERM");
        serving.wait();
        std::fs::create_dir_all(fixture("")).unwrap();
        if is_file {
            std::fs::copy(site.path("data/holdpoint.db"), fixture("schema-1.sqlite")).unwrap();
        } else {
            std::fs::write(fixture("schema-1.sql"), site.dump()).unwrap();
        }
    }
}
