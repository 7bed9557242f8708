//! Rig's models behind our trait: what stands, what goes back, and that argument text is what was sent.
#![allow(clippy::unwrap_used)] // The lint sees no test in a helper of a test.

use std::sync::Arc;

use holdpoint_core::message::{Message, ResultContent, ToolMessage, UserMessage};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_models::{Model, ModelError, ModelRequest, Pieces, Reply, ReplyEnd, Usage};
use holdpoint_protocol::{Executed, Status};
use holdpoint_rig::RigModel;
use rig_core::completion::{FinishReason, Usage as RigUsage};
use rig_core::message::{AssistantContent, Message as RigMessage, UserContent};
use rig_core::operation::Finish;
use rig_core::test_utils::{MockCompletionModel, MockStreamEvent};

fn request(messages: Vec<Message>, stream: bool) -> ModelRequest {
    ModelRequest {
        instructions: "You pay.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: [ToolDefinition::new("pay", "Pays", serde_json::json!({"type": "object"}))].into(),
        stream,
        cancel: Default::default(),
    }
}

#[derive(Default)]
struct Watched(String, String);

impl Pieces for Watched {
    fn text(&mut self, piece: &str) {
        self.0.push_str(piece);
    }
    fn reasoning(&mut self, piece: &str) {
        self.1.push_str(piece);
    }
}

fn user() -> Message {
    Message::User(UserMessage::text("pay both"))
}

fn end(reason: Option<FinishReason>) -> MockStreamEvent {
    let usage = RigUsage::new().input_tokens(11).output_tokens(7);
    MockStreamEvent::FinalResponse(Finish { usage, reason, ..Finish::default() })
}

fn call(id: &str, pieces: &[&str]) -> Vec<MockStreamEvent> {
    let mut events = vec![MockStreamEvent::tool_call_name_delta(id, "pay")];
    events.extend(pieces.iter().map(|piece| MockStreamEvent::tool_call_arguments_delta(id, *piece)));
    events.push(MockStreamEvent::tool_call_end(id));
    events
}

async fn ask(turn: Vec<MockStreamEvent>, stream: bool) -> (Result<Reply, ModelError>, Watched) {
    let model = RigModel::new("mock", MockCompletionModel::from_stream_turns([turn]));
    let mut watched = Watched::default();
    let result = model.reply(&request(vec![user()], stream), &mut watched).await;
    (result, watched)
}

fn calls(reply: &Reply) -> Vec<(&str, &str)> {
    reply.message.calls().map(|call| (call.id.as_str(), call.arguments.as_str())).collect()
}

