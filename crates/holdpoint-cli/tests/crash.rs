//! The real process is killed at every point where it matters, and started again: what was decided counts, what had run
//! does not run again, and where that cannot be known a person is asked. The points are those of `docs/crash-points.md`.
//! Everything on both stores: the file of one process, and the database of many, where another instance goes on.
#![cfg(feature = "failpoints")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::process::Command;

use common::http::Server;
use common::process::Serving;
use common::site::{Database, Site, script};
use common::terminal::Terminal;
use common::until;
use serde_json::{Value, json};

/// Where a test keeps what it stores.
type New = fn() -> Database;

/// Makes of each test one for each store.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(|| super::Database::File); })*
        }
        mod postgres {
            $(#[test] fn $name() { super::$name(super::Database::postgres); })*
        }
    };
}

/// One gated command that leaves a line each time it runs; nothing else can tell how often it did.
fn site(new: New) -> Site {
    Site::on(new(), &script(&[("Bash", json!({ "command": "echo ran >> log.txt" }))]))
}

/// The server with a place to die at: `name` the `nth` time.
fn dying_at(site: &Site, name: &str, nth: u32) -> Command {
    let mut command = site.serve();
    command.env("HOLDPOINT_FAIL", format!("{name}:kill:{nth}"));
    command
}

/// Posts, to a server that may die while it answers.
fn post_into_the_dark(server: &Server, path: &str, body: Value) {
    let server = server.clone();
    let path = path.to_owned();
    let posting = std::thread::spawn(move || server.post(&path, &body));
    // An answer that never comes is a panic there, and no news here.
    drop(posting.join());
}

/// Starts a run, and gives the server the time to die of it.
fn start_and_die(site: &Site, name: &str, nth: u32) {
    let mut serving = Serving::start(dying_at(site, name, nth));
    post_into_the_dark(&serving.server.clone(), "/chat", json!({ "query": "go" }));
    assert!(!serving.wait().success(), "{name}: it lives");
    assert!(serving.said().contains(&format!("failpoint {name}: killed")));
    site.dead_are_known_to_be();
}

/// Brings a run to its request, decides, and gives the server the time to die of it. Gives the request.
fn decide_and_die(site: &Site, name: &str, nth: u32) -> Value {
    let mut serving = Serving::start(dying_at(site, name, nth));
    assert_eq!(serving.server.chat("go").0, 202, "{name}");
    let request = serving.server.pending()[0].clone();
    let id = request["requestId"].as_str().unwrap();
    let body = json!({ "decision": "approve", "digest": request["request"]["digest"] });
    post_into_the_dark(&serving.server.clone(), &format!("/v1/interactions/{id}/decision"), body);
    assert!(!serving.wait().success(), "{name}: it lives");
    site.dead_are_known_to_be();
    request
}

/// Waits until the one run waits for a person, and gives what it waits for.
fn asked(server: &Server) -> Value {
    until("a request", || server.pending().first().cloned())
}

fn only_run(server: &Server) -> String {
    let runs = server.get("/v1/runs");
    assert_eq!(runs["items"].as_array().unwrap().len(), 1);
    runs["items"][0]["runId"].as_str().unwrap().to_owned()
}

/// The run ends well, every call is answered once, the record is whole, and the command ran so often.
fn assert_ends(site: &Site, server: &Server, executions: usize, at: &str) {
    let run = only_run(server);
    let end = server.ended(&run);
    assert_eq!((&end["finish"], &end["text"]), (&json!("success"), &json!("done")), "{at}: {end}");
    assert_eq!(site.lines("log.txt"), executions, "{at}: how often it ran");
    let events = server.events(&run);
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(count("tool_result"), 1, "{at}: every call is answered once");
    assert_eq!(count("finish"), 1, "{at}");
    let checked = server.get(&format!("/v1/audit/verify?run={run}"));
    assert_eq!(checked["items"][0]["whole"], true, "{at}");
}

fn approve(server: &Server, request: &Value) {
    let (status, answer) = server.decide(request, "approve", json!({}));
    assert_eq!(status, 200, "{answer}");
}

on_both_stores!(
    before_a_start_is_stored_there_is_no_run,
    after_a_start_is_stored_the_run_goes_on,
    a_request_waits_through_a_kill_under_its_own_id_and_digest,
    a_decision_that_was_not_stored_can_be_taken_again,
    a_decision_that_was_stored_counts,
    a_command_that_may_have_run_goes_to_a_person,
    a_doubt_is_put_to_the_person_who_takes_the_run_up,
    a_command_that_was_running_goes_to_a_person,
    an_idempotent_tool_runs_again_by_itself,
    a_result_that_was_stored_is_not_made_again,
    a_process_that_dies_while_it_recovers_leaves_no_more_than_the_first,
    a_batch_goes_on_where_it_was,
);

