//! A decision taken by an instance that does not have the run: another one is at work on it, hears of the decision and
//! starts the tool. Two instances in this process, each with a store of its own on one PostgreSQL database.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdpoint::core::run::Execution;
use holdpoint::core::tool::EffectClass;
use holdpoint::local;
use holdpoint::prelude::*;
use holdpoint::protocol::{RequestId, RunId};
use holdpoint_bench_harness::{Arguments, Deviations, Line, work};
use tokio::sync::Notify;

use crate::{database, probe};

/// The agent: `Slow` is free and works until it is told that it is enough, `Bash` asks.
fn agent(entered: &Entered, enough: &Arc<Notify>) -> Agent {
    let (noted, enough) = (entered.clone(), Arc::clone(enough));
    let slow =
        FnTool::new(ToolDefinition::new("Slow", "Slow tool", work::schema(&[])), move |call: Invocation| {
            let (noted, enough) = (noted.clone(), Arc::clone(&enough));
            async move {
                noted.note("Slow", call.context().run);
                enough.notified().await;
                Ok::<_, ToolError>("slow".to_owned())
            }
        });
    let noted = entered.clone();
    let schema = work::schema(&["command"]);
    let bash = FnTool::new(ToolDefinition::new("Bash", "Bash tool", schema), move |call: Invocation| {
        noted.note("Bash", call.context().run);
        async move { Ok::<_, ToolError>(work::BASH_OUT.to_owned()) }
    });
    let turn = Answer::empty().and_call("c1", "Slow", "{}").and_call("c2", "Bash", r#"{"command":"make"}"#);
    let script = Scripted::new("scripted")
        .rule(When::any().has_tool_result(true), Answer::text(work::FINAL))
        .rule(When::any(), turn)
        .record(false)
        .build();
    Agent::builder("main", script)
        .stream(false)
        // One call works while the other waits for its decision.
        .execution(Execution::Parallel)
        .tool(slow.effect(EffectClass::ReadOnly))
        .tool(bash)
        .policy(Policy::builder("work").allow(["Slow"]).build().expect("a valid policy"))
        .build()
        .expect("a valid agent")
}

/// An entry into a tool.
type Entry = (&'static str, RunId, Instant);

/// When which tool was entered for which run.
#[derive(Clone, Default)]
struct Entered(Arc<Mutex<Vec<Entry>>>);

impl Entered {
    fn note(&self, tool: &'static str, run: RunId) {
        self.0.lock().expect("no panic").push((tool, run, Instant::now()));
    }

    /// The first entry of this tool for this run.
    fn at(&self, tool: &str, run: RunId) -> Option<Instant> {
        let all = self.0.lock().expect("no panic");
        all.iter().find(|(name, of, _)| *name == tool && *of == run).map(|(_, _, at)| *at)
    }

    /// The same, waited for.
    async fn wait(&self, tool: &str, run: RunId) -> Option<Instant> {
        let from = Instant::now();
        while from.elapsed() < Duration::from_secs(30) {
            if let Some(at) = self.at(tool, run) {
                return Some(at);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        None
    }
}

/// The request of a run that waits while its owner works.
async fn request(runtime: &Runtime, run: RunId) -> RequestId {
    loop {
        let view = runtime.store().run(&local(), run).await.expect("a store").expect("a run");
        if let Some(pending) = view.pending.first() {
            return pending.request_id;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Measures and prints the line.
pub async fn measure(arguments: &Arguments) {
    let path = arguments.path.as_str();
    assert!(database::is_postgres(path), "OWNER is about PostgreSQL: give its URL with --path");
    database::remove(path).await;
    let (entered, enough) = (Entered::default(), Arc::new(Notify::new()));
    let mut runtimes = Vec::new();
    for _ in 0..2 {
        let store = database::open(path).await;
        let builder = Runtime::builder().agent(agent(&entered, &enough)).shared_store(store);
        runtimes.push(builder.build().expect("a valid runtime"));
    }
    // A listener takes a moment to prove that it hears.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (owner, other) = (&runtimes[0], &runtimes[1]);
    let (mut found, mut latency) = (Deviations::default(), Vec::new());
    for n in 0..arguments.n {
        let started = owner.start(&local(), Start::text(work::PROMPT)).await.expect("a run");
        entered.wait("Slow", started.run).await.expect("the free tool runs");
        let request = request(other, started.run).await;
        let from = Instant::now();
        let by = By { actor: Some(local().actor), via: Via::Human };
        other.decide(&local(), Deciding::new(request, DecisionWord::Approve, by)).await.expect("a decision");
        match entered.wait("Bash", started.run).await {
            // The first pay for what is made once.
            Some(at) if n >= 5 => latency.push(at.saturating_duration_since(from).as_secs_f64() * 1e3),
            Some(_) => {}
            None => found.note("bash", "it did not start within 30 s"),
        }
        enough.notify_one();
        let outcome = owner.wait(&local(), started.run).await.expect("an end");
        if outcome.text() != Some(work::FINAL) {
            found.note("final", format!("{:?}", outcome.state));
        }
    }
    let (commit_ms, _) = probe::postgres_commits(path).await;
    let mut line = Line::new("holdpoint", arguments.workload.name());
    line.set("runs", arguments.n);
    line.latency("decide_elsewhere_to_tool", latency);
    line.latency("commit_3kb", commit_ms);
    line.print(&found);
    for runtime in runtimes {
        runtime.shutdown(Duration::ZERO).await;
    }
    database::remove(path).await;
}
