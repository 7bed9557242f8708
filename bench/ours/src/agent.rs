//! The agent that does the work: a scripted model, three tools, a policy that lets Read pass, one listener.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use holdpoint::AgentBuilder;
use holdpoint::core::message::Message;
use holdpoint::core::tool::EffectClass;
use holdpoint::models::{Model, ModelError, ModelRequest, Pieces, Reply};
use holdpoint::prelude::*;
use holdpoint::protocol::RunId;
use holdpoint_bench_harness::{Deviations, Expect, Record, work};

/// What tools and model write down.
pub struct Log {
    expect: Expect,
    records: Mutex<HashMap<RunId, Record>>,
    asked_first: AtomicU64,
    asked_again: AtomicU64,
    events: AtomicU64,
    wrong: Mutex<Deviations>,
}

impl Log {
    /// An empty log.
    pub fn new(expect: Expect) -> Arc<Self> {
        Arc::new(Self {
            expect,
            records: Mutex::default(),
            asked_first: AtomicU64::new(0),
            asked_again: AtomicU64::new(0),
            events: AtomicU64::new(0),
            wrong: Mutex::default(),
        })
    }

    /// What is expected of a run.
    pub fn expect(&self) -> Expect {
        self.expect
    }

    /// A copy of what a run left so far.
    pub fn record(&self, run: RunId) -> Record {
        lock(&self.records).get(&run).cloned().unwrap_or_default()
    }

    /// Takes what a run left.
    pub fn take(&self, run: RunId) -> Record {
        lock(&self.records).remove(&run).unwrap_or_default()
    }

    /// Checks over all runs what cannot be told apart by run: each asked the model once for the calls and once for the end.
    pub fn close(&self, runs: u64, found: &mut Deviations) {
        let asked = (self.asked_first.load(Ordering::Relaxed), self.asked_again.load(Ordering::Relaxed));
        if asked != (runs, runs) {
            found.note("model_calls", format!("{asked:?} of {runs} runs"));
        }
        if self.events.load(Ordering::Relaxed) == 0 {
            found.note("listener", "it saw nothing");
        }
        found.merge(std::mem::take(&mut lock(&self.wrong)));
    }

    fn asked(&self, request: &ModelRequest) {
        let mut results = request.messages.iter().filter_map(|message| match message.as_ref() {
            Message::Tool(result) => Some(result.id.as_str()),
            Message::User(_) | Message::Assistant(_) | Message::Note(_) => None,
        });
        let Some(first) = results.next() else {
            self.asked_first.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.asked_again.fetch_add(1, Ordering::Relaxed);
        let seen = std::iter::once(first).chain(results);
        if !seen.clone().eq(self.expect.ids().iter().copied()) {
            lock(&self.wrong).note("result_order", format!("{:?}", seen.collect::<Vec<_>>()));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The script, with what it saw written down.
struct Watched {
    script: Scripted,
    log: Arc<Log>,
}

#[async_trait]
impl Model for Watched {
    fn name(&self) -> &str {
        self.script.name()
    }

    async fn reply(&self, request: &ModelRequest, pieces: &mut dyn Pieces) -> Result<Reply, ModelError> {
        self.log.asked(request);
        self.script.reply(request, pieces).await
    }
}

fn tool(log: &Arc<Log>, name: &'static str, properties: &[&str], output: &'static str) -> FnTool {
    let definition = ToolDefinition::new(name, format!("{name} tool"), work::schema(properties));
    let log = Arc::clone(log);
    FnTool::new(definition, move |invocation: Invocation| {
        lock(&log.records).entry(invocation.context().run).or_default().ran(name);
        async move { Ok::<_, ToolError>(output.to_owned()) }
    })
}

/// The script of a turn: no result in the request, then the calls; else the last word.
fn script(calls: &[work::Call]) -> Scripted {
    let turn = calls.iter().fold(Answer::empty(), |turn, (id, name, text)| turn.and_call(*id, *name, *text));
    Scripted::new("scripted")
        .rule(When::any().has_tool_result(true), Answer::text(work::FINAL))
        .rule(When::any(), turn)
        .record(false)
        .build()
}

/// The agent of the work; Read is free, everything else asks.
pub fn build(log: &Arc<Log>) -> Agent {
    let calls: &[work::Call] = match log.expect {
        Expect::Free => &work::FREE_TURN,
        Expect::Gated => &work::GATED_TURN,
    };
    on(log, Watched { script: script(calls), log: Arc::clone(log) }).build().expect("a valid agent")
}

/// The same agent on another model, to be finished.
pub fn on(log: &Arc<Log>, model: impl Model) -> AgentBuilder {
    let counted = Arc::clone(log);
    Agent::builder("main", model)
        .instructions(work::SYSTEM)
        .stream(false)
        .tool(tool(log, "Read", &["path"], work::READ_OUT).effect(EffectClass::ReadOnly))
        .tool(tool(log, "Write", &["path", "content"], work::WRITE_OUT))
        .tool(tool(log, "Bash", &["command"], work::BASH_OUT))
        .policy(Policy::builder("work").allow(["Read"]).build().expect("a valid policy"))
        .listener(move |_: &Event| {
            counted.events.fetch_add(1, Ordering::Relaxed);
        })
}
