//! The main job: a batch with one call allowed, one declined and one approved goes on, each answered once, in order.

mod common;

use common::*;
use holdpoint::core::message::Message;
use holdpoint::prelude::*;
use holdpoint::testkit::ScriptedPerson;

#[tokio::test]
async fn a_batch_with_one_call_declined_goes_on_and_each_call_is_answered_once_in_order() {
    let (log, model) = (Log::default(), three_calls());
    let agent = build_assistant(&log, model.clone()).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();

    let outcome = run(&runtime).await;
    assert_eq!(log.names(), ["Read"], "nothing gated before its decision");
    let open = pending(&runtime, outcome.run).await;
    assert_eq!(open.iter().map(|r| r.tool_name.as_str()).collect::<Vec<_>>(), ["Write", "Bash"]);

    let decline =
        Deciding::new(open[0].request_id, DecisionWord::Decline, human()).reason("not allowed by policy");
    runtime.decide(&local(), decline).await.unwrap();
    let still = runtime.wait(&local(), outcome.run).await.unwrap();
    assert_eq!(still.pending().len(), 1, "the other call waits on");
    decide(&runtime, open[1].request_id, DecisionWord::Approve).await.unwrap();
    let outcome = runtime.wait(&local(), outcome.run).await.unwrap();

    assert_eq!(outcome.text(), Some("done"));
    assert_eq!(log.names(), ["Read", "Bash"]);
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    let answers: Vec<_> = requests[1]
        .messages
        .iter()
        .filter_map(|message| match message.as_ref() {
            Message::Tool(tool) => Some((tool.id.as_str(), tool.content.to_raw_json().get().to_owned())),
            _ => None,
        })
        .collect();
    assert_eq!(answers.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ["c1", "c2", "c3"]);
    assert_eq!(answers[0].1, "\"contents of notes.txt\"");
    assert!(
        answers[1].1.contains("\"status\":\"declined\"") && answers[1].1.contains("not allowed by policy")
    );
    assert_eq!(answers[2].1, "\"build ok\"");

    let events = events(&runtime, outcome.run).await;
    assert_eq!(
        kinds(&events),
        [
            "run_started",
            "tool_call",
            "approval_request",
            "approval_request",
            "tool_started",
            "tool_result",
            "suspended",
            "decision",
            "tool_result",
            "decision",
            "resumed",
            "tool_started",
            "tool_result",
            "round_committed",
            "message",
            "round_committed",
            "finish"
        ]
    );
}

/// The companion example of the tool-calling guide: one interaction, two model calls, one tool run, the result under the right id.
#[tokio::test]
async fn one_interaction_two_model_calls_one_tool_run_and_the_result_under_the_right_id() {
    let log = Log::default();
    let model = Scripted::sequence(
        "script",
        [Answer::call("call_7", "set_alarm", r#"{"time":"10:00"}"#), Answer::text("set")],
    );
    let person = ScriptedPerson::new().answers("set_alarm", HandlerAnswer::Approve);
    let agent = Agent::builder("main", model.clone())
        .tool(tool(&log, "set_alarm", &["time"], "alarm set"))
        .approval_handler(person.clone())
        .build()
        .unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();

    let outcome = runtime.run(&local(), Start::text("Set an alarm for ten")).await.unwrap();

    assert_eq!(outcome.text(), Some("set"));
    assert_eq!(person.seen().len(), 1);
    assert_eq!(log.calls(), [("set_alarm".to_owned(), r#"{"time":"10:00"}"#.to_owned())]);
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].messages.iter().any(|message| matches!(message.as_ref(),
        Message::Tool(tool) if tool.id == "call_7" && tool.content.to_raw_json().get() == "\"alarm set\"")));
}
