//! What must hold of every run, whatever happened to it.

use std::collections::HashMap;
use std::sync::Arc;

use holdpoint::core::message::Message;
use holdpoint::protocol::{Interaction, InteractionStatus, RunStatus};

use super::Answered;

/// Every call of a reply is answered once, right after it, in its order.
pub fn check_history(history: &[Arc<Message>]) {
    let mut messages = history.iter().map(AsRef::as_ref).peekable();
    while let Some(message) = messages.next() {
        match message {
            Message::Assistant(reply) => {
                assert!(reply.incomplete.is_none() || reply.calls().count() == 0);
                for (index, call) in (0u32..).zip(reply.calls()) {
                    let Some(Message::Tool(answer)) = messages.next() else {
                        panic!("call {index} ({}) has no answer: {history:#?}", call.name)
                    };
                    assert_eq!(
                        (answer.index, &answer.id, &answer.name),
                        (index, &call.id, &call.name),
                        "{history:#?}"
                    );
                    assert!(!answer.content.to_raw_json().get().is_empty());
                }
                assert!(
                    !matches!(messages.peek(), Some(Message::Tool(_))),
                    "an answer too many: {history:#?}"
                );
            }
            Message::Tool(answer) => panic!("an answer without a call: {answer:?}"),
            Message::User(_) | Message::Note(_) => {}
        }
    }
}

/// Each call is announced before anything else is said of it, and answered at most once - exactly once when its round
/// is committed; the last event, and it alone, ends the run.
pub fn check_events(events: &[serde_json::Value], status: RunStatus) {
    let mut answers: HashMap<String, u32> = HashMap::new();
    let ended = matches!(status, RunStatus::Finished | RunStatus::Failed);
    for (at, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap();
        let is_last = at + 1 == events.len();
        assert_eq!(matches!(kind, "finish" | "error"), ended && is_last, "{kind} at {at}");
        match kind {
            "tool_call" => {
                for call in event["toolCalls"].as_array().unwrap() {
                    let id = call["callId"].as_str().unwrap().to_owned();
                    assert!(answers.insert(id, 0).is_none(), "proposed twice");
                }
            }
            "tool_result" => {
                for result in event["toolResults"].as_array().unwrap() {
                    let answered = answers.get_mut(result["callId"].as_str().unwrap()).unwrap();
                    *answered += 1;
                    assert_eq!(*answered, 1, "answered twice: {event}");
                }
            }
            "round_committed" => assert!(answers.values().all(|answered| *answered == 1), "{answers:?}"),
            "approval_request" | "in_doubt_request" | "tool_started" | "tool_progress" => {
                assert!(answers.contains_key(event["callId"].as_str().unwrap()), "{kind} of an unknown call");
            }
            _ => {}
        }
    }
}

/// Nothing is closed silently: each request that is not open any more has one event and one record that say by whom or how.
pub fn check_closings(
    interactions: &[Interaction],
    events: &[serde_json::Value],
    audit: &[serde_json::Value],
) {
    for item in interactions {
        let (id, closings) =
            (item.request_id.to_string(), usize::from(item.status != InteractionStatus::Pending));
        let said =
            events.iter().filter(|event| event["type"] == "decision" && event["requestId"] == id.as_str());
        let said: Vec<_> = said.collect();
        assert_eq!(said.len(), closings, "{item:?}: {said:?}");
        assert!(said.iter().all(|event| event["by"]["via"].is_string()), "{said:?}");
        let closes = |record: &&serde_json::Value| {
            record["request"] == id.as_str()
                && ["decision", "request_closed"].map(Some).contains(&record["kind"].as_str())
        };
        let recorded: Vec<_> = audit.iter().filter(closes).collect();
        assert_eq!(recorded.len(), closings, "{item:?}: {recorded:?}");
        for (said, recorded) in said.iter().zip(&recorded) {
            assert_eq!(said["by"]["actor"], recorded["actor"], "{said} {recorded}");
        }
    }
}

/// How the calls in a history ended, in its order.
pub fn answers(history: &[Arc<Message>]) -> Vec<Answered> {
    let answer = |message: &Arc<Message>| match message.as_ref() {
        Message::Tool(tool) => Some(Answered {
            id: tool.id.clone(),
            name: tool.name.clone(),
            status: tool.status.as_str(),
            executed: tool.executed.as_str(),
            is_error: tool.is_error,
            said: serde_json::from_str(tool.content.to_raw_json().get()).unwrap(),
        }),
        _ => None,
    };
    history.iter().filter_map(answer).collect()
}
