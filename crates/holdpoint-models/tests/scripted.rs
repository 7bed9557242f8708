//! The scripted model: what it matches, what it answers, what it keeps.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_core::message::*;
use holdpoint_core::tool::ToolDefinition;
use holdpoint_models::scripted::{Answer, ResultMatch, Scripted, When};
use holdpoint_models::*;
use holdpoint_protocol::{Executed, Status};

fn user(text: &str) -> Message {
    Message::User(UserMessage::text(text))
}

fn result(name: &str, text: &str, status: Status) -> Message {
    Message::Tool(ToolMessage {
        index: 0,
        id: "c1".into(),
        name: name.into(),
        status,
        code: "OK".into(),
        executed: Executed::Yes,
        content: ResultContent::Text(text.into()),
        is_error: false,
    })
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        instructions: "You are a build assistant.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: [ToolDefinition::new("Read", "Reads", serde_json::json!({"type": "object"}))].into(),
        stream: true,
        cancel: Default::default(),
    }
}

#[derive(Default)]
struct Watched(Vec<String>, Vec<String>);

impl Pieces for Watched {
    fn text(&mut self, piece: &str) {
        self.0.push(piece.into());
    }
    fn reasoning(&mut self, piece: &str) {
        self.1.push(piece.into());
    }
}

async fn said(model: &Scripted, messages: Vec<Message>) -> String {
    match model.reply(&request(messages), &mut Unwatched).await {
        Ok(reply) => reply.message.text(),
        Err(error) => format!("{}: {}", error.code, error.message),
    }
}

#[tokio::test]
async fn the_first_rule_that_matches_answers() {
    let done = || result("Read", "contents", Status::Succeeded);
    let reply = || Message::Assistant(AssistantMessage::default());
    let cases: Vec<(&str, When, Vec<Message>, bool)> = vec![
        ("user text", When::any().user_contains("hi"), vec![user("oh hi there")], true),
        ("only the last user text", When::any().user_contains("hi"), vec![user("hi"), user("bye")], false),
        ("no result yet", When::any().has_tool_result(true), vec![user("hi")], false),
        ("a result", When::any().has_tool_result(true), vec![user("hi"), reply(), done()], true),
        ("an earlier turn's result", When::any().has_tool_result(true), vec![done(), user("hi")], false),
        ("no result wanted", When::any().has_tool_result(false), vec![user("hi"), done()], false),
        ("of a tool", When::any().tool_result(ResultMatch::of("Read")), vec![user("hi"), done()], true),
        ("of another", When::any().tool_result(ResultMatch::of("Write")), vec![user("hi"), done()], false),
        (
            "with a text and a status",
            When::any()
                .tool_result(ResultMatch::of("Read").containing("tents").with_status(Status::Succeeded)),
            vec![user("hi"), done()],
            true,
        ),
        (
            "text and status of two different results",
            When::any().tool_result(ResultMatch::default().containing("no").with_status(Status::Succeeded)),
            vec![user("hi"), done(), result("Read", "no", Status::Declined)],
            false,
        ),
        ("the first round", When::any().round(1), vec![user("hi")], true),
        ("the second round", When::any().round(2), vec![user("hi"), reply(), done()], true),
        ("rounds begin anew", When::any().round(1), vec![user("hi"), reply(), user("again")], true),
        ("instructions", When::any().instructions_contain("build"), vec![user("hi")], true),
        ("an offered tool", When::any().tool_offered("Read"), vec![user("hi")], true),
        ("a tool not offered", When::any().tool_offered("Write"), vec![user("hi")], false),
        (
            "a note",
            When::any().note_contains("cut"),
            vec![user("hi"), Message::Note("was cut off".into())],
            true,
        ),
        ("the first request", When::any().nth(1), vec![user("hi")], true),
        ("not the second", When::any().nth(2), vec![user("hi")], false),
    ];
    for (name, when, messages, matches) in cases {
        let model =
            Scripted::new("m").rule(when, Answer::text("yes")).rule(When::any(), Answer::text("no")).build();
        assert_eq!(said(&model, messages).await, if matches { "yes" } else { "no" }, "{name}");
    }
}

#[tokio::test]
async fn a_request_no_rule_covers_is_an_error_that_says_so() {
    let model = Scripted::sequence("m", [Answer::text("one")]);
    assert_eq!(said(&model, vec![user("hi")]).await, "one");
    let error = said(&model, vec![user("hi")]).await;
    assert_eq!(
        error,
        "provider_error: the script of model `m` has no rule for request 2 (last user text: \"hi\"; 1 rules)"
    );
}

#[tokio::test]
async fn text_and_reasoning_come_in_pieces_and_calls_only_in_the_reply() {
    let answer = Answer::empty()
        .and_reasoning("let me see")
        .and_text("I will read")
        .and_call("", "Read", "{}")
        .and_call("", "Read", "{ }")
        .usage(7, 3)
        .other_choices(1, true);
    let model = Scripted::sequence("m", [answer]);
    let mut watched = Watched::default();
    let reply = model.reply(&request(vec![user("hi")]), &mut watched).await.unwrap();
    assert_eq!(watched.0, ["I ", "will ", "read"]);
    assert_eq!(watched.1, ["let ", "me ", "see"]);
    let calls: Vec<_> = reply.message.calls().map(|c| (c.id.as_str(), c.arguments.as_str())).collect();
    assert_eq!(calls, [("", "{}"), ("", "{ }")]);
    assert_eq!(reply.usage, Usage { input_tokens: 7, output_tokens: 3 });
    assert!(reply.other_choices == 1 && reply.other_choices_had_calls);
    assert_eq!(reply.message.wire, "scripted");
}

