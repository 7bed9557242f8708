//! The demo from beginning to end: one call approved, one edited, one declined, and the files looked at.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::io::{BufRead, Read, Write};
use std::path::Path;

use common::process::{Serving, text};
use common::terminal::Terminal;
use serde_json::{Value, json};

/// The demo, with its files in `files` and whatever else it makes beside them.
fn demo_in(place: &tempfile::TempDir, more: &[&str]) -> std::process::Command {
    demo_at(place, &place.path().join("files"), more)
}

fn demo_at(place: &tempfile::TempDir, dir: &Path, more: &[&str]) -> std::process::Command {
    let mut command = common::process::command(&["demo", "--dir", dir.to_str().unwrap()]);
    command.args(more).env("TMPDIR", place.path());
    command
}

fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What the folder holds after the report was approved, the deletion edited and the command declined.
const AFTER: [&str; 7] = [
    "Grüße.txt",
    "Invoice 2026-11.txt",
    "archive",
    "contract_signed.txt",
    "expenses.csv",
    "notes FINAL v2.md",
    "report.md",
];

const SAID: &str = "report.md is written. What you let me delete is deleted, as you changed it. The archive is as it was: you declined.";

#[test]
fn without_a_terminal_it_is_driven_over_http_to_its_end() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("files");
    let mut demo = Serving::start(demo_in(&place, &[]));
    assert_eq!(demo.line["type"], "server");
    assert_eq!(demo.line["dir"], dir.canonicalize().unwrap().to_str().unwrap());
    let server = demo.server.clone();
    let mut requests = Vec::new();
    let mut events: Vec<Value> = Vec::new();
    for line in demo.lines.by_ref().lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["type"] == "approval_request" {
            requests.push(event.clone());
        }
        let suspended = event["type"] == "suspended";
        events.push(event);
        if suspended && requests.len() == 3 {
            assert_eq!(listing(&dir).len(), 10, "nothing was changed before a decision");
            let tools: Vec<_> =
                requests.iter().map(|request| request["toolName"].as_str().unwrap()).collect();
            assert_eq!(tools, ["Write", "Delete", "Bash"]);
            let pending = server.pending();
            let of = |tool: &str| pending.iter().find(|row| row["request"]["toolName"] == tool).unwrap();
            assert_eq!(
                server.decide(of("Bash"), "decline", json!({ "digest": null })).0,
                400,
                "null is no digest"
            );
            assert_eq!(server.decide(of("Bash"), "decline", json!({ "reason": "the only copy" })).0, 200);
            let edited = "{\"paths\":[\"Invoice 2026-11 (1).txt\",\"todo.txt.bak\",\"~tmp4711.tmp\",\"offer_\u{202e}fdp.exe\"]}";
            let (status, answer) =
                server.decide(of("Delete"), "approve_with", json!({ "arguments": edited }));
            assert_eq!((status, &answer["accepted"]), (200, &json!(true)), "{answer}");
            let (status, answer) = server.decide(of("Write"), "approve", json!({}));
            assert_eq!((status, &answer["accepted"]), (200, &json!(true)), "{answer}");
            requests.clear();
        }
    }
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["status"], &last["text"]),
        (&json!("finish"), &json!("success"), &json!(SAID))
    );
    assert!(demo.wait().success());
    assert_eq!(listing(&dir), AFTER);
    assert!(std::fs::read_to_string(dir.join("report.md")).unwrap().contains("224.50"));
    assert_eq!(demo.said(), "", "nothing went wrong, so nothing is said");
    assert_eq!(listing(place.path()), ["files"], "nothing else is left behind");
}

