//! Deciding from the command line: what counts as a word, and what does not.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use common::house::{House, Proposal};
use common::process::{client, client_with_input, command, text};
use common::terminal::Terminal;
use common::until;

const ARGUMENTS: &str = r#"{"path":"a.txt","content":"one"}"#;

fn house() -> House {
    House::waiting_on(&Proposal::of("write_file", ARGUMENTS))
}

fn start(house: &House, word: &str, more: &[&str], variables: &[(&str, &str)]) -> Terminal {
    let mut arguments = house.arguments(word);
    arguments.extend(more.iter().map(|text| (*text).to_owned()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Terminal::start(&arguments, &[&house.variables()[..], variables].concat())
}

#[test]
fn nothing_but_the_whole_word_approves() {
    let house = house();
    for typed in [
        "",
        "y",
        "yes",
        "APPROVE",
        "Approve",
        "approve!",
        "approved",
        "approve approve",
        "decline",
        " approve",
    ] {
        let mut terminal = start(&house, "approve", &[], &[]);
        terminal.wait_for("anything else leaves it pending: ");
        terminal.type_line(typed);
        let (output, code) = terminal.end();
        assert_eq!(code, 4, "{typed:?}: {output}");
        assert!(output.contains("nothing was decided; the request is still pending"), "{typed:?}: {output}");
        assert!(house.is_pending() && house.ran().is_empty(), "{typed:?}");
    }
    let mut terminal = start(&house, "approve", &[], &[]);
    terminal.wait_for("anything else leaves it pending: ");
    terminal.type_line("approve");
    assert_eq!(terminal.end().1, 0);
    until("the call", || (house.ran() == [ARGUMENTS]).then_some(()));
}

/// What is typed before the request can be read is no answer to it.
#[test]
fn a_word_typed_ahead_does_not_count() {
    let house = house();
    let arguments = house.arguments("approve");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut terminal = Terminal::start_typed(&arguments, &house.variables(), "approve\n");
    terminal.wait_for("anything else leaves it pending: ");
    terminal.type_line("");
    let (output, code) = terminal.end();
    assert_eq!(code, 4, "{output}");
    assert!(house.is_pending() && house.ran().is_empty());
}

#[test]
fn the_token_is_asked_for_and_not_shown() {
    let house = house();
    let mut terminal = Terminal::start(&["inbox", "--server", &house.server.url], &[("NO_COLOR", "1")]);
    terminal.wait_for("The operator's token, as the server showed it at its start: ");
    terminal.type_line(&house.server.token);
    let (output, code) = terminal.end();
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains("main wants to run write_file") && !output.contains(&house.server.token),
        "{output}"
    );
}

#[test]
fn decline_and_feedback_reach_the_model_as_they_were_written() {
    for (word, option, said) in
        [("decline", "--reason", "not today"), ("feedback", "--text", "write b.txt instead")]
    {
        let house = house();
        let id = house.request.to_string();
        let done = client(&house.server, &[word, &id, option, said]);
        assert_eq!((done.status.code(), text(&done.stdout)), (Some(0), format!("{word} {id}\n")), "{done:?}");
        let interaction = house.interaction();
        assert_eq!(interaction["decision"]["decision"], word);
        assert_eq!(interaction["decision"]["reason"], said);
        let run = house.server.ended(interaction["runId"].as_str().unwrap());
        assert_eq!(run["finish"], "success");
        assert_eq!(house.ran(), [""; 0]);
    }
}

#[test]
fn a_decline_can_end_the_run() {
    let house = house();
    assert_eq!(
        client(&house.server, &["decline", &house.request.to_string(), "--stop"]).status.code(),
        Some(0)
    );
    let run = house.interaction()["runId"].as_str().unwrap().to_owned();
    assert_eq!(house.server.ended(&run)["finish"], "stopped");
}

/// The exact text of the file is what runs.
#[test]
fn approve_with_a_file_runs_what_is_in_the_file() {
    let house = house();
    let edited = "{ \"content\":\"two\",\n  \"path\":\"b.txt\" }\n";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("edited.json");
    std::fs::write(&file, edited).unwrap();
    let mut terminal = start(&house, "approve", &["--with", file.to_str().unwrap()], &[]);
    terminal.wait_for("as you changed it:");
    terminal.wait_for("content (changed):");
    terminal.wait_for("path (changed):");
    terminal.wait_for("Type `approve` to run what you changed it to");
    terminal.type_line("approve");
    assert_eq!(terminal.end().1, 0);
    until("the call", || (house.ran() == [edited]).then_some(()));
}

#[test]
fn approve_with_standard_input_needs_the_digest() {
    let house = house();
    let id = house.request.to_string();
    let edited = r#"{"path":"c.txt","content":"three"}"#;
    let without = client_with_input(&house.server, &["approve", &id, "--with", "-"], edited);
    assert_eq!(without.status.code(), Some(2), "{without:?}");
    let digest = house.interaction()["request"]["digest"].as_str().unwrap().to_owned();
    let with =
        client_with_input(&house.server, &["approve", &id, "--with", "-", "--digest", &digest], edited);
    assert_eq!(
        (with.status.code(), text(&with.stdout)),
        (Some(0), format!("approve_with {id}\n")),
        "{with:?}"
    );
    until("the call", || (house.ran() == [edited]).then_some(()));
}

#[test]
fn an_edit_that_cannot_be_read_decides_nothing() {
    let house = house();
    let id = house.request.to_string();
    let digest = house.interaction()["request"]["digest"].as_str().unwrap().to_owned();
    for bad in [r#"{"path":"a","path":"/etc/passwd"}"#, "[]", "{", "{} {}"] {
        let done =
            client_with_input(&house.server, &["approve", &id, "--with", "-", "--digest", &digest], bad);
        assert_eq!(done.status.code(), Some(4), "{bad}: {done:?}");
        assert!(text(&done.stderr).contains("the decision was not taken"), "{bad}: {done:?}");
        assert!(house.is_pending() && house.ran().is_empty(), "{bad}");
    }
}

#[test]
fn an_editor_changes_the_arguments_and_the_word_is_still_asked_for() {
    let house = house();
    let editor = [("EDITOR", "sed -i s/one/two/")];
    let mut terminal = start(&house, "edit", &[], &editor);
    terminal.wait_for("content (changed):");
    terminal.wait_for("Type `approve` to run what you changed it to");
    terminal.type_line("");
    assert_eq!(terminal.end().1, 4);
    assert!(house.is_pending());
    let mut terminal = start(&house, "edit", &[], &editor);
    terminal.wait_for("Type `approve` to run what you changed it to");
    terminal.type_line("approve");
    assert_eq!(terminal.end().1, 0);
    until("the call", || {
        (house.ran() == ["{\n  \"path\": \"a.txt\",\n  \"content\": \"two\"\n}"]).then_some(())
    });
}

#[test]
fn an_editor_that_changes_nothing_decides_nothing() {
    let house = house();
    for (editor, says) in
        [("true", "nothing was changed"), ("false", "failed"), ("truncate -s 0", "everything was taken out")]
    {
        let (output, code) = start(&house, "edit", &[], &[("EDITOR", editor)]).end();
        assert_eq!(code, 4, "{editor}: {output}");
        assert!(output.contains(says) && output.contains("nothing was decided"), "{editor}: {output}");
        assert!(house.is_pending());
    }
}

#[test]
fn where_no_server_is_a_command_says_so() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let id = "00000000-0000-4000-8000-000000000000";
    for arguments in [
        vec!["inbox"],
        vec!["runs"],
        vec!["show", id],
        vec!["approve", id, "--digest", "sha256:0"],
        vec!["decline", id],
        vec!["feedback", id, "--text", "x"],
        vec!["ran", id, "--result", "x"],
        vec!["leave", id],
        vec!["cancel", id],
        vec!["audit", id],
    ] {
        let output =
            command(&arguments).args(["--server", &url]).env("HOLDPOINT_TOKEN", "t").output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with(&format!("error: no server answers at {url}: ")), "{arguments:?}: {said}");
        assert!(said.contains("\n\nhint: start one with `holdpoint serve`"), "{arguments:?}: {said}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_wrong_token_and_an_unknown_request_are_said() {
    let house = house();
    let wrong =
        command(&["inbox", "--server", &house.server.url]).env("HOLDPOINT_TOKEN", "0").output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("does not know this token\n\nhint: "), "{wrong:?}");
    let unknown = client(&house.server, &["show", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("there is no such request"), "{unknown:?}");
    let missing = command(&["inbox", "--server", &house.server.url]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("there is no token\n\nhint: set HOLDPOINT_TOKEN"), "{missing:?}");
}

#[test]
fn lists_and_the_record_are_data_on_standard_output() {
    let house = house();
    let inbox = client(&house.server, &["inbox", "--json"]);
    let row: serde_json::Value = serde_json::from_str(text(&inbox.stdout).trim()).unwrap();
    assert_eq!(row["requestId"], house.request.to_string());
    let run = row["runId"].as_str().unwrap();
    let runs = client(&house.server, &["runs", "--status", "suspended"]);
    assert!(text(&runs.stdout).contains(run) && text(&runs.stdout).contains("1 pending"), "{runs:?}");
    let cancelled = client(&house.server, &["cancel", run]);
    assert_eq!(text(&cancelled.stdout), format!("cancelled {run}\n"));
    assert_eq!(house.server.ended(run)["finish"], "cancelled");
    let again = client(&house.server, &["cancel", run]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(text(&again.stderr), format!("error: run {run} had already ended (cancelled)\n"));
    let ended = client(&house.server, &["runs", "--status", "cancelled"]);
    assert!(text(&ended.stdout).contains(run), "{ended:?}");
    let good = client(&house.server, &["runs", "--status", "success"]);
    assert!(good.status.success() && good.stdout.is_empty(), "{good:?}");
    let empty = client(&house.server, &["feedback", &house.request.to_string(), "--text", " "]);
    assert_eq!(empty.status.code(), Some(2), "{empty:?}");
    assert!(text(&empty.stderr).contains("--text is empty"), "{empty:?}");
    let record = client(&house.server, &["audit", run]);
    let rows = text(&record.stdout);
    assert!(
        rows.lines().count() > 1
            && rows.lines().all(|row| serde_json::from_str::<serde_json::Value>(row).is_ok())
    );
    let checked = client(&house.server, &["audit", "--verify"]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(text(&checked.stdout).contains("\"whole\":true"));
    let none = client(&house.server, &["runs", "--status", "done"]);
    assert!(text(&none.stderr).contains("no run stands as `done`"), "{none:?}");
    assert_eq!(house.ran(), [""; 0]);
}