fn before_a_start_is_stored_there_is_no_run(new: New) {
    let site = site(new);
    start_and_die(&site, "store.start.before_commit", 1);
    let serving = Serving::start(site.serve());
    assert_eq!(serving.server.get("/v1/runs")["items"], json!([]));
    assert_eq!(site.lines("log.txt"), 0);
}

fn after_a_start_is_stored_the_run_goes_on(new: New) {
    for (name, nth) in [
        ("store.start.after_commit", 1),
        ("after_start", 1),
        // The reply came, and is lost: the model is asked again.
        ("store.commit.before_commit", 1),
        // The reply and its requests are stored.
        ("store.commit.after_commit", 1),
        ("after_step", 1),
    ] {
        let site = site(new);
        start_and_die(&site, name, nth);
        assert_eq!(site.lines("log.txt"), 0, "{name}: nothing gated before its decision");
        let serving = Serving::start(site.serve());
        approve(&serving.server, &asked(&serving.server));
        assert_ends(&site, &serving.server, 1, name);
    }
}

fn a_request_waits_through_a_kill_under_its_own_id_and_digest(new: New) {
    let site = site(new);
    site.configure("", "approval_timeout = \"1h\"");
    let serving = Serving::start(site.serve());
    assert_eq!(serving.server.chat("go").0, 202);
    let before = asked(&serving.server);
    assert!(before["request"]["deadline"].is_string(), "its deadline goes through it too: {before}");
    serving.kill();
    site.dead_are_known_to_be();
    let serving = Serving::start(site.serve());
    let after = asked(&serving.server);
    for field in ["requestId", "createdAt", "request"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    approve(&serving.server, &before);
    assert_ends(&site, &serving.server, 1, "waiting");
}

fn a_decision_that_was_not_stored_can_be_taken_again(new: New) {
    let site = site(new);
    let request = decide_and_die(&site, "store.decide.before_commit", 1);
    let serving = Serving::start(site.serve());
    assert_eq!(asked(&serving.server)["requestId"], request["requestId"]);
    assert_eq!(site.lines("log.txt"), 0);
    approve(&serving.server, &request);
    assert_ends(&site, &serving.server, 1, "store.decide.before_commit");
}

/// The decider got no answer, but the decision is on disk: it counts, and whoever asks again gets the same answer.
fn a_decision_that_was_stored_counts(new: New) {
    for (name, nth) in [
        ("store.decide.after_commit", 1),
        ("after_decide", 1),
        // The decision is applied and the claim not yet stored: the second step of the run.
        ("store.commit.before_commit", 2),
    ] {
        let site = site(new);
        let request = decide_and_die(&site, name, nth);
        assert_eq!(site.lines("log.txt"), 0, "{name}");
        let serving = Serving::start(site.serve());
        assert_ends(&site, &serving.server, 1, name);
        let (status, again) = serving.server.decide(&request, "approve", json!({}));
        assert_eq!((status, &again["repeated"]), (200, &json!(true)), "{name}: {again}");
        assert_ends(&site, &serving.server, 1, name);
    }
}

/// It is started, and nobody can know whether it ran: it never runs again by itself, and a person says what is to be
/// done. All three answers, at each place.
fn a_command_that_may_have_run_goes_to_a_person(new: New) {
    for (name, nth, ran_before) in [
        ("store.commit.after_commit", 2, 0),
        ("after_step", 2, 0),
        ("before_tool", 1, 0),
        ("after_tool", 1, 1),
        ("store.commit.before_commit", 3, 1),
    ] {
        for (word, more, runs_more) in
            [("approve", json!({}), 1), ("leave", json!({}), 0), ("ran", json!({ "result": "one line" }), 0)]
        {
            let site = site(new);
            decide_and_die(&site, name, nth);
            assert_eq!(site.lines("log.txt"), ran_before, "{name}");
            let serving = Serving::start(site.serve());
            let doubt = asked(&serving.server);
            assert_eq!(
                (&doubt["kind"], &doubt["request"]["attempt"]),
                (&json!("in_doubt"), &json!(1)),
                "{name}"
            );
            assert_eq!(site.lines("log.txt"), ran_before, "{name}: it did not run again by itself");
            let (status, answer) = serving.server.decide(&doubt, word, more);
            assert_eq!(status, 200, "{name}, {word}: {answer}");
            assert_ends(&site, &serving.server, ran_before + runs_more, &format!("{name}, {word}"));
        }
    }
}

/// The same in a conversation: what is asked says first that it may have run.
fn a_doubt_is_put_to_the_person_who_takes_the_run_up(new: New) {
    for (typed, executions) in [("leave", 1), ("ran one line", 1), ("approve", 2)] {
        let site = site(new);
        decide_and_die(&site, "after_tool", 1);
        let serving = Serving::start(site.serve());
        let server = &serving.server;
        asked(server);
        let run = only_run(server);
        let variables = [("HOLDPOINT_TOKEN", server.token.as_str()), ("NO_COLOR", "1")];
        let mut terminal = Terminal::start(&["chat", "--run", &run, "--server", &server.url], &variables);
        terminal.wait_for("IT MAY HAVE RUN: attempt 1 was started at ");
        terminal.wait_for("Type one of: approve (run it again), ran RESULT, leave, later > ");
        terminal.type_line(typed);
        terminal.wait_for("  ┆ done");
        terminal.wait_for("you (Enter to leave) > ");
        terminal.type_line("");
        assert_eq!(terminal.end().1, 0);
        assert_ends(&site, server, executions, typed);
    }
}

/// Killed from outside, in the middle of the command.
fn a_command_that_was_running_goes_to_a_person(new: New) {
    let site = Site::on(new(), &script(&[("Bash", json!({ "command": "echo ran >> log.txt; sleep 2" }))]));
    let serving = Serving::start(site.serve());
    assert_eq!(serving.server.chat("go").0, 202);
    approve(&serving.server, &asked(&serving.server));
    until("the command", || (site.lines("log.txt") == 1).then_some(()));
    serving.kill();
    site.dead_are_known_to_be();
    let serving = Serving::start(site.serve());
    let doubt = asked(&serving.server);
    assert_eq!(doubt["kind"], "in_doubt");
    assert_eq!(serving.server.decide(&doubt, "leave", json!({})).0, 200);
    assert_ends(&site, &serving.server, 1, "during the command");
}

/// A whole file written twice is the same file: no person is asked about it.
fn an_idempotent_tool_runs_again_by_itself(new: New) {
    for (name, nth) in [("before_tool", 1), ("after_tool", 1), ("store.commit.before_commit", 3)] {
        let site =
            Site::on(new(), &script(&[("Write", json!({ "path": "log.txt", "content": "one line\n" }))]));
        decide_and_die(&site, name, nth);
        let serving = Serving::start(site.serve());
        assert_ends(&site, &serving.server, 1, name);
    }
}

fn a_result_that_was_stored_is_not_made_again(new: New) {
    for (name, nth) in [
        ("store.commit.after_commit", 3),
        ("after_step", 3),
        // The last reply is lost, and asked for again.
        ("store.commit.before_commit", 4),
        // The end is stored and was not told.
        ("store.commit.after_commit", 4),
        ("after_step", 4),
    ] {
        let site = site(new);
        decide_and_die(&site, name, nth);
        assert_eq!(site.lines("log.txt"), 1, "{name}");
        let serving = Serving::start(site.serve());
        assert_ends(&site, &serving.server, 1, name);
    }
}

/// Dying again while it recovers changes none of it.
fn a_process_that_dies_while_it_recovers_leaves_no_more_than_the_first(new: New) {
    let site = site(new);
    decide_and_die(&site, "store.decide.after_commit", 1);
    for (name, nth) in [("store.commit.before_commit", 1), ("store.commit.before_commit", 1)] {
        let mut serving = Serving::start(dying_at(&site, name, nth));
        assert!(!serving.wait().success(), "{name}");
        site.dead_are_known_to_be();
        assert_eq!(site.lines("log.txt"), 0);
    }
    let serving = Serving::start(site.serve());
    assert_ends(&site, &serving.server, 1, "killed three times");
}

/// Of a batch, what has run stays run, and what waits still waits.
fn a_batch_goes_on_where_it_was(new: New) {
    let calls = [
        ("Bash", json!({ "command": "echo first >> log.txt" })),
        ("Bash", json!({ "command": "echo second >> log.txt" })),
    ];
    let site = Site::on(new(), &script(&calls));
    let mut serving = Serving::start(dying_at(&site, "after_step", 3));
    assert_eq!(serving.server.chat("go").0, 202);
    let first =
        serving.server.pending().into_iter().find(|row| row["request"]["toolCallId"] == "c0").unwrap();
    let path = format!("/v1/interactions/{}/decision", first["requestId"].as_str().unwrap());
    let body = json!({ "decision": "approve", "digest": first["request"]["digest"] });
    post_into_the_dark(&serving.server.clone(), &path, body);
    assert!(!serving.wait().success());
    site.dead_are_known_to_be();
    assert_eq!(site.lines("log.txt"), 1);
    let serving = Serving::start(site.serve());
    let second = asked(&serving.server);
    assert_eq!((&second["kind"], &second["request"]["toolCallId"]), (&json!("approval"), &json!("c1")));
    approve(&serving.server, &second);
    let end = serving.server.ended(&only_run(&serving.server));
    assert_eq!(end["text"], "done");
    assert_eq!(std::fs::read_to_string(site.path("work/log.txt")).unwrap(), "first\nsecond\n");
}