#[test]
fn in_a_terminal_a_person_approves_one_edits_one_and_declines_one() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("files");
    let mut terminal = Terminal::start(
        &["demo", "--dir", dir.to_str().unwrap()],
        &[("NO_COLOR", "1"), ("TMPDIR", place.path().to_str().unwrap())],
    );
    terminal.wait_for("you (Enter to say: Tidy up this folder");
    terminal.type_line("");
    terminal.wait_for("wants  Read {\"path\":\"expenses.csv\"}");

    terminal.wait_for("tidy wants to run Write");
    terminal
        .wait_for("Type one of: approve, edit, decline [WHY], feedback WHAT, later (2 more after this) > ");
    terminal.type_line("");
    terminal.wait_for("nothing was decided");
    terminal.wait_for("(2 more after this) > ");
    assert!(!dir.join("report.md").exists(), "Enter alone approves nothing");
    terminal.type_line("approve");

    terminal.wait_for("tidy wants to run Delete");
    terminal.wait_for(r"offer_\u{202e}fdp.exe");
    terminal.wait_for("(1 more after this) > ");
    terminal.type_line("edit");
    terminal.wait_for("new arguments (Enter to leave it) > ");
    terminal.type_line(
        r#"{"paths":["Invoice 2026-11 (1).txt","todo.txt.bak","~tmp4711.tmp","offer_\u202efdp.exe"]}"#,
    );
    terminal.wait_for("paths (changed):");
    terminal.wait_for("Type `approve` to run what you changed it to");
    terminal.type_line("approve");

    terminal.wait_for("rm -rf archive");
    terminal.wait_for("later > ");
    terminal.type_line("decline the only copy");
    terminal.wait_for("done: 4 rounds, 6 calls");
    terminal.wait_for("you (Enter to leave) > ");
    terminal.type_line("");
    terminal.wait_for("What the folder holds now");
    let (output, code) = terminal.end();
    assert_eq!(code, 0, "{output}");
    assert_eq!(listing(&dir), AFTER, "{output}");
    assert!(output.replace(" \n  ┆ ", " ").contains(SAID), "{output}");
    assert_eq!(output.matches("token   ").count(), 1, "the token is shown once");
}

#[test]
fn a_folder_with_something_in_it_is_refused() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("mine.txt"), "mine").unwrap();
    let output = demo_at(&place, place.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is not empty\n\nhint: "), "{output:?}");
    assert_eq!(listing(place.path()), ["mine.txt"]);
}

#[test]
fn a_model_that_cannot_be_set_up_is_said_before_anything_is_made() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("files");
    for (model, says) in [("openai/gpt-5", "OPENAI_API_KEY"), ("nonsense", "write `PROVIDER/MODEL`")] {
        let output = demo_in(&place, &["--model", model]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{model}: {output:?}");
        assert!(text(&output.stderr).contains(says), "{model}: {output:?}");
        assert!(!dir.exists());
    }
}

/// An OpenAI-compatible server on this machine, of which the demo knows no more than its address.
#[test]
fn a_real_model_takes_the_place_of_the_script() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut length) = (String::new(), 0);
        while reader.read_line(&mut head).unwrap() > 2 {
            let line = head.lines().last().unwrap().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "It is tidy." }, "finish_reason": "stop" }] });
        let events = format!("data: {chunk}\n\ndata: [DONE]\n\n");
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{events}", events.len()).unwrap();
        (head, serde_json::from_slice::<Value>(&body).unwrap())
    });
    let place = tempfile::tempdir().unwrap();
    let model = format!("tiny@http://{address}/v1");
    let output = demo_in(&place, &["--model", &model, "--query", "Is it tidy?"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let last: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["text"]), (&json!("finish"), &json!("It is tidy.")));
    let (head, request) = answering.join().unwrap();
    assert!(head.starts_with("POST /v1/chat/completions "), "{head}");
    assert_eq!((&request["model"], &request["tools"].as_array().unwrap().len()), (&json!("tiny"), &7));
    assert!(request["messages"].to_string().contains("Is it tidy?"));
}

#[test]
fn a_signal_ends_it_and_leaves_the_files() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("files");
    let mut demo = Serving::start(demo_in(&place, &[]));
    let mut line = String::new();
    while !line.contains("\"suspended\"") {
        line.clear();
        assert!(demo.lines.read_line(&mut line).unwrap() > 0);
    }
    demo.signal("-TERM");
    assert!(demo.wait().success());
    assert_eq!(listing(&dir).len(), 10);
}
