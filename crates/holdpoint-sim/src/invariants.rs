//! The invariants, by the numbers of the design, checked on what is stored and on what the world saw.

use std::collections::HashMap;

use holdpoint::core::terms::AtDeadline;
use holdpoint::protocol::{DecisionWord, RequestId};
use serde_json::Value;

use crate::scenario::RELEASED;
use crate::world::{Execution, key_of};

/// What there is to be checked.
pub struct Evidence<'a> {
    /// The stored events, in order, with their numbers.
    pub events: &'a [(u64, Value)],
    /// What the tools did.
    pub executions: &'a [Execution],
    /// What was acknowledged to people.
    pub acknowledged: &'a [(RequestId, DecisionWord)],
    /// Whether the audit chain is whole.
    pub chain_is_whole: bool,
    /// Whether the run has come to its end.
    pub at_the_end: bool,
    /// What happens at a deadline.
    pub at_deadline: &'a AtDeadline,
}

/// Everything that does not hold.
pub fn check(evidence: &Evidence<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let story = Story::of(evidence.events, &mut wrong);
    numbers(evidence, &mut wrong);
    executions(evidence, &story, &mut wrong);
    keys(evidence, &story, &mut wrong);
    decisions(evidence, &story, &mut wrong);
    timeouts(evidence, &story, &mut wrong);
    if evidence.at_the_end {
        answers(&story, &mut wrong);
        the_end(evidence, &mut wrong);
    }
    if !evidence.chain_is_whole {
        wrong.push("I10: the audit chain is broken".into());
    }
    wrong
}

/// The events of a run, by what they are about.
#[derive(Default)]
struct Story {
    /// Per call: the requests in order.
    requests: HashMap<String, Vec<Request>>,
    /// Per request: what closed it.
    closings: HashMap<String, Vec<Closing>>,
    /// The calls that were proposed, in order: id and argument text.
    proposed: Vec<(String, String, String)>,
    /// Per call: its results.
    results: HashMap<String, Vec<Answered>>,
}

/// How a call was answered.
struct Answered {
    status: String,
    executed: String,
    code: String,
}

struct Request {
    id: String,
    kind: String,
    tool: String,
    arguments: String,
    on_timeout: String,
}

#[derive(Clone)]
struct Closing {
    seq: u64,
    word: String,
    arguments: Option<String>,
    actor: Option<String>,
    via: String,
    rule: bool,
}

impl Story {
    fn of(events: &[(u64, Value)], wrong: &mut Vec<String>) -> Self {
        let mut story = Self::default();
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        for (seq, event) in events {
            match text(event, "type").as_str() {
                "tool_call" => {
                    for call in event["toolCalls"].as_array().into_iter().flatten() {
                        story.proposed.push((
                            text(call, "callId"),
                            text(call, "name"),
                            text(call, "arguments"),
                        ));
                    }
                }
                kind @ ("approval_request" | "in_doubt_request" | "quarantine_request") => {
                    let request = Request {
                        id: text(event, "requestId"),
                        kind: kind.into(),
                        tool: text(event, "toolName"),
                        on_timeout: text(event, "onTimeout"),
                        arguments: text(event, "arguments"),
                    };
                    story.requests.entry(text(event, "callId")).or_default().push(request);
                }
                "decision" => {
                    let closing = Closing {
                        seq: *seq,
                        word: text(event, "decision"),
                        arguments: event.get("arguments").and_then(Value::as_str).map(str::to_owned),
                        actor: event["by"].get("actor").and_then(Value::as_str).map(str::to_owned),
                        via: String::new(),
                        rule: false,
                    };
                    let closing = Closing {
                        via: text(&event["by"], "via"),
                        rule: event.get("rule").is_some(),
                        ..closing
                    };
                    let all = story.closings.entry(text(event, "requestId")).or_default();
                    all.push(closing);
                    if all.len() > 1 {
                        wrong.push(format!("request {} was closed twice", text(event, "requestId")));
                    }
                }
                "tool_result" => {
                    for result in event["toolResults"].as_array().into_iter().flatten() {
                        let row = Answered {
                            status: text(result, "status"),
                            executed: text(result, "executed"),
                            code: text(result, "code"),
                        };
                        story.results.entry(text(result, "callId")).or_default().push(row);
                    }
                }
                _ => {}
            }
        }
        story
    }

