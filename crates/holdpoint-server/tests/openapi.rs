//! The document says what the routes do: every route is asked, and every answer is held against it.

#![allow(clippy::unwrap_used)] // these are tests

mod common;

use common::*;
use serde_json::{Value, json};

/// Bodies and ids that make each route say each of its good answers.
async fn answers(server: &Running) -> Vec<(&'static str, &'static str, Reply)> {
    let mut answers = Vec::new();
    let waiting = server.post("/chat", r#"{"query":"go"}"#).await;
    let request = waiting.json()["interactions"][0]["request"].clone();
    let (run, id) = (run_of(&request), request["requestId"].as_str().unwrap().to_owned());
    answers.push(("/chat", "post", waiting));
    let decision = format!("/v1/interactions/{id}/decision");
    answers.push((
        "/v1/interactions/{requestId}",
        "get",
        server.get(&format!("/v1/interactions/{id}")).await,
    ));
    answers.push(("/v1/interactions", "get", server.get("/v1/interactions?status=pending&limit=1").await));
    let stale = json!({"decision": "approve", "digest": "D1"});
    answers.push(("/v1/interactions/{requestId}/decision", "post", server.decide(&request, &stale).await));
    let unread = server.post(&decision, r#"{"decision":1}"#).await;
    answers.push(("/v1/interactions/{requestId}/decision", "post", unread));
    let unknown = server.post(&decision, r#"{"decision":"yes"}"#).await;
    answers.push(("/v1/interactions/{requestId}/decision", "post", unknown));
    answers.push(("/v1/interactions/{requestId}/decision", "post", server.approve(&request).await));
    answers.push(("/v1/interactions/{requestId}/decision", "post", server.approve(&request).await));
    let conflict = server.decide(&request, &json!({"decision": "decline"})).await;
    answers.push(("/v1/interactions/{requestId}/decision", "post", conflict));
    for word in ["approve", "decline"] {
        let body = json!({"requestId": id, "decision": word}).to_string();
        answers.push(("/chat/approval", "post", server.post("/chat/approval", &body).await));
    }
    server.ended(&run).await;
    answers.push((
        "/v1/interactions/{requestId}",
        "get",
        server.get(&format!("/v1/interactions/{id}")).await,
    ));
    answers.push(("/v1/runs/{runId}", "get", server.get(&format!("/v1/runs/{run}")).await));
    answers.push(("/v1/runs", "get", server.get("/v1/runs").await));
    answers.push(("/v1/audit", "get", server.get(&format!("/v1/audit?run={run}&limit=1")).await));
    answers.push(("/v1/audit/verify", "get", server.get(&format!("/v1/audit/verify?run={run}")).await));
    answers.push(("/v1/audit/verify", "get", server.get("/v1/audit/verify").await));
    let cancel = format!("/v1/runs/{run}/cancel");
    answers.push(("/v1/runs/{runId}/cancel", "post", server.post(&cancel, "{}").await));
    let invoked = server.post("/v1/tools/Read/invoke", r#"{"arguments":{"path":"a"}}"#).await;
    answers.push(("/v1/tools/{name}/invoke", "post", invoked));
    let waiting = server.post("/v1/tools/pay/invoke", r#"{"arguments":{"sum":1}}"#).await;
    let cancel = format!("/v1/runs/{}/cancel", waiting.json()["runId"].as_str().unwrap());
    answers.push(("/v1/tools/{name}/invoke", "post", waiting));
    answers.push(("/v1/runs/{runId}/cancel", "post", server.post(&cancel, "").await));
    answers.push(("/v1/agents", "get", server.get("/v1/agents").await));
    answers.push((
        "/v1/policy/explain",
        "post",
        server.post("/v1/policy/explain", r#"{"tool":"pay"}"#).await,
    ));
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        answers.push((path, "get", server.get(path).await));
    }
    answers
}

/// The document with every object closed: what is sent and not described is found, too.
fn closed(mut document: Value) -> Value {
    fn close(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let described = fields.get("properties").is_some_and(Value::is_object);
                if described && !fields.contains_key("additionalProperties") {
                    fields.insert("additionalProperties".into(), json!(false));
                }
                fields.values_mut().for_each(close);
            }
            Value::Array(items) => items.iter_mut().for_each(close),
            _ => {}
        }
    }
    close(&mut document["components"]["schemas"]);
    document
}

#[tokio::test]
async fn every_answer_is_one_that_the_document_describes() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let document = closed(server.get("/openapi.json").await.json());
    assert_eq!(document["openapi"], "3.1.0");
    let mut seen = std::collections::BTreeSet::new();
    for (path, method, reply) in answers(&server).await {
        let operation = &document["paths"][path][method];
        assert!(operation.is_object(), "{method} {path}");
        let response = &operation["responses"][reply.status.to_string()];
        assert!(response.is_object(), "{method} {path} {}: not described; {reply:?}", reply.status);
        let kind = reply.header("content-type").unwrap();
        let schema = &response["content"][kind]["schema"];
        assert!(schema.is_object(), "{method} {path} {} as {kind}", reply.status);
        // References are to the whole document.
        let mut whole = document.clone();
        whole["allOf"] = json!([schema]);
        let validator = jsonschema::validator_for(&whole).unwrap();
        let body = reply.json();
        let errors: Vec<_> = validator.iter_errors(&body).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:?}\n{body:#}");
        if reply.status < 400 {
            seen.insert((path, reply.status));
        }
    }
    // Every good answer that is JSON has been seen.
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let json = response["content"].get("application/json").is_some();
                let status: u16 = status.parse().unwrap();
                if json && status < 400 && (path.as_str(), status) != ("/chat", 200) {
                    assert!(
                        seen.contains(&(path.as_str(), status)),
                        "{method} {path} {status} was never given"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn every_route_of_the_document_is_there_and_no_other_method() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let document = server.get("/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 20);
    for (path, methods) in paths {
        let asked = path
            .replace("{runId}", "0198c5a0-0000-7000-8000-000000000000")
            .replace("{requestId}", "0f5a3c1e-7d64-4c53-9d61-5b7e5a1f0c11")
            .replace("{name}", "Read");
        for method in ["get", "post", "put", "patch", "delete"] {
            let bare =
                Request::new(server.address, &method.to_ascii_uppercase(), &asked).json("{}").send().await;
            let open = methods[method]["security"] == json!([]);
            let is_open_path = ["/healthz", "/readyz"].contains(&path.as_str());
            assert_eq!(bare.status == 401, !is_open_path, "{method} {path} without the token");
            let reply = server.request(&method.to_ascii_uppercase(), &asked).json("{}");
            if path.ends_with("/events") && method == "get" {
                assert!(matches!(reply.stream().await.status, 200 | 404));
                continue;
            }
            let reply = reply.send().await;
            match methods.get(method) {
                Some(operation) => {
                    assert_eq!(open, is_open_path);
                    assert!(
                        operation["responses"][reply.status.to_string()].is_object(),
                        "{method} {path} {}",
                        reply.status
                    );
                    let missing = reply.status == 404
                        && reply.json()["detail"].as_str().unwrap().contains("no such route");
                    assert!(!missing, "{method} {path}");
                }
                None => assert_eq!(reply.status, 405, "{method} {path}"),
            }
        }
    }
}

#[tokio::test]
async fn figures_are_told_in_the_text_format() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    server.decide(&request, &json!({"decision": "approve", "digest": "D1"})).await;
    let _stream = server.events(&format!("/v1/runs/{}/events", run_of(&request))).await;
    Request::new(server.address, "GET", "/v1/runs").send().await;
    server.request("BREW", "/v1/runs").send().await;
    let reply = server.get("/metrics").await;
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "holdpoint_pending 1",
        "holdpoint_streams_open 1",
        "holdpoint_unauthenticated_total 1",
        "holdpoint_decisions_total{decision=\"approve\",outcome=\"stale\"} 1",
        "holdpoint_http_request_duration_seconds_count{route=\"/chat\",method=\"POST\",status=\"202\"} 1",
        "holdpoint_http_request_duration_seconds_count{route=\"other\",method=\"other\",status=\"405\"} 1",
    ] {
        assert!(reply.body.lines().any(|found| found == line), "{line}\n{}", reply.body);
    }
    assert!(reply.body.contains("holdpoint_oldest_pending_seconds "));
    // Every line is a comment or `name{labels} number`.
    for line in reply.body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("holdpoint_") && value.parse::<f64>().is_ok(), "{line}");
    }
    server.approve(&request).await;
    server.ended(&run_of(&request)).await;
    assert!(server.get("/metrics").await.body.contains("\nholdpoint_pending 0\n"));
}

#[tokio::test]
async fn lists_are_bounded_and_a_cursor_is_good_for_its_own_list() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(run_of(&server.suspended().await));
    }
    for list in ["/v1/runs", "/v1/interactions", "/v1/audit/verify"] {
        let mut seen = Vec::new();
        let mut path = format!("{list}?limit=2");
        loop {
            let page = server.get(&path).await.json();
            seen.extend(
                page["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|item| item["runId"].as_str().unwrap().to_owned()),
            );
            let Some(next) = page["nextCursor"].as_str() else { break };
            path = format!("{list}?limit=2&cursor={next}");
        }
        seen.sort();
        let mut expected = runs.clone();
        expected.sort();
        assert_eq!(seen, expected, "{list}");
        assert_eq!(server.get(&format!("{list}?limit=1000000000")).await.status, 200);
        for bad in [
            "cursor=nonsense",
            "cursor=",
            "limit=0",
            "limit=-1",
            "limit=x",
            "statsu=pending",
            "status=lost",
            "limit=1&limit=2",
        ] {
            let reply = server.get(&format!("{list}?{bad}")).await;
            assert_eq!(reply.status, 400, "{list}?{bad}");
            reply.code();
        }
    }
    let cursor = server.get("/v1/runs?limit=1").await.json()["nextCursor"].as_str().unwrap().to_owned();
    assert_eq!(server.get(&format!("/v1/interactions?cursor={cursor}")).await.code(), "bad_cursor");

    let only =
        server.get(&format!("/v1/interactions?run={}&kind=approval&status=pending", runs[1])).await.json();
    assert_eq!(only["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.get("/v1/interactions?kind=question").await.json()["items"], json!([]));
    assert_eq!(server.get("/v1/runs?status=suspended").await.json()["items"].as_array().unwrap().len(), 3);

    let first = server.get(&format!("/v1/audit?run={}&limit=1", runs[0])).await.json();
    assert_eq!((&first["items"][0]["n"], &first["nextAfter"]), (&json!(1), &json!(1)));
    let rest = server.get(&format!("/v1/audit?run={}&after=1", runs[0])).await.json();
    assert!(rest["items"].as_array().unwrap().iter().all(|row| row["n"].as_u64().unwrap() > 1));
    assert_eq!(rest.get("nextAfter"), None);
    assert_eq!(server.get("/v1/audit").await.code(), "no_run");
    assert_eq!(server.get("/v1/audit?run=nonsense").await.code(), "bad_query");
    assert_eq!(server.get("/v1/audit?run=0198c5a0-0000-7000-8000-000000000000").await.status, 404);
    let whole = server.get(&format!("/v1/audit/verify?run={}", runs[0])).await.json();
    assert_eq!(whole["items"][0]["whole"], true);
}
