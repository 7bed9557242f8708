//! What happens to a request that nobody decides: it expires, or stays open and reminds, or a preset is asked.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use common::*;
use holdpoint::core::policy::{Condition, Release};
use holdpoint::prelude::*;
use holdpoint::protocol::{ActorId, CallId, GroupName, RunId};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

fn groups(names: &[&str]) -> Vec<GroupName> {
    names.iter().map(|name| GroupName::new(name).unwrap()).collect()
}

/// Releases a payment of five, and nothing else.
fn night() -> Preset {
    let when = BTreeMap::from([("sum".to_owned(), Condition::one_of(["5"]))]);
    let release = Release { tool: "pay".into(), when };
    Preset::new("night", ActorId::new("configuration").unwrap(), [release]).unwrap()
}

/// Pays five and fifty.
fn model() -> Scripted {
    of_calls(&[("c1", "pay", r#"{"sum":"5"}"#), ("c2", "pay", r#"{"sum":"50"}"#)])
}

/// These calls, in every process that asks it, and it is done when it has the answers.
fn of_calls(calls: &[(&str, &str, &str)]) -> Scripted {
    let calls = batch(calls);
    let answered = When::any().has_tool_result(true);
    Scripted::new("script").rule(answered, Answer::text("done")).rule(When::any(), calls).build()
}

fn payer(log: &Log) -> holdpoint::AgentBuilder {
    Agent::builder("main", model()).tool(tool(log, "pay", &["sum"], "paid"))
}

fn asking_at_night(log: &Log) -> holdpoint::AgentBuilder {
    payer(log).approval_timeout(MINUTE).on_timeout(AtDeadline::Preset("night".into())).preset(night())
}

fn of_kind(process: &Process, run: RunId, kind: &str) -> Vec<Value> {
    process.events(run).into_iter().filter(|event| event["type"] == kind).collect()
}

fn statuses(process: &Process, run: RunId) -> Vec<(&'static str, &'static str)> {
    process.answers(run).iter().map(|answer| (answer.status, answer.executed)).collect()
}

/// Leaves everything to others, and does not want to be waited for as long as the agent says.
struct Impatient;

#[async_trait::async_trait]
impl ApprovalHandler for Impatient {
    fn name(&self) -> &str {
        "impatient"
    }

    async fn decide(&self, _: ApprovalBatch) -> Result<HashMap<CallId, HandlerAnswer>, HandlerError> {
        Ok(HashMap::new())
    }

    fn at_most(&self) -> AtMost {
        at_most()
    }
}

fn at_most() -> AtMost {
    AtMost::default().within(MINUTE / 2).then(AtDeadline::Deny)
}

on_every_store! {
    and on postgres:

    /// What a program says of a tool, or its handler of itself, is stricter than what the agent says: it holds.
    fn a_tool_or_a_handler_that_says_so_expires_although_its_agent_would_wait(place) {
        for by_tool in [true, false] {
            let log = Log::default();
            let pay = tool(&log, "pay", &["sum"], "paid");
            let agent = Agent::builder("main", model()).approval_terms(TermsRule::within(MINUTE, AtDeadline::Wait));
            let agent = if by_tool { agent.tool(pay.approval(at_most())) } else { agent.tool(pay).approval_handler(Impatient) };
            let process = place.start(agent.build().unwrap());
            let run = process.go("pay").run;
            let open = process.open(run);
            assert_eq!((open.len(), field(&open[0], "onTimeout")), (2, "deny".into()));
            place.later(MINUTE / 2);
            process.until(run, "finish");
            assert_eq!(statuses(&process, run), [("expired", "no"), ("expired", "no")]);
            assert!(log.calls().is_empty());
            process.check(run);
        }
    }

    fn what_stays_open_reminds_and_escalates_and_can_be_approved_long_after(place) {
        let log = Log::default();
        let terms = TermsRule::within(MINUTE, AtDeadline::Wait).approvers(groups(&["ops"])).escalate_to(groups(&["leads"]));
        let process = place.start(payer(&log).approval_terms(terms).build().unwrap());
        let run = process.go("pay").run;
        let asked = &of_kind(&process, run, "approval_request")[0];
        assert_eq!((&asked["onTimeout"], &asked["approvers"], &asked["escalateTo"]), (&json!("wait"), &json!(["ops"]), &json!(["leads"])));
        place.later(MINUTE / 2);
        process.until(run, "reminder");
        place.later(100 * MINUTE);
        process.rest(1_500);
        let told: Vec<_> = of_kind(&process, run, "reminder").iter().map(|event| (event["stage"].clone(), event["escalatedTo"].clone())).collect();
        let once = |stage: &str, told: Value| (json!(stage), told);
        assert_eq!(told, [once("half_time", Value::Null), once("half_time", Value::Null), once("deadline", json!(["leads"])), once("deadline", json!(["leads"]))]);
        let open = process.open(run);
        assert_eq!((open.len(), open[0].reminders, open[0].approvers.clone()), (2, 2, Some(groups(&["ops", "leads"]))));
        assert!(log.calls().is_empty());
        for item in open {
            process.say(item.request_id, DecisionWord::Approve).unwrap();
        }
        process.until(run, "finish");
        assert_eq!(statuses(&process, run), [("succeeded", "yes"), ("succeeded", "yes")]);
        process.check(run);
    }

    fn a_preset_releases_what_it_names_and_the_rest_expires(place) {
        let log = Log::default();
        let process = place.start(asking_at_night(&log).build().unwrap());
        let run = process.go("pay").run;
        place.later(MINUTE);
        process.until(run, "finish");
        assert_eq!(statuses(&process, run), [("succeeded", "yes"), ("expired", "no")]);
        assert_eq!(log.calls(), [("pay".into(), r#"{"sum":"5"}"#.to_owned())]);
        let closed = of_kind(&process, run, "decision");
        assert_eq!(closed[0]["by"], json!({"actor": "preset:night", "via": "preset"}));
        assert_eq!(closed[0]["rule"], json!({"name": "night", "version": night().version(), "writtenBy": "configuration"}));
        assert_eq!((&closed[1]["decision"], &closed[1]["by"], &closed[1]["rule"]), (&json!("expired"), &json!({"via": "timeout"}), &Value::Null));
        process.check(run);
    }

    /// Between the deadline and the moment the preset is asked: too late to count as a decision, and not too late to be heard.
    fn a_no_that_comes_late_is_not_followed_by_a_release(place) {
        // The preset is asked once a second; the no has to be there before.
        let heard = (0..5).any(|_| {
            let log = Log::default();
            let process = place.start(asking_at_night(&log).build().unwrap());
            let run = process.go("pay").run;
            let five = process.open(run)[0].request_id;
            place.later(MINUTE);
            let late = process.say(five, DecisionWord::Decline).unwrap_err();
            assert!(matches!(late, holdpoint::DecideError::Expired | holdpoint::DecideError::Conflict { .. }), "{late}");
            process.until(run, "finish");
            let released = of_kind(&process, run, "decision").iter().any(|event| event["by"]["via"] == "preset");
            if !released {
                assert_eq!(statuses(&process, run), [("expired", "no"), ("expired", "no")]);
                assert!(log.calls().is_empty());
                process.check(run);
            }
            !released
        });
        assert!(heard);
    }

    /// Policy, the definition of the tool, and whether a preset is asked at all: as they are when the deadline passes.
    fn a_preset_is_asked_afresh_and_overrides_nothing(place) {
        // One call: of two, the one that still waits is asked anew when its tool changes.
        let five = |log: &Log| {
            let model = of_calls(&[("c1", "pay", r#"{"sum":"5"}"#)]);
            Agent::builder("main", model).tool(tool(log, "pay", &["sum"], "paid"))
        };
        let renamed = |log: &Log| {
            let mut other = definition("pay", &["sum"]);
            other.description = "pays twice".into();
            Agent::builder("main", of_calls(&[("c1", "pay", r#"{"sum":"5"}"#)])).tool(with(log, other, "paid"))
        };
        let deny = Policy::builder("house").deny(["pay"]).build().unwrap();
        let terms = |agent: holdpoint::AgentBuilder| agent.approval_timeout(MINUTE).preset(night());
        let asks = |agent: holdpoint::AgentBuilder| terms(agent).on_timeout(AtDeadline::Preset("night".into()));
        let log = Log::default();
        for (what, later) in [
            ("policy denies it", asks(five(&log).policy(deny))),
            ("another tool", asks(renamed(&log))),
            ("nobody asks it", terms(five(&log))),
        ] {
            let process = place.start(asks(five(&log)).build().unwrap());
            let run = process.go("pay").run;
            drop(process);
            place.later(MINUTE);
            let process = place.start(later.build().unwrap());
            process.until(run, "finish");
            assert_eq!(statuses(&process, run), [("expired", "no")], "{what}");
            let closed = of_kind(&process, run, "decision");
            assert!(closed.iter().all(|event| event["by"] == json!({"via": "timeout"})), "{what}: {closed:?}");
        }
        assert!(log.calls().is_empty());
    }

    /// What ran out while nothing was running is expired before anything else is done with it.
    fn what_expired_while_nothing_was_running_is_expired_at_the_start(place) {
        let log = Log::default();
        let agent = || payer(&log).approval_timeout(MINUTE).build().unwrap();
        let process = place.start(agent());
        let run = process.go("pay").run;
        let request = process.request(run, "pay");
        drop(process);
        place.later(MINUTE);
        let process = place.start(agent());
        let late = process.say(request, DecisionWord::Approve);
        assert!(matches!(late, Err(holdpoint::DecideError::Expired)), "{late:?}");
        process.until(run, "finish");
        assert_eq!(statuses(&process, run), [("expired", "no"), ("expired", "no")]);
        assert!(log.calls().is_empty());
        process.check(run);
    }

    fn a_client_that_asks_for_less_time_has_nothing_released_sooner(place) {
        let log = Log::default();
        let process = place.start(asking_at_night(&log).build().unwrap());
        let run = process.start(Start::text("pay").approval_timeout(MINUTE / 2)).run;
        assert_eq!(of_kind(&process, run, "approval_request")[0]["onTimeout"], json!("deny"));
        place.later(MINUTE / 2);
        process.until(run, "finish");
        assert_eq!(statuses(&process, run), [("expired", "no"), ("expired", "no")]);
        assert!(log.calls().is_empty());
    }
}

#[test]
fn an_agent_that_names_a_preset_which_is_not_there_is_refused() {
    let log = Log::default();
    let unknown = payer(&log).on_timeout(AtDeadline::Preset("day".into())).preset(night()).build();
    assert!(unknown.unwrap_err().to_string().contains("there is no preset `day`"));
    let twice = payer(&log).preset(night()).preset(night()).build();
    assert!(twice.unwrap_err().to_string().contains("two presets are named `night`"));
}