#[tokio::test]
async fn an_end_that_is_not_complete_takes_the_calls_away() {
    for (end, status) in [
        (ReplyEnd::Length, Status::MalformedStream),
        (ReplyEnd::Filtered, Status::MalformedStream),
        (ReplyEnd::Interrupted("lost".into()), Status::StreamInterrupted),
    ] {
        let model = Scripted::sequence(
            "m",
            [Answer::text("I will").and_call("c1", "Read", "{}").ending(end.clone())],
        );
        let reply = model.reply(&request(vec![user("hi")]), &mut Unwatched).await.unwrap();
        assert_eq!(reply.end, end);
        assert_eq!(reply.message.incomplete, Some(status));
        assert_eq!(reply.message.text(), "I will");
        assert_eq!(reply.message.calls().count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_before_the_answer_and_a_cancel_ends_it() {
    let model = Scripted::sequence(
        "m",
        [Answer::text("late").after(Duration::from_secs(9)), Answer::hang(), Answer::text("x")],
    );
    let begun = tokio::time::Instant::now();
    assert_eq!(said(&model, vec![user("hi")]).await, "late");
    assert_eq!(begun.elapsed().as_secs(), 9);

    let hung = request(vec![user("hi")]);
    let cancel = hung.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    });
    for _ in 0..2 {
        // The second request is cancelled before it begins.
        assert_eq!(model.reply(&hung, &mut Unwatched).await.unwrap_err(), ModelError::cancelled());
    }
}

#[tokio::test]
async fn requests_are_kept_and_need_not_be() {
    let model = Scripted::new("m").rule(When::any(), Answer::text("x")).build();
    said(&model, vec![user("first")]).await;
    said(&model.clone(), vec![user("second")]).await;
    assert_eq!(model.calls(), 2);
    let requests = model.requests();
    let Message::User(seen) = requests[1].messages[0].as_ref() else { panic!("not a user message") };
    assert!(matches!(&seen.parts[..], [UserPart::Text(text)] if text == "second"));

    let quiet = Scripted::new("m").rule(When::any(), Answer::text("x")).record(false).build();
    said(&quiet, vec![user("first")]).await;
    assert_eq!((quiet.calls(), quiet.requests().len()), (1, 0));
}

#[cfg(feature = "yaml")]
mod yaml {
    use super::*;

    const SCRIPT: &str = r#"
name: demo
rules:
  - when: { tool_result: { tool: Write, status: declined } }
    answer: { text: "You declined it." }
  - when: { has_tool_result: true }
    answer: { text: done }
  - when: { user_contains: fail }
    answer: { error: { code: overloaded, message: busy, retryable: true, retry_after_ms: 1500 } }
  - when: { user_contains: break }
    answer: { text: I wi, interrupted: connection lost }
  - answer:
      reasoning: hm
      calls:
        - { id: c1, name: Write, arguments: { path: out.txt } }
        - { name: Write, arguments: '{"path":' }
        - { id: c3, name: Build }
      usage: { input_tokens: 4, output_tokens: 2 }
"#;

    #[tokio::test]
    async fn a_script_can_be_a_file() {
        let model = Scripted::from_yaml(SCRIPT).unwrap();
        assert_eq!(model.name(), "demo");
        let reply = model.reply(&request(vec![user("go")]), &mut Unwatched).await.unwrap();
        let calls: Vec<_> = reply.message.calls().map(|c| (c.id.as_str(), c.arguments.as_str())).collect();
        assert_eq!(calls, [("c1", r#"{"path":"out.txt"}"#), ("", r#"{"path":"#), ("c3", "")]);
        assert_eq!(reply.message.reasoning().as_deref(), Some("hm"));
        assert_eq!(
            said(&model, vec![user("go"), result("Write", "", Status::Declined)]).await,
            "You declined it."
        );
        assert_eq!(said(&model, vec![user("go"), result("Write", "", Status::Succeeded)]).await, "done");
        let broken = model.reply(&request(vec![user("break")]), &mut Unwatched).await.unwrap();
        assert_eq!(broken.end, ReplyEnd::Interrupted("connection lost".into()));
        let error = model.reply(&request(vec![user("fail")]), &mut Unwatched).await.unwrap_err();
        assert_eq!((error.code, error.retry_after), ("overloaded", Some(Duration::from_millis(1500))));
    }

    #[test]
    fn a_bad_script_says_where_and_what() {
        for (script, says) in [
            ("rules: []", "wrong at rules: a script needs at least one rule"),
            ("rules:\n  - answer: {}", "wrong at rules[0].answer: it says nothing"),
            (
                "rules:\n  - answer: { text: a, error: { code: timeout } }",
                "wrong at rules[0].answer: `error` and",
            ),
            ("rules:\n  - answer: { end: length, hang: true }", "wrong at rules[0].answer: only one of"),
            (
                "rules:\n  - answer: { error: { code: oops } }",
                "wrong at rules[0].answer.error.code: `oops` is none",
            ),
            (
                "rules:\n  - when: { nth: 0 }\n    answer: { text: a }",
                "wrong at rules[0].when: `nth` and `round`",
            ),
            ("rules:\n  - anser: { text: a }", "anser"),
            ("rules:\n  - when: { rond: 2 }\n    answer: { text: a }", "rond"),
        ] {
            let error = Scripted::from_yaml(script).err().unwrap().to_string();
            assert!(error.contains(says), "{script}\n{error}");
        }
    }
}
