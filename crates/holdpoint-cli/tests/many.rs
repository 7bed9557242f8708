//! Many instances on one PostgreSQL database, as real processes: any of them takes a decision and carries a run on, and none
//! of what happens to the others or to the database makes a command run twice or a decision get lost.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use common::http::{self, Server};
use common::process::Serving;
use common::site::{Database, Site, script};
use common::until;
use holdpoint_faults::{Cluster, Disk, Stop};
use serde_json::{Value, json};

/// A lease is six seconds; others look for what is left behind twice a second. The rest is for a machine with other work.
const TAKEOVER_MAX: Duration = Duration::from_secs(6 + 2 + 7);

/// A configuration that every instance is started on.
struct Place {
    site: Site,
}

impl Place {
    fn new(script: &str, agent: &str) -> Self {
        Self::on(&holdpoint_faults::shared(), script, agent)
    }

    fn on(cluster: &Arc<Cluster>, script: &str, agent: &str) -> Self {
        let site = Site::on(Database::in_cluster(cluster), script);
        site.configure("", agent);
        Self { site }
    }

    /// One gated command.
    fn bash(command: &str) -> Self {
        Self::new(&script(&[("Bash", json!({ "command": command }))]), "")
    }

    fn instance(&self) -> Serving {
        Serving::start(self.site.serve())
    }
}

fn start(server: &Server) -> String {
    let (status, answer) = server.chat("go");
    assert_eq!(status, 202, "{answer}");
    answer["runId"].as_str().unwrap().to_owned()
}

fn asked(server: &Server, kind: &str) -> Value {
    until("a request", || server.pending().into_iter().find(|request| request["kind"] == kind))
}

fn decide(server: &Server, request: &Value, word: &str) {
    let (status, answer) = server.decide(request, word, json!({}));
    assert_eq!(status, 200, "{answer}");
}

const PROVEN: &str = "holdpoint_bells_hearing{state=\"proven\"}";
const HEARD: &str = "holdpoint_bells_heard_total";

/// A figure of an instance.
fn figure(server: &Server, name: &str) -> f64 {
    let (status, page) = http::send(&server.url, Some(&server.token), "GET", "/metrics", None);
    assert_eq!(status, 200, "{page}");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

fn ran_once(place: &Place) {
    until("the command", || (place.site.lines("log.txt") == 1).then_some(()));
}

/// The stored events of a run with their numbers, from its beginning to its end: asked for while it goes on, and waited for.
fn stream(server: &Server, run: &str) -> std::thread::JoinHandle<Vec<(u64, Value)>> {
    let (server, path) = (server.clone(), format!("/v1/runs/{run}/events"));
    std::thread::spawn(move || {
        let (status, text) = http::send(&server.url, Some(&server.token), "GET", &path, None);
        assert_eq!(status, 200, "{text}");
        let field = |frame: &str, name: &str| {
            frame.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        text.split("\n\n")
            .filter_map(|frame| Some((field(frame, "id:")?.parse().ok()?, field(frame, "data:")?)))
            .map(|(number, json)| (number, serde_json::from_str(&json).unwrap()))
            .collect()
    })
}

#[test]
fn a_run_started_on_one_is_decided_on_another_and_its_stream_shows_all_of_it() {
    let place = Place::bash("echo ran >> log.txt");
    let (a, b) = (place.instance(), place.instance());
    let run = start(&a.server);
    let watched = stream(&a.server, &run);
    decide(&b.server, &asked(&b.server, "approval"), "approve");
    let seen = watched.join().unwrap();
    assert_eq!(a.server.ended(&run)["text"], "done");
    let kinds: Vec<_> = seen.iter().map(|(_, event)| event["type"].as_str().unwrap()).collect();
    for kind in ["approval_request", "decision", "tool_result", "finish"] {
        assert_eq!(kinds.iter().filter(|seen| **seen == kind).count(), 1, "{kind} in {kinds:?}");
    }
    let numbers: Vec<_> = seen.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "no gap, no repetition");
    assert_eq!(seen, stream(&b.server, &run).join().unwrap());
    assert_eq!(place.site.lines("log.txt"), 1);
}

#[test]
fn of_two_opposite_decisions_at_the_same_moment_exactly_one_counts() {
    const ROUNDS: usize = 100;
    let place = Place::bash("echo ran >> log.txt");
    let (a, b) = (place.instance(), place.instance());
    let mut approved = 0;
    let mut runs = Vec::new();
    for round in 0..ROUNDS {
        let run = start(&a.server);
        let request =
            a.server.pending().into_iter().find(|request| request["runId"] == run.as_str()).unwrap();
        let together = Arc::new(Barrier::new(2));
        let at = |server: &Server, word: &'static str| {
            let (server, request, together) = (server.clone(), request.clone(), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                server.decide(&request, word, json!({}))
            })
        };
        // Who is nearer to the database is not always the same one.
        let (yes, no) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let (yes, no) = (at(&yes.server, "approve"), at(&no.server, "decline"));
        let (yes, no) = (yes.join().unwrap(), no.join().unwrap());
        match (yes.0, no.0) {
            (200, 409) => approved += 1,
            (409, 200) => {}
            _ => panic!("round {round}: {yes:?} {no:?}"),
        }
        let loser = if yes.0 == 409 { &yes.1 } else { &no.1 };
        assert_eq!(loser["code"], "already_decided", "{loser}");
        runs.push(run);
    }
    for run in runs {
        b.server.ended(&run);
    }
    assert_eq!(place.site.lines("log.txt"), approved, "as often as an approve counted");
    println!("{approved} of {ROUNDS} approved");
}

