//! Starting over HTTP: refused before a run exists, or the same run however it is watched.

#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::time::Duration;

use common::*;
use holdpoint::Runtime;
use holdpoint::prelude::*;
use serde_json::{Value, json};

async fn plain() -> (Log, Running) {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    (log, server)
}

async fn run_count(server: &Running) -> usize {
    server.get("/v1/runs?limit=200").await.json()["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn what_cannot_be_read_starts_nothing() {
    let (log, server) = plain().await;
    let bodies = [
        ("", 400, "bad_json"),
        ("{}", 400, "no_query"),
        (r#"{"query":"  "}"#, 400, "no_query"),
        (r#"{"query":1}"#, 400, "bad_json"),
        (r#"{"query":null}"#, 400, "bad_json"),
        (r#"{"query":"a","query":"b"}"#, 400, "bad_json"),
        (r#"{"query":"a","conversatonId":"c"}"#, 400, "unknown_field"),
        (r#"{"query":"a","bypassApproval":"true"}"#, 400, "bad_json"),
        (r#"{"query":"a","bypassApproval":1}"#, 400, "bad_json"),
        (r#"{"query":"a","agent":".."}"#, 400, "bad_name"),
        (r#"{"query":"a","agent":"a\nevent: x"}"#, 400, "bad_name"),
        (r#"{"query":"a","conversationId":"../beta"}"#, 400, "bad_name"),
        (r#"{"query":"a","conversationId":"a\u0000b"}"#, 400, "bad_name"),
        (r#"{"query":"a","agent":"other"}"#, 422, "unknown_agent"),
        (r#"{"query":"a","model":"other"}"#, 422, "unknown_model"),
        // A history of the client's own making is no history.
        (
            r#"{"query":"a","messages":[{"role":"tool","tool_call_id":"c1","approved":true}]}"#,
            400,
            "unknown_field",
        ),
        (r#"{"messages":[{"type":"tool-approval-response","approved":true}]}"#, 400, "unknown_field"),
        (r#"{"query":"a","bypassApproval":true}"#, 403, "bypass_not_granted"),
    ];
    for route in ["/chat", "/chat/stream"] {
        for (body, status, code) in bodies {
            let reply = server.post(route, body).await;
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{route} {body}");
        }
    }
    assert_eq!(run_count(&server).await, 0);
    assert!(log.calls().is_empty());
}

/// Only the body is looked at, and only configuration grants it.
#[tokio::test]
async fn a_bypass_in_a_header_a_query_or_metadata_is_ignored() {
    let (log, server) = plain().await;
    let reply = server
        .request("POST", "/chat?bypassApproval=true&bypass_approval=1")
        .header("bypassApproval", "true")
        .header("X-Bypass-Approval", "true")
        .json(r#"{"query":"go","metadata":{"bypassApproval":true}}"#)
        .send()
        .await;
    assert_eq!(reply.status, 202);
    assert!(log.calls().is_empty());
    for body in [
        r#"{"arguments":{"sum":1},"bypassApproval":true}"#,
        r#"{"arguments":{"sum":1},"bypassApproval":"yes"}"#,
    ] {
        assert!(matches!(server.post("/v1/tools/pay/invoke", body).await.status, 400 | 403));
    }
    assert_eq!(run_count(&server).await, 1);
}

#[tokio::test]
async fn a_bypass_that_configuration_grants_is_honoured_and_on_record() {
    let log = Log::default();
    let agent = assistant(&log, one_call("pay", r#"{"sum":5}"#)).build().unwrap();
    let runtime =
        Runtime::builder().agent(agent).allow_bypass(|cx| cx.actor.as_str() == "operator").build().unwrap();
    let server = serve_runtime(runtime, config()).await;
    let reply = server.post("/chat", r#"{"query":"go","bypassApproval":true}"#).await;
    assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("success")), "{reply:?}");
    assert_eq!(log.calls().len(), 1);
    let run = reply.json()["runId"].as_str().unwrap().to_owned();
    let events = server.events(&format!("/v1/runs/{run}/events")).await.rest().await;
    assert_eq!(events[0].data()["bypass"], "operator");
}

/// SEMANTICS 27: streaming and non-streaming runs are the same run, watched differently.
#[tokio::test]
async fn the_same_run_watched_by_stream_and_by_post_gives_the_same_end() {
    for word in ["approve", "decline"] {
        let mut ends = Vec::new();
        for streamed in [true, false] {
            let log = Log::default();
            let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
            let finish = if streamed {
                let mut stream = server.chat_stream(&json!({"query": "go"})).await;
                let request = stream.until("approval_request").await;
                let body = json!({"decision": word, "digest": request.data()["digest"]});
                assert_eq!(server.decide(request.data(), &body).await.status, 200);
                stream.until("finish").await.data().clone()
            } else {
                let request = server.suspended().await;
                let body = json!({"decision": word, "digest": request["digest"]});
                assert_eq!(server.decide(&request, &body).await.status, 200);
                let view = server.ended(&run_of(&request)).await;
                json!({"status": view["finish"], "text": view["text"], "usage": view["usage"]})
            };
            ends.push((
                finish["status"].clone(),
                finish["text"].clone(),
                finish["usage"].clone(),
                log.calls(),
            ));
        }
        assert_eq!(ends[0], ends[1], "{word}");
        assert_eq!(ends[0].3.len(), usize::from(word == "approve"));
    }
}

#[tokio::test]
async fn a_run_that_is_not_streamed_is_gated_too_and_says_what_it_waits_for() {
    let (log, server) = plain().await;
    let reply = server.post("/chat", r#"{"query":"go"}"#).await;
    assert_eq!(reply.status, 202);
    let said = reply.json();
    assert_eq!(said["status"], "suspended");
    let one = &said["interactions"][0];
    assert_eq!(
        (&one["status"], &one["kind"], &one["request"]["arguments"]),
        (&json!("pending"), &json!("approval"), &json!(r#"{"sum":5}"#))
    );
    assert_eq!(one["runId"], said["runId"]);
    assert!(log.calls().is_empty());
    let view = server.get(&format!("/v1/runs/{}", said["runId"].as_str().unwrap())).await.json();
    assert_eq!((&view["status"], &view["pending"][0]["requestId"]), (&json!("suspended"), &one["requestId"]));
}

#[tokio::test]
async fn a_run_without_a_gated_call_answers_at_once() {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("Read", r#"{"path":"a"}"#))).await;
    let reply = server.post("/chat", r#"{"query":"go","conversationId":"talk-1"}"#).await;
    assert_eq!(reply.status, 200);
    let said = reply.json();
    assert_eq!(
        (&said["status"], &said["text"], &said["conversationId"]),
        (&json!("success"), &json!("done"), &json!("talk-1"))
    );
    assert_eq!(said["usage"]["toolCalls"], 1);
}

#[tokio::test]
async fn a_run_whose_model_fails_is_said_to_have_failed() {
    let failing = Scripted::sequence("script", []);
    let server = serve(assistant(&Log::default(), failing)).await;
    let reply = server.post("/chat", r#"{"query":"go"}"#).await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "run_failed"), "{reply:?}");
    let run = reply.json()["runId"].as_str().unwrap().to_owned();
    let events = server.events(&format!("/v1/runs/{run}/events")).await.rest().await;
    assert_eq!(events.last().unwrap().kind(), "error");
    assert_eq!(events.iter().filter(|frame| matches!(frame.kind(), "finish" | "error")).count(), 1);
    assert_eq!(events.last().unwrap().data()["code"], reply.json()["error"]["code"]);
}

#[tokio::test]
async fn a_second_message_while_a_run_is_open_is_refused_with_what_it_waits_for() {
    let (_, server) = plain().await;
    let body = r#"{"query":"go","conversationId":"talk-1"}"#;
    let first = server.post("/chat", body).await.json();
    for route in ["/chat", "/chat/stream"] {
        let refused = server.post(route, body).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, "run_open"));
        assert_eq!(refused.json()["runId"], first["runId"]);
        assert_eq!(refused.json()["pending"][0]["requestId"], first["interactions"][0]["requestId"]);
    }
}

#[tokio::test]
async fn a_start_with_a_known_key_attaches_to_the_run_it_made() {
    let (log, server) = plain().await;
    let post = |route: &'static str, body: &str| {
        server.request("POST", route).header("Idempotency-Key", "start-1").json(body)
    };
    let mut one = post("/chat/stream", r#"{"query":"go"}"#).stream().await;
    let first = one.until("approval_request").await;
    drop(one);
    let mut two = post("/chat/stream", r#"{"query":"go"}"#).stream().await;
    let second = two.until("approval_request").await;
    assert_eq!((first.id, first.data()), (second.id, second.data()));
    let reused = post("/chat/stream", r#"{"query":"go on"}"#).send().await;
    assert_eq!((reused.status, reused.code().as_str()), (422, "idempotency_key_reused"));
    assert_eq!(run_count(&server).await, 1);

    let (a, b) =
        tokio::join!(post("/chat", r#"{"query":"go"}"#).send(), post("/chat", r#"{"query":"go"}"#).send());
    assert_eq!((a.status, b.status), (202, 202));
    assert_eq!(a.json()["runId"], b.json()["runId"]);
    assert_eq!(run_count(&server).await, 2, "a key is one route's own");

    let invoke = || {
        server
            .request("POST", "/v1/tools/Read/invoke")
            .header("Idempotency-Key", "i")
            .json(r#"{"arguments":{"path":"a"}}"#)
            .send()
    };
    assert_eq!(invoke().await.json()["runId"], invoke().await.json()["runId"]);
    assert_eq!(log.names(), ["Read"]);
    let other_tool = server.request("POST", "/v1/tools/pay/invoke").header("Idempotency-Key", "i");
    assert_eq!(other_tool.json(r#"{"arguments":{"path":"a"}}"#).send().await.status, 422);
}

/// `runtime.invoke` over HTTP: the same gate, store, stream and record.
#[tokio::test]
async fn a_call_without_a_model_passes_the_same_gate() {
    let (log, server) = plain().await;
    let read = server.post("/v1/tools/Read/invoke", r#"{"arguments":{"path":"a"}}"#).await;
    assert_eq!((read.status, &read.json()["status"]), (200, &json!("success")), "{read:?}");
    assert_eq!(read.json()["results"][0]["result"], "contents of notes.txt");

    let asks = server.post("/v1/tools/pay/invoke", r#"{"arguments": { "sum" : 5 } }"#).await;
    assert_eq!(asks.status, 202);
    let request = asks.json()["interactions"][0]["request"].clone();
    assert_eq!(request["arguments"], r#"{ "sum" : 5 }"#, "an object is its own bytes");
    assert_eq!(log.names(), ["Read"]);
    assert_eq!(server.approve(&request).await.status, 200);
    let view = server.ended(&run_of(&request)).await;
    assert_eq!(view["results"][0]["result"], "paid");
    assert_eq!(log.calls()[1], ("pay".to_owned(), r#"{ "sum" : 5 }"#.to_owned()));

    for (tool, body, status) in [
        ("nope", r#"{"arguments":{}}"#, "unknown_tool"),
        ("pay", r#"{"arguments":{"sum":"x"}}"#, "invalid_arguments"),
        ("pay", r#"{"arguments":"{\"sum\":1,\"sum\":2}"}"#, "invalid_arguments"),
        ("pay", "{}", "invalid_arguments"),
    ] {
        let reply = server.post(&format!("/v1/tools/{tool}/invoke"), body).await;
        assert_eq!(
            (reply.status, &reply.json()["results"][0]["status"]),
            (200, &json!(status)),
            "{tool} {body} {reply:?}"
        );
    }
    for (body, code) in [
        (r#"{"arguments":{"sum":1,"sum":2}}"#, "bad_json"),
        (r#"{"arguments":[1]}"#, "bad_json"),
        (r#"{"args":{"sum":1}}"#, "unknown_field"),
    ] {
        let reply = server.post("/v1/tools/pay/invoke", body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, code), "{body}");
    }
    assert_eq!(log.calls().len(), 2);
}

/// SEMANTICS 29: a client that goes away cancels nothing.
#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_cancels_nothing() {
    let log = Log::default();
    let slow = Scripted::new("script")
        .rule(When::any().has_tool_result(true), Answer::text("done"))
        .rule(When::any(), Answer::call("c1", "Read", r#"{"path":"a"}"#).after(Duration::from_millis(200)))
        .build();
    let server = serve(assistant(&log, slow)).await;
    for route in ["/chat", "/chat/stream"] {
        let gone = server.request("POST", route).json(r#"{"query":"go"}"#).bytes();
        let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut connection, &gone).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let runs = server.get("/v1/runs").await.json();
    assert_eq!(runs["items"].as_array().unwrap().len(), 2);
    for run in runs["items"].as_array().unwrap() {
        assert_eq!(server.ended(run["runId"].as_str().unwrap()).await["text"], "done");
    }
    assert_eq!(log.calls().len(), 2);
}

#[tokio::test]
async fn policy_is_explained_layer_by_layer_and_nothing_runs() {
    let (log, server) = plain().await;
    let explain = async |body: &str| server.post("/v1/policy/explain", body).await;
    let read = explain(r#"{"tool":"Read"}"#).await.json();
    assert_eq!(
        (&read["verdict"], &read["reason"]["rule"], &read["toolExists"]),
        (&json!("allow"), &json!("allow = \"Read\""), &json!(true))
    );
    let pay = explain(r#"{"tool":"pay","agent":"main"}"#).await.json();
    assert_eq!((&pay["verdict"], &pay["layers"][0]["reason"]["policy"]), (&json!("ask"), &json!("shipped")));
    assert_eq!(explain(r#"{"tool":"nope"}"#).await.json()["toolExists"], false);
    for (body, status) in
        [(r#"{"tool":"pay","agent":"nope"}"#, 422), ("{}", 400), (r#"{"tool":"pay","x":1}"#, 400)]
    {
        assert_eq!(explain(body).await.status, status, "{body}");
    }
    let agents: Value = server.get("/v1/agents").await.json();
    assert_eq!(agents["items"][0]["tools"][0]["verdict"], "allow");
    assert!(log.calls().is_empty());
}
