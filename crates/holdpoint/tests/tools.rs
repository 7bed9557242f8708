//! Tools of every kind, run as they are run: through the gate, with a permit.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::protocol::{InteractionKind, InteractionStatus};
use holdpoint::store::{InteractionFilter, PageRequest};
use holdpoint::tools;
use holdpoint::tools::builtin::{self, Workdir};
use holdpoint::tools::{Extensions, Json, Probe};
use serde_json::{Value, json};

/// What a program puts into the context, and a model never writes.
struct Prefix(&'static str);

/// Greets people.
#[tool(effect = "read_only")]
async fn greet(
    context: &ToolContext,
    /// Who.
    names: Vec<String>,
    #[serde(default)] mut loud: bool,
    invocation: &Invocation,
) -> Result<String, ToolError> {
    let Prefix(prefix) = context.extensions.get().ok_or("no prefix")?;
    loud |= names.len() > 2;
    let text = format!("{prefix} {} ({})", names.join(" and "), invocation.attempt());
    Ok(if loud { text.to_uppercase() } else { text })
}

/// Fails.
#[tool(effect = "read_only")]
async fn fail() -> Result<(), ToolError> {
    Err(ToolError::new("NOT_TODAY", "not today"))
}

#[derive(Default)]
struct Notes {
    kept: Mutex<Vec<String>>,
}

#[tools]
impl Notes {
    /// Keeps a note, and says which ones there are.
    #[tool(effect = "read_only")]
    async fn keep(&self, text: String) -> Json<Vec<String>> {
        let mut kept = self.kept.lock().unwrap();
        kept.push(text);
        Json(kept.clone())
    }

    /// Sends the notes, and loses the connection.
    #[tool(effect = "verifiable", probe = was_sent)]
    async fn send(&self) -> Result<(), ToolError> {
        Err(ToolError::new("CONNECTION_LOST", "the line is dead").outcome_unknown())
    }

    async fn was_sent(&self, _: holdpoint::protocol::ExecId, _: &ToolContext) -> Probe {
        Probe::Done(ToolOutput::text("sent, after all"))
    }
}

/// Runs one allowed call, and gives its `tool_result` event.
async fn run_one(tools: Vec<Arc<dyn Tool>>, name: &str, arguments: &str) -> Value {
    let model = Scripted::sequence("script", [Answer::call("c1", name, arguments), Answer::text("done")]);
    let agent = Agent::builder("main", model)
        .tools(tools)
        .tool_context(|_| {
            let mut values = Extensions::default();
            values.insert(Prefix("hello"));
            values
        })
        .policy(Policy::builder("all").allow(["*"]).build().unwrap())
        .build()
        .unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = runtime.run(&local(), Start::text("go")).await.unwrap();
    result(&events(&runtime, outcome.run).await)
}

fn result(events: &[Value]) -> Value {
    let event =
        events.iter().find(|event| event["type"] == "tool_result").unwrap_or_else(|| panic!("{events:#?}"));
    event["toolResults"][0].clone()
}

#[tokio::test]
async fn a_function_gets_its_arguments_and_the_trusted_context() {
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(greet), Arc::new(fail)];
    let one = run_one(tools.clone(), "greet", r#"{"names":["ana","eve"]}"#).await;
    assert_eq!(one["result"], "hello ana and eve (1)");
    let loud = run_one(tools.clone(), "greet", r#"{"names":["ana"],"loud":true}"#).await;
    assert_eq!(loud["result"], "HELLO ANA (1)");
    for wrong in [r#"{"names":"ana"}"#, r#"{"names":[],"prefix":"bye"}"#, "{}"] {
        let refused = run_one(tools.clone(), "greet", wrong).await;
        assert_eq!(
            (&refused["status"], &refused["executed"]),
            (&json!("invalid_arguments"), &json!("no")),
            "{wrong}"
        );
    }
    let failed = run_one(tools, "fail", "{}").await;
    assert_eq!((&failed["status"], &failed["code"]), (&json!("failed"), &json!("NOT_TODAY")), "{failed}");
}

#[tokio::test]
async fn a_method_works_on_the_value_it_is_bound_to() {
    let notes = Arc::new(Notes::default());
    run_one(notes.tools(), "keep", r#"{"text":"one"}"#).await;
    let two = run_one(vec![Arc::new(notes.keep())], "keep", r#"{"text":"two"}"#).await;
    assert_eq!(two["result"], json!(["one", "two"]));
    assert_eq!(*notes.kept.lock().unwrap(), ["one", "two"]);
}

#[tokio::test]
async fn a_tool_that_lost_its_connection_is_asked_whether_it_ran_and_else_a_person_is() {
    let sent = run_one(Arc::new(Notes::default()).tools(), "send", "{}").await;
    assert_eq!(
        (&sent["status"], &sent["result"]),
        (&json!("succeeded"), &json!("sent, after all")),
        "{sent}"
    );

    for (effect, status) in [(EffectClass::ReadOnly, "no"), (EffectClass::Idempotent, "unknown")] {
        let lost = run_one(vec![Arc::new(lost().effect(effect))], "pay", "{}").await;
        assert_eq!((&lost["status"], &lost["executed"]), (&json!("failed"), &json!(status)), "{lost}");
        assert_eq!(lost["code"], "CONNECTION_LOST");
    }

    let model = Scripted::sequence("script", [Answer::call("c1", "pay", "{}"), Answer::text("done")]);
    let policy = Policy::builder("all").allow(["*"]).build().unwrap();
    let agent = Agent::builder("main", model).tool(lost()).policy(policy).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = runtime.run(&local(), Start::text("go")).await.unwrap();
    let filter = InteractionFilter {
        run: Some(outcome.run),
        status: Some(InteractionStatus::Pending),
        ..Default::default()
    };
    let open = runtime.store().interactions(&local(), &filter, &PageRequest::default()).await.unwrap().items;
    assert_eq!(open.iter().map(|item| item.kind).collect::<Vec<_>>(), [InteractionKind::InDoubt]);
}

fn lost() -> FnTool {
    FnTool::new(definition("pay", &[]), |_| async {
        Err::<(), _>(ToolError::new("CONNECTION_LOST", "the line is dead").outcome_unknown())
    })
}

#[tokio::test]
async fn the_built_in_tools_read_freely_and_write_only_when_they_are_released() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes.txt"), "remember").unwrap();
    let workdir = Workdir::open(dir.path()).unwrap();
    let model = Scripted::sequence(
        "script",
        [
            Answer::call("c1", "Read", r#"{"path":"notes.txt"}"#)
                .and_call("c2", "Write", r#"{"path":"out/report.txt","content":"done"}"#)
                .and_call("c3", "Delete", r#"{"paths":["notes.txt"]}"#)
                .and_call("c4", "Bash", r#"{"command":"cat out/report.txt"}"#),
            Answer::text("done"),
        ],
    );
    let agent = Agent::builder("main", model)
        .tools(builtin::all(&workdir))
        .policy(Policy::builder("shipped").allow(builtin::ALLOWED_BY_DEFAULT).build().unwrap())
        .build()
        .unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = runtime.run(&local(), Start::text("go")).await.unwrap();
    let open = pending(&runtime, outcome.run).await;
    assert_eq!(open.iter().map(|r| r.tool_name.as_str()).collect::<Vec<_>>(), ["Write", "Delete", "Bash"]);
    assert!(!dir.path().join("out").exists());

    decide(&runtime, open[0].request_id, DecisionWord::Approve).await.unwrap();
    decide(&runtime, open[1].request_id, DecisionWord::Decline).await.unwrap();
    decide(&runtime, open[2].request_id, DecisionWord::Approve).await.unwrap();
    let outcome = runtime.wait(&local(), outcome.run).await.unwrap();
    assert_eq!(outcome.text(), Some("done"));
    assert_eq!(std::fs::read_to_string(dir.path().join("out/report.txt")).unwrap(), "done");
    assert!(dir.path().join("notes.txt").exists());
    let events = events(&runtime, outcome.run).await;
    let results: Vec<&Value> = events
        .iter()
        .filter(|e| e["type"] == "tool_result")
        .map(|e| &e["toolResults"][0]["result"])
        .collect();
    assert_eq!(results[0], "remember");
    assert_eq!(results[3], "done\n[exit status 0]");
}
