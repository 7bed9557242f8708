//! What a started call may have done (rules 14 and 32): time-outs, lost connections, panics and progress, by effect class.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::protocol::{ExecId, InteractionKind};
use holdpoint::tools::Probe;

use EffectClass::{AtMostOnce, Idempotent, ReadOnly, Verifiable};

fn allow_all() -> Policy {
    Policy::builder("all").allow(["*"]).build().unwrap()
}

/// How an attempt goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goes {
    Well,
    Hangs,
    Lost,
    Panics,
    Fails,
    ProvesNothing,
}

/// A tool of any class whose attempts go as they are told to, and that answers a probe from a list.
struct Odd {
    log: Log,
    definition: ToolDefinition,
    goes: Mutex<Vec<Goes>>,
    probes: Mutex<Vec<Probe>>,
}

impl Odd {
    fn new(log: &Log, effect: EffectClass, goes: &[Goes], probes: Vec<Probe>) -> Self {
        let mut definition = definition("odd", &[]);
        definition.effect = effect;
        definition.timeout_ms = Some(30);
        Self { log: log.clone(), definition, goes: Mutex::new(goes.to_vec()), probes: Mutex::new(probes) }
    }
}

#[async_trait::async_trait]
impl Tool for Odd {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, invocation: Invocation) -> Result<ToolOutput, ToolError> {
        self.log.add("call", &invocation.exec().to_string());
        let goes = self.goes.lock().unwrap().remove(0);
        match goes {
            Goes::Well => Ok(ToolOutput::text("well")),
            Goes::Hangs => std::future::pending().await,
            Goes::Lost => Err(ToolError::new("CONNECTION_LOST", "the line is dead").outcome_unknown()),
            Goes::Panics => panic!("odd"),
            Goes::Fails => Err(ToolError::new("FULL", "no room")),
            Goes::ProvesNothing => Err(ToolError::new("REFUSED", "not accepted").not_executed()),
        }
    }

    async fn probe(&self, exec: ExecId, _: &ToolContext) -> Probe {
        self.log.add("probe", &exec.to_string());
        self.probes.lock().unwrap().remove(0)
    }
}

