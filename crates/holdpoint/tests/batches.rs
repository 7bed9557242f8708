//! Batches and ids: the calls of one reply.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use holdpoint::core::run::Execution;
use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;

/// Three tools, the first of which is free.
fn agent(log: &Log, model: &Scripted) -> Agent {
    build_assistant(log, model.clone()).build().unwrap()
}

on_every_store! {
    /// The reply is stored before anyone is asked; the history holds its round only once every call of it is answered.
    fn rule_01_every_call_is_answered_once_in_order_and_history_holds_whole_rounds(place) {
        let (log, model) = (Log::default(), three_calls());
        let first = place.start(agent(&log, &model));
        let run = first.go("go").run;
        assert_eq!(first.open(run).len(), 2);
        assert_eq!(first.history(run).len(), 1, "what the user said, and nothing of the open round");
        drop(first);

        let second = place.start(agent(&log, &model));
        assert_eq!(second.open(run).len(), 2, "the same requests, in another process");
        second.decline(run, "Write", "no");
        let outcome = second.approve(run, "Bash");

        assert_eq!(outcome.text(), Some("done"));
        let answers = second.answers(run);
        let ended: Vec<_> = answers.iter().map(|a| (a.id.as_str(), a.status)).collect();
        assert_eq!(ended, [("c1", "succeeded"), ("c2", "declined"), ("c3", "succeeded")]);
        assert_eq!(model.calls(), 2, "no reply is asked for twice");
        second.check(run);
    }

    /// The provider's id is data: empty, twice the same, or used before. A decision reaches one call.
    /// https://github.com/pydantic/pydantic-ai/issues/5761 https://github.com/ggml-org/llama.cpp/issues/11992
    /// https://github.com/can1357/oh-my-pi/issues/2055 https://github.com/alibaba/spring-ai-alibaba/issues/4595
    fn rule_02_ids_of_the_provider_are_data_and_not_keys(place) {
        for ids in [["c1", "c1"], ["", ""], ["c1", ""]] {
            let log = Log::default();
            let model = calls_then_done(&[(ids[0], "pay", r#"{"x":"1"}"#), (ids[1], "pay", r#"{"x":"2"}"#)]);
            let agent = Agent::builder("main", model.clone()).tool(tool(&log, "pay", &["x"], "paid"));
            let process = place.start(agent.build().unwrap());
            let run = process.go("go").run;
            let open = process.open(run);
            assert_eq!(open.len(), 2, "{ids:?}");
            assert_ne!(open[0].request_id, open[1].request_id);
            // The second first: an answer is addressed, whatever the order.
            process.say(open[1].request_id, DecisionWord::Decline).unwrap();
            process.say(open[0].request_id, DecisionWord::Approve).unwrap();
            let outcome = process.wait(run);

            assert_eq!(outcome.text(), Some("done"));
            assert_eq!(log.calls(), [("pay".to_owned(), r#"{"x":"1"}"#.to_owned())], "{ids:?}");
            let answers = told(&model, 2);
            let ended: Vec<_> = answers.iter().map(|a| (a.id.as_str(), a.status)).collect();
            assert_eq!(ended, [(ids[0], "succeeded"), (ids[1], "declined")]);
            process.check(run);
        }
    }

    /// https://github.com/NousResearch/hermes-agent/pull/88324 https://github.com/QwenLM/qwen-code/issues/8382
    fn rule_02_an_id_of_an_earlier_round_is_asked_about_anew(place) {
        let log = Log::default();
        let model = Scripted::sequence("script", [
            call("pay:0", "pay", r#"{"x":"1"}"#), call("pay:0", "pay", r#"{"x":"2"}"#), Answer::text("done"),
        ]);
        let agent = || Agent::builder("main", model.clone()).tool(tool(&log, "pay", &["x"], "paid")).build().unwrap();
        let process = place.start(agent());
        let run = process.go("go").run;
        let first = process.request(run, "pay");
        process.approve(run, "pay");
        let second = process.request(run, "pay");
        assert_ne!(first, second);
        // A late repeat of the first answer is an answer to the first request.
        assert!(process.say(first, DecisionWord::Approve).unwrap().repeated);
        assert_eq!(log.calls().len(), 1);
        drop(process);
        let process = place.start(agent());
        process.approve(run, "pay");
        assert_eq!(log.calls().len(), 2);
        assert_eq!(process.answers(run).len(), 2);
        process.check(run);
    }

    /// One call failing never costs the others their results.
    /// https://github.com/spring-projects/spring-ai/issues/6816 https://github.com/spring-projects/spring-ai/issues/4987
    fn rule_03_one_call_failing_costs_no_other_call_its_result(place) {
        let log = Log::default();
        let calls = [
            ("c1", "Read", r#"{"path":"a"}"#), ("c2", "serch", "{}"), ("c3", "Read", r#"{"path":1}"#),
            ("c4", "Read", "not json"), ("c5", "panics", "{}"), ("c6", "slow", "{}"), ("c7", "fails", "{}"),
            ("c8", "Read", r#"{"path":"b"}"#),
        ];
        let model = calls_then_done(&calls);
        let panics = FnTool::new(definition("panics", &[]), |_| -> std::future::Ready<Result<String, ToolError>> {
            panic!("in the body, before there is a future")
        });
        let fails = FnTool::new(definition("fails", &[]), |_| async { Err::<String, _>(ToolError::new("NOPE", "no")) });
        let agent = Agent::builder("main", model.clone())
            .tool(read_only(&log, "Read", &["path"], "contents"))
            .tool(hanging(&log, "slow", EffectClass::ReadOnly).timeout(Duration::from_millis(30)))
            .tool(panics)
            .tool(fails)
            .policy(Policy::builder("all").allow(["*"]).build().unwrap());
        let process = place.start(agent.build().unwrap());
        let outcome = process.go("go");

        assert_eq!(outcome.text(), Some("done"));
        let answers = told(&model, 2);
        let ended: Vec<_> = answers.iter().map(|a| (a.id.as_str(), a.status, a.executed)).collect();
        assert_eq!(ended, [
            ("c1", "succeeded", "yes"), ("c2", "unknown_tool", "no"), ("c3", "invalid_arguments", "no"),
            ("c4", "invalid_arguments", "no"), ("c5", "failed", "unknown"), ("c6", "timed_out", "no"),
            ("c7", "failed", "yes"), ("c8", "succeeded", "yes"),
        ]);
        process.check(outcome.run);
    }

    /// All requests of a batch open before any call of it starts; when a call then starts is the agent's choice; the
    /// answers keep the order of the reply.
    /// https://github.com/google/adk-python/issues/3018 https://github.com/langchain-ai/langgraph/issues/6624
    /// https://github.com/zed-industries/zed/pull/54683 https://github.com/alibaba/spring-ai-alibaba/pull/3358
    fn rule_05_calls_start_as_the_execution_mode_says_and_answers_keep_the_order(place) {
        // Batch: Write (asks), Read (free), Bash (asks). What has run when both wait, after Bash was approved, at the end.
        let table: [(Execution, [&[&str]; 3]); 3] = [
            (Execution::Sequential, [&[], &[], &["Write", "Read", "Bash"]]),
            (Execution::Parallel, [&["Read"], &["Read", "Bash"], &["Read", "Bash", "Write"]]),
            (Execution::Hold, [&[], &[], &["Write", "Read", "Bash"]]),
        ];
        for (mode, [at_first, then, at_last]) in table {
            let log = Log::default();
            let model = calls_then_done(&[
                ("c1", "Write", r#"{"path":"a","content":"b"}"#), ("c2", "Read", r#"{"path":"a"}"#),
                ("c3", "Bash", r#"{"command":"ls"}"#),
            ]);
            let process = place.start(build_assistant(&log, model.clone()).execution(mode).build().unwrap());
            let run = process.go("go").run;
            let kinds = process.kinds(run);
            let asked = kinds.iter().rposition(|kind| kind == "approval_request").unwrap();
            assert!(!kinds[..asked].iter().any(|kind| kind == "tool_started"), "{mode:?}: {kinds:?}");
            assert_eq!(log.names(), at_first, "{mode:?}");
            process.approve(run, "Bash");
            assert_eq!(log.names(), then, "{mode:?}: cleared behind a waiting call");
            let outcome = process.approve(run, "Write");
            assert_eq!(log.names(), at_last, "{mode:?}");
            assert_eq!(outcome.text(), Some("done"));
            let ids: Vec<_> = told(&model, 2).into_iter().map(|answer| answer.id).collect();
            assert_eq!(ids, ["c1", "c2", "c3"]);
            process.check(run);
        }
    }

    /// One of each kind in one reply, decided from the last to the first, one of them twice and one that does not exist: every
    /// answer reaches its own request and no other, what is not decided waits, and five results stand in the order of the reply.
    fn a_mixed_batch_is_decided_by_id_and_answered_in_its_order(place) {
        for mode in [Execution::Sequential, Execution::Parallel, Execution::Hold] {
            let log = Log::default();
            let bash = |n: u8| format!(r#"{{"command":"{n}"}}"#);
            let texts = [bash(2), bash(3), bash(4), bash(5)];
            let model = calls_then_done(&[
                ("c1", "Read", r#"{"path":"a"}"#), ("c2", "Bash", &texts[0]), ("c3", "slow", "{}"),
                ("c4", "Bash", &texts[2]), ("c5", "Bash", &texts[3]),
            ]);
            let slow = {
                let log = log.clone();
                FnTool::new(definition("slow", &[]), move |_| {
                    log.add("slow", "");
                    async { tokio::time::sleep(Duration::from_millis(50)).await; "slept" }
                })
            };
            let agent = build_assistant(&log, model.clone()).tool(slow).execution(mode).approval_timeout(Duration::from_secs(60));
            let process = place.start(agent.build().unwrap());
            let run = process.go("go").run;
            let open: Vec<_> = process.open(run).iter().map(|item| item.request_id).collect();
            assert_eq!(open.len(), 4, "{mode:?}: nobody is asked about what is free");
            let [c2, c3, c4, c5] = open[..] else { panic!("{open:?}") };
            let feedback = Deciding::new(c4, DecisionWord::Feedback, human()).reason("with care");
            process.decide(feedback.clone()).unwrap();
            process.say(c3, DecisionWord::Approve).unwrap();
            let unknown = holdpoint::protocol::RequestId(run.0);
            assert!(matches!(process.say(unknown, DecisionWord::Approve), Err(holdpoint::DecideError::NotFound)));
            assert!(process.decide(feedback).unwrap().repeated);
            process.say(c2, DecisionWord::Decline).unwrap();
            process.wait(run);
            let left: Vec<_> = process.open(run).iter().map(|item| item.request_id).collect();
            assert_eq!(left, [c5], "{mode:?}: what nobody decided waits");
            place.later(Duration::from_secs(61));
            process.until(run, "finish");
            let answers = told(&model, 2);
            let ended: Vec<_> = answers.iter().map(|a| (a.id.as_str(), a.status, a.executed)).collect();
            assert_eq!(ended, [
                ("c1", "succeeded", "yes"), ("c2", "declined", "no"), ("c3", "succeeded", "yes"),
                ("c4", "feedback", "no"), ("c5", "expired", "no"),
            ], "{mode:?}");
            assert_eq!(log.names(), ["Read", "slow"], "{mode:?}");
            process.check(run);
        }
    }

    /// https://github.com/microsoft/agent-framework/pull/7692 https://github.com/langchain-ai/langchainjs/issues/11125
    /// https://github.com/langchain-ai/langchain/issues/37093
    fn each_call_of_a_batch_goes_by_its_own_decision(place) {
        for mode in [Execution::Sequential, Execution::Parallel, Execution::Hold] {
            for declined in 0..3 {
                let log = Log::default();
                let model = calls_then_done(&[
                    ("a", "pay", r#"{"x":"0"}"#), ("b", "pay", r#"{"x":"1"}"#), ("c", "pay", r#"{"x":"2"}"#),
                ]);
                let agent = Agent::builder("main", model.clone()).tool(tool(&log, "pay", &["x"], "paid")).execution(mode);
                let process = place.start(agent.build().unwrap());
                let run = process.go("go").run;
                for (index, item) in process.open(run).iter().enumerate() {
                    let word = if index == declined { DecisionWord::Decline } else { DecisionWord::Approve };
                    process.say(item.request_id, word).unwrap();
                }
                assert_eq!(process.wait(run).text(), Some("done"));
                let ended: Vec<_> = told(&model, 2).iter().map(|answer| answer.status).collect();
                let mut expected = ["succeeded"; 3];
                expected[declined] = "declined";
                assert_eq!(ended, expected, "{mode:?}");
                assert!(!log.calls().iter().any(|(_, text)| text.contains(&declined.to_string())));
                assert_eq!(log.calls().len(), 2);
                process.check(run);
            }
        }
    }
}

#[tokio::test]
async fn rule_04_only_the_first_choice_is_read_and_more_with_calls_are_reported() {
    for (had_calls, notices) in [(true, 1), (false, 0)] {
        let log = Log::default();
        let model = Scripted::sequence(
            "script",
            [call("c1", "Read", r#"{"path":"a"}"#).other_choices(2, had_calls), Answer::text("done")],
        );
        let runtime = Runtime::builder().agent(agent(&log, &model)).build().unwrap();
        let outcome = run(&runtime).await;
        assert_eq!(log.names(), ["Read"]);
        let events = events(&runtime, outcome.run).await;
        let reported = events.iter().filter(|event| event["code"] == "extra_choices").count();
        assert_eq!(reported, notices);
    }
}

/// https://github.com/spring-projects/spring-ai/issues/5195
#[tokio::test]
async fn rule_05_parallel_calls_run_side_by_side() {
    let barrier = Arc::new(tokio::sync::Barrier::new(3));
    let meet = FnTool::new(definition("meet", &[]), move |_| {
        let barrier = Arc::clone(&barrier);
        // Nobody gets past it alone.
        async move { barrier.wait().await.is_leader().to_string() }
    });
    let model = calls_then_done(&[("a", "meet", "{}"), ("b", "meet", "{}"), ("c", "meet", "{}")]);
    let agent = Agent::builder("main", model.clone())
        .tool(meet)
        .execution(Execution::Parallel)
        .policy(Policy::builder("all").allow(["*"]).build().unwrap());
    let runtime = Runtime::builder().agent(agent.build().unwrap()).build().unwrap();
    let outcome = within(run(&runtime)).await;
    assert_eq!(outcome.text(), Some("done"));
    assert_eq!(told(&model, 2).len(), 3);
}
