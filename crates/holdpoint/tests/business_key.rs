//! Tools with a business key: each request of the world outside is carried out once, whichever call asks for it.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::Mutex;
use std::time::Duration;

use common::*;
use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::protocol::InteractionKind;

fn allow_all() -> Policy {
    Policy::builder("all").allow(["*"]).build().unwrap()
}

/// How an execution goes.
#[derive(Clone, Copy)]
enum Goes {
    Well,
    Hangs,
    Fails,
    HadNoEffect,
}

/// Pays an order, as often as it is called: the calls are in the log.
fn pay(log: &Log, goes: &[Goes]) -> FnTool {
    let (log, goes) = (log.clone(), Mutex::new(goes.to_vec()));
    FnTool::new(
        definition("pay", &["order", "sum"]).with_business_key("order"),
        move |invocation: Invocation| {
            log.add("pay", invocation.arguments());
            let goes = goes.lock().unwrap().remove(0);
            async move {
                match goes {
                    Goes::Well => Ok(ToolOutput::text("paid")),
                    Goes::Hangs => std::future::pending().await,
                    Goes::Fails => Err(ToolError::new("BANK", "the bank says no")),
                    Goes::HadNoEffect => Err(ToolError::new("BANK", "the bank is closed").not_executed()),
                }
            }
        },
    )
    .timeout(Duration::from_millis(30))
}

const SEVEN: &str = r#"{"order":"7","sum":"10"}"#;
const SEVEN_OTHERWISE_WRITTEN: &str = r#"{ "sum": "10", "order": "7" }"#;
const SEVEN_DEARER: &str = r#"{"order":"7","sum":"11"}"#;

/// A script of rounds with one call each, then `done`.
fn rounds(arguments: &[&str]) -> Scripted {
    let calls =
        arguments.iter().enumerate().map(|(n, arguments)| batch(&[(&format!("c{n}"), "pay", arguments)]));
    Scripted::sequence("script", calls.chain([Answer::text("done")]).collect::<Vec<_>>())
}

fn said(answer: &Answered, field: &str) -> String {
    answer.said[field].as_str().unwrap_or_default().to_owned()
}