#[tokio::test]
async fn text_and_calls_are_read_and_argument_text_is_what_was_sent() {
    for stream in [true, false] {
        let mut turn = vec![MockStreamEvent::reasoning_delta("hm"), MockStreamEvent::text("On it.")];
        turn.extend(call("c1", &[r#"{"sum": 1"#, r#".10,"n":12345678901234567890123}"#]));
        // Rig would take the last of two equal keys in silence; the gate gets both and refuses.
        turn.extend(call("c2", &[r#"{"to":"a","to":"b"}"#]));
        turn.push(end(Some(FinishReason::Stop)));
        let (reply, watched) = ask(turn, stream).await;
        let reply = reply.unwrap();
        assert_eq!(reply.end, ReplyEnd::Complete);
        assert_eq!(
            calls(&reply),
            [("c1", r#"{"sum": 1.10,"n":12345678901234567890123}"#), ("c2", r#"{"to":"a","to":"b"}"#)]
        );
        assert_eq!(reply.usage, Usage { input_tokens: 11, output_tokens: 7 });
        assert_eq!(reply.message.text(), "On it.");
        let shown = if stream { ("On it.", "hm") } else { ("", "") };
        assert_eq!((watched.0.as_str(), watched.1.as_str()), shown);
    }
}

#[tokio::test]
async fn broken_arguments_are_not_repaired() {
    let mut turn = call("c1", &[r#"{"path":"a","mode":"#]);
    turn.push(end(None));
    let (reply, _) = ask(turn, true).await;
    assert_eq!(calls(&reply.unwrap()), [("c1", r#"{"path":"a","mode":"#)]);
}

#[tokio::test]
async fn nothing_stands_of_a_reply_that_did_not_end_well() {
    type Check = fn(&ReplyEnd) -> bool;
    let interrupted: Check = |end| matches!(end, ReplyEnd::Interrupted(_));
    let cases: Vec<(&str, Option<MockStreamEvent>, Check)> = vec![
        ("length", Some(end(Some(FinishReason::Length))), |end| *end == ReplyEnd::Length),
        ("filter", Some(end(Some(FinishReason::ContentFilter))), |end| *end == ReplyEnd::Filtered),
        ("an unknown word", Some(end(Some(FinishReason::Other("wibble".into())))), interrupted),
        ("an error", Some(MockStreamEvent::error("boom")), interrupted),
        ("no end", None, interrupted),
    ];
    for (title, last, ends_so) in cases {
        let mut turn = vec![MockStreamEvent::text("On it.")];
        turn.extend(call("c1", &[r#"{"sum":1}"#]));
        turn.extend(last);
        let reply = ask(turn, true).await.0.unwrap();
        assert!(ends_so(&reply.end), "{title}: {:?}", reply.end);
        assert_eq!((calls(&reply).len(), reply.message.text().as_str()), (0, "On it."), "{title}");
        assert_eq!(reply.message.incomplete, reply.end.status(), "{title}");
    }
}

#[tokio::test]
async fn an_error_before_anything_is_an_error_without_the_providers_words() {
    let (result, _) = ask(vec![MockStreamEvent::error("key sk-1234 is wrong")], true).await;
    let error = result.unwrap_err();
    assert_eq!(error.code, "provider_error");
    assert!(!error.message.contains("sk-1234"), "{error}");
}

fn result(index: u32, content: ResultContent) -> Message {
    Message::Tool(ToolMessage {
        index,
        id: String::new(),
        name: "pay".into(),
        status: Status::Succeeded,
        code: "OK".into(),
        executed: Executed::Yes,
        content,
        is_error: false,
    })
}

#[tokio::test]
async fn a_reply_goes_back_as_rig_made_it_with_its_results_in_order() {
    let mut first = call("c1", &[r#"{"sum":1}"#]);
    first.extend(call("c2", &[r#"{"sum":2}"#]));
    first.push(end(None));
    let mock =
        MockCompletionModel::from_stream_turns([first, vec![MockStreamEvent::text("done"), end(None)]]);
    let model = RigModel::new("mock", mock.clone());
    let reply = model.reply(&request(vec![user()], false), &mut Watched::default()).await.unwrap();
    // Stored and read again in between.
    let stored = serde_json::to_string(&reply.message).unwrap();
    let message = serde_json::from_str(&stored).unwrap();
    let declined = serde_json::value::RawValue::from_string(r#"{"status":"declined"}"#.into()).unwrap();
    let history = vec![
        user(),
        Message::Assistant(message),
        result(0, ResultContent::Json(declined)),
        result(1, ResultContent::Text("paid".into())),
    ];
    let reply = model.reply(&request(history, false), &mut Watched::default()).await.unwrap();
    assert_eq!(reply.message.text(), "done");

    let requests = mock.requests();
    let [
        RigMessage::System { .. },
        RigMessage::User { .. },
        RigMessage::Assistant(sent),
        RigMessage::User { content },
    ] = requests[1].chat_history.as_slice()
    else {
        panic!("{:?}", requests[1].chat_history)
    };
    assert!(sent.origin.is_some(), "rig's own message, not one built anew");
    let ids: Vec<_> = sent.tool_calls().map(|call| call.id.clone()).collect();
    let answered: Vec<_> = content
        .iter()
        .map(|part| match part {
            UserContent::ToolResult(result) => result.call.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids, answered);
}

#[tokio::test]
async fn a_conversation_begun_elsewhere_goes_on_with_rig() {
    let mock = MockCompletionModel::from_stream_turns([vec![MockStreamEvent::text("done"), end(None)]]);
    let model = RigModel::new("mock", mock.clone());
    let message = serde_json::json!({"wire": "anthropic", "items": [
        {"reasoning": {"text": "hm", "signature": "SIG"}},
        {"text": "On it."},
        {"call": {"id": "", "name": "pay", "arguments": "{\"sum\":"}},
    ]});
    let history = vec![
        user(),
        Message::Assistant(serde_json::from_value(message).unwrap()),
        result(0, ResultContent::Text("x".into())),
    ];
    model.reply(&request(history, false), &mut Watched::default()).await.unwrap();
    let requests = mock.requests();
    let RigMessage::Assistant(sent) = &requests[0].chat_history[2] else {
        panic!("{:?}", requests[0].chat_history)
    };
    let [AssistantContent::Text(text), AssistantContent::ToolCall(call)] = sent.content.as_slice() else {
        panic!("{:?}", sent.content)
    };
    assert_eq!(text.text, "On it.");
    assert!(!call.id.wire().is_empty() && call.function.invalid_arguments.is_none(), "{call:?}");
}

#[tokio::test]
async fn a_cancel_ends_the_request() {
    let model = RigModel::new("mock", MockCompletionModel::from_stream_turns([vec![end(None)]]));
    let request = request(vec![user()], true);
    request.cancel.cancel();
    assert_eq!(model.reply(&request, &mut Watched::default()).await.unwrap_err(), ModelError::cancelled());
}
