//! History, and what becomes of calls whose process died.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::time::Duration;

use common::*;
use holdpoint::core::message::Message;
use holdpoint::core::tool::EffectClass;
use holdpoint::models::ModelError;
use holdpoint::prelude::*;
use holdpoint::protocol::{ExecId, InteractionKind, RawJson};
use holdpoint::tools::Probe;
use holdpoint::{Ended, RunState};
use serde_json::json;

fn allow_all() -> Policy {
    Policy::builder("all").allow(["*"]).build().unwrap()
}

on_every_store! {
    /// The transcript keeps calls, declines, edits and results; the model is told whole rounds only, in every request.
    /// https://github.com/vercel/ai/issues/13307 https://github.com/earendil-works/pi/issues/4189
    fn rule_30_the_transcript_keeps_everything_and_the_model_sees_whole_rounds(place) {
        let log = Log::default();
        let bash = |command: &str| batch(&[("c", "Bash", &format!(r#"{{"command":"{command}"}}"#))]);
        let model = Scripted::sequence("script", [
            bash("one"), bash("two"), Answer::text("first answer"), bash("three"), Answer::text("second answer"),
        ]);
        let agent = || build_assistant(&log, model.clone()).build().unwrap();
        let first = place.start(agent());
        let outcome = first.go("do it");
        first.decline(outcome.run, "Bash", "not one");
        let mut edit = Deciding::new(first.request(outcome.run, "Bash"), DecisionWord::ApproveWith, human());
        edit.arguments = Some(r#"{"command":"2"}"#.into());
        first.decide(edit).unwrap();
        assert_eq!(first.wait(outcome.run).text(), Some("first answer"));
        let conversation = first.view(outcome.run).conversation_id;
        drop(first);
        let second = place.start(agent());
        let later = second.start(Start::text("and now").conversation(conversation));
        second.approve(later.run, "Bash");
        let history = second.history(later.run);
        let words: Vec<_> = history.iter().map(|message| match message.as_ref() {
            Message::User(_) => "user", Message::Assistant(_) => "assistant",
            Message::Tool(tool) => tool.status.as_str(), Message::Note(_) => "note",
        }).collect();
        assert_eq!(words, [
            "user", "assistant", "declined", "assistant", "executed_with_changes", "assistant",
            "user", "assistant", "succeeded", "assistant",
        ]);
        for request in model.requests() {
            check_history(&request.messages);
        }
        second.check(outcome.run);
        second.check(later.run);
    }

    /// A reply that is stored is never asked for again, and a call that finished never runs again: the model fails after the
    /// call, and a new message goes on from the result. https://github.com/microsoft/agent-framework/issues/7458
    /// https://github.com/microsoft/agent-framework/issues/3938 https://github.com/langchain-ai/langgraph/issues/7780
    fn rule_31_what_was_answered_and_what_ran_is_not_done_again(place) {
        let log = Log::default();
        let down = ModelError { code: "provider_error", message: "500".into(), retryable: true, retry_after: None };
        let model = Scripted::sequence("script", [
            batch(&[("c1", "Bash", r#"{"command":"pay"}"#)]), Answer::error(down), Answer::text("it is paid"),
        ]);
        let agent = || build_assistant(&log, model.clone()).build().unwrap();
        let first = place.start(agent());
        let run = first.go("pay").run;
        let request = first.request(run, "Bash");
        drop(first);
        let second = place.start(agent());
        second.say(request, DecisionWord::Approve).unwrap();
        let outcome = second.wait(run);
        assert!(matches!(&outcome.state, RunState::Ended(Ended::Failed(error)) if error.code == "provider_error" && error.retryable));
        second.check(run);
        let conversation = second.view(run).conversation_id;
        drop(second);
        let third = place.start(agent());
        assert!(third.say(request, DecisionWord::Approve).unwrap().repeated);
        let next = third.start(Start::text("well?").conversation(conversation));
        assert_eq!(next.text(), Some("it is paid"));
        assert_eq!(log.names(), ["Bash"]);
        let told = told(&model, 3);
        assert_eq!((told.len(), told[0].status), (1, "succeeded"));
        third.check(next.run);
    }

    /// The process dies while the call runs. An idempotent one and one that only reads are run again with the same key, a
    /// verifiable one is asked, any other goes to a person.
    fn rule_32_a_call_whose_process_died_is_run_again_asked_about_or_put_to_a_person(place) {
        for effect in [EffectClass::ReadOnly, EffectClass::Idempotent, EffectClass::Verifiable, EffectClass::AtMostOnce] {
            let log = Log::default();
            let model = calls_then_done(&[("c1", "wire", "{}")]);
            let first = place.start(Agent::builder("main", model.clone()).tool(Wire::new(&log, effect, true))
                .policy(allow_all()).build().unwrap());
            let run = first.begin("go");
            first.until(run, "tool_started");
            first.rest(20);
            assert_eq!(log.calls().len(), 1);
            drop(first);

            let second = place.start(Agent::builder("main", model.clone()).tool(Wire::new(&log, effect, false))
                .policy(allow_all()).build().unwrap());
            let outcome = second.wait(run);
            let keys: Vec<_> = log.calls().into_iter().map(|(_, key)| key).collect();
            match effect {
                EffectClass::ReadOnly | EffectClass::Idempotent => {
                    assert_eq!(keys.len(), 2, "{effect:?}");
                    assert_eq!(keys[0], keys[1], "the same idempotency key");
                    assert_eq!((outcome.text(), told(&model, 2)[0].status), (Some("done"), "succeeded"));
                }
                EffectClass::Verifiable => {
                    assert_eq!(log.names(), ["wire", "probe"]);
                    assert_eq!(keys[0], keys[1], "asked about under its key");
                    assert_eq!(told(&model, 2)[0].said, "it was wired");
                }
                EffectClass::AtMostOnce => {
                    assert_eq!(keys.len(), 1, "never run again");
                    assert_eq!(second.open(run)[0].kind, InteractionKind::InDoubt);
                    second.say(second.open(run)[0].request_id, DecisionWord::Leave).unwrap();
                    second.wait(run);
                    assert_eq!((told(&model, 2)[0].status, told(&model, 2)[0].executed), ("outcome_unknown", "unknown"));
                }
            }
            second.check(run);
        }
    }

    /// A doubt is closed by a person alone: it ran, it is left, or it is run once more as a new attempt of its own digest.
    fn rule_32_a_doubt_is_closed_by_a_person(place) {
        for word in [DecisionWord::Ran, DecisionWord::Leave, DecisionWord::Approve] {
            let log = Log::default();
            let model = calls_then_done(&[("c1", "wire", "{}")]);
            let agent = |hangs| Agent::builder("main", model.clone()).tool(Wire::new(&log, EffectClass::AtMostOnce, hangs)).build().unwrap();
            let first = place.start(agent(true));
            let run = first.go("go").run;
            let approved = first.request(run, "wire");
            let asked_for = field(&first.open(run)[0], "digest");
            first.say(approved, DecisionWord::Approve).unwrap();
            first.until(run, "tool_started");
            drop(first);

            let second = place.start(agent(false));
            second.wait(run);
            let doubt = second.open(run).remove(0);
            assert_eq!((doubt.kind, field(&doubt, "attempt")), (InteractionKind::InDoubt, "1".to_owned()));
            assert_eq!(field(&doubt, "decisions"), r#"["ran","leave","approve"]"#);
            assert_ne!(field(&doubt, "digest"), asked_for, "an approve of the first attempt is none of the second");
            assert!(second.say(approved, DecisionWord::Approve).unwrap().repeated);
            let no = second.say(doubt.request_id, DecisionWord::Decline);
            assert!(matches!(no, Err(holdpoint::DecideError::WrongWord { .. })), "a no does not undo what may have run");
            let mut deciding = Deciding::new(doubt.request_id, word, human());
            if word == DecisionWord::Ran {
                assert!(second.decide(deciding.clone()).is_err(), "it needs what came of it");
                let raw: RawJson = serde_json::value::RawValue::from_string(r#"{"receipt":7}"#.into()).unwrap();
                deciding.result = Some(raw);
            }
            second.decide(deciding).unwrap();
            assert_eq!(second.wait(run).text(), Some("done"));
            let answer = &told(&model, 2)[0];
            match word {
                DecisionWord::Ran => {
                    assert_eq!((answer.status, answer.executed), ("succeeded", "yes"));
                    assert_eq!(answer.said["result"], json!({"receipt": 7}));
                    assert_eq!(log.names(), ["wire"]);
                }
                DecisionWord::Leave => {
                    assert_eq!((answer.status, answer.executed), ("outcome_unknown", "unknown"));
                    let said = answer.said["message"].as_str().unwrap();
                    assert!(said.contains("may have taken effect") && said.contains("Do not repeat"), "{said}");
                    assert_eq!(log.names(), ["wire"]);
                }
                _ => {
                    assert_eq!(answer.status, "succeeded");
                    assert_eq!(log.names(), ["wire", "wire"]);
                    let attempts: Vec<_> = second.events(run).iter().filter(|e| e["type"] == "tool_started")
                        .map(|e| e["attempt"].clone()).collect();
                    assert_eq!(attempts, [1, 2]);
                }
            }
            second.check(run);
        }
    }

    /// The process dies while a call runs that would be run again - and where it goes on, it may not: whatever stands in its
    /// way, nobody is told that it was not executed. A call that only reads had no effect, and is told from it.
    fn rule_32_a_call_that_may_have_run_is_never_said_not_to_have(place) {
        for effect in [EffectClass::Idempotent, EffectClass::AtMostOnce, EffectClass::ReadOnly] {
            for what in ["denied", "forbidden", "asked, and declined", "not loaded, and cancelled"] {
                let log = Log::default();
                let model = calls_then_done(&[("c1", "wire", "{}")]);
                let agent = |hangs| Agent::builder("main", model.clone()).tool(Wire::new(&log, effect, hangs));
                let first = place.start(agent(true).policy(allow_all()).build().unwrap());
                let run = first.begin("go");
                first.until(run, "tool_started");
                first.rest(20);
                drop(first);

                let deny = || Policy::builder("now").deny(["wire"]).build().unwrap();
                let now = match what {
                    "denied" => agent(false).policy(deny()),
                    "forbidden" => agent(false).policy(allow_all()).permission(Nobody),
                    "asked, and declined" => agent(false),
                    _ => Agent::builder("main", model.clone()),
                };
                let process = place.start(now.build().unwrap());
                if effect == EffectClass::AtMostOnce {
                    process.wait(run);
                    // A person wants it run again.
                    process.say(process.open(run)[0].request_id, DecisionWord::Approve).unwrap();
                }
                match what {
                    "asked, and declined" if effect != EffectClass::AtMostOnce => {
                        process.wait(run);
                        let warned = field(&process.open(run)[0], "render").contains("may have taken effect");
                        assert_eq!(warned, effect == EffectClass::Idempotent);
                        process.decline(run, "wire", "no");
                    }
                    "not loaded, and cancelled" => {
                        process.until(run, "notice");
                        process.run(async |runtime| runtime.cancel(&local(), run).await.unwrap());
                    }
                    _ => {}
                }
                process.wait(run);
                let answer = process.answers(run).remove(0);
                let found = (answer.status, answer.executed);
                match (effect, what) {
                    // The approve of the doubt is one of this call: policy does not ask about it again.
                    (EffectClass::AtMostOnce, "asked, and declined") => assert_eq!(found, ("succeeded", "yes")),
                    (EffectClass::ReadOnly, _) => assert_eq!(found.1, "no", "{what}: {answer:?}"),
                    _ => {
                        assert_eq!(found, ("outcome_unknown", "unknown"), "{effect:?}, {what}");
                        let said = answer.said["message"].as_str().unwrap();
                        assert!(said.contains("may have taken effect") && said.contains("Do not repeat"), "{said}");
                    }
                }
                process.check(run);
            }
        }
    }

    /// The tool is another one by the time somebody wants a doubtful call run again: that is asked about, as what it is now.
    fn a_doubtful_call_of_a_tool_that_changed_is_asked_about_before_it_runs_again(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "wire", "{}")]);
        let first = place.start(Agent::builder("main", model.clone()).tool(Wire::new(&log, EffectClass::AtMostOnce, true))
            .policy(allow_all()).build().unwrap());
        let run = first.begin("go");
        first.until(run, "tool_started");
        first.rest(20);
        drop(first);
        let mut changed = Wire::new(&log, EffectClass::AtMostOnce, false);
        changed.definition.description = "wires twice".into();
        let process = place.start(Agent::builder("main", model.clone()).tool(changed).policy(allow_all()).build().unwrap());
        process.wait(run);
        let doubt = process.open(run).remove(0);
        assert_eq!(doubt.kind, InteractionKind::InDoubt);
        process.say(doubt.request_id, DecisionWord::Approve).unwrap();
        process.wait(run);
        assert_eq!(log.names(), ["wire"], "what was approved is not what would run");
        let asked = process.open(run).remove(0);
        assert_eq!(asked.kind, InteractionKind::Approval);
        assert!(field(&asked, "changed").contains("description"), "{asked:?}");
        assert_eq!(process.approve(run, "wire").text(), Some("done"));
        assert_eq!(log.names(), ["wire", "wire"]);
        process.check(run);
    }

    /// Silence about a doubt leaves it: it is not known, and that is said.
    fn rule_32_a_doubt_nobody_answers_is_left(place) {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "wire", "{}")]);
        let agent = Agent::builder("main", model.clone())
            .tool(hanging(&log, "wire", EffectClass::AtMostOnce).timeout(Duration::from_millis(20)))
            .policy(allow_all()).approval_timeout(Duration::from_secs(60));
        let process = place.start(agent.build().unwrap());
        let run = process.go("go").run;
        place.later(Duration::from_secs(61));
        process.until(run, "finish");
        assert_eq!((told(&model, 2)[0].status, told(&model, 2)[0].executed), ("outcome_unknown", "unknown"));
        process.check(run);
    }

    /// Killed at any moment while it waits: the same requests, the same ids, one execution.
    /// https://github.com/microsoft/agent-framework/issues/5818 https://github.com/microsoft/agent-framework/issues/3255
    fn rule_31_a_waiting_run_is_the_same_after_any_number_of_restarts(place) {
        let (log, model) = (Log::default(), three_calls());
        let agent = || build_assistant(&log, model.clone()).build().unwrap();
        let mut process = place.start(agent());
        let run = process.go("go").run;
        let open: Vec<_> = process.open(run).iter().map(|item| item.request_id).collect();
        let events = process.events(run);
        for _ in 0..4 {
            drop(process);
            process = place.start(agent());
            process.rest(5);
            assert_eq!(process.open(run).iter().map(|item| item.request_id).collect::<Vec<_>>(), open);
            assert_eq!(process.events(run), events, "waiting costs nothing and says nothing");
        }
        process.approve(run, "Write");
        drop(process);
        let process = place.start(agent());
        assert_eq!(process.open(run).len(), 1, "what was answered is not asked again");
        process.approve(run, "Bash");
        assert_eq!(log.names(), ["Read", "Write", "Bash"]);
        process.check(run);
    }
}

/// A hook can cut what a model is told, between rounds; a cut that costs a call its answer, or an answer its call, ends the
/// run before it is sent. https://github.com/spring-projects/spring-ai/issues/5940
#[tokio::test]
async fn rule_30_a_history_is_cut_between_rounds_or_not_sent() {
    struct KeepLast(usize);
    #[async_trait::async_trait]
    impl holdpoint::AroundRound for KeepLast {
        async fn before(
            &self,
            _: &holdpoint::RunInfo,
            _: u32,
            request: &mut holdpoint::models::ModelRequest,
        ) -> Result<(), holdpoint::HookError> {
            let cut = request.messages.len().saturating_sub(self.0);
            request.messages.drain(..cut);
            Ok(())
        }
    }
    // What there is in the second round: user, reply, answer, answer.
    for (keep, sent) in [(4, true), (3, true), (2, false), (1, false), (0, true)] {
        let log = Log::default();
        let model = calls_then_done(&[("c1", "Read", r#"{"path":"a"}"#), ("c2", "Read", r#"{"path":"b"}"#)]);
        let agent = build_assistant(&log, model.clone()).around_round(KeepLast(keep)).build().unwrap();
        let runtime = Runtime::builder().agent(agent).build().unwrap();
        let outcome = run(&runtime).await;
        assert_eq!(outcome.finish().is_some(), sent, "{keep}");
        assert_eq!(model.calls(), if sent { 2 } else { 1 });
        if !sent {
            assert!(matches!(&outcome.state, RunState::Ended(Ended::Failed(error)) if error.code == "hook"));
        }
    }
}

struct Nobody;

#[async_trait::async_trait]
impl holdpoint::Permission for Nobody {
    async fn check(
        &self,
        _: &holdpoint::RunInfo,
        _: &ToolDefinition,
        _: &serde_json::Value,
    ) -> Result<(), holdpoint::Forbidden> {
        Err(holdpoint::Forbidden { code: "REVOKED".into() })
    }
}

/// A tool with a memory, of any class: it hangs in the first process, and can say afterwards that it ran.
struct Wire {
    log: Log,
    definition: ToolDefinition,
    hangs: bool,
}

impl Wire {
    fn new(log: &Log, effect: EffectClass, hangs: bool) -> Self {
        let mut definition = definition("wire", &[]);
        definition.effect = effect;
        Self { log: log.clone(), definition, hangs }
    }
}

#[async_trait::async_trait]
impl Tool for Wire {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, invocation: Invocation) -> Result<ToolOutput, ToolError> {
        self.log.add("wire", &invocation.exec().to_string());
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(ToolOutput::text("wired"))
    }

    async fn probe(&self, exec: ExecId, _: &ToolContext) -> Probe {
        self.log.add("probe", &exec.to_string());
        Probe::Done(ToolOutput::text("it was wired"))
    }
}
