//! What the tests of the loop share: tools that count, agents on scripts, a person at hand.
#![allow(dead_code, unused_imports, unused_macros, clippy::unwrap_used, clippy::expect_used)] // every test file uses its own part; these are tests

mod counting;
mod place;
mod whole;

use std::sync::{Arc, Mutex};

use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::protocol::{ApprovalRequest, InteractionStatus, RequestId, RunId};
use holdpoint::store::{InteractionFilter, PageRequest};
use holdpoint::{AgentBuilder, DecideError, Decided, RunOutcome};
use serde_json::json;

pub use counting::Counting;
pub(crate) use place::on_every_store;
pub use place::{Answered, Place, Process, field, within};
pub use whole::{answers, check_closings, check_events, check_history};

/// The calls that tools got, in order: name and exact argument text.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<(String, String)>>>);

impl Log {
    pub fn add(&self, name: &str, arguments: &str) {
        self.0.lock().unwrap().push((name.into(), arguments.into()));
    }

    pub fn calls(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap().clone()
    }

    pub fn names(&self) -> Vec<String> {
        self.calls().into_iter().map(|(name, _)| name).collect()
    }
}

pub fn definition(name: &str, properties: &[&str]) -> ToolDefinition {
    let fields: serde_json::Map<_, _> =
        properties.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    ToolDefinition::new(
        name,
        format!("{name} tool"),
        json!({"type": "object", "properties": fields, "required": properties, "additionalProperties": false}),
    )
}

/// A tool of string properties that logs and returns a fixed text.
pub fn tool(log: &Log, name: &'static str, properties: &[&str], result: &'static str) -> FnTool {
    with(log, definition(name, properties), result)
}

pub fn with(log: &Log, definition: ToolDefinition, result: &'static str) -> FnTool {
    let (log, name) = (log.clone(), definition.name.clone());
    FnTool::new(definition, move |invocation: Invocation| {
        log.add(&name, invocation.arguments());
        async move { Ok::<_, ToolError>(result.to_owned()) }
    })
}

pub fn read_only(log: &Log, name: &'static str, properties: &[&str], result: &'static str) -> FnTool {
    let mut definition = definition(name, properties);
    definition.effect = EffectClass::ReadOnly;
    with(log, definition, result)
}

/// The agent of the benchmarks: `Read` is free, `Write` and `Bash` ask.
pub fn build_assistant(log: &Log, model: Scripted) -> AgentBuilder {
    Agent::builder("main", model)
        .instructions("You are a build assistant.")
        .tool(read_only(log, "Read", &["path"], "contents of notes.txt"))
        .tool(tool(log, "Write", &["path", "content"], "written"))
        .tool(tool(log, "Bash", &["command"], "build ok"))
        .policy(Policy::builder("shipped").allow(["Read"]).build().unwrap())
}

/// One turn of three calls, then `done`.
pub fn three_calls() -> Scripted {
    Scripted::new("script")
        .rule(When::any().has_tool_result(true), Answer::text("done"))
        .rule(
            When::any(),
            Answer::call("c1", "Read", r#"{"path":"notes.txt"}"#)
                .and_call("c2", "Write", r#"{"path":"out.txt","content":"hello"}"#)
                .and_call("c3", "Bash", r#"{"command":"make build"}"#),
        )
        .build()
}

pub fn human() -> By {
    By { actor: Some(local().actor), via: Via::Human }
}

/// The open requests of a run, in the order of the calls.
pub async fn pending(runtime: &Runtime, run: RunId) -> Vec<ApprovalRequest> {
    let filter =
        InteractionFilter { run: Some(run), status: Some(InteractionStatus::Pending), ..Default::default() };
    let page = runtime.store().interactions(&local(), &filter, &PageRequest::default()).await.unwrap();
    page.items.iter().map(|item| serde_json::from_str(item.request.get()).unwrap()).collect()
}

pub async fn decide(
    runtime: &Runtime,
    request: RequestId,
    word: DecisionWord,
) -> Result<Decided, DecideError> {
    runtime.decide(&local(), Deciding::new(request, word, human())).await
}

pub async fn run(runtime: &Runtime) -> RunOutcome {
    let text = "Read notes.txt, then write out.txt and run the build.";
    runtime.run(&local(), Start::text(text)).await.unwrap()
}

/// The stored events of a run, as JSON.
pub async fn events(runtime: &Runtime, run: RunId) -> Vec<serde_json::Value> {
    let events = runtime.store().events(&local(), run, 0, 10_000).await.unwrap().unwrap();
    events.iter().map(|(_, json)| serde_json::from_str(json).unwrap()).collect()
}

pub fn kinds(events: &[serde_json::Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

pub fn call(id: &str, name: &str, arguments: &str) -> Answer {
    Answer::call(id, name, arguments)
}

/// A script: these calls in one reply, then `done`.
pub fn calls_then_done(calls: &[(&str, &str, &str)]) -> Scripted {
    Scripted::sequence("script", [batch(calls), Answer::text("done")])
}

/// One reply with these calls: id, name, arguments.
pub fn batch(calls: &[(&str, &str, &str)]) -> Answer {
    calls.iter().fold(Answer::empty(), |reply, (id, name, arguments)| reply.and_call(*id, *name, *arguments))
}

/// What the model is told in this request of the script, from 1.
pub fn told(model: &Scripted, request: usize) -> Vec<Answered> {
    answers(&model.requests()[request - 1].messages)
}

/// A tool that does not return until it is told to stop, and then says that it failed.
pub fn hanging(log: &Log, name: &'static str, effect: EffectClass) -> FnTool {
    let mut definition = definition(name, &[]);
    definition.effect = effect;
    let log = log.clone();
    FnTool::new(definition, move |invocation: Invocation| {
        log.add(name, &format!("attempt {}", invocation.attempt()));
        async move {
            invocation.cancel().cancelled().await;
            Err::<String, _>(ToolError::new("STOPPED", "told to stop"))
        }
    })
}
