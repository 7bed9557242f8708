//! Stopping and starting again on one file: what waited waits, under the same ids, and what may have run is asked about.

#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use holdpoint::prelude::*;
use holdpoint::store::{SqliteStore, SystemClock};
use holdpoint::{AgentBuilder, Runtime};
use serde_json::{Value, json};

async fn on(file: &Path, agent: AgentBuilder) -> Running {
    let store = SqliteStore::open(file, Arc::new(SystemClock::new())).unwrap();
    let runtime = Runtime::builder().agent(agent.build().unwrap()).store(store).build().unwrap();
    serve_runtime(runtime, config()).await
}

#[tokio::test]
async fn a_request_that_waited_through_a_restart_is_decided_under_the_same_id() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("holdpoint.db"), Log::default());
    let agent = || assistant(&log, one_call("pay", r#"{"sum":5}"#));
    let first = on(&file, agent()).await;
    let mut stream = first.chat_stream(&json!({"query": "go"})).await;
    let request = stream.until("approval_request").await;
    let suspended = stream.until("suspended").await.id.unwrap();
    first.stopped().await;
    let closing = stream.rest().await;
    assert_eq!(closing.last().unwrap().data()["reason"], "shutdown");

    let second = on(&file, agent()).await;
    let inbox = second.get("/v1/interactions?status=pending").await.json();
    assert_eq!(inbox["items"][0]["requestId"], request.data()["requestId"]);
    let path = format!("/v1/runs/{}/events", run_of(request.data()));
    let back = second.request("GET", &path).header("Last-Event-ID", &suspended.to_string());
    let mut stream = back.stream().await;
    let replayed = stream.event().await.unwrap();
    assert_eq!((replayed.id, &replayed.data()["replayed"]), (None, &json!(true)));
    assert_eq!(replayed.data()["digest"], request.data()["digest"]);
    assert_eq!(second.approve(request.data()).await.status, 200);
    let rest = stream.rest().await;
    assert_eq!(rest.first().unwrap().id, Some(suspended + 1), "nothing is missed and nothing twice");
    assert_eq!(rest.last().unwrap().kind(), "finish");
    assert_eq!(log.calls(), [("pay".to_owned(), r#"{"sum":5}"#.to_owned())]);
    let verified = second.get("/v1/audit/verify").await.json();
    assert_eq!(verified["items"][0]["whole"], true);
    second.stopped().await;
}

/// A tool that hangs the first time and answers from then on.
fn hangs_once(started: &Arc<AtomicU32>) -> FnTool {
    let started = Arc::clone(started);
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    FnTool::new(ToolDefinition::new("transfer", "Moves money.", schema), move |_: Invocation| {
        let first = started.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok::<_, ToolError>("moved".to_owned())
        }
    })
}

/// PROTOCOL 2, `in_doubt_request`: what it can be decided with, over both routes.
#[tokio::test]
async fn a_call_that_was_cut_off_is_asked_about_and_answered_on_both_routes() {
    let decisions: [(&str, Value, u32); 4] = [
        ("strict", json!({"decision": "ran", "result": {"moved": 1.10}}), 1),
        ("lenient", json!({"decision": "ran", "result": "it went through"}), 1),
        ("lenient", json!({"decision": "leave"}), 1),
        ("strict", json!({"decision": "approve"}), 2),
    ];
    for (route, mut body, runs) in decisions {
        let folder = tempfile::tempdir().unwrap();
        let (file, started) = (folder.path().join("holdpoint.db"), Arc::new(AtomicU32::new(0)));
        let agent = || Agent::builder("main", one_call("transfer", "{}")).tool(hangs_once(&started));
        let first = on(&file, agent()).await;
        let mut stream = first.chat_stream(&json!({"query": "go"})).await;
        let request = stream.until("approval_request").await;
        assert_eq!(first.approve(request.data()).await.status, 200);
        stream.until("tool_started").await;
        first.stopped().await;

        let second = on(&file, agent()).await;
        let mut stream = second.events(&format!("/v1/runs/{}/events", run_of(request.data()))).await;
        let doubt = stream.until("in_doubt_request").await.data().clone();
        assert_eq!(doubt["decisions"], json!(["ran", "leave", "approve"]));
        for (wrong, status) in [
            (json!({"decision": "decline"}), 422),
            (json!({"decision": "feedback", "reason": "x"}), 422),
            (json!({"decision": "ran"}), 400),
            (json!({"decision": "ran", "answers": {}}), 400),
            (json!({"decision": "leave", "result": 1}), 400),
            (json!({"decision": "approve", "digest": request.data()["digest"]}), 409),
        ] {
            assert_eq!(second.decide(&doubt, &wrong).await.status, status, "{wrong}");
        }
        let reply = if route == "strict" {
            body["digest"] = doubt["digest"].clone();
            second.decide(&doubt, &body).await
        } else {
            body["requestId"] = doubt["requestId"].clone();
            second.post("/chat/approval", &body.to_string()).await
        };
        assert_eq!((reply.status, &reply.json()["accepted"]), (200, &json!(true)), "{body} {reply:?}");
        let rest = stream.rest().await;
        assert_eq!(rest.last().unwrap().kind(), "finish", "{body}");
        assert_eq!(started.load(Ordering::SeqCst), runs, "{body}");
        second.stopped().await;
    }
}

/// Many at once on one file, none of which is told that the database is busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_decisions_at_once_are_all_taken() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let server =
        on(&folder.path().join("holdpoint.db"), assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    let requests = futures_util::future::join_all((0..64).map(|_| server.suspended())).await;
    let replies =
        futures_util::future::join_all(requests.iter().map(|request| server.approve(request))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert!(server.get("/metrics").await.body.contains("\nholdpoint_store_wal_bytes "));
    for request in &requests {
        server.ended(&run_of(request)).await;
    }
    assert_eq!(log.calls().len(), 64);
    server.stopped().await;
}
