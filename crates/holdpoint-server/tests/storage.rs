//! A store that fails: said as it is, with nothing run, nothing lost and nothing given away.

#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use holdpoint::Runtime;
use holdpoint::store::Error;
use serde_json::json;

const SECRET: &str = "/srv/secret/holdpoint.db: disk I/O error near SELECT";

async fn on(store: &Arc<Failing>, log: &Log) -> Running {
    let agent = assistant(log, one_call("pay", r#"{"sum":5}"#)).build().unwrap();
    let runtime = Runtime::builder().agent(agent).shared_store(Arc::clone(store) as _).build().unwrap();
    serve_runtime(runtime, config()).await
}

/// A decision that is not durable is not accepted, and runs nothing; when there is room again, the
/// same decision goes through.
#[tokio::test]
async fn a_decision_that_cannot_be_stored_is_not_accepted_and_can_be_sent_again() {
    for (error, status, code) in [
        (Error::Full(SECRET.into()), 507, "store_full"),
        (Error::Unavailable(SECRET.into()), 503, "store_unavailable"),
        (Error::CommitUnknown(SECRET.into()), 503, "store_unavailable"),
    ] {
        let (store, log) = (Failing::new(), Log::default());
        let server = on(&store, &log).await;
        let request = server.suspended().await;
        let lenient = json!({"requestId": request["requestId"], "decision": "approve"}).to_string();
        store.fail_writes(Some(error));
        let strict = server.approve(&request).await;
        let lenient_said = server.post("/chat/approval", &lenient).await;
        let started = server.post("/chat", r#"{"query":"go"}"#).await;
        let streamed = server.post("/chat/stream", r#"{"query":"go"}"#).await;
        let cancelled = server.post(&format!("/v1/runs/{}/cancel", run_of(&request)), "{}").await;
        for reply in [&strict, &lenient_said, &started, &streamed, &cancelled] {
            assert_eq!((reply.status, reply.code().as_str()), (status, code));
            assert_eq!(reply.header("retry-after").is_some(), status == 503);
            assert!(!reply.body.contains("secret") && !reply.body.contains("SELECT"), "{}", reply.body);
        }
        assert_eq!(lenient_said.json()["accepted"], false);
        assert_eq!(server.status_of(&request).await, "pending");
        assert!(log.calls().is_empty());
        store.fail_writes(None);
        assert_eq!(server.approve(&request).await.status, 200);
        server.ended(&run_of(&request)).await;
        assert_eq!(log.calls().len(), 1);
    }
}

/// A failure of ours is not kept as the answer of a key.
#[tokio::test]
async fn a_failure_is_not_the_answer_of_an_idempotency_key() {
    let (store, log) = (Failing::new(), Log::default());
    let server = on(&store, &log).await;
    let request = server.suspended().await;
    let body = json!({"decision": "approve", "digest": request["digest"]}).to_string();
    let path = format!("/v1/interactions/{}/decision", request["requestId"].as_str().unwrap());
    let send = || server.request("POST", &path).header("Idempotency-Key", "k").json(&body).send();
    store.fail_reads(Some(Error::Unavailable(SECRET.into())));
    assert_eq!(send().await.status, 503);
    store.fail_reads(None);
    let reply = send().await;
    assert_eq!((reply.status, reply.json().get("repeated")), (200, None));
    assert_eq!(send().await.body, reply.body);
}

#[tokio::test]
async fn a_server_whose_store_is_away_lives_and_is_not_ready() {
    let (store, log) = (Failing::new(), Log::default());
    let server = on(&store, &log).await;
    store.fail_reads(Some(Error::Unavailable(SECRET.into())));
    assert_eq!(server.get("/healthz").await.status, 200);
    for path in ["/readyz", "/metrics", "/v1/runs", "/v1/interactions", "/v1/audit/verify"] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "store_unavailable"), "{path}");
    }
    store.fail_reads(None);
    assert_eq!(server.get("/readyz").await.status, 200);
}

/// Learned from what really failed: as long as nothing does, nothing is written to find out.
#[tokio::test]
async fn a_server_that_cannot_write_is_not_ready_until_it_can() {
    for error in [Error::Full(SECRET.into()), Error::Unavailable(SECRET.into())] {
        let (store, log) = (Failing::new(), Log::default());
        let server = on(&store, &log).await;
        let request = server.suspended().await;
        for _ in 0..3 {
            assert_eq!(server.get("/readyz").await.status, 200);
        }
        assert_eq!(store.probes(), 0);
        store.fail_writes(Some(error));
        assert!(server.approve(&request).await.status >= 500);
        let is = async |status: u16| {
            let seen = async { while server.get("/readyz").await.status != status {} };
            tokio::time::timeout(Duration::from_secs(20), seen).await.expect("readiness did not change");
        };
        is(503).await;
        let reply = server.get("/readyz").await;
        assert_eq!((reply.code().as_str(), reply.header("retry-after")), ("not_writable", Some("1")));
        assert!(!reply.body.contains("secret"), "{}", reply.body);
        assert_eq!(server.get("/healthz").await.status, 200);
        assert!(server.get("/metrics").await.body.contains("\nholdpoint_store_writable 0\n"));
        store.fail_writes(None);
        is(200).await;
        assert!(server.get("/metrics").await.body.contains("\nholdpoint_store_writable 1\n"));
        assert_eq!(server.approve(&request).await.status, 200);
    }
}

/// The line for a connection is full: said as what it is, with when to come again; nothing was begun, and nothing is kept of it.
#[tokio::test]
async fn what_was_not_begun_because_too_much_waits_can_be_sent_again() {
    let (store, log) = (Failing::new(), Log::default());
    let server = on(&store, &log).await;
    let request = server.suspended().await;
    let run = run_of(&request);
    let busy = Error::Busy(SECRET.into());
    store.fail_reads(Some(busy.clone()));
    store.fail_writes(Some(busy));
    let lenient = json!({"requestId": request["requestId"], "decision": "approve"}).to_string();
    for reply in [
        server.approve(&request).await,
        server.post("/chat/approval", &lenient).await,
        server.post("/chat", r#"{"query":"go"}"#).await,
        server.get(&format!("/v1/runs/{run}")).await,
        server.get("/v1/interactions?status=pending").await,
    ] {
        assert_eq!((reply.status, reply.code().as_str()), (503, "busy"));
        assert_eq!(reply.header("retry-after"), Some("1"));
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("was not begun") && !detail.contains("secret"), "{detail}");
    }
    // A stream is put off, so that a browser comes back by itself.
    for path in [format!("/v1/runs/{run}/events"), "/v1/interactions/events".to_owned()] {
        let reply = server.get(&path).await;
        assert_eq!(reply.status, 200);
        assert!(
            reply.body.contains("\"closing\"") && reply.body.contains("\"unavailable\""),
            "{}",
            reply.body
        );
    }
    store.fail_reads(None);
    // Readiness is about the store, and the store is there.
    assert_eq!(
        (server.get("/readyz").await.status, server.status_of(&request).await.as_str()),
        (200, "pending")
    );
    store.fail_writes(None);
    assert_eq!(server.approve(&request).await.status, 200);
}

/// Not a store that is away: trying again would never help, so nobody is told to.
#[tokio::test]
async fn what_cannot_be_read_is_no_store_that_is_away() {
    for (error, code) in
        [(Error::Corrupt(SECRET.into()), "unreadable"), (Error::Inconsistent(SECRET.into()), "inconsistent")]
    {
        let (store, log) = (Failing::new(), Log::default());
        let server = on(&store, &log).await;
        let request = server.suspended().await;
        let run = run_of(&request);
        store.fail_reads(Some(error.clone()));
        let events = server.get(&format!("/v1/runs/{run}/events")).await;
        let read = server.get(&format!("/v1/runs/{run}")).await;
        store.fail_reads(None);
        store.fail_writes(Some(error));
        let (decided, started) =
            (server.approve(&request).await, server.post("/chat", r#"{"query":"go"}"#).await);
        for reply in [&events, &read, &decided, &started] {
            assert_eq!((reply.status, reply.code().as_str()), (500, code));
            assert_eq!(reply.header("retry-after"), None);
            let said = reply.json();
            assert_eq!(said["type"], format!("urn:holdpoint:problem:{code}"));
            assert!(!reply.body.contains("secret") && !reply.body.contains("SELECT"), "{}", reply.body);
            if code == "unreadable" {
                let detail = said["detail"].as_str().unwrap();
                assert!(detail.contains("holdpoint doctor") && detail.contains("back-up"), "{detail}");
                assert!(detail.contains(said["incident"].as_str().unwrap()), "{detail}");
            }
        }
        store.fail_writes(None);
        assert_eq!(server.status_of(&request).await, "pending");
        assert!(log.calls().is_empty());
    }
}

/// The stream lives on while the store is away, and shows what came of it.
#[tokio::test]
async fn a_stream_outlives_a_store_that_was_away() {
    let (store, log) = (Failing::new(), Log::default());
    let server = on(&store, &log).await;
    let mut stream = server.chat_stream(&json!({"query": "go"})).await;
    let request = stream.until("approval_request").await.data().clone();
    stream.until("suspended").await;
    store.fail_reads(Some(Error::Unavailable(SECRET.into())));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    store.fail_reads(None);
    assert_eq!(server.approve(&request).await.status, 200);
    let rest = stream.rest().await;
    assert_eq!(rest.last().unwrap().kind(), "finish");
    let numbers: Vec<_> = rest.iter().filter_map(|frame| frame.id).collect();
    assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
}

/// A browser gives up a stream that is answered by an error, and opens one again that ends.
#[tokio::test]
async fn a_stream_that_cannot_be_opened_just_now_says_when_to_come_back() {
    let (store, log) = (Failing::new(), Log::default());
    let server = on(&store, &log).await;
    let run = run_of(&server.suspended().await);
    let paths = [format!("/v1/runs/{run}/events"), "/v1/interactions/events".to_owned()];
    for error in [Error::Unavailable(SECRET.into()), Error::CommitUnknown(SECRET.into())] {
        store.fail_reads(Some(error));
        for path in &paths {
            let mut stream = server.request("GET", path).stream().await;
            assert_eq!(
                (stream.status, stream.header("content-type")),
                (200, Some("text/event-stream")),
                "{path}"
            );
            let mut frames = Vec::new();
            while let Some(frame) = stream.next().await {
                frames.push(frame);
            }
            assert!(frames[0].retry.is_some_and(|ms| ms >= 1_000), "{frames:?}");
            let closing = frames.last().unwrap();
            assert_eq!((closing.kind(), &closing.data()["reason"]), ("closing", &json!("unavailable")));
            assert!(!format!("{frames:?}").contains("secret"));
        }
    }
    // What will not pass is an error.
    store.fail_reads(Some(Error::Corrupt(SECRET.into())));
    for path in &paths {
        assert_eq!(server.get(path).await.status, 500, "{path}");
    }
}

/// Whoever watches is told that nothing can be shown just now, and when it can again.
#[tokio::test]
async fn a_stream_says_in_its_heartbeats_that_the_store_is_away() {
    let (store, log) = (Failing::new(), Log::default());
    let agent = assistant(&log, one_call("pay", r#"{"sum":5}"#)).build().unwrap();
    let runtime = Runtime::builder().agent(agent).shared_store(Arc::clone(&store) as _).build().unwrap();
    let often = holdpoint_server::ServerConfig { heartbeat: Duration::from_millis(150), ..config() };
    let server = serve_runtime(runtime, often).await;
    let mut stream = server.chat_stream(&json!({"query": "go"})).await;
    stream.until("suspended").await;
    assert_eq!(stream.until("heartbeat").await.data()["degraded"], json!(null));
    store.fail_writes(Some(Error::Unavailable(SECRET.into())));
    let until = async |stream: &mut _, degraded: serde_json::Value| {
        let seen = async {
            let stream: &mut Sse = stream;
            while stream.until("heartbeat").await.data()["degraded"] != degraded {}
        };
        tokio::time::timeout(Duration::from_secs(20), seen).await.expect("it was not said");
    };
    until(&mut stream, json!(true)).await;
    store.fail_writes(None);
    until(&mut stream, json!(null)).await;
}
