//! What the wires write: one conversation, begun with one provider and going on with another, as each of them is sent
//! it. The snapshots are the request bodies.
#![allow(clippy::unwrap_used)] // The lint sees no test in a helper of a test.

use std::sync::Arc;

use holdpoint_core::message::*;
use holdpoint_core::tool::ToolDefinition;
use holdpoint_models::wire::anthropic::{self, Anthropic};
use holdpoint_models::wire::chat::{self, Chat, Profile};
use holdpoint_models::wire::responses::{self, Responses};
use holdpoint_models::wire::{Wire, WireOptions};
use holdpoint_models::{ModelRequest, Unwatched};
use holdpoint_protocol::{Executed, RawJson, Status};

fn raw(text: &str) -> RawJson {
    RawJson::from(serde_json::value::RawValue::from_string(text.into()).unwrap())
}

fn call(id: &str, name: &str, arguments: &str) -> AssistantItem {
    AssistantItem::Call(ProposedCall { id: id.into(), name: name.into(), arguments: arguments.into() })
}

fn reply(wire: &str, items: Vec<AssistantItem>) -> Message {
    Message::Assistant(AssistantMessage { items, wire: wire.into(), incomplete: None })
}

fn result(index: u32, name: &str, content: ResultContent) -> Message {
    Message::Tool(ToolMessage {
        index,
        // The provider's id is data: the encoder must not need it.
        id: String::new(),
        name: name.into(),
        status: Status::Succeeded,
        code: "OK".into(),
        executed: Executed::Yes,
        content,
        is_error: false,
    })
}

fn text(text: &str) -> ResultContent {
    ResultContent::Text(text.into())
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let schema = serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}});
    ModelRequest {
        instructions: "You are a build assistant.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: [ToolDefinition::new("Read", "Reads a file", schema)].into(),
        stream: true,
        cancel: Default::default(),
    }
}

fn options() -> WireOptions {
    let extra = serde_json::from_str(r#"{"temperature":0.5}"#).unwrap();
    WireOptions { model: "m-1".into(), max_output_tokens: Some(100), extra }
}

fn chat(profile: Profile) -> Chat {
    Chat { options: options(), profile, origin: "host".into() }
}

fn wires() -> Vec<(&'static str, Box<dyn Wire>)> {
    vec![
        ("chat_strict", Box::new(chat(Profile::STRICT))),
        ("chat_openai", Box::new(chat(Profile::OPENAI))),
        ("chat_mistral", Box::new(chat(Profile::MISTRAL))),
        ("chat_gemini", Box::new(chat(Profile::GEMINI))),
        ("chat_echoing", Box::new(chat(Profile::ECHOING))),
        ("anthropic", Box::new(Anthropic { options: options() })),
        ("responses", Box::new(Responses { options: options(), encrypted_reasoning: true })),
    ]
}

fn body(wire: &dyn Wire, request: &ModelRequest) -> String {
    let body = wire.encode(request, &[]).unwrap();
    // Pretty, for the snapshot alone; exactness of numbers is tested on the bytes.
    let mut body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    hide_reasons(&mut body);
    serde_json::to_string_pretty(&body).unwrap()
}

/// Why arguments are invalid is said, and tested, elsewhere: here it only matters that the form is valid.
fn hide_reasons(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            if let Some(why) = fields.get_mut("invalid_arguments") {
                *why = "...".into();
            }
            fields.values_mut().for_each(hide_reasons);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(hide_reasons),
        serde_json::Value::String(text) if text.starts_with("{\"invalid_arguments\":") => {
            let valid: serde_json::Value = serde_json::from_str(text).unwrap();
            assert!(valid["invalid_arguments"].is_string());
            *text = "{\"invalid_arguments\":\"...\"}".into();
        }
        _ => {}
    }
}