/// STORE of many servers, killed while the tool runs: it is not run again, a person is asked.
#[test]
fn a_command_whose_instance_is_killed_goes_to_a_person_through_another() {
    let place = Place::bash("echo ran >> log.txt; sleep 3");
    let (a, b) = (place.instance(), place.instance());
    let run = start(&a.server);
    decide(&a.server, &asked(&a.server, "approval"), "approve");
    ran_once(&place);
    let killed = Instant::now();
    a.kill();
    let doubt = asked(&b.server, "in_doubt");
    let took = killed.elapsed();
    println!("killed, and asked elsewhere after {took:?}");
    assert!(took < TAKEOVER_MAX, "{took:?}");
    decide(&b.server, &doubt, "leave");
    assert_eq!(b.server.ended(&run)["text"], "done");
    assert_eq!(place.site.lines("log.txt"), 1);
}

#[test]
fn a_run_waits_through_the_end_of_every_instance() {
    let place = Place::bash("echo ran >> log.txt");
    let (a, b) = (place.instance(), place.instance());
    let run = start(&a.server);
    let request = asked(&b.server, "approval");
    a.kill();
    b.kill();
    let c = place.instance();
    assert_eq!(asked(&c.server, "approval")["requestId"], request["requestId"]);
    decide(&c.server, &request, "approve");
    assert_eq!(c.server.ended(&run)["text"], "done");
    assert_eq!(place.site.lines("log.txt"), 1);
}

/// One that stops in order gives back what it was at: nobody waits for a lease to run out.
#[test]
fn an_instance_that_stops_in_order_hands_its_runs_over_at_once() {
    let place = Place::new("rules:\n  - answer: {text: done, delay_ms: 2000}\n", "");
    let (mut a, b) = (place.instance(), place.instance());
    let server = a.server.clone();
    let asking = std::thread::spawn(move || server.post("/chat", &json!({ "query": "go" })));
    let run = until("the run", || b.server.get("/v1/runs")["items"][0]["runId"].as_str().map(str::to_owned));
    let told = Instant::now();
    a.signal("-TERM");
    let end = b.server.ended(&run);
    let took = told.elapsed();
    assert_eq!(end["text"], "done", "{end}");
    println!("told to stop, and at its end elsewhere after {took:?}, 2 s of which its model took");
    assert!(took < Duration::from_secs(2 + 4), "{took:?}");
    assert!(a.wait().success());
    drop(asking.join());
}