    /// What was explicitly approved for a call: the argument texts, one per approve.
    fn approved(&self, call: &str) -> Vec<String> {
        let mut approved = Vec::new();
        for request in self.requests.get(call).into_iter().flatten() {
            for closing in self.closings.get(&request.id).into_iter().flatten() {
                match closing.word.as_str() {
                    "approve" => approved.push(request.arguments.clone()),
                    "approve_with" => approved.extend(closing.arguments.clone()),
                    _ => {}
                }
            }
        }
        approved
    }
}

/// Numbers rise by one; nothing comes after the end.
fn numbers(evidence: &Evidence<'_>, wrong: &mut Vec<String>) {
    for (expected, (seq, _)) in (1u64..).zip(evidence.events) {
        if *seq != expected {
            wrong.push(format!("event {seq} where {expected} was due"));
        }
    }
    let ends = |event: &Value| matches!(event["type"].as_str(), Some("finish" | "error"));
    let last = evidence.events.len().saturating_sub(1);
    for (at, (seq, event)) in evidence.events.iter().enumerate() {
        if ends(event) && at != last {
            wrong.push(format!("event {seq} ends the run, and more follows"));
        }
    }
}

/// I1, I2, I7, I9: what ran was released, as it was released, and not more often than it was.
fn executions(evidence: &Evidence<'_>, story: &Story, wrong: &mut Vec<String>) {
    let mut by_call: HashMap<String, Vec<&Execution>> = HashMap::new();
    for execution in evidence.executions {
        by_call.entry(execution.call.to_string()).or_default().push(execution);
    }
    for (call, runs) in &by_call {
        let tool = runs[0].tool.as_str();
        let approved = story.approved(call);
        let Some((_, _, proposed)) = story.proposed.iter().find(|(id, ..)| id == call) else {
            wrong.push(format!("I8: {call} ran and was never proposed"));
            continue;
        };
        for run in runs {
            let shown = if tool.starts_with("ask_") {
                approved.contains(&run.arguments)
            } else {
                run.arguments == *proposed || approved.contains(&run.arguments)
            };
            if !shown {
                wrong.push(format!(
                    "I1/I2: {call} ({tool}) ran with {} ; approved: {approved:?}",
                    run.arguments
                ));
            }
            if run.exec != runs[0].exec {
                wrong.push(format!("{call} ran under two idempotency keys"));
            }
        }
        if tool.starts_with("deny_") {
            wrong.push(format!("I7: {call} ran, and policy denies it"));
        }
        if tool.ends_with("_once") || tool.ends_with("_keyed") {
            let free = usize::from(tool.starts_with("free_"));
            if runs.len() > approved.len() + free {
                wrong.push(format!(
                    "I9: {call} ({tool}) ran {} times on {} release(s)",
                    runs.len(),
                    approved.len() + free
                ));
            }
        }
        let mut attempts: Vec<u32> = runs.iter().map(|run| run.attempt).collect();
        attempts.dedup();
        if attempts.len() != runs.len() {
            wrong.push(format!("I6: an attempt of {call} ran twice"));
        }
    }
    for (call, results) in &story.results {
        for Answered { status, executed, .. } in results {
            let ran = by_call.contains_key(call);
            if executed == "no"
                && by_call.get(call).is_some_and(|runs| {
                    runs.iter().any(|run| run.done && (run.tool.ends_with("_once") || run.key.is_some()))
                })
            {
                wrong.push(format!("I9: {call} is said not to have run ({status}), and it did"));
            }
            if status == "succeeded" && executed == "yes" && !ran && !reported(story, call) {
                wrong.push(format!("{call} is said to have succeeded, and it never ran"));
            }
        }
    }
}

/// What is done under a business key is done by one call, and whoever repeats it is told so. (How often that one may run, the
/// rule for calls says.)
fn keys(evidence: &Evidence<'_>, story: &Story, wrong: &mut Vec<String>) {
    let mut by_key: HashMap<(&str, &str), &Execution> = HashMap::new();
    for run in evidence.executions {
        let Some(key) = &run.key else { continue };
        let first = *by_key.entry((&run.tool, key)).or_insert(run);
        if first.exec != run.exec {
            wrong.push(format!("K1: {key} was carried out by {} and again by {}", first.call, run.call));
        }
    }
    for (call, tool, arguments) in &story.proposed {
        let replayed = |answered: &&Answered| answered.code == "REPLAYED";
        let Some(answered) = story.results.get(call).into_iter().flatten().find(replayed) else { continue };
        let key = key_of(arguments).unwrap_or_default();
        let done = by_key.get(&(tool.as_str(), key.as_str()));
        let by_another = done.is_some_and(|run| run.call.to_string() != *call);
        if !by_another || answered.executed != "no" {
            wrong.push(format!(
                "K2: {call} is said to repeat {key} (executed {}), and nobody else did it",
                answered.executed
            ));
        }
    }
}

