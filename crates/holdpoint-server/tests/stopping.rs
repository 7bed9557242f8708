//! Stopping in order: streams are told, decisions are answered, what waits is there again afterwards.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use holdpoint::Runtime;
use holdpoint::prelude::*;
use holdpoint::store::{MemoryStore, SystemClock};
use serde_json::json;

#[tokio::test]
async fn open_streams_are_told_to_come_back_and_the_server_ends() {
    let log = Log::default();
    let mut server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    let mut run = server.chat_stream(&json!({"query": "go"})).await;
    run.until("suspended").await;
    let mut inbox = server.events("/v1/interactions/events").await;
    inbox.until("snapshot").await;
    let began = Instant::now();
    server.stop();
    for stream in [&mut run, &mut inbox] {
        let rest = stream.rest().await;
        let last = rest.last().unwrap();
        assert_eq!((last.kind(), last.id), ("closing", None));
        assert_eq!(last.data()["reason"], "shutdown");
        assert!(last.data()["retryAfterMs"].as_u64().is_some());
        assert!(
            !rest.iter().any(|frame| matches!(frame.kind(), "finish" | "error")),
            "the run has not ended"
        );
    }
    server.stopped().await;
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(log.calls().is_empty());
}

#[tokio::test]
async fn whoever_waits_for_a_run_is_told_that_the_server_stops() {
    let log = Log::default();
    let model = Scripted::new("script").rule(When::any(), Answer::hang()).build();
    let mut server = serve(assistant(&log, model)).await;
    let waiting = server.request("POST", "/chat").json(r#"{"query":"go"}"#);
    let waiting = tokio::spawn(waiting.send());
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop();
    let reply = waiting.await.unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (503, "stopping"));
    assert!(reply.header("retry-after").is_some() && reply.json()["runId"].is_string());
    server.stopped().await;
}

/// A connection that is open and says nothing does not hold the server up.
#[tokio::test]
async fn idle_connections_do_not_hold_the_server_up() {
    let server = serve(assistant(&Log::default(), three_calls())).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    server.stopped().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_waits_is_decided_through_whichever_server_of_the_store_is_asked() {
    let log = Log::default();
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let build = || {
        let agent = assistant(&log, one_call("pay", r#"{"sum":5}"#)).build().unwrap();
        Runtime::builder().agent(agent).shared_store(Arc::clone(&store) as _).build().unwrap()
    };
    let first = serve_runtime(build(), config()).await;
    let request = first.suspended().await;
    let path = format!("/v1/runs/{}/events", run_of(&request));

    let second = serve_runtime(build(), config()).await;
    let mut stream = second.request("GET", &path).header("Last-Event-ID", "3").stream().await;
    let replayed = stream.until("approval_request").await;
    assert_eq!(replayed.data()["requestId"], request["requestId"]);
    assert_eq!(second.approve(&request).await.status, 200);
    assert_eq!(stream.rest().await.last().unwrap().kind(), "finish");
    assert_eq!(log.calls().len(), 1);
    assert_ne!(first.token, second.token, "a token is good for one start");
    let old = Request::new(second.address, "GET", "/v1/runs")
        .header("Authorization", &format!("Bearer {}", first.token));
    assert_eq!(old.send().await.status, 401);
}
