//! Watching: one log, seen whole by everybody, however often they come and go.

mod common;

use common::*;
use serde_json::json;

#[tokio::test]
async fn a_whole_run_over_http_with_one_call_declined_and_one_approved() {
    let log = Log::default();
    let server = serve(assistant(&log, three_calls())).await;
    let mut stream = server.chat_stream(&json!({"query": "go"})).await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(stream.header("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    assert_eq!(stream.header("content-encoding"), None);
    let first = stream.next().await.unwrap();
    assert!(first.comment && first.retry.is_some() && first.data.is_none());

    let write = stream.until("approval_request").await;
    assert_eq!(stream.next().await.unwrap().kind(), "heartbeat", "pushed out at once");
    let bash = stream.until("approval_request").await;
    assert_eq!(stream.next().await.unwrap().kind(), "heartbeat");
    stream.until("suspended").await;
    assert_eq!(log.names(), ["Read"]);

    let declined = server.decide(write.data(), &json!({"decision": "decline", "reason": "not now"})).await;
    assert_eq!(declined.status, 200, "{declined:?}");
    assert_eq!(server.approve(bash.data()).await.status, 200);
    let rest = stream.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.kind(), last.data()["status"].as_str()), ("finish", Some("success")));
    assert_eq!(last.data()["text"], "done");
    assert_eq!(rest.iter().filter(|frame| matches!(frame.kind(), "finish" | "error")).count(), 1);
    assert_eq!(log.names(), ["Read", "Bash"]);
    server.stopped().await;
}
