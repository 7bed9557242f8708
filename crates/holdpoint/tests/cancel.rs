//! Cancelling: what waits is closed, what runs is told to stop and settles, every call is answered (rules 14 and 35's library part).
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use holdpoint::core::run::Execution;
use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::protocol::{FinishStatus, InteractionStatus, RunId};
use holdpoint::{CANCEL_GRACE, Cancelled};

fn allow_all() -> Policy {
    Policy::builder("all").allow(["*"]).build().unwrap()
}

async fn cancel(runtime: &Runtime, run: RunId) -> Cancelled {
    runtime.cancel(&local(), run).await.unwrap()
}

on_every_store! {
    and on postgres:

    /// What waits is closed and answered; a late approve runs nothing; the conversation can go on.
    /// https://github.com/letta-ai/letta/issues/3176 https://github.com/anomalyco/opencode/issues/29422
    fn a_cancelled_run_closes_what_waits_and_a_late_approve_runs_nothing(place) {
        let (log, model) = (Log::default(), three_calls());
        let agent = || build_assistant(&log, model.clone()).build().unwrap();
        let first = place.start(agent());
        let run = first.go("go").run;
        let requests: Vec<_> = first.open(run).iter().map(|item| item.request_id).collect();
        drop(first);
        let process = place.start(agent());
        assert_eq!(process.run(async |runtime| cancel(runtime, run).await), Cancelled::Noted);
        let outcome = process.wait(run);
        assert_eq!(outcome.finish().unwrap().status, FinishStatus::Cancelled);
        let ended: Vec<_> = process.answers(run).iter().map(|a| (a.status, a.executed)).collect();
        assert_eq!(ended, [("succeeded", "yes"), ("cancelled", "no"), ("cancelled", "no")]);
        assert_eq!(process.run(async |runtime| cancel(runtime, run).await), Cancelled::Ended);
        for request in requests {
            let late = process.say(request, DecisionWord::Approve);
            assert!(matches!(late, Err(holdpoint::DecideError::Conflict { status: InteractionStatus::Cancelled, .. })), "{late:?}");
        }
        process.rest(20);
        assert_eq!(log.names(), ["Read"]);
        process.check(run);
        let conversation = process.view(run).conversation_id;
        let next = process.start(Start::text("something else").conversation(conversation));
        assert_eq!(next.pending().len(), 2, "the conversation goes on");
        process.check(next.run);
    }

    /// Cancel and approve in one moment: whichever order they are stored in, the call does not run, and the run ends.
    fn an_approve_stored_right_after_a_cancel_runs_nothing_and_the_run_still_ends(place) {
        for approve_first in [true, false] {
            let (log, model) = (Log::default(), three_calls());
            // `hold`: an approve alone starts nothing yet, so that both facts meet in one step.
            let process = place.start(build_assistant(&log, model).execution(Execution::Hold).build().unwrap());
            let run = process.go("go").run;
            let request = process.request(run, "Write");
            process.run(async |runtime| {
                let approve = decide(runtime, request, DecisionWord::Approve);
                let cancel = cancel(runtime, run);
                // Stored in either order, in one step of the driver or in two; an approve that comes later is refused.
                let _ = if approve_first { tokio::join!(approve, cancel).0 } else { tokio::join!(cancel, approve).1 };
            });
            let outcome = process.wait(run);
            assert_eq!(outcome.finish().unwrap().status, FinishStatus::Cancelled);
            assert!(log.names().is_empty(), "{:?}", log.names());
            process.check(run);
        }
    }

    /// Two people at once, one of whom stops the run: both decisions are stored, and the run ends.
    fn a_stop_and_an_approve_in_one_moment_end_the_run(place) {
        for approve_first in [true, false] {
            let (log, model) = (Log::default(), three_calls());
            let process = place.start(build_assistant(&log, model).execution(Execution::Hold).build().unwrap());
            let run = process.go("go").run;
            let (write, bash) = (process.request(run, "Write"), process.request(run, "Bash"));
            process.run(async |runtime| {
                let mut stop = Deciding::new(write, DecisionWord::Decline, human());
                stop.then = holdpoint::protocol::Then::Stop;
                let cx = local();
                let stop = runtime.decide(&cx, stop);
                let approve = decide(runtime, bash, DecisionWord::Approve);
                let (stopped, approved) = if approve_first {
                    let (approved, stopped) = tokio::join!(approve, stop);
                    (stopped, approved)
                } else {
                    tokio::join!(stop, approve)
                };
                assert!(stopped.is_ok());
                // It lost the race, or it is stored and runs nothing.
                drop(approved);
            });
            let outcome = process.wait(run);
            assert_eq!(outcome.finish().unwrap().status, FinishStatus::Stopped);
            assert!(log.names().is_empty());
            process.check(run);
        }
    }

    /// A run that is asking the model stops asking.
    fn a_run_that_asks_the_model_is_cancelled_at_once(place) {
        let log = Log::default();
        let model = Scripted::sequence("script", [Answer::hang()]);
        let process = place.start(build_assistant(&log, model.clone()).build().unwrap());
        let run = process.begin("go");
        process.rest(10);
        process.run(async |runtime| cancel(runtime, run).await);
        assert_eq!(process.wait(run).finish().unwrap().status, FinishStatus::Cancelled);
        assert!(model.requests()[0].cancel.is_cancelled(), "the model is told");
        process.check(run);
    }

    /// What runs is told, and what it proves counts: a read had no effect, a tool can prove it, else nobody knows.
    fn rule_14_a_running_call_that_is_cancelled_is_unknown_unless_it_proves_otherwise(place) {
        let table = [
            (EffectClass::ReadOnly, false, ("cancelled", "no")),
            (EffectClass::AtMostOnce, false, ("outcome_unknown", "unknown")),
            (EffectClass::AtMostOnce, true, ("cancelled", "no")),
        ];
        for (effect, proves, expected) in table {
            let model = calls_then_done(&[("c1", "slow", "{}"), ("c2", "slow", "{}")]);
            let slow = FnTool::new(definition("slow", &[]), move |invocation: Invocation| async move {
                invocation.cancel().cancelled().await;
                let error = ToolError::new("STOPPED", "told to stop");
                Err::<String, _>(if proves { error.not_executed() } else { error })
            }).effect(effect);
            let process = place.start(Agent::builder("main", model).tool(slow).policy(allow_all()).build().unwrap());
            let run = process.begin("go");
            process.until(run, "tool_started");
            process.run(async |runtime| cancel(runtime, run).await);
            assert_eq!(process.wait(run).finish().unwrap().status, FinishStatus::Cancelled);
            let ended: Vec<_> = process.answers(run).iter().map(|a| (a.status, a.executed)).collect();
            assert_eq!(ended, [expected, ("cancelled", "no")], "{effect:?} {proves}");
            assert!(process.interactions(run).is_empty(), "a cancelled run asks nobody");
            process.check(run);
        }
    }

    /// A result that comes while the run is being cancelled is a result.
    fn a_call_that_finishes_during_a_cancel_keeps_its_result(place) {
        let model = calls_then_done(&[("c1", "slow", "{}")]);
        let slow = FnTool::new(definition("slow", &[]), |_| async { tokio::time::sleep(Duration::from_millis(50)).await; "done after all" });
        let process = place.start(Agent::builder("main", model).tool(slow).policy(allow_all()).build().unwrap());
        let run = process.begin("go");
        process.until(run, "tool_started");
        process.run(async |runtime| cancel(runtime, run).await);
        process.wait(run);
        let answer = &process.answers(run)[0];
        assert_eq!((answer.status, answer.executed), ("succeeded", "yes"));
        process.check(run);
    }

    /// A doubt is let go of with the run, and said to be one.
    fn a_cancelled_doubt_is_left_as_unknown(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "wire", "{}")]);
        let agent = || Agent::builder("main", model.clone()).policy(allow_all())
            .tool(hanging(&log, "wire", EffectClass::AtMostOnce).timeout(Duration::from_millis(20))).build().unwrap();
        let first = place.start(agent());
        let run = first.go("go").run;
        assert_eq!(first.open(run).len(), 1);
        drop(first);
        let process = place.start(agent());
        process.run(async |runtime| cancel(runtime, run).await);
        process.wait(run);
        assert_eq!(process.answers(run)[0].status, "outcome_unknown");
        assert_eq!(process.interactions(run)[0].status, InteractionStatus::Cancelled);
        process.check(run);
    }

    /// Two have run, one runs, three wait: six answers in the order of the reply, each with what is known of it, and nothing is
    /// left in anybody's inbox.
    fn a_cancel_answers_every_call_of_a_batch_in_its_order(place) {
        let log = Log::default();
        let model = calls_then_done(&[
            ("c1", "Read", r#"{"path":"a"}"#), ("c2", "Bash", r#"{"command":"a"}"#), ("c3", "wire", "{}"),
            ("c4", "Bash", r#"{"command":"b"}"#), ("c5", "Read", r#"{"path":"b"}"#), ("c6", "Bash", r#"{"command":"c"}"#),
        ]);
        let policy = Policy::builder("p").allow(["Read", "wire"]).build().unwrap();
        let agent = Agent::builder("main", model.clone()).execution(Execution::Parallel).policy(policy)
            .tool(read_only(&log, "Read", &["path"], "contents")).tool(tool(&log, "Bash", &["command"], "ok"))
            .tool(hanging(&log, "wire", EffectClass::AtMostOnce));
        let process = place.start(agent.build().unwrap());
        let run = process.begin("go");
        for _ in 0..1_000 {
            if process.kinds(run).iter().filter(|kind| *kind == "tool_result").count() == 2 && log.names().len() == 3 { break }
            process.rest(10);
        }
        assert_eq!(process.open(run).len(), 3);
        process.run(async |runtime| cancel(runtime, run).await);
        assert_eq!(process.wait(run).finish().unwrap().status, FinishStatus::Cancelled);
        let answers = process.answers(run);
        let ended: Vec<_> = answers.iter().map(|a| (a.id.as_str(), a.status, a.executed)).collect();
        assert_eq!(ended, [
            ("c1", "succeeded", "yes"), ("c2", "cancelled", "no"), ("c3", "outcome_unknown", "unknown"),
            ("c4", "cancelled", "no"), ("c5", "succeeded", "yes"), ("c6", "cancelled", "no"),
        ]);
        assert!(process.interactions(run).iter().all(|item| item.status == InteractionStatus::Cancelled));
        assert_eq!(log.names().len(), 3);
        process.check(run);
    }

    /// What a run needs is gone from the configuration: it waits until that is back - and can be ended all the same, with every
    /// call answered, so that its conversation goes on.
    /// https://github.com/novuhq/novu/pull/12087 https://github.com/openai/openai-agents-python/pull/4264
    fn a_run_whose_agent_model_or_tool_is_gone_can_be_ended(place) {
        for gone in ["agent", "model", "tool"] {
            for (decided, supersede) in [(true, false), (false, false), (false, true)] {
                let log = Log::default();
                let spare = || Arc::new(Scripted::sequence("spare", [batch(&[
                    ("c1", "Read", r#"{"path":"a"}"#), ("c2", "Write", r#"{"path":"a","content":""}"#),
                    ("c3", "Write", r#"{"path":"b","content":""}"#),
                ])]));
                let first = place.start(build_assistant(&log, three_calls()).also_model(spare()).build().unwrap());
                let mut start = Start::text("go");
                start.model = Some("spare".into());
                let run = first.start(start).run;
                let conversation = first.view(run).conversation_id;
                drop(first);

                let name = if gone == "agent" { "other" } else { "main" };
                let mut rest = Agent::builder(name, Scripted::sequence("script", [Answer::text("something else")]))
                    .on_new_message(if supersede { holdpoint::OnNewMessage::Supersede } else { Default::default() });
                if gone != "model" {
                    rest = rest.also_model(spare());
                }
                if gone != "tool" {
                    rest = rest.tool(tool(&log, "Write", &["path", "content"], "written"));
                }
                let process = place.start(rest.build().unwrap());
                if decided {
                    process.say(process.request(run, "Write"), DecisionWord::Approve).unwrap();
                    process.rest(20);
                    assert_eq!(log.names(), ["Read"], "{gone}: it waits for what is not there");
                }
                let expected = if supersede { FinishStatus::Superseded } else { FinishStatus::Cancelled };
                if !supersede {
                    process.run(async |runtime| cancel(runtime, run).await);
                    assert_eq!(process.wait(run).finish().unwrap().status, expected, "{gone}");
                }
                let next = process.run(async |runtime| {
                    within(runtime.run(&local(), Start::text("and now").conversation(conversation))).await.unwrap()
                });
                assert_eq!(next.text(), Some("something else"), "{gone}: the conversation goes on");
                assert_eq!(process.view(run).finish, Some(expected), "{gone}");
                let word = if supersede { "superseded" } else { "cancelled" };
                let ended: Vec<_> = process.answers(run).iter().map(|answer| answer.status).collect();
                assert_eq!(ended, ["succeeded", word, word], "{gone}, decided {decided}");
                assert!(process.open(run).is_empty());
                assert_eq!(log.names(), ["Read"]);
                process.check(run);
                process.check(next.run);
            }
        }
    }

    /// The process dies after the cancel was noted and before it was acted on: the next one ends the run, and asks nobody.
    fn a_run_cancelled_while_its_process_died_ends_in_the_next(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "wire", "{}")]);
        let wire = |log: &Log| {
            let log = log.clone();
            // It does not listen.
            FnTool::new(definition("wire", &[]), move |_| { log.add("wire", ""); async { std::future::pending::<()>().await; "" } })
        };
        let agent = || Agent::builder("main", model.clone()).tool(wire(&log)).policy(allow_all()).build().unwrap();
        let first = place.start(agent());
        let run = first.begin("go");
        first.until(run, "tool_started");
        first.run(async |runtime| cancel(runtime, run).await);
        drop(first);
        let second = place.start(agent());
        assert_eq!(second.wait(run).finish().unwrap().status, FinishStatus::Cancelled);
        assert_eq!(second.answers(run)[0].status, "outcome_unknown");
        assert!(second.interactions(run).is_empty());
        assert_eq!(log.names(), ["wire"]);
        second.check(run);
    }
}

