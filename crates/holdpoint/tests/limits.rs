//! Limits: counted when proposed, soft once, and no way around them.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::time::Duration;

use common::*;
use holdpoint::core::limits::Limits;
use holdpoint::prelude::*;
use holdpoint::protocol::FinishStatus;

fn statuses(answers: &[Answered]) -> Vec<&'static str> {
    answers.iter().map(|answer| answer.status).collect()
}

/// A model that reads for ever.
fn never_done() -> Scripted {
    Scripted::computed("script", |_, nth| call("c", "Read", &format!(r#"{{"path":"{nth}"}}"#)).usage(10, 5))
}

#[test]
fn rule_24_the_defaults_are_forty_a_tool_hundred_and_fifty_a_run_and_fifty_rounds() {
    let limits = Limits::default();
    assert_eq!((limits.calls_per_tool, limits.calls_total, limits.rounds), (40, 150, 50));
    assert_eq!(limits.calls_per_reply, 64);
}

on_every_store! {
    /// Over a limit, that call and every later call of the batch are answered `limit`; the model gets one more round; then
    /// the run ends. https://github.com/spring-projects/spring-ai/issues/6902
    fn rule_25_over_a_limit_the_rest_of_the_batch_is_answered_and_one_round_is_left(place) {
        let read = |n: u32| (format!("c{n}"), "Read", format!(r#"{{"path":"{n}"}}"#));
        let calls: Vec<_> = (1..=3).map(read).collect();
        let mut calls: Vec<_> = calls.iter().map(|(id, name, text)| (id.as_str(), *name, text.as_str())).collect();
        calls.push(("c4", "Bash", r#"{"command":"ls"}"#));
        for limits in [
            Limits { calls_per_tool: 2, ..Limits::default() }, Limits { calls_total: 2, ..Limits::default() },
        ] {
            let log = Log::default();
            // The one more round: an answer, or calls, which are all answered `limit`.
            for last in [Answer::text("sorry"), batch(&[("c5", "Write", r#"{"path":"a","content":""}"#)])] {
                let model = Scripted::sequence("script", [batch(&calls), last]);
                let process = place.start(build_assistant(&log, model.clone()).limits(limits.clone()).build().unwrap());
                let outcome = process.go("go");
                assert_eq!(outcome.finish().unwrap().status, FinishStatus::LimitExceeded);
                assert!(process.interactions(outcome.run).is_empty(), "nobody is asked about a call over a limit");
                let answers = process.answers(outcome.run);
                assert_eq!(statuses(&answers)[..4], ["succeeded", "succeeded", "limit", "limit"]);
                assert!(answers[4..].iter().all(|answer| answer.status == "limit"));
                assert_eq!((answers[2].executed, answers[2].is_error), ("no", false));
                assert!(answers[2].said["message"].as_str().unwrap().contains("limit"));
                assert_eq!(model.calls(), 2);
                process.check(outcome.run);
            }
        }
    }

    /// Every budget ends a run that would go on for ever, with one round more than it allows.
    fn rule_25_no_soft_limit_can_loop_for_ever(place) {
        let table = [
            (Limits { rounds: 3, ..Limits::default() }, 4),
            (Limits { tokens: Some(40), ..Limits::default() }, 4),
            (Limits { calls_total: 3, ..Limits::default() }, 5),
            (Limits::default(), 42),
        ];
        for (limits, replies) in table {
            let model = never_done();
            let process = place.start(build_assistant(&Log::default(), model.clone()).limits(limits.clone()).build().unwrap());
            let outcome = process.go("go");
            assert_eq!(outcome.finish().unwrap().status, FinishStatus::LimitExceeded, "{limits:?}");
            assert_eq!(model.calls(), replies, "{limits:?}");
            assert!(process.events(outcome.run).iter().any(|e| e["type"] == "notice" && e["code"] == "limit"));
            process.check(outcome.run);
        }
    }

    /// Counted when proposed: what was approved is never refused for a limit, not even by a process with a lower one.
    fn rule_24_an_approved_call_is_never_refused_for_a_limit(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "Bash", r#"{"command":"a"}"#), ("c2", "Bash", r#"{"command":"b"}"#)]);
        let agent = |calls_total| {
            build_assistant(&log, model.clone()).limits(Limits { calls_total, ..Limits::default() }).build().unwrap()
        };
        let first = place.start(agent(2));
        let run = first.go("go").run;
        drop(first);
        let second = place.start(agent(1));
        for item in second.open(run) {
            second.say(item.request_id, DecisionWord::Approve).unwrap();
        }
        assert_eq!(second.wait(run).text(), Some("done"));
        assert_eq!(log.names(), ["Bash", "Bash"]);
        second.check(run);
    }

    /// A call that was declined is asked about at most three times in a run, then answered by citing that decision.
    /// https://github.com/brightwave-inc/tidebreak/pull/1303
    fn rule_24_a_declined_call_is_asked_about_at_most_three_times(place) {
        let log = Log::default();
        let model = Scripted::sequence("script", (0..6).map(|n| {
            if n < 5 { batch(&[("c", "Bash", r#"{"command":"rm"}"#)]) } else { Answer::text("done") }
        }));
        let agent = || build_assistant(&log, model.clone()).build().unwrap();
        let mut process = place.start(agent());
        let run = process.go("go").run;
        for n in 0..3 {
            let open = process.open(run);
            assert_eq!(open.len(), 1, "asked {n} times before");
            let warned = field(&open[0], "render").contains(&format!("declined {n} time(s)"));
            assert_eq!(warned, n > 0, "{open:?}");
            process.decline(run, "Bash", "no");
            drop(process);
            process = place.start(agent());
        }
        assert_eq!(process.wait(run).text(), Some("done"));
        assert_eq!(process.interactions(run).len(), 3);
        let answers = process.answers(run);
        assert_eq!(statuses(&answers), ["declined"; 5]);
        assert_eq!(answers[4].said["code"], "DECLINED_BEFORE");
        assert!(answers[4].said["declined_at"].is_string(), "it cites the decision: {}", answers[4].said);
        assert!(log.names().is_empty());
        process.check(run);
    }

    /// The same call again after it ran asks again, and says that it ran.
    /// https://github.com/microsoft/agent-framework/issues/6851
    fn a_repeated_call_asks_again_and_says_that_it_ran(place) {
        let log = Log::default();
        let bash = || batch(&[("c", "Bash", r#"{"command":"make"}"#)]);
        let write = batch(&[("c", "Write", r#"{"path":"a","content":""}"#)]);
        let model = Scripted::sequence("script", [bash(), write, bash(), Answer::text("done")]);
        let process = place.start(build_assistant(&log, model).build().unwrap());
        let run = process.go("go").run;
        process.approve(run, "Bash");
        place.later(Duration::from_secs(40));
        process.decline(run, "Write", "no");
        let open = process.open(run);
        assert_eq!(open.len(), 1, "one approve, one call");
        assert!(field(&open[0], "render").contains("the same call ran 40 s ago"), "{open:?}");
        process.decline(run, "Bash", "once is enough");
        assert_eq!(log.names(), ["Bash"]);
    }

    /// More calls than a reply may hold: each one over is answered, nobody is asked about it, the order holds.
    fn rule_24_a_reply_holds_at_most_sixty_four_calls(place) {
        for count in [64_usize, 65, 1_000] {
            let log = Log::default();
            let reply = (0..count).fold(Answer::empty(), |reply, n| reply.and_call("c", "Read", format!(r#"{{"path":"{n}"}}"#)));
            let model = Scripted::sequence("script", [reply, Answer::text("done")]);
            let limits = Limits { calls_per_tool: 500, calls_total: 500, ..Limits::default() };
            let process = place.start(build_assistant(&log, model.clone()).limits(limits).build().unwrap());
            let outcome = process.go("go");
            assert_eq!(outcome.text(), Some("done"));
            assert_eq!(log.calls().len(), 64);
            let answers = told(&model, 2);
            assert_eq!(answers.len(), count);
            assert!(answers[64..].iter().all(|answer| answer.status == "limit" && answer.executed == "no"));
            process.check(outcome.run);
        }
    }

    /// Waiting for a person is no work: it counts against no budget and no timeout.
    /// https://github.com/vercel/ai/issues/17310 https://github.com/fabro-sh/fabro/issues/317
    fn rule_26_waiting_for_a_person_counts_against_nothing(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "Bash", r#"{"command":"ls"}"#)]);
        let mut bash = definition("Bash", &["command"]);
        bash.timeout_ms = Some(2_000);
        let agent = || Agent::builder("main", model.clone()).tool(with(&log, bash.clone(), "ok"))
            .limits(Limits { active_ms: Some(60_000), ..Limits::default() }).build().unwrap();
        let first = place.start(agent());
        let run = first.go("go").run;
        drop(first);
        place.later(Duration::from_secs(90 * 24 * 3600));
        let second = place.start(agent());
        let outcome = second.approve(run, "Bash");
        assert_eq!(outcome.finish().unwrap().status, FinishStatus::Success);
        assert_eq!(log.names(), ["Bash"]);
        second.check(run);
    }

    /// A result over its bound is cut, and says so with the digest of the whole.
    fn a_huge_result_is_cut_and_says_so(place) {
        let model = calls_then_done(&[("c1", "dump", "{}")]);
        let dump = FnTool::new(definition("dump", &[]), |_| async { "x".repeat(3 * 1024 * 1024) });
        let agent = Agent::builder("main", model.clone()).tool(dump).policy(Policy::builder("all").allow(["*"]).build().unwrap());
        let process = place.start(agent.build().unwrap());
        let run = process.go("go").run;
        let said = told(&model, 2)[0].said.as_str().unwrap().to_owned();
        assert!(said.len() < 1024 * 1024 + 300 && said.contains("3145728 bytes") && said.contains("sha256"), "{}", said.len());
        process.check(run);
    }
}

/// Work time over its budget ends the run as the other budgets do.
#[tokio::test]
async fn rule_24_the_wall_clock_budget_counts_the_time_a_run_works() {
    let model = never_done();
    let slow = FnTool::new(definition("Read", &["path"]), |_| async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        "x"
    });
    let agent = Agent::builder("main", model.clone())
        .tool(slow)
        .policy(Policy::builder("all").allow(["*"]).build().unwrap())
        .limits(Limits { active_ms: Some(50), ..Limits::default() });
    let runtime = Runtime::builder().agent(agent.build().unwrap()).build().unwrap();
    let outcome = within(run(&runtime)).await;
    assert_eq!(outcome.finish().unwrap().status, FinishStatus::LimitExceeded);
    assert!(model.calls() < 6, "{}", model.calls());
}
