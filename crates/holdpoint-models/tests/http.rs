//! The transport: what is repeated and what is not, how long it waits, what it never tells.
#![allow(clippy::unwrap_used)] // The lint sees no test in a helper of a test.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Act, Server, answer, chunk, head, stream};
use holdpoint_core::arguments::ARGUMENTS_MAX_BYTES;
use holdpoint_core::message::{AssistantItem, Message, UserMessage};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_models::http::DOCUMENT_MAX_BYTES;
use holdpoint_models::routing::{ModelConfig, Models, Provider, Secrets, Timeouts};
use holdpoint_models::{Model, ModelError, ModelRequest, Pieces, Reply, ReplyEnd};

const KEY: &str = "hpk-live-7Q9x";

struct TestSecrets;

impl Secrets for TestSecrets {
    fn variable(&self, name: &str) -> Option<String> {
        name.ends_with("_API_KEY").then(|| KEY.to_owned())
    }
    fn file(&self, path: &Path) -> std::io::Result<String> {
        Err(std::io::Error::other(path.display().to_string()))
    }
}

fn model_of(provider: Provider, server: &Server, change: impl FnOnce(&mut ModelConfig)) -> Arc<dyn Model> {
    let mut config = ModelConfig::new(provider, "m-1");
    config.base_url = Some(format!("{}/v1", server.base));
    config.api_key_env = Some("TEST_API_KEY".into());
    config.timeouts = Timeouts {
        connect_ms: Some(2_000),
        first_byte_ms: Some(5_000),
        stall_ms: Some(5_000),
        total_ms: Some(20_000),
    };
    change(&mut config);
    let config = BTreeMap::from([("m".to_owned(), config)]);
    Models::from_config(&config, &TestSecrets).unwrap().get("m").unwrap().model.clone()
}

fn chat(server: &Server, change: impl FnOnce(&mut ModelConfig)) -> Arc<dyn Model> {
    model_of(Provider::OpenAiCompatible, server, change)
}

fn request(stream: bool) -> ModelRequest {
    ModelRequest {
        instructions: "Be brief.".into(),
        messages: vec![Arc::new(Message::User(UserMessage::text("hi")))],
        tools: [ToolDefinition::new("pay", "Pays", serde_json::json!({"type": "object"}))].into(),
        stream,
        cancel: Default::default(),
    }
}

#[derive(Default)]
struct Watched(String);

impl Pieces for Watched {
    fn text(&mut self, piece: &str) {
        self.0.push_str(piece);
    }
    fn reasoning(&mut self, _piece: &str) {}
}

async fn ask(model: &Arc<dyn Model>, stream: bool) -> (Result<Reply, ModelError>, String) {
    let mut watched = Watched::default();
    let result = model.reply(&request(stream), &mut watched).await;
    (result, watched.0)
}

fn calls(reply: &Reply) -> Vec<(String, String)> {
    reply.message.calls().map(|call| (call.id.clone(), call.arguments.clone())).collect()
}

const HI: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n";
const PAY: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"pay\",\"arguments\":\"{\\\"sum\\\":1}\"}}]}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn good() -> Vec<Act> {
    stream(&[HI, PAY, END, DONE], true)
}

