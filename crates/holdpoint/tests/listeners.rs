//! Listeners and hooks: they see, and change nothing.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use common::*;
use holdpoint::prelude::*;
use holdpoint::protocol::FinishStatus;
use holdpoint::{AroundRound, AroundRun, Ended, HookError, LISTENER_BUFFER_EVENTS, RunInfo, RunState};

/// What a listener saw, in order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Event>>>);

impl Seen {
    fn listener(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let seen = self.clone();
        move |event: &Event| seen.0.lock().unwrap().push(event.clone())
    }

    fn stored(&self) -> Vec<Event> {
        self.0.lock().unwrap().iter().filter(|event| event.seq.is_some()).cloned().collect()
    }
}

async fn settle(seen: &Seen, count: usize) {
    within(async {
        while seen.stored().len() < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Per call: requested, approval requested, decided, started, progress, finished - with ids, names, arguments and results,
/// in the order they are stored; in the program as in the agent.
#[tokio::test]
async fn rule_36_observers_see_every_step_of_a_call_in_order() {
    let (everywhere, of_agent) = (Seen::default(), Seen::default());
    let busy = FnTool::new(definition("busy", &["what"]), |invocation: Invocation| async move {
        invocation.progress(Some("half way"), None);
        tokio::time::sleep(Duration::from_millis(10)).await;
        "result"
    });
    let model = calls_then_done(&[("p1", "busy", r#"{"what":"x"}"#)]);
    let agent = Agent::builder("main", model).tool(busy).listener(of_agent.listener()).build().unwrap();
    let runtime = Runtime::builder().agent(agent).listener(everywhere.listener()).build().unwrap();
    let outcome = run(&runtime).await;
    decide(&runtime, outcome.pending()[0].request_id, DecisionWord::Approve).await.unwrap();
    within(runtime.wait(&local(), outcome.run)).await.unwrap();
    let stored = events(&runtime, outcome.run).await;
    for seen in [everywhere, of_agent] {
        settle(&seen, stored.len()).await;
        let events = seen.stored();
        let seqs: Vec<_> = events.iter().filter_map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=stored.len() as u64).collect::<Vec<_>>(), "each once, in order");
        let as_json: Vec<serde_json::Value> =
            events.iter().map(|e| serde_json::from_str(&e.to_json()).unwrap()).collect();
        assert_eq!(as_json, stored, "what is seen is what is stored");
        let of_call: Vec<_> = events
            .iter()
            .map(|event| event.body.kind())
            .filter(|kind| {
                ["tool_call", "approval_request", "decision", "tool_started", "tool_progress", "tool_result"]
                    .contains(kind)
            })
            .collect();
        assert_eq!(
            of_call,
            ["tool_call", "approval_request", "decision", "tool_started", "tool_progress", "tool_result"]
        );
    }
}

/// One that panics or is slow changes nothing about the run; it is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_36_a_listener_that_panics_or_is_slow_changes_nothing_and_is_counted() {
    let seen = Seen::default();
    let (log, model) = (Log::default(), three_calls());
    let agent = build_assistant(&log, model).build().unwrap();
    let runtime = Runtime::builder()
        .agent(agent)
        .listener(|_: &Event| panic!("a broken listener"))
        .listener(|_: &Event| std::thread::sleep(Duration::from_millis(5)))
        .listener(seen.listener())
        .build()
        .unwrap();
    let outcome = run(&runtime).await;
    for pending in outcome.pending() {
        decide(&runtime, pending.request_id, DecisionWord::Approve).await.unwrap();
    }
    let outcome = within(runtime.wait(&local(), outcome.run)).await.unwrap();
    assert_eq!(outcome.text(), Some("done"));
    let stored = events(&runtime, outcome.run).await.len();
    settle(&seen, stored).await;
    within(async {
        while runtime.listener_troubles().panicked() < stored as u64 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!(log.names(), ["Read", "Write", "Bash"]);
}

/// A listener that stands still loses events beyond its buffer, and that is counted; the run does not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn rule_36_a_listener_that_stands_still_is_passed_by() {
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let held = gate.clone();
    let stuck = move |_: &Event| {
        let (open, bell) = &*held;
        let guard = open.lock().unwrap();
        drop(bell.wait_while(guard, |open| !*open).unwrap());
    };
    let text = "word ".repeat(LISTENER_BUFFER_EVENTS + 100);
    let model = Scripted::sequence("script", [Answer::text(text)]);
    let agent = Agent::builder("main", model).listener(stuck).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = within(run(&runtime)).await;
    assert_eq!(outcome.finish().unwrap().status, FinishStatus::Success);
    assert!(runtime.listener_troubles().missed() > 0);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

#[derive(Clone, Default)]
struct Hooks {
    calls: Arc<Mutex<Vec<String>>>,
    fails: &'static str,
}

impl Hooks {
    fn failing(at: &'static str) -> Self {
        Self { fails: at, ..Self::default() }
    }

    fn said(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn add(&self, what: String) -> Result<(), HookError> {
        let fails = what.starts_with(self.fails) && !self.fails.is_empty();
        self.calls.lock().unwrap().push(what);
        if fails { Err(HookError { message: "not now".into() }) } else { Ok(()) }
    }
}

#[async_trait]
impl AroundRun for Hooks {
    async fn before(&self, _: &RunInfo) -> Result<(), HookError> {
        self.add("run before".into())
    }
    async fn after(&self, _: &RunInfo, ended: &Ended) {
        let how = if matches!(ended, Ended::Finished(_)) { "finished" } else { "failed" };
        if self.add(format!("run after: {how}")).is_err() {
            panic!("a broken hook");
        }
    }
}

#[async_trait]
impl AroundRound for Hooks {
    async fn before(
        &self,
        _: &RunInfo,
        round: u32,
        _: &mut holdpoint::models::ModelRequest,
    ) -> Result<(), HookError> {
        self.add(format!("round {round} before"))
    }
    async fn after(&self, _: &RunInfo, round: u32, reply: &holdpoint::models::Reply) {
        let _ = self.add(format!("round {round} after: {} call(s)", reply.message.calls().count()));
    }
}

on_every_store! {
    /// Around the run once, around each round; not around a resume.
    fn hooks_stand_around_the_run_once_and_around_each_round(place) {
        let (log, model) = (Log::default(), three_calls());
        let hooks = Hooks::default();
        let agent = || build_assistant(&log, model.clone()).around_run(hooks.clone()).around_round(hooks.clone()).build().unwrap();
        let first = place.start(agent());
        let run = first.go("go").run;
        drop(first);
        let second = place.start(agent());
        second.approve(run, "Write");
        assert_eq!(second.approve(run, "Bash").text(), Some("done"));
        assert_eq!(hooks.said(), [
            "run before", "round 1 before", "round 1 after: 3 call(s)", "round 2 before", "round 2 after: 0 call(s)",
            "run after: finished",
        ]);
    }

    /// A hook that says no ends the run before a model was asked; one that panics after the end changes nothing.
    fn a_hook_that_says_no_ends_the_run_with_an_error(place) {
        for (at, asked, ends_well) in [("run before", 0, false), ("round 1 before", 0, false), ("round 2 before", 1, false), ("run after", 2, true)] {
            let (log, model) = (Log::default(), calls_then_done(&[("c1", "Read", r#"{"path":"a"}"#)]));
            let hooks = Hooks::failing(at);
            let agent = build_assistant(&log, model.clone()).around_run(hooks.clone()).around_round(hooks.clone());
            let process = place.start(agent.build().unwrap());
            let outcome = process.go("go");
            assert_eq!(model.calls(), asked, "{at}");
            match &outcome.state {
                RunState::Ended(Ended::Finished(_)) => assert!(ends_well),
                RunState::Ended(Ended::Failed(error)) => assert_eq!((error.code.as_str(), ends_well), ("hook", false)),
                other => panic!("{other:?}"),
            }
            process.check(outcome.run);
        }
    }
}
