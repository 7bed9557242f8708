//! In the step that starts a call everything is checked again (rule 12): what was approved yesterday may be forbidden,
//! denied, stricter, changed or gone today.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use common::*;
use holdpoint::core::run::Execution;
use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::protocol::InteractionStatus;
use holdpoint::{DecideError, Forbidden, Permission, RunInfo};
use serde_json::json;

const BASH: (&str, &str, &str) = ("c1", "Bash", r#"{"command":"ls"}"#);

fn policy(
    rule: impl FnOnce(holdpoint::core::policy::PolicyBuilder) -> holdpoint::core::policy::PolicyBuilder,
) -> Policy {
    rule(Policy::builder("now")).build().unwrap()
}

/// An agent with `Bash` under a policy.
fn under(log: &Log, model: &Scripted, policy: Policy) -> Agent {
    Agent::builder("main", model.clone())
        .tool(tool(log, "Bash", &["command"], "ok"))
        .policy(policy)
        .build()
        .unwrap()
}

on_every_store! {
    and on postgres:

    /// The policy of the process that starts the call counts: denied now is denied; milder now changes nothing.
    fn rule_12_a_policy_that_denies_now_refuses_what_was_approved(place) {
        let (log, model) = (Log::default(), calls_then_done(&[BASH]));
        let first = place.start(under(&log, &model, policy(|p| p)));
        let run = first.go("go").run;
        let request = first.request(run, "Bash");
        drop(first);
        let second = place.start(under(&log, &model, policy(|p| p.deny(["Bash"]))));
        second.say(request, DecisionWord::Approve).unwrap();
        assert_eq!(second.wait(run).text(), Some("done"));
        assert!(log.names().is_empty());
        assert_eq!(told(&model, 2)[0].status, "policy_denied");
        second.check(run);
    }

    /// An approve answers a call that asked; a call that a policy allowed is asked about when the policy asks now.
    fn rule_12_a_stricter_policy_asks_again_and_says_what_changed(place) {
        let log = Log::default();
        let model = calls_then_done(&[BASH, ("c2", "Read", r#"{"path":"a"}"#)]);
        let agent = |rules: Policy| build_assistant(&log, model.clone()).policy(rules).build().unwrap();
        // Read is allowed, and waits behind Bash.
        let first = place.start(agent(policy(|p| p.allow(["*"]))));
        let run = first.go("go").run;
        drop(first);
        let second = place.start(agent(policy(|p| p.require_approval_for(["Read"]).allow(["*"]))));
        let outcome = second.approve(run, "Bash");
        assert_eq!(log.names(), ["Bash"]);
        assert_eq!(outcome.pending().len(), 1);
        let open = second.open(run);
        assert_eq!(field(&open[0], "toolName"), "Read");
        assert!(field(&open[0], "changed").contains("policy now asks"), "{open:?}");
        assert_eq!(field(&open[0], "revision"), "1");
        second.approve(run, "Read");
        assert_eq!(log.names(), ["Bash", "Read"]);
        second.check(run);
    }

    /// The same run, its policy milder now: nothing is asked twice, the approve stands.
    fn rule_12_the_approve_of_a_call_that_asked_stands_under_a_milder_policy(place) {
        let (log, model) = (Log::default(), calls_then_done(&[BASH]));
        let first = place.start(under(&log, &model, policy(|p| p)));
        let run = first.go("go").run;
        drop(first);
        let second = place.start(under(&log, &model, policy(|p| p.allow(["*"]))));
        second.rest(20);
        assert!(log.names().is_empty(), "a milder policy releases nothing that was asked about");
        second.approve(run, "Bash");
        assert_eq!(log.names(), ["Bash"]);
    }

    /// https://github.com/langflow-ai/langflow/pull/13633
    fn rule_12_a_caller_who_may_no_longer_is_refused(place) {
        let (log, model) = (Log::default(), calls_then_done(&[BASH]));
        let granted = Arc::new(AtomicBool::new(true));
        let agent = || Agent::builder("main", model.clone())
            .tool(tool(&log, "Bash", &["command"], "ok"))
            .permission(Granted(granted.clone())).build().unwrap();
        let process = place.start(agent());
        let run = process.go("go").run;
        granted.store(false, Ordering::Relaxed);
        process.approve(run, "Bash");
        assert!(log.names().is_empty());
        assert_eq!(told(&model, 2)[0].said["code"], "REVOKED");
        process.check(run);
    }

    /// A check that breaks down when the approved call is to start - it was well when the call was proposed - lets it not run;
    /// the other calls of the batch go on.
    fn rule_12_a_permission_check_that_breaks_at_the_start_lets_nothing_run(place) {
        let log = Log::default();
        let model = calls_then_done(&[BASH, ("c2", "Read", r#"{"path":"a"}"#)]);
        let broken = Arc::new(AtomicBool::new(false));
        let process = place.start(build_assistant(&log, model.clone()).permission(BreaksLater(broken.clone())).build().unwrap());
        let run = process.go("go").run;
        broken.store(true, Ordering::Relaxed);
        assert_eq!(process.approve(run, "Bash").text(), Some("done"));
        assert_eq!(log.names(), ["Read"]);
        let ended: Vec<_> = told(&model, 2).iter().map(|a| (a.status, a.executed)).collect();
        assert_eq!(ended, [("gate_error", "no"), ("succeeded", "yes")]);
        process.check(run);
    }

    /// The tool's definition changed while the request waited: the old approve covers nothing, and the new request says
    /// what is different. https://github.com/extra-org/extra/issues/139
    fn rule_12_a_changed_definition_is_asked_about_anew(place) {
        let (log, model) = (Log::default(), calls_then_done(&[BASH]));
        let first = place.start(under(&log, &model, policy(|p| p)));
        let run = first.go("go").run;
        let old = first.request(run, "Bash");
        let old_digest = field(&first.open(run)[0], "digest");
        drop(first);

        let mut changed = definition("Bash", &["command"]);
        changed.schema["properties"]["also_notify"] = json!({"type": "string"});
        let agent = || Agent::builder("main", model.clone()).tool(with(&log, changed.clone(), "ok")).build().unwrap();
        let second = place.start(agent());
        let refused = second.say(old, DecisionWord::Approve);
        assert!(matches!(refused, Err(DecideError::Stale { .. })), "{refused:?}");
        second.wait(run);
        let refused = second.say(old, DecisionWord::Approve);
        assert!(matches!(refused, Err(DecideError::Conflict { status: InteractionStatus::Superseded, .. })), "{refused:?}");
        assert!(log.names().is_empty(), "what would be approved is not what would run");
        let all = second.interactions(run);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].status, InteractionStatus::Superseded);
        assert!(field(&all[1], "changed").contains("also_notify"), "{all:?}");
        assert_ne!(field(&all[1], "digest"), old_digest);
        // The digest of the old request decides nothing of the new one.
        let stale = Deciding::new(all[1].request_id, DecisionWord::Approve, human()).digest(old_digest.parse().unwrap());
        assert!(matches!(second.decide(stale), Err(DecideError::Stale { .. })));
        drop(second);

        let third = place.start(agent());
        third.approve(run, "Bash");
        assert_eq!(log.names(), ["Bash"]);
        assert_eq!(told(&model, 2)[0].status, "succeeded");
        third.check(run);
    }

    /// Arguments that no longer fit the tool are not run, approved or not.
    fn rule_12_arguments_that_no_longer_fit_are_refused(place) {
        let (log, model) = (Log::default(), calls_then_done(&[BASH]));
        let first = place.start(under(&log, &model, policy(|p| p)));
        let run = first.go("go").run;
        drop(first);
        let agent = Agent::builder("main", model.clone()).tool(tool(&log, "Bash", &["command", "reason"], "ok"));
        let second = place.start(agent.build().unwrap());
        let refused = second.say(second.request(run, "Bash"), DecisionWord::Approve);
        assert!(refused.is_err(), "what was shown is not what would run");
        assert_eq!(second.wait(run).text(), Some("done"));
        assert_eq!(second.interactions(run).len(), 1, "nobody is asked about what cannot run");
        assert!(log.names().is_empty());
        assert_eq!(told(&model, 2)[0].status, "invalid_arguments");
        second.check(run);
    }

    /// A tool that is not loaded here: nothing settles, it is said once, and the run goes on where the tool is.
    /// https://github.com/novuhq/novu/pull/12087 https://github.com/agno-agi/agno/pull/9396
    fn rule_12_a_tool_that_is_not_loaded_settles_nothing(place) {
        let (log, model) = (Log::default(), calls_then_done(&[BASH]));
        let first = place.start(under(&log, &model, policy(|p| p)));
        let run = first.go("go").run;
        let request = first.request(run, "Bash");
        drop(first);
        let without = || Agent::builder("main", model.clone()).build().unwrap();
        let second = place.start(without());
        second.say(request, DecisionWord::Approve).unwrap();
        second.until(run, "notice");
        second.rest(20);
        drop(second);
        place.later(Duration::from_secs(40));
        let third = place.start(without());
        third.rest(50);
        let notices: Vec<_> = third.events(run).into_iter().filter(|e| e["type"] == "notice").collect();
        assert_eq!(notices.len(), 1, "said once: {notices:?}");
        assert_eq!(notices[0]["code"], "tool_unavailable");
        assert!(third.answers(run).is_empty());
        drop(third);
        place.later(Duration::from_secs(40));
        let fourth = place.start(under(&log, &model, policy(|p| p)));
        assert_eq!(fourth.wait(run).text(), Some("done"));
        assert_eq!(log.names(), ["Bash"], "on the approve that was given");
        fourth.check(run);
    }

    /// A call that runs beside one whose tool is not loaded ends here, and its result is not lost.
    fn rule_12_a_run_is_given_back_between_its_calls(place) {
        let log = Log::default();
        let model = calls_then_done(&[BASH, ("c2", "slow", "{}")]);
        let slow = |log: &Log| {
            let log = log.clone();
            FnTool::new(definition("slow", &[]), move |_| {
                log.add("slow", "");
                async { tokio::time::sleep(Duration::from_millis(60)).await; "slept" }
            })
        };
        let with_both = || Agent::builder("main", model.clone())
            .tool(tool(&log, "Bash", &["command"], "ok")).tool(slow(&log)).execution(Execution::Parallel).build().unwrap();
        let first = place.start(with_both());
        let run = first.go("go").run;
        let requests: Vec<_> = first.open(run).iter().map(|item| item.request_id).collect();
        drop(first);
        let second = place.start(Agent::builder("main", model.clone()).tool(slow(&log)).execution(Execution::Parallel).build().unwrap());
        second.run(async |runtime| {
            for request in requests {
                decide(runtime, request, DecisionWord::Approve).await.unwrap();
            }
        });
        second.until(run, "tool_result");
        second.rest(20);
        drop(second);
        place.later(Duration::from_secs(40));
        let third = place.start(with_both());
        assert_eq!(third.wait(run).text(), Some("done"));
        let ended: Vec<_> = told(&model, 2).iter().map(|a| a.status).collect();
        assert_eq!(ended, ["succeeded", "succeeded"]);
        assert_eq!(log.names(), ["slow", "Bash"]);
        third.check(run);
    }

    /// An agent that is not loaded here: nothing settles, which agent it is is said once, and the run goes on where it is.
    /// https://github.com/openai/openai-agents-python/pull/4264
    fn rule_12_an_agent_that_is_not_loaded_settles_nothing(place) {
        let (log, model) = (Log::default(), calls_then_done(&[BASH]));
        let first = place.start(under(&log, &model, policy(|p| p)));
        let run = first.go("go").run;
        let request = first.request(run, "Bash");
        drop(first);
        let without = || Agent::builder("other", model.clone()).build().unwrap();
        let second = place.start(without());
        second.say(request, DecisionWord::Approve).unwrap();
        second.until(run, "notice");
        drop(second);
        place.later(Duration::from_secs(40));
        let again = place.start(without());
        again.rest(50);
        let notices: Vec<_> = again.events(run).into_iter().filter(|e| e["type"] == "notice").collect();
        assert_eq!(notices.len(), 1, "said once: {notices:?}");
        assert_eq!(notices[0]["code"], "tool_unavailable");
        assert!(notices[0]["message"].as_str().unwrap().contains("the agent `main`"), "{notices:?}");
        assert!(log.names().is_empty() && again.answers(run).is_empty() && model.calls() == 1);
        drop(again);
        place.later(Duration::from_secs(40));
        let third = place.start(under(&log, &model, policy(|p| p)));
        assert_eq!(third.wait(run).text(), Some("done"));
        assert_eq!(log.names(), ["Bash"]);
        third.check(run);
    }

    /// A bypass is inherited by nothing but the run it was granted to, and only for as long as it is granted.
    fn rule_12_a_bypass_that_is_granted_no_more_releases_nothing(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "hangs", "{}"), BASH]);
        let agent = || Agent::builder("main", model.clone())
            .tool(hanging(&log, "hangs", EffectClass::ReadOnly)).tool(tool(&log, "Bash", &["command"], "ok")).build().unwrap();
        let first = place.start_with(Runtime::builder().agent(agent()).allow_bypass(|_| true));
        let mut start = Start::text("go");
        start.bypass = true;
        let run = first.run(async |runtime| runtime.start(&local(), start).await.unwrap().run);
        first.until(run, "tool_started");
        drop(first);
        let second = place.start(agent());
        let outcome = second.wait(run);
        assert_eq!(outcome.pending().len(), 1);
        assert_eq!(log.names(), ["hangs"], "it does not run again unasked");
        let open = second.open(run);
        assert_eq!(field(&open[0], "toolName"), "hangs");
    }
}

struct BreaksLater(Arc<AtomicBool>);

#[async_trait]
impl Permission for BreaksLater {
    async fn check(
        &self,
        _: &RunInfo,
        tool: &ToolDefinition,
        _: &serde_json::Value,
    ) -> Result<(), Forbidden> {
        assert!(tool.name != "Bash" || !self.0.load(Ordering::Relaxed), "a broken check");
        Ok(())
    }
}

struct Granted(Arc<AtomicBool>);

#[async_trait]
impl Permission for Granted {
    async fn check(
        &self,
        _run: &RunInfo,
        _tool: &ToolDefinition,
        _: &serde_json::Value,
    ) -> Result<(), Forbidden> {
        if self.0.load(Ordering::Relaxed) { Ok(()) } else { Err(Forbidden { code: "REVOKED".into() }) }
    }
}