/// What is acknowledged is not lost with the database, and while it is away nothing is acknowledged.
#[test]
fn a_database_that_is_restarted_costs_no_decision() {
    let cluster = Arc::new(Cluster::start(Disk::Quick));
    let place = Place::on(&cluster, &script(&[("Bash", json!({ "command": "echo ran >> log.txt" }))]), "");
    let (a, b) = (place.instance(), place.instance());
    let runs: Vec<String> = (0..4).map(|_| start(&a.server)).collect();
    let requests = a.server.pending();
    assert_eq!(requests.len(), 4);
    decide(&a.server, &requests[0], "approve");
    decide(&b.server, &requests[1], "decline");
    cluster.down(Stop::Immediate);
    let (status, answer) = b.server.decide(&requests[2], "approve", json!({}));
    assert_eq!((status, &answer["code"]), (503, &json!("store_unavailable")), "{answer}");
    let (server, request) = (b.server.clone(), requests[2].clone());
    let retrying = std::thread::spawn(move || {
        until("a 200", || Some(server.decide(&request, "approve", json!({}))).filter(|a| a.0 == 200))
    });
    std::thread::sleep(Duration::from_millis(500));
    cluster.up();
    let up = Instant::now();
    let (_, answer) = retrying.join().unwrap();
    println!(
        "the decision that was tried again and again was taken {:?} after the database was back",
        up.elapsed()
    );
    assert_eq!(answer["decision"], "approve", "{answer}");
    decide(&a.server, &requests[3], "approve");
    for run in &runs {
        until("the end, or a doubt", || {
            // A command that ran when the lease ran out is in doubt, and stays so: it is not run again.
            for doubt in b.server.pending().iter().filter(|request| request["kind"] == "in_doubt") {
                let _ = b.server.decide(doubt, "leave", json!({}));
            }
            (b.server.run(run)["status"] == "finished").then_some(())
        });
    }
    let executions = place.site.lines("log.txt");
    assert_eq!(executions, 3, "three were approved, one declined");
}

/// An instance that stands still for longer than its lease has lost its runs, whatever it does afterwards.
#[test]
fn an_instance_that_stood_still_is_fenced_and_its_late_result_is_not_taken() {
    let place = Place::bash("echo ran >> log.txt; sleep 1; echo late");
    let (mut a, b) = (place.instance(), place.instance());
    let run = start(&a.server);
    decide(&a.server, &asked(&a.server, "approval"), "approve");
    ran_once(&place);
    a.signal("-STOP");
    let stopped = Instant::now();
    let doubt = asked(&b.server, "in_doubt");
    println!("stood still, and taken over after {:?}", stopped.elapsed());
    a.signal("-CONT");
    // Time for it to write its result, if anything let it.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(asked(&a.server, "in_doubt")["requestId"], doubt["requestId"], "it sees what is stored");
    let late = until("the late result, as evidence", || {
        Some(asked(&b.server, "in_doubt")["request"]["lateResult"].to_string()).filter(|late| late != "null")
    });
    assert!(late.contains("late"), "{late}");
    decide(&a.server, &doubt, "leave");
    assert_eq!(b.server.ended(&run)["text"], "done");
    let events = stream(&b.server, &run).join().unwrap();
    let results: Vec<_> = events.iter().filter(|(_, event)| event["type"] == "tool_result").collect();
    assert_eq!(results.len(), 1);
    assert!(!results[0].1.to_string().contains("late"), "{}", results[0].1);
    assert_eq!(place.site.lines("log.txt"), 1);
    a.signal("-TERM");
    assert!(a.wait().success());
    assert!(a.said().contains("letting go"), "it says that it was fenced");
}