/// Everything that is hard to send, in one conversation.
fn hard_conversation() -> Vec<Message> {
    vec![
        Message::User(UserMessage {
            parts: vec![
                UserPart::Text("What is in this picture?".into()),
                UserPart::Image { media_type: "image/png".into(), data: "aGk=".into() },
            ],
        }),
        reply(
            anthropic::WIRE,
            vec![
                AssistantItem::Reasoning {
                    text: "Look.".into(),
                    signature: Some("SIG==".into()),
                    native: None,
                },
                AssistantItem::Opaque(raw(r#"{"type":"redacted_thinking","data":"EmwK"}"#)),
                AssistantItem::Text("Let me see.".into()),
                call("toolu_1", "Read", r#"{"path": "a", "size": 9007199254740993}"#),
                call("", "Read", ""),
            ],
        ),
        result(0, "Read", text("3.0 + 5.0 = 8.0")),
        result(1, "Read", text("")),
        reply(
            responses::WIRE,
            vec![
                AssistantItem::Reasoning {
                    text: "Next.".into(),
                    signature: None,
                    native: Some(raw(
                        r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gA=="}"#,
                    )),
                },
                AssistantItem::Opaque(raw(r#"{"type":"web_search_call","id":"ws_1"}"#)),
                call("toolu_1", "Read", r#"{"path":"b","mode":"#),
                call("call:with/odd.characters", "a tool, that never was", r#"{"a":1,"a":2}"#),
            ],
        ),
        result(0, "Read", ResultContent::Json(raw(r#"{"status":"invalid_arguments","executed":"no"}"#))),
        result(1, "a tool, that never was", ResultContent::Json(raw("[1,2.50]"))),
        reply(
            chat::WIRE,
            vec![
                AssistantItem::Reasoning {
                    text: String::new(),
                    signature: None,
                    native: Some(raw(r#"{"from":"host","field":"reasoning_content"}"#)),
                },
                call("gm-8", "Read", r#"{"path":"c"}"#),
                AssistantItem::Opaque(raw(
                    r#"{"from":"host","call":0,"fields":{"extra_content":{"google":{"thought_signature":"S=="}}}}"#,
                )),
                AssistantItem::Opaque(raw(
                    r#"{"from":"host","fields":{"reasoning_details":[{"type":"reasoning.encrypted"}]}}"#,
                )),
            ],
        ),
        result(
            0,
            "Read",
            ResultContent::Parts(vec![
                ResultPart::Text("A chart:".into()),
                ResultPart::Image { media_type: "image/jpeg".into(), data: "eA==".into() },
            ]),
        ),
        Message::Assistant(AssistantMessage {
            items: vec![
                AssistantItem::Text("It shows".into()),
                AssistantItem::Reasoning {
                    text: "half".into(),
                    signature: Some("HALF".into()),
                    native: None,
                },
            ],
            wire: anthropic::WIRE.into(),
            incomplete: Some(Status::StreamInterrupted),
        }),
        Message::Note("your last reply broke off".into()),
        Message::User(UserMessage::text("Go on.")),
        Message::User(UserMessage::text("  ")),
    ]
}

#[test]
fn a_conversation_begun_with_one_provider_goes_on_with_another() {
    let request = request(hard_conversation());
    for (name, wire) in wires() {
        insta::assert_snapshot!(name, body(wire.as_ref(), &request));
    }
}

#[test]
fn argument_text_and_provider_items_reach_the_wire_byte_for_byte() {
    let request = request(hard_conversation());
    let sent = |wire: &dyn Wire| String::from_utf8(wire.encode(&request, &[]).unwrap()).unwrap();
    let own = sent(&Anthropic { options: options() });
    assert!(own.contains(r#""input":{"path": "a", "size": 9007199254740993}"#), "{own}");
    assert!(own.contains(r#"{"type":"redacted_thinking","data":"EmwK"}"#), "{own}");
    let strict = sent(&chat(Profile::STRICT));
    assert!(strict.contains(r#""arguments":"{\"path\": \"a\", \"size\": 9007199254740993}""#), "{strict}");
    let gemini = sent(&chat(Profile::GEMINI));
    assert!(gemini.contains(r#""content":"{\"result\":[1,2.50]}""#), "{gemini}");
    assert!(gemini.contains(r#""content":"{\"result\":\"3.0 + 5.0 = 8.0\"}""#), "{gemini}");
}

/// Walks a body and collects what pairs calls with results.
fn ids(body: &str) -> (Vec<String>, Vec<String>) {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let mut stack = vec![&body];
    while let Some(value) = stack.pop() {
        let text = |key: &str| value.get(key).and_then(|v| v.as_str()).map(str::to_owned);
        match text("type").as_deref() {
            Some("function") => calls.extend(text("id")),
            Some("tool_use") => calls.extend(text("id")),
            Some("function_call") => calls.extend(text("call_id")),
            Some("tool_result") => results.extend(text("tool_use_id")),
            Some("function_call_output") => results.extend(text("call_id")),
            Some(_) | None => results.extend(text("tool_call_id")),
        }
        match value {
            serde_json::Value::Array(items) => stack.extend(items),
            serde_json::Value::Object(fields) => stack.extend(fields.values()),
            _ => {}
        }
    }
    calls.sort();
    results.sort();
    (calls, results)
}

#[test]
fn ids_are_unique_legal_and_the_same_in_call_and_result() {
    let request = request(hard_conversation());
    for (name, wire) in wires() {
        let (calls, results) = ids(&body(wire.as_ref(), &request));
        assert_eq!(calls.len(), 5, "{name}");
        assert_eq!(calls, results, "{name}");
        let mut unique = calls.clone();
        unique.dedup();
        assert_eq!(unique, calls, "{name}");
        for id in calls {
            let nine = id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
            assert!(!id.is_empty() && id.len() <= 40 && (name != "chat_mistral" || nine), "{name}: {id:?}");
        }
    }
}

#[test]
fn minted_ids_are_the_same_in_the_next_request() {
    let mut messages = hard_conversation();
    let before = ids(&body(&chat(Profile::MISTRAL), &request(messages.clone()))).0;
    messages.push(reply(chat::WIRE, vec![call("", "Read", "{}")]));
    messages.push(result(0, "Read", text("x")));
    let after = ids(&body(&chat(Profile::MISTRAL), &request(messages))).0;
    assert!(before.iter().all(|id| after.contains(id)), "{before:?} {after:?}");
}

#[test]
fn a_history_that_is_not_whole_is_refused_by_name() {
    let user = || Message::User(UserMessage::text("hi"));
    for (messages, says) in [
        (vec![user(), reply("", vec![call("a", "Read", "{}")])], "the call of tool `Read` has no result"),
        (
            vec![user(), reply("", vec![call("a", "Read", "{}")]), user()],
            "the call of tool `Read` has no result",
        ),
        (vec![user(), result(0, "Read", text("x"))], "a result of tool `Read` belongs to no call"),
        (
            vec![user(), reply("", vec![call("a", "Read", "{}")]), result(1, "Read", text("x"))],
            "a result of tool `Read` belongs to no call",
        ),
        (
            vec![
                user(),
                reply("", vec![call("a", "Read", "{}")]),
                result(0, "Read", text("x")),
                result(0, "Read", text("x")),
            ],
            "a result of tool `Read` belongs to no call",
        ),
    ] {
        for (name, wire) in wires() {
            let error = wire.encode(&request(messages.clone()), &[]).unwrap_err();
            assert_eq!(error.code, "bad_request", "{name}");
            assert!(error.message.contains(says), "{name}: {}", error.message);
        }
    }
}

#[test]
fn nothing_empty_is_sent() {
    let nothing = ModelRequest {
        instructions: " ".into(),
        tools: Arc::new([]),
        stream: false,
        ..request(vec![
            reply(chat::WIRE, vec![AssistantItem::Text("Hello, I begin.".into())]),
            Message::User(UserMessage::text("hi")),
            reply(chat::WIRE, vec![AssistantItem::Text(" ".into())]),
            reply(chat::WIRE, vec![]),
            Message::User(UserMessage::text("still there?")),
        ])
    };
    for (name, wire) in wires() {
        insta::assert_snapshot!(format!("{name}_nothing_empty"), body(wire.as_ref(), &nothing));
    }
}

#[test]
fn what_a_provider_sent_goes_back_to_it_as_it_was() {
    // Read a reply with reasoning and a call, send it back: the provider gets its own items again.
    let sse = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"I must.\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"id\":\"gm-8\",\"function\":{\"name\":\"Read\",",
        "\"arguments\":\"{}\"},\"extra_content\":{\"google\":{\"thought_signature\":\"SIG==\"}}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    );
    let wire = chat(Profile::ECHOING);
    let mut reading = holdpoint_models::wire::StreamReading::new(&wire);
    reading.push(sse.as_bytes(), &mut Unwatched);
    let message = reading.finish(None, &mut Unwatched).unwrap().reply.message;
    // Also after it was stored and read again.
    let stored = serde_json::to_string(&message).unwrap();
    let message: AssistantMessage = serde_json::from_str(&stored).unwrap();
    let history = vec![
        Message::User(UserMessage::text("hi")),
        Message::Assistant(message),
        result(0, "Read", text("x")),
    ];
    let sent = String::from_utf8(wire.encode(&request(history.clone()), &[]).unwrap()).unwrap();
    assert!(sent.contains(r#""reasoning_content":"I must.""#), "{sent}");
    assert!(sent.contains(r#""extra_content":{"google":{"thought_signature":"SIG=="}}"#), "{sent}");

    // Another server of the same wire did not make them, and may refuse what it does not know.
    let other = Chat { origin: "other".into(), ..wire };
    let sent = String::from_utf8(other.encode(&request(history), &[]).unwrap()).unwrap();
    assert!(!sent.contains("extra_content") && !sent.contains("I must."), "{sent}");
}

#[test]
fn a_paused_reply_goes_back_as_the_last_message() {
    let paused = AssistantMessage {
        items: vec![
            AssistantItem::Text("Searching.".into()),
            AssistantItem::Opaque(raw(r#"{"type":"server_tool_use","id":"s1"}"#)),
        ],
        wire: anthropic::WIRE.into(),
        incomplete: None,
    };
    let body = Anthropic { options: options() }
        .encode(&request(vec![Message::User(UserMessage::text("hi"))]), &[paused])
        .unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let last = body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(
        last,
        &serde_json::json!({"role": "assistant", "content": [
            {"type": "text", "text": "Searching."}, {"type": "server_tool_use", "id": "s1"}
        ]})
    );
}
