//! Runs that were suspended under an older schema, and runs that a newer version has written.
//!
//! `fixtures/schema-1.sql` and `fixtures/schema-1.sqlite` are what version 1 of the schema left: three runs, suspended - one that
//! waits for its first decision, one of whose two calls one is decided, and one whose command may have run. They were written by
//! `HOLDPOINT_WRITE_FIXTURES=1 cargo test -p holdpoint-cli --all-features --test faults` and are not to be written again:
//! a later schema gets files of its own, by the same command.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bed::{asked, assert_whole, decide, path, serve, start};
use crate::common::http::Server;
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

/// While instances are replaced one by one, an older one meets runs of a newer version: it leaves them alone, says so, and does all
/// else; nothing of them is lost.
pub fn a_run_of_a_newer_version_is_left_to_the_newer_instance() {
    let site =
        Site::on(Database::postgres(), &script(&[("Bash", json!({ "command": "echo ran >> log.txt" }))]));
    let (mut older, newer) = (serve(&site), serve(&site));
    let (run, other) = (start(&older.server), start(&older.server));
    let request = asked(&older.server, &run, "approval");
    let version = |version: u32| {
        site.sql(&format!("UPDATE run SET snapshot_version = {version} WHERE run_id = '{run}'"));
    };
    let row =
        || site.sql(&format!("SELECT xmin, snapshot_version, epoch, owner FROM run WHERE run_id = '{run}'"));
    version(99);
    let before = row();
    let (status, answer) = older.server.post(&path(&request), &crate::bed::body(&request, "nothing"));
    assert_eq!(status, 422, "{answer}");
    decide(&older.server, &asked(&older.server, &other, "approval"), "approve");
    assert_whole(&older.server, &other);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(row(), before, "left alone");
    version(1);
    decide(&newer.server, &request, "approve");
    assert_whole(&newer.server, &run);
    assert_eq!(site.lines("log.txt"), 2);
    older.signal("-TERM");
    assert!(older.wait().success());
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
        let mut serving = crate::common::process::Serving::start(command);
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