fn reported(story: &Story, call: &str) -> bool {
    story.requests.get(call).into_iter().flatten().any(|request| {
        request.kind == "in_doubt_request"
            && story.closings.get(&request.id).into_iter().flatten().any(|closing| closing.word == "ran")
    })
}

/// I4 and the promise of an acknowledgement: what was acknowledged is what is stored, and somebody stands behind it.
fn decisions(evidence: &Evidence<'_>, story: &Story, wrong: &mut Vec<String>) {
    for (request, word) in evidence.acknowledged {
        let stored = story.closings.get(&request.to_string()).and_then(|all| all.first());
        if stored.is_none_or(|closing| closing.word != word.as_str()) {
            wrong.push(format!("the acknowledged {} of {request} is not what is stored", word.as_str()));
        }
    }
    for (request, closings) in &story.closings {
        for closing in closings {
            let by_person = matches!(
                closing.word.as_str(),
                "approve" | "approve_with" | "decline" | "feedback" | "ran" | "leave"
            );
            if by_person && closing.actor.is_none() {
                wrong.push(format!(
                    "I4: nobody stands behind the {} of {request} (event {})",
                    closing.word, closing.seq
                ));
            }
            if !by_person && closing.word == "expired" && closing.actor.is_some() {
                wrong.push(format!("an expiry of {request} is put down to a person"));
            }
        }
    }
}

/// What time alone may do: nothing is released by it but what the preset names, where one is asked; nothing that stays open
/// expires; a reminder is of an open request; no expiry and no release of a rule is put down to a person.
fn timeouts(evidence: &Evidence<'_>, story: &Story, wrong: &mut Vec<String>) {
    for request in story.requests.values().flatten() {
        for closing in story.closings.get(&request.id).into_iter().flatten() {
            let by_rule = closing.via == "preset" || closing.rule;
            let named = RELEASED.iter().any(|(tool, n)| {
                let arguments = format!(r#"{{"n":"{n}"}}"#);
                request.tool == *tool && request.arguments == arguments
            });
            let asked = request.kind == "approval_request" && request.on_timeout == "policy";
            if by_rule && !(named && asked && matches!(evidence.at_deadline, AtDeadline::Preset(_))) {
                wrong.push(format!(
                    "request {} of {} was released by a rule that does not",
                    request.id, request.tool
                ));
            }
            if by_rule && closing.actor.as_deref() != Some("preset:sim") {
                wrong.push(format!("a rule's release of {} is put down to {:?}", request.id, closing.actor));
            }
            if closing.word == "expired" && request.on_timeout == "wait" {
                wrong.push(format!("request {} stays open, and expired", request.id));
            }
        }
    }
    for (seq, event) in evidence.events.iter().filter(|(_, event)| event["type"] == "reminder") {
        let request = event["requestId"].as_str().unwrap_or_default();
        let closed = story.closings.get(request).into_iter().flatten().any(|closing| closing.seq < *seq);
        if closed || !story.requests.values().flatten().any(|asked| asked.id == request) {
            wrong.push(format!("event {seq} reminds of {request}, which is not open"));
        }
    }
}

/// I3: every call is answered exactly once.
fn answers(story: &Story, wrong: &mut Vec<String>) {
    for (call, name, _) in &story.proposed {
        let n = story.results.get(call).map_or(0, Vec::len);
        if n != 1 {
            wrong.push(format!("I3: {call} ({name}) was answered {n} times"));
        }
    }
    for (call, requests) in &story.requests {
        for request in requests {
            if !story.closings.contains_key(&request.id) {
                wrong.push(format!("request {} of {call} was never closed", request.id));
            }
        }
    }
}

fn the_end(evidence: &Evidence<'_>, wrong: &mut Vec<String>) {
    let last = evidence.events.last().and_then(|(_, event)| event["type"].as_str());
    if !matches!(last, Some("finish" | "error")) {
        wrong.push(format!("the last event is {last:?}"));
    }
}