/// What does not stop in its time is settled as cut off, and the run ends without it.
#[tokio::test(start_paused = true)]
async fn what_does_not_stop_within_the_grace_is_settled_as_unknown() {
    let model = calls_then_done(&[("c1", "deaf", "{}"), ("c2", "reads", "{}")]);
    let deaf = |name: &'static str, effect| {
        FnTool::new(definition(name, &[]), |_| async {
            std::future::pending::<()>().await;
            ""
        })
        .effect(effect)
    };
    let agent = Agent::builder("main", model.clone())
        .tool(deaf("deaf", EffectClass::AtMostOnce))
        .tool(deaf("reads", EffectClass::ReadOnly))
        .execution(Execution::Parallel)
        .policy(allow_all());
    let runtime = Runtime::builder().agent(agent.build().unwrap()).build().unwrap();
    let run = runtime.start(&local(), Start::text("go")).await.unwrap().run;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let began = tokio::time::Instant::now();
    cancel(&runtime, run).await;
    let outcome = runtime.wait(&local(), run).await.unwrap();
    let took = began.elapsed();
    assert!(took >= CANCEL_GRACE && took < CANCEL_GRACE + Duration::from_secs(2), "{took:?}");
    assert_eq!(outcome.finish().unwrap().status, FinishStatus::Cancelled);
    let events = events(&runtime, run).await;
    let ended: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "tool_result")
        .map(|event| event["toolResults"][0]["executed"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ended, ["unknown", "no"]);
    check_events(&events, holdpoint::protocol::RunStatus::Finished);
}