/// The instance that carries a run on is rung by the one that takes a decision for it, and does not wait until it looks.
#[test]
fn a_decision_taken_elsewhere_rings_the_owner_that_is_at_work() {
    let calls = [
        ("Bash", json!({ "command": "sleep 5; echo first >> log.txt" })),
        ("Bash", json!({ "command": "echo second >> log.txt" })),
    ];
    let place = Place::new(&script(&calls), "execution = \"parallel\"");
    let (a, b) = (place.instance(), place.instance());
    for server in [&a.server, &b.server] {
        until("bells that are proven", || (figure(server, PROVEN) == 1.0).then_some(()));
        until("the other one", || (figure(server, "holdpoint_instances_other") == 1.0).then_some(()));
    }
    let run = start(&a.server);
    let heard = figure(&a.server, HEARD);
    let find = |call: &str| {
        let requests = b.server.pending();
        requests.into_iter().find(|request| request["request"]["toolCallId"] == call).unwrap()
    };
    let (first, second) = (find("c0"), find("c1"));
    decide(&a.server, &first, "approve");
    std::thread::sleep(Duration::from_millis(300));
    let decided = Instant::now();
    decide(&b.server, &second, "approve");
    ran_once(&place);
    println!("decided elsewhere, and started by the owner at work after {:?}", decided.elapsed());
    assert!(figure(&a.server, HEARD) > heard, "it did not hear of it");
    assert!(figure(&b.server, "holdpoint_bells_rung_total") > 0.0);
    assert_eq!(std::fs::read_to_string(place.site.path("work/log.txt")).unwrap(), "second\n");
    b.server.ended(&run);
    assert_eq!(std::fs::read_to_string(place.site.path("work/log.txt")).unwrap(), "second\nfirst\n");
}

/// The inbox of one instance shows what waits on account of another.
#[test]
fn the_inbox_of_one_shows_the_requests_of_the_others() {
    let place = Place::bash("true");
    let (a, b) = (place.instance(), place.instance());
    let host = b.server.url.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(host).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(
        connection,
        "GET /v1/interactions/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n",
        b.server.token
    )
    .unwrap();
    let mut lines = BufReader::new(connection).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("\"snapshot\"")));
    start(&a.server);
    let request = asked(&a.server, "approval");
    let id = request["requestId"].as_str().unwrap();
    let opened = lines.find(|line| line.contains(id)).unwrap();
    assert!(opened.contains("\"pending\""), "{opened}");
    decide(&a.server, &request, "decline");
    assert!(lines.any(|line| line.contains(id) && line.contains("\"decided\"")));
}

#[test]
fn a_database_that_cannot_be_used_is_said_to_be_and_no_password_with_it() {
    let place = Place::bash("true");
    let refused = |url: &str| {
        let mut command = place.site.serve();
        command.env("THE_DATABASE", url);
        Serving::try_start(command).err().expect("it started")
    };
    for (url, code, says) in [
        ("postgres://u:hidden@127.0.0.1:1/app".to_owned(), 1, "Connection refused"),
        (holdpoint_faults::shared().url("no_such_database"), 1, "does not exist"),
        ("postgres://u:hidden@h:x/app".to_owned(), 2, "it is not the URL of a PostgreSQL database"),
        ("mysql://u:hidden@h/app".to_owned(), 2, "a URL of `mysql`"),
        (String::new(), 2, "the variable `THE_DATABASE` is not set"),
    ] {
        let said = refused(&url);
        assert!(said.starts_with(&format!("Some({code}): error: ")), "{said}");
        assert!(said.contains(says) && said.contains("hint: ") && !said.contains("hidden"), "{said}");
    }
    drop(place.instance());
    place.site.sql("UPDATE holdpoint_schema SET version = 99");
    let said = refused(&place.site.url());
    assert!(said.contains("was written by a newer version (99"), "{said}");
    assert_eq!(place.site.sql("SELECT version FROM holdpoint_schema"), "99", "left alone");
}