on_every_store! {
    /// The model repeats itself in a later round: a new call, another execution, the same order.
    fn a_second_call_for_the_same_order_gets_the_recorded_result_and_is_told_so(place) {
        let log = Log::default();
        let model = rounds(&[SEVEN, SEVEN_OTHERWISE_WRITTEN]);
        let agent = Agent::builder("main", model.clone()).tool(pay(&log, &[Goes::Well])).policy(allow_all());
        let process = place.start(agent.build().unwrap());
        let outcome = process.go("go");
        assert_eq!(outcome.text(), Some("done"));
        assert_eq!(log.calls().len(), 1, "carried out once");
        let answers = told(&model, 3);
        assert_eq!(answers[0].said, "paid");
        let replay = &answers[1];
        assert_eq!((replay.status, replay.executed, replay.is_error), ("succeeded", "no", false));
        assert_eq!((said(replay, "code"), said(replay, "result")), ("REPLAYED".into(), "paid".into()));
        assert!(said(replay, "message").contains("Nothing was executed now"), "{}", replay.said);
        assert!(!said(replay, "recorded_at").is_empty());
        process.check(outcome.run);
    }

    /// Another run, another conversation, after a restart: the order is the same one.
    fn the_record_outlives_the_run_and_the_process(place) {
        let log = Log::default();
        for (told_at, code) in [(2, None), (2, Some("REPLAYED"))] {
            let model = rounds(&[SEVEN]);
            let agent = Agent::builder("main", model.clone()).tool(pay(&log, &[Goes::Well])).policy(allow_all());
            let process = place.start(agent.build().unwrap());
            assert_eq!(process.go("go").text(), Some("done"));
            assert_eq!(told(&model, told_at)[0].said["code"].as_str(), code);
        }
        assert_eq!(log.calls().len(), 1);
    }

    fn the_same_order_with_other_arguments_is_not_executed(place) {
        let log = Log::default();
        let model = rounds(&[SEVEN, SEVEN_DEARER]);
        let agent = Agent::builder("main", model.clone()).tool(pay(&log, &[Goes::Well])).policy(allow_all());
        let process = place.start(agent.build().unwrap());
        assert_eq!(process.go("go").text(), Some("done"));
        assert_eq!(log.calls().len(), 1);
        let refused = &told(&model, 3)[1];
        assert_eq!((refused.status, refused.executed), ("failed", "no"));
        assert_eq!(refused.said["error"]["code"], "KEY_REUSED");
    }

    /// What failed may have paid: not again under this key. What proves that it had no effect may be tried again.
    fn a_failure_keeps_its_key_and_a_proof_of_no_effect_frees_it(place) {
        for (order, goes, calls, code) in [
            (SEVEN, Goes::Fails, 1, Some("KEY_UNFINISHED")),
            (r#"{"order":"8","sum":"10"}"#, Goes::HadNoEffect, 2, None),
        ] {
            let log = Log::default();
            let model = rounds(&[order, order]);
            let agent = Agent::builder("main", model.clone()).tool(pay(&log, &[goes, Goes::Well])).policy(allow_all());
            let process = place.start(agent.build().unwrap());
            assert_eq!(process.go("go").text(), Some("done"));
            assert_eq!(log.calls().len(), calls);
            assert_eq!(told(&model, 3)[1].said["error"]["code"].as_str(), code);
        }
    }

    /// The reservation tells nothing of a payment that did not come back: a person has to see. Their order runs it again under
    /// the same key, and from then on the order has its result.
    fn a_call_that_was_cut_off_goes_to_a_person_who_can_have_it_run_again(place) {
        let log = Log::default();
        let model = rounds(&[SEVEN, SEVEN]);
        let agent = Agent::builder("main", model.clone()).tool(pay(&log, &[Goes::Hangs, Goes::Well])).policy(allow_all());
        let process = place.start(agent.build().unwrap());
        let run = process.go("go").run;
        let open = process.open(run);
        assert_eq!((open.len(), open[0].kind), (1, InteractionKind::InDoubt));
        process.say(open[0].request_id, DecisionWord::Approve).unwrap();
        assert_eq!(process.wait(run).text(), Some("done"));
        assert_eq!(log.calls().len(), 2);
        let answers = told(&model, 3);
        assert_eq!((answers[0].said.as_str(), said(&answers[1], "code")), (Some("paid"), "REPLAYED".into()));
        process.check(run);
    }

    /// Two calls of one reply, side by side.
    fn of_two_calls_at_once_one_is_executed(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "pay", SEVEN), ("c2", "pay", SEVEN)]);
        let agent = Agent::builder("main", model.clone())
            .tool(pay(&log, &[Goes::Well, Goes::Well]))
            .execution(holdpoint::core::run::Execution::Parallel)
            .policy(allow_all());
        let process = place.start(agent.build().unwrap());
        assert_eq!(process.go("go").text(), Some("done"));
        assert_eq!(log.calls().len(), 1);
        let answers = told(&model, 2);
        let paid = answers.iter().filter(|answer| answer.executed == "yes").count();
        assert_eq!((answers.len(), paid), (2, 1), "{answers:?}");
    }

    fn a_call_whose_order_has_no_usable_name_is_not_executed(place) {
        let log = Log::default();
        let model = rounds(&[r#"{"order":"","sum":"10"}"#]);
        let agent = Agent::builder("main", model.clone()).tool(pay(&log, &[])).policy(allow_all());
        let process = place.start(agent.build().unwrap());
        assert_eq!(process.go("go").text(), Some("done"));
        assert_eq!(log.calls().len(), 0);
        let refused = &told(&model, 2)[0];
        assert_eq!((refused.executed, &refused.said["error"]["code"]), ("no", &"BUSINESS_KEY".into()));
    }
}

#[test]
fn a_tool_whose_calls_may_lack_the_key_is_refused_when_it_is_registered() {
    let log = Log::default();
    let agent = Agent::builder("main", rounds(&[])).tool(with(
        &log,
        definition("pay", &["sum"]).with_business_key("order"),
        "paid",
    ));
    let error = std::error::Error::source(&agent.build().unwrap_err()).unwrap().to_string();
    assert!(error.contains("business key `order`") && error.contains("`pay`"), "{error}");
}

#[test]
fn a_keyed_tool_that_says_nothing_else_is_asked_about_through_its_record() {
    assert_eq!(definition("pay", &["order"]).with_business_key("order").class(), EffectClass::Verifiable);
}