on_every_store! {
    /// What the model is told of a call that started: its status, whether it took effect, and whether it may try again.
    fn rule_14_a_started_call_is_unknown_unless_it_only_reads_or_proves_otherwise(place) {
        let table = [
            (ReadOnly, Goes::Hangs, "timed_out", "no", true),
            (Idempotent, Goes::Hangs, "timed_out", "unknown", false),
            (ReadOnly, Goes::Panics, "failed", "no", true),
            (Idempotent, Goes::Panics, "failed", "unknown", true),
            (AtMostOnce, Goes::Panics, "failed", "unknown", true),
            (ReadOnly, Goes::Lost, "failed", "no", true),
            (Idempotent, Goes::Lost, "failed", "unknown", true),
            (AtMostOnce, Goes::Fails, "failed", "yes", true),
            (AtMostOnce, Goes::ProvesNothing, "failed", "no", true),
        ];
        for (effect, goes, status, executed, is_error) in table {
            let log = Log::default();
            let model = calls_then_done(&[("c1", "odd", "{}")]);
            let agent = Agent::builder("main", model.clone()).tool(Odd::new(&log, effect, &[goes], vec![])).policy(allow_all());
            let process = place.start(agent.build().unwrap());
            let outcome = process.go("go");
            assert_eq!(outcome.text(), Some("done"), "{effect:?} {goes:?}");
            let answer = &told(&model, 2)[0];
            assert_eq!((answer.status, answer.executed, answer.is_error), (status, executed, is_error), "{effect:?} {goes:?}");
            if executed == "unknown" {
                let said = answer.said.to_string();
                assert!(said.contains("may have taken effect") && said.contains("Do not repeat"), "{said}");
            }
            assert_eq!(log.calls().len(), 1);
            process.check(outcome.run);
        }
    }

    /// A call that must not run twice, cut off by its time or a lost connection, goes to a person.
    fn rule_14_an_at_most_once_call_that_was_cut_off_goes_in_doubt(place) {
        for goes in [Goes::Hangs, Goes::Lost] {
            let log = Log::default();
            // The model gave both calls one id: that is no key of anything.
            let model = calls_then_done(&[("c1", "odd", "{}"), ("c1", "odd", "{}")]);
            let agent = Agent::builder("main", model.clone()).tool(Odd::new(&log, AtMostOnce, &[goes, Goes::Well, Goes::Well], vec![]))
                .policy(allow_all());
            let process = place.start(agent.build().unwrap());
            let run = process.go("go").run;
            let open = process.open(run);
            assert_eq!((open.len(), open[0].kind), (1, InteractionKind::InDoubt));
            assert_eq!(log.calls().len(), 1, "the next call waits for what became of it");
            process.say(open[0].request_id, DecisionWord::Approve).unwrap();
            assert_eq!(process.wait(run).text(), Some("done"));
            let keys: Vec<_> = log.calls().into_iter().map(|(_, key)| key).collect();
            assert_eq!(keys.len(), 3);
            assert!(keys[0] == keys[1] && keys[1] != keys[2], "one key a call, whatever the attempt");
            process.check(run);
        }
    }

    /// A verifiable tool is asked what became of it: done, not done - then it runs on the same release -, or nobody knows.
    fn rule_32_a_verifiable_call_is_asked_about(place) {
        let done = || Probe::Done(ToolOutput::text("it was done"));
        let table: [(Vec<Probe>, &[&str], Option<&str>); 4] = [
            (vec![done()], &["call", "probe"], Some("it was done")),
            (vec![Probe::NotDone], &["call", "probe", "call"], Some("well")),
            (vec![Probe::NotDone, done()], &["call", "probe", "call", "probe"], Some("it was done")),
            (vec![Probe::Unknown], &["call", "probe"], None),
        ];
        for (probes, did, said) in table {
            let log = Log::default();
            let model = calls_then_done(&[("c1", "odd", "{}")]);
            let second = if probes.len() == 2 { Goes::Hangs } else { Goes::Well };
            let agent = Agent::builder("main", model.clone()).tool(Odd::new(&log, Verifiable, &[Goes::Hangs, second], probes));
            let process = place.start(agent.build().unwrap());
            let run = process.go("go").run;
            process.approve(run, "odd");
            assert_eq!(log.names(), did);
            match said {
                Some(said) => assert_eq!(told(&model, 2)[0].said, said),
                None => {
                    assert_eq!(process.open(run)[0].kind, InteractionKind::InDoubt);
                    process.say(process.open(run)[0].request_id, DecisionWord::Leave).unwrap();
                    process.wait(run);
                    assert_eq!(told(&model, 2)[0].status, "outcome_unknown");
                }
            }
            process.check(run);
        }
    }

    /// An edited call in doubt is the edited call: it is shown, run again and reported as such.
    fn a_doubt_about_an_edited_call_is_about_what_was_edited(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "wire", r#"{"sum":"5"}"#)]);
        let tries = Arc::new(AtomicU32::new(0));
        let mut definition = definition("wire", &["sum"]);
        definition.timeout_ms = Some(30);
        let agent = || {
            let (log, tries) = (log.clone(), tries.clone());
            let wire = FnTool::new(definition.clone(), move |invocation: Invocation| {
                log.add("wire", invocation.arguments());
                let first = tries.fetch_add(1, Ordering::Relaxed) == 0;
                async move {
                    if first {
                        std::future::pending::<()>().await;
                    }
                    "wired"
                }
            });
            Agent::builder("main", model.clone()).tool(wire).build().unwrap()
        };
        let first = place.start(agent());
        let run = first.go("go").run;
        let mut edit = Deciding::new(first.request(run, "wire"), DecisionWord::ApproveWith, human());
        edit.arguments = Some(r#"{"sum":"3"}"#.into());
        first.decide(edit).unwrap();
        first.wait(run);
        drop(first);
        let process = place.start(agent());
        let doubt = process.open(run).remove(0);
        assert_eq!((doubt.kind, field(&doubt, "arguments")), (InteractionKind::InDoubt, r#"{"sum":"3"}"#.to_owned()));
        process.say(doubt.request_id, DecisionWord::Approve).unwrap();
        process.wait(run);
        assert!(log.calls().iter().all(|(_, text)| text == r#"{"sum":"3"}"#));
        assert_eq!(log.calls().len(), 2);
        assert_eq!(told(&model, 2)[0].status, "executed_with_changes");
        process.check(run);
    }
}

/// The token fires before the future is dropped: what the tool started elsewhere can be stopped.
#[tokio::test]
async fn a_tool_whose_time_is_up_is_told_before_it_is_dropped() {
    let told_first = Arc::new(Mutex::new(None));
    let seen = told_first.clone();
    struct OnDrop(tokio_util::sync::CancellationToken, Arc<Mutex<Option<bool>>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = Some(self.0.is_cancelled());
        }
    }
    let slow = FnTool::new(definition("slow", &[]), move |invocation: Invocation| {
        let guard = OnDrop(invocation.cancel().clone(), seen.clone());
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
            ""
        }
    })
    .timeout(Duration::from_millis(20))
    .effect(ReadOnly);
    let model = calls_then_done(&[("c1", "slow", "{}")]);
    let agent = Agent::builder("main", model).tool(slow).policy(allow_all()).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    assert_eq!(within(run(&runtime)).await.text(), Some("done"));
    assert_eq!(*told_first.lock().unwrap(), Some(true));
}

/// A tool without a time of its own has the runtime's, and a hanging one does not hang the run.
#[tokio::test(start_paused = true)]
async fn a_tool_that_says_nothing_of_time_has_the_default() {
    let log = Log::default();
    let model = calls_then_done(&[("c1", "slow", "{}")]);
    let agent =
        Agent::builder("main", model.clone()).tool(hanging(&log, "slow", ReadOnly)).policy(allow_all());
    let runtime = Runtime::builder().agent(agent.build().unwrap()).build().unwrap();
    let began = tokio::time::Instant::now();
    run(&runtime).await;
    assert_eq!(told(&model, 2)[0].status, "timed_out");
    let took = began.elapsed();
    assert!(
        took >= holdpoint::TOOL_TIMEOUT_DEFAULT && took < holdpoint::TOOL_TIMEOUT_DEFAULT * 2,
        "{took:?}"
    );
}

/// Progress is shown between start and end, with the call's ids.
#[tokio::test]
async fn progress_is_an_event_of_its_call() {
    let busy = FnTool::new(definition("busy", &[]), |invocation: Invocation| async move {
        invocation.progress(Some("half way"), Some(0.5));
        invocation.progress(Some("too soon after the last"), Some(7.0));
        tokio::time::sleep(Duration::from_millis(20)).await;
        "done"
    });
    let model = calls_then_done(&[("p1", "busy", "{}")]);
    let agent = Agent::builder("main", model).tool(busy).policy(allow_all()).build().unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    let outcome = run(&runtime).await;
    let events = events(&runtime, outcome.run).await;
    let at = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    let progress: Vec<_> = events.iter().filter(|event| event["type"] == "tool_progress").collect();
    assert_eq!(progress.len(), 1);
    assert_eq!((&progress[0]["message"], &progress[0]["fraction"]), (&"half way".into(), &0.5.into()));
    assert_eq!(progress[0]["toolCallId"], "p1");
    assert!(at("tool_started") < at("tool_progress") && at("tool_progress") < at("tool_result"));
}
