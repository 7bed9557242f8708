//! A server that dies, hangs, lists without end, or becomes another: it costs a clear error and nothing else.

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::*;
use crate::ChangeKind;

fn config(how: &str) -> McpServerConfig {
    let script = folder().join("bad-server.mjs").display().to_string();
    McpServerConfig::stdio("node", [script, how.to_owned()])
}

fn start(how: &str) -> McpServer {
    McpServer::start("bad", config(how)).unwrap()
}

fn start_with_file(how: &str, file: &Path) -> McpServer {
    let mut config = config(how);
    config.args.push(file.display().to_string());
    McpServer::start("bad", config).unwrap()
}

#[tokio::test]
async fn a_server_of_the_old_era_works_and_gets_the_idempotency_key() {
    let server = start("works");
    let snapshot = ready(&server).await;
    assert_eq!(names(&snapshot), ["bad__change", "bad__die", "bad__mail", "bad__slow"]);
    assert!(snapshot.changes.is_empty() && snapshot.unusable.is_empty());
    assert_eq!(server.protocol_version().as_deref(), Some("2025-11-25"));
    let said = text(call(&tool(&server, "bad__mail"), json!({"to": "ana"})).await.unwrap());
    assert_eq!(said, format!("ran mail {EXEC}"));
    // What it calls itself is not its identity.
    assert_eq!(snapshot.tools[0].definition().origin, "mcp:bad");
    server.close().await;
}

/// CVE-2025-54136: a definition that was approved once and is another now.
#[tokio::test]
async fn a_changed_definition_is_reported_and_what_was_released_before_does_not_run() {
    for how in ["works", "modern"] {
        let server = start(how);
        let before = ready(&server).await;
        if how == "modern" {
            assert_eq!(server.protocol_version().as_deref(), Some("2026-07-28"));
            listening(&server).await;
        }
        let (mail, change) = (tool(&server, "bad__mail"), tool(&server, "bad__change"));
        call(&change, json!({})).await.unwrap();
        // The announcement is on its way before the answer; the call waits for the listing, and is refused.
        let error = call(&mail, json!({"to": "ana"})).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.not_executed), ("TOOL_CHANGED", true), "{how}: {error}");
        let after = next(&server, before.revision).await;
        assert_eq!(after.changes.len(), 1, "{how}: {after:?}");
        let what = &after.changes[0];
        assert_eq!((what.tool.as_str(), what.kind), ("bad__mail", ChangeKind::Changed));
        assert!(what.what.contains("+ \"Sends a mail, and a copy to us.\""), "{}", what.what);
        assert!(what.what.contains("schema.properties.also_notify\n+ {}"), "{}", what.what);
        // Asked and released anew, it runs.
        call(&tool(&server, "bad__mail"), json!({"to": "ana"})).await.unwrap();
    }
}

/// In the newer era a change is announced to those who listen. Once we do, the list is read again.
async fn listening(server: &McpServer) {
    let mut listed = live(server).listed.subscribe();
    let listening = listed.wait_for(|listed| *listed > 0);
    tokio::time::timeout(Duration::from_secs(30), listening).await.expect("nobody listens").unwrap();
}