#[tokio::test]
async fn a_streamed_reply_is_shown_as_it_comes_and_its_calls_stand_at_the_end() {
    // Each frame cut in two.
    let (one, two) = PAY.split_at(PAY.len() / 2);
    let server = Server::start(vec![stream(&[HI, one, two, END, DONE], true)]).await;
    let (reply, shown) = ask(&chat(&server, |_| {}), true).await;
    let reply = reply.unwrap();
    assert_eq!((reply.end.clone(), shown.as_str()), (ReplyEnd::Complete, "Hi"));
    assert_eq!(calls(&reply), [("c1".into(), "{\"sum\":1}".into())]);
    let sent = &server.requests()[0];
    assert!(sent.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{sent}");
    assert!(sent.contains(&format!("authorization: Bearer {KEY}\r\n")), "{sent}");
    assert!(sent.contains("\"stream\":true") && sent.contains("\"model\":\"m-1\""), "{sent}");
}

#[tokio::test]
async fn each_provider_is_asked_at_its_address_with_its_headers() {
    let anthropic = r#"{"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}"#;
    let responses = r#"{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}]}"#;
    let chat = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    for (provider, body, path, header) in [
        (Provider::OpenAi, chat, "/v1/chat/completions", "authorization: Bearer "),
        (Provider::OpenAiResponses, responses, "/v1/responses", "authorization: Bearer "),
        (Provider::Anthropic, anthropic, "/v1/messages", "anthropic-version: 2023-06-01\r\nx-api-key: "),
        (
            Provider::Azure,
            chat,
            "/v1/openai/deployments/m-1/chat/completions?api-version=2024-10-21",
            "api-key: ",
        ),
    ] {
        let server = Server::start(vec![answer(200, "content-type: application/json\r\n", body)]).await;
        let (reply, shown) = ask(&model_of(provider, &server, |_| {}), false).await;
        assert_eq!(reply.unwrap().message.text(), "Hi", "{provider}");
        assert_eq!(shown, "", "{provider}: nobody streams");
        let sent = &server.requests()[0];
        assert!(sent.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{provider}: {sent}");
        assert!(sent.contains(&format!("{header}{KEY}")), "{provider}: {sent}");
    }
}

#[tokio::test]
async fn a_document_for_a_stream_and_a_stream_for_a_document_are_read() {
    let body = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    for kind in ["content-type: application/json\r\n", "content-type: text/plain\r\n", ""] {
        let server = Server::start(vec![answer(200, kind, body)]).await;
        let (reply, shown) = ask(&chat(&server, |_| {}), true).await;
        assert_eq!((reply.unwrap().message.text().as_str(), shown.as_str()), ("Hi", "Hi"), "{kind:?}");
    }
    for kind in ["content-type: text/event-stream; charset=utf-8\r\n", ""] {
        let server = Server::start(vec![answer(200, kind, &format!("{PAY}{END}{DONE}"))]).await;
        let (reply, _) = ask(&chat(&server, |_| {}), false).await;
        assert_eq!(calls(&reply.unwrap()).len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn an_error_page_with_200_is_an_error() {
    for (headers, body, says) in [
        ("content-type: text/html\r\n", "<html>Sign in</html>", "text/html, which is no reply"),
        ("content-type: text/html\r\n", "data: x", "text/html, which is no reply"),
        ("", "Bad gateway", "an unknown type, which is no reply"),
        ("content-type: text/event-stream\r\n", "", "an empty body"),
        ("content-type: text/event-stream\r\ncontent-encoding: gzip\r\n", "data: x", "compressed its reply"),
    ] {
        let server = Server::start(vec![answer(200, headers, body)]).await;
        let error = ask(&chat(&server, |config| config.retries = Some(0)), true).await.0.unwrap_err();
        assert_eq!(error.code, "provider_error");
        assert!(error.message.contains(says), "{}", error.message);
    }
}

#[tokio::test]
async fn a_request_is_repeated_while_nothing_was_shown() {
    let busy = answer(429, "retry-after-ms: 10\r\n", "{}");
    let (half, _) = PAY.split_at(PAY.len() - 20);
    // Refused; then cut in the middle of a call, which nobody saw; then answered.
    let server = Server::start(vec![busy, stream(&[half], false), good()]).await;
    let (reply, _) = ask(&chat(&server, |_| {}), true).await;
    assert_eq!(calls(&reply.unwrap()).len(), 1);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_request_is_not_repeated_once_something_was_shown() {
    for cut in [vec![], vec![Act::Cut]] {
        let mut acts = stream(&[HI, PAY], false);
        acts.extend(cut);
        let server = Server::start(vec![acts, good()]).await;
        let (reply, shown) = ask(&chat(&server, |_| {}), true).await;
        let reply = reply.unwrap();
        assert!(
            matches!(&reply.end, ReplyEnd::Interrupted(why) if why.contains("connection was lost")),
            "{:?}",
            reply.end
        );
        assert_eq!((shown.as_str(), reply.message.text().as_str()), ("Hi", "Hi"));
        assert_eq!((calls(&reply).len(), server.requests().len()), (0, 1));
    }
}

#[tokio::test]
async fn what_cannot_help_is_not_repeated() {
    let long_wait = answer(429, "retry-after: 3600\r\n", "{}");
    for (status, acts, code) in [
        (400, answer(400, "", r#"{"error":{"message":"no such model"}}"#), "bad_request"),
        (401, answer(401, "", "{}"), "unauthorized"),
        (429, long_wait, "rate_limited"),
        // The key must not follow a redirect.
        (307, answer(307, "location: http://127.0.0.1:9/\r\n", ""), "provider_error"),
    ] {
        let server = Server::start(vec![acts]).await;
        let error = ask(&chat(&server, |_| {}), true).await.0.unwrap_err();
        assert_eq!((error.code, server.requests().len()), (code, 1), "{status}: {error}");
    }
}

#[tokio::test]
async fn repetitions_end() {
    let server = Server::start(vec![answer(503, "retry-after-ms: 1\r\n", "{}")]).await;
    let error = ask(&chat(&server, |config| config.retries = Some(3)), false).await.0.unwrap_err();
    assert_eq!((error.code, error.retryable, server.requests().len()), ("overloaded", true, 4));
}

#[tokio::test]
async fn a_provider_that_keeps_failing_is_left_alone() {
    let server = Server::start(vec![answer(500, "", "{}")]).await;
    let model = chat(&server, |config| config.retries = Some(0));
    for _ in 0..5 {
        assert_eq!(ask(&model, true).await.0.unwrap_err().code, "provider_error");
    }
    let error = ask(&model, true).await.0.unwrap_err();
    assert_eq!(error.code, "overloaded");
    assert!(error.message.contains("left alone") && error.retry_after.is_some(), "{error}");
    assert_eq!(server.requests().len(), 5, "the sixth never left");
}

#[tokio::test]
async fn every_kind_of_silence_has_its_end() {
    let long = Act::Wait(Duration::from_secs(30));
    let begun = Instant::now();
    let quick = |config: &mut ModelConfig| {
        config.timeouts.first_byte_ms = Some(150);
        config.timeouts.stall_ms = Some(150);
        config.retries = Some(0);
    };
    // No answer at all; a head and then nothing.
    let head_only = head(200, "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n");
    for acts in [vec![long.clone()], vec![Act::Send(head_only), long.clone()]] {
        let server = Server::start(vec![acts]).await;
        let error = ask(&chat(&server, quick), true).await.0.unwrap_err();
        assert!(error.retryable, "{error}");
    }
    // A reply that stalls.
    let mut acts = stream(&[HI], false);
    acts.push(long.clone());
    let server = Server::start(vec![acts]).await;
    let reply = ask(&chat(&server, quick), true).await.0.unwrap();
    assert_eq!(reply.end, ReplyEnd::Interrupted("nothing more came in time".into()));
    // Comments are life: they keep the stream open beyond the stall, until the whole takes too long.
    let mut acts = stream(&[HI], false);
    for _ in 0..100 {
        acts.extend([chunk(": still here\n\n"), Act::Wait(Duration::from_millis(50))]);
    }
    let server = Server::start(vec![acts]).await;
    let slow = chat(&server, |config| {
        quick(config);
        config.timeouts.total_ms = Some(600);
    });
    let before = Instant::now();
    let reply = ask(&slow, true).await.0.unwrap();
    assert!(matches!(reply.end, ReplyEnd::Interrupted(_)));
    assert!(before.elapsed() >= Duration::from_millis(550), "{:?}", before.elapsed());
    // Nobody there.
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/v1", listener.local_addr().unwrap())
    };
    let server = Server::start(vec![vec![]]).await;
    let model = chat(&server, |config| {
        config.base_url = Some(dead);
        config.retries = Some(1);
    });
    let error = ask(&model, true).await.0.unwrap_err();
    assert!(error.message.contains("cannot be reached") && !error.message.contains("127.0.0.1"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_cancel_ends_the_request_and_hangs_up() {
    let mut acts = stream(&[HI], false);
    acts.push(Act::Wait(Duration::from_secs(30)));
    let server = Server::start(vec![acts]).await;
    let model = chat(&server, |_| {});
    let request = request(true);
    let cancel = request.cancel.clone();
    let asked = tokio::spawn(async move { model.reply(&request, &mut Watched::default()).await });
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cancel.cancel();
    assert_eq!(asked.await.unwrap().unwrap_err(), ModelError::cancelled());
    let begun = Instant::now();
    while server.gone() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "the connection was kept");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_key_is_never_told() {
    let echo = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}, sk-ab***yz"}}}}"#);
    let server = Server::start(vec![answer(401, "", &echo)]).await;
    let model = chat(&server, |config| {
        config.headers.insert("x-tenant".into(), "tenant-secret-9".to_owned().into());
    });
    let error = ask(&model, true).await.0.unwrap_err();
    assert_eq!(
        error.message,
        "the provider answered 401: Incorrect API key provided: [redacted], [redacted]"
    );
    let frame = format!("data: {{\"error\":\"{KEY} tenant-secret-9\"}}\n\n");
    let server = Server::start(vec![stream(&[PAY, &frame], true)]).await;
    let reply = ask(&chat(&server, |config| config.retries = Some(0)), true).await.0.unwrap();
    let ReplyEnd::Interrupted(why) = reply.end else { panic!("{:?}", reply.end) };
    assert!(why.contains("[redacted]") && !why.contains(KEY), "{why}");
}

#[tokio::test]
async fn a_line_without_end_is_given_up() {
    // CVE-2026-67432 is of this kind: memory must not grow with what is sent.
    let mut acts =
        vec![Act::Send(head(200, "content-type: text/event-stream\r\n")), Act::Send(b"data: ".to_vec())];
    acts.push(Act::Repeat(vec![b'x'; 1024 * 1024], 64));
    let server = Server::start(vec![acts]).await;
    let error = ask(&chat(&server, |config| config.retries = Some(0)), true).await.0.unwrap_err();
    assert_eq!(error.code, "provider_error");
    assert!(error.message.contains("a line over"), "{error}");
}

#[tokio::test]
async fn fifty_megabytes_of_arguments_end_as_one_call_that_is_too_large() {
    let piece = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{}\"}}}}]}}}}]}}\n\n",
        "x".repeat(64 * 1024)
    );
    let acts = vec![
        Act::Send(head(200, "content-type: text/event-stream\r\n")),
        Act::Send(PAY.as_bytes().to_vec()),
        Act::Repeat(piece.into_bytes(), 800),
        Act::Send(format!("{END}{DONE}").into_bytes()),
    ];
    let server = Server::start(vec![acts]).await;
    let reply = ask(&chat(&server, |_| {}), true).await.0.unwrap();
    assert_eq!(reply.end, ReplyEnd::Complete);
    assert_eq!(calls(&reply)[0].1.len(), ARGUMENTS_MAX_BYTES + 1);
}

#[tokio::test]
async fn a_paused_reply_is_taken_up_again() {
    let paused = r#"{"content":[{"type":"text","text":"Searching. "},{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}],"stop_reason":"pause_turn","usage":{"input_tokens":10,"output_tokens":2}}"#;
    let rest = r#"{"content":[{"type":"text","text":"Found."},{"type":"tool_use","id":"t1","name":"pay","input":{"sum":1}}],"stop_reason":"tool_use","usage":{"input_tokens":12,"output_tokens":3}}"#;
    let json = "content-type: application/json\r\n";
    let server = Server::start(vec![answer(200, json, paused), answer(200, json, rest)]).await;
    let reply = ask(&model_of(Provider::Anthropic, &server, |_| {}), false).await.0.unwrap();
    assert_eq!((reply.end.clone(), reply.message.text().as_str()), (ReplyEnd::Complete, "Searching. Found."));
    assert_eq!(reply.message.items.iter().filter(|item| matches!(item, AssistantItem::Opaque(_))).count(), 1);
    assert_eq!((calls(&reply).len(), reply.usage.input_tokens, reply.usage.output_tokens), (1, 22, 5));
    assert!(
        server.requests()[1]
            .contains(r#""role":"assistant","content":[{"type":"text","text":"Searching. "}"#)
    );

    // One that pauses for ever does not keep us for ever.
    let server = Server::start(vec![answer(200, json, paused)]).await;
    let reply = ask(&model_of(Provider::Anthropic, &server, |_| {}), false).await.0.unwrap();
    assert!(matches!(&reply.end, ReplyEnd::Interrupted(why) if why.contains("paused")));
    assert_eq!(server.requests().len(), 9);
}

#[tokio::test]
async fn a_document_without_end_is_given_up() {
    let acts = vec![
        Act::Send(head(200, "content-type: application/json\r\n")),
        Act::Send(b"{".to_vec()),
        Act::Repeat(vec![b' '; 1024 * 1024], DOCUMENT_MAX_BYTES / (1024 * 1024) + 8),
    ];
    let server = Server::start(vec![acts]).await;
    let error = ask(&chat(&server, |config| config.retries = Some(0)), false).await.0.unwrap_err();
    assert!(error.message.contains("a body over"), "{error}");
}
