//! Tools that come and go: a definition that changes while a call waits for a person.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use common::*;
use holdpoint::DecideError;
use holdpoint::prelude::*;
use holdpoint::protocol::InteractionStatus;
use holdpoint::tools::{Snapshot, SourceStatus, Tool, ToolSource};
use serde_json::json;

/// A source whose listing the test sets.
struct Server(Mutex<Arc<Snapshot>>);

impl Server {
    fn offering(tools: Vec<Arc<dyn Tool>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(snapshot(1, tools))))
    }

    fn offers(&self, revision: u64, tools: Vec<Arc<dyn Tool>>) {
        *self.0.lock().unwrap() = snapshot(revision, tools);
    }
}

fn snapshot(revision: u64, tools: Vec<Arc<dyn Tool>>) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        revision,
        status: SourceStatus::Ready,
        tools,
        unusable: Vec::new(),
        changes: Vec::new(),
    })
}

#[async_trait]
impl ToolSource for Server {
    fn origin(&self) -> &str {
        "mcp:pay"
    }
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.lock().unwrap())
    }
    async fn changed(&self, _since: u64) -> Arc<Snapshot> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_definition_that_changes_while_a_request_waits_is_asked_again_with_what_changed() {
    let log = Log::default();
    let old = tool(&log, "pay__send", &["to"], "sent");
    let mut definition = definition("pay__send", &["to"]);
    definition.schema["properties"]["also_notify"] = json!({"type": "string"});
    let new = with(&log, definition, "sent and told");
    let server = Server::offering(vec![Arc::new(old)]);
    let model =
        Scripted::sequence("s", [Answer::call("c1", "pay__send", r#"{"to":"ana"}"#), Answer::text("done")]);
    let agent = Agent::builder("main", model).tool_source(server.clone(), |_| true).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = run(&runtime).await;
    let first = pending(&runtime, outcome.run).await.remove(0);

    server.offers(2, vec![Arc::new(new)]);
    let refused = decide(&runtime, first.request_id, DecisionWord::Approve).await;
    assert!(matches!(refused, Err(DecideError::Stale { .. })), "{refused:?}");
    let chain = runtime.store().audit(&local(), outcome.run, 0, 100).await.unwrap();
    let tried: Vec<_> = chain.iter().filter(|row| row.record.contains("stale_decision")).collect();
    assert!(
        tried.len() == 1 && tried[0].record.contains(r#""actor":"local""#),
        "the attempt is on record: {chain:?}"
    );

    // The old request is superseded, the new one says what is different.
    let second = loop {
        match pending(&runtime, outcome.run).await.pop() {
            Some(request) if request.request_id != first.request_id => break request,
            _ => tokio::task::yield_now().await,
        }
    };
    let old = runtime.store().interaction(&local(), first.request_id).await.unwrap().unwrap();
    assert_eq!(old.status, InteractionStatus::Superseded);
    assert_eq!(second.changed.as_deref(), Some("arguments added: also_notify"));
    assert_ne!(second.digest, first.digest);
    assert!(log.names().is_empty(), "nothing ran");

    runtime.wait(&local(), outcome.run).await.unwrap();
    decide(&runtime, second.request_id, DecisionWord::Approve).await.unwrap();
    let outcome = runtime.wait(&local(), outcome.run).await.unwrap();
    assert_eq!(outcome.text(), Some("done"));
    assert_eq!(log.names(), ["pay__send"]);
}

#[tokio::test]
async fn a_tool_that_is_gone_leaves_its_call_waiting_and_says_so() {
    let log = Log::default();
    let there = || -> Vec<Arc<dyn Tool>> { vec![Arc::new(tool(&log, "pay__send", &["to"], "sent"))] };
    let server = Server::offering(there());
    let model =
        Scripted::sequence("s", [Answer::call("c1", "pay__send", r#"{"to":"ana"}"#), Answer::text("done")]);
    let agent = Agent::builder("main", model).tool_source(server.clone(), |_| true).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = run(&runtime).await;
    let request = pending(&runtime, outcome.run).await.remove(0);

    server.offers(2, Vec::new());
    decide(&runtime, request.request_id, DecisionWord::Approve).await.unwrap();
    loop {
        let events = events(&runtime, outcome.run).await;
        if let Some(notice) = events.iter().find(|event| event["type"] == "notice") {
            assert_eq!(notice["code"], "tool_unavailable");
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(log.names().is_empty(), "nothing settles, nothing runs");
}

#[tokio::test]
async fn a_tool_of_the_agents_own_keeps_its_name_against_a_server() {
    let (ours, theirs) = (Log::default(), Log::default());
    let server = Server::offering(vec![Arc::new(tool(&theirs, "send", &["to"], "theirs"))]);
    let model =
        Scripted::sequence("s", [Answer::call("c1", "send", r#"{"to":"ana"}"#), Answer::text("done")]);
    let agent = Agent::builder("main", model)
        .tool(tool(&ours, "send", &["to"], "ours"))
        .tool_source(server, |_| true)
        .policy(Policy::builder("p").allow(["send"]).build().unwrap())
        .build()
        .unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    run(&runtime).await;
    assert_eq!((ours.names().len(), theirs.names().len()), (1, 0));
}