#[tokio::test]
async fn a_change_that_is_announced_while_the_list_is_read_is_not_missed() {
    let server = start("changes-while-read");
    let mut snapshot = ready(&server).await;
    while snapshot.changes.is_empty() {
        snapshot = next(&server, snapshot.revision).await;
    }
    assert_eq!(snapshot.changes[0].tool, "bad__mail");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_it_unknown_and_comes_back() {
    let server = start("works");
    let before = ready(&server).await;
    let (die, mail) = (tool(&server, "bad__die"), tool(&server, "bad__mail"));
    let error = call(&die, json!({})).await.unwrap_err();
    assert_eq!(error.code, "CONNECTION_LOST", "{error}");
    assert!(error.outcome_unknown && !error.not_executed);
    let lost = next(&server, before.revision).await;
    match &lost.status {
        SourceStatus::Down(why) => {
            assert!(why.contains("exit status: 3") && why.contains("I die of this call"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    // Its tools stay listed, a call waits for it a while, and the same definition is the same tool.
    assert_eq!(names(&lost), names(&before));
    call(&mail, json!({"to": "ana"})).await.unwrap();
}

#[tokio::test]
async fn a_server_that_comes_back_as_another_is_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_with_file("changes-on-restart", &dir.path().join("starts"));
    ready(&server).await;
    let (die, mail) = (tool(&server, "bad__die"), tool(&server, "bad__mail"));
    call(&die, json!({})).await.unwrap_err();
    let error = call(&mail, json!({"to": "ana"})).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.not_executed), ("TOOL_CHANGED", true));
    let snapshot = server.snapshot();
    assert_eq!(snapshot.changes.len(), 1, "{snapshot:?}");
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let none = McpServer::start("bad", McpServerConfig::stdio("no-such-program-here", [""; 0])).unwrap();
    assert!(down(&none).await.starts_with("`no-such-program-here` could not be started:"));
    let why = down(&start("dies-at-start")).await;
    assert!(why.contains("closed the connection") && why.contains("no such database"), "{why}");
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_in_time() {
    for (how, says) in [
        ("hangs-at-start", "it did not answer within 1500 ms"),
        ("never-ends-a-line", "it did not answer within 1500 ms"),
        ("hangs-on-list", "it did not list its tools within 500 ms"),
    ] {
        let config = McpServerConfig { start_timeout_ms: 1_500, list_timeout_ms: 500, ..config(how) };
        // Silence is not `hangs-at-start` until the greeting of the other era was tried as well.
        let started = Instant::now();
        let config = if how == "hangs-on-list" {
            McpServerConfig { start_timeout_ms: 20_000, ..config }
        } else {
            config
        };
        let why = down(&McpServer::start("bad", config).unwrap()).await;
        assert!(why.starts_with(says), "{how}: {why}");
        assert!(started.elapsed() < Duration::from_secs(25), "{how}");
    }
}

#[tokio::test]
async fn a_listing_is_bounded_in_tools_and_pages() {
    for (how, says) in [
        ("many", "it lists more than 512 tools"),
        ("many-pages", "it lists more than 512 tools"),
        ("one-more", "it lists more than 512 tools"),
        ("no-end", "its listing has no end"),
        ("refuses-to-list", "it refused to list its tools: no list today"),
    ] {
        let server = start(how);
        let why = down(&server).await;
        assert!(why.starts_with(says), "{how}: {why}");
        assert!(server.snapshot().tools.is_empty(), "{how}");
    }
    let most = start("exactly");
    assert_eq!(ready(&most).await.tools.len(), super::super::TOOLS_MAX);
}

#[tokio::test]
async fn one_bad_schema_costs_its_own_tool_alone() {
    let server = start("bad-schema");
    let snapshot = ready(&server).await;
    assert_eq!(names(&snapshot), ["bad__good"]);
    assert_eq!(snapshot.unusable.len(), 1);
    assert!(snapshot.unusable[0].name == "bad" && !snapshot.unusable[0].why.is_empty());
}

#[tokio::test]
async fn nonsense_before_the_greeting_is_passed_over() {
    ready(&start("talks-nonsense")).await;
}

#[tokio::test]
async fn a_call_that_hangs_reports_progress_and_is_cancelled_at_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seen");
    let server = start_with_file("works", &file);
    ready(&server).await;
    let slow = tool(&server, "bad__slow");
    let (cancel, reports) = (CancellationToken::new(), Reports::default());
    let stop = async {
        while reports.fractions().last() != Some(&0.75) {
            sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    };
    let report = |message: Option<&str>, fraction: Option<f64>| reports.add(message, fraction);
    let (ended, ()) = tokio::join!(call_with(&slow, json!({}), &cancel, &report), stop);
    let error = ended.unwrap_err();
    assert!(error.code == "CANCELLED" && error.outcome_unknown, "{error}");
    seen(&file, "cancelled").await;
    // Dropped - the time is up - instead of cancelled: the server hears of it as well.
    {
        let running = call(&slow, json!({}));
        tokio::select! {
            _ = running => panic!("it answered"),
            () = seen(&file, "called") => {}
        }
    }
    seen(&file, "cancelled").await;
    // One that is cancelled before it is sent has no effect, and says so.
    let error = call_with(&slow, json!({}), &cancel, &|_, _| {}).await.unwrap_err();
    assert!(error.not_executed && !error.outcome_unknown);
}

async fn seen(file: &Path, what: &str) {
    for _ in 0..500 {
        if std::fs::read_to_string(file).is_ok_and(|text| text == what) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("the server never saw {what}");
}

#[tokio::test]
async fn closing_ends_even_a_process_that_will_not() {
    let server = start("will-not-die");
    ready(&server).await;
    let started = Instant::now();
    server.close().await;
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn the_environment_of_a_server_is_what_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("env");
    let script = format!("env | cut -d= -f1 | sort > {}; exit 1", file.display());
    let mut config = McpServerConfig::stdio("sh", ["-c".to_owned(), script]);
    config.env.insert("GIVEN".into(), "1".into());
    let server = McpServer::start("bad", config).unwrap();
    down(&server).await;
    let seen = std::fs::read_to_string(&file).unwrap();
    let known = ["GIVEN", "HOME", "LANG", "OLDPWD", "PATH", "PWD", "SHLVL", "TMPDIR", "USER", "_"];
    assert!(seen.lines().all(|name| known.contains(&name)) && seen.contains("GIVEN"), "{seen}");
}
