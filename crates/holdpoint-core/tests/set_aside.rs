//! A run that was set aside: nothing of it goes on before an operator has said so, whoever loads it.
#![allow(clippy::unwrap_used, clippy::expect_used)] // the helpers of a test are tests too

use holdpoint_core::decision::{CancelKind, Decision, Fact};
use holdpoint_core::message::UserMessage;
use holdpoint_core::run::{Birth, Changes, Cx, Effect, Input, OpenRound, Run, Settings, Stage, Standing};
use holdpoint_protocol::{
    ActorId, AgentName, By, ConversationId, DecisionWord, EventBody, InteractionKind, RequestId, RuleUsed,
    RunId, TenantId, Then, Timestamp, Via,
};
use uuid::Uuid;

const ASKED: RequestId = RequestId(Uuid::from_u128(9));

/// A run that asks its model.
fn started() -> Run {
    let mut run = Run::new(Birth {
        id: RunId(Uuid::from_u128(7)),
        tenant: TenantId::new("t").unwrap(),
        actor: ActorId::new("ana").unwrap(),
        agent: AgentName::new("main").unwrap(),
        conversation: ConversationId::new("c").unwrap(),
        model: None,
        bypass: None,
    });
    step(&mut run, Input::Start { message: UserMessage::text("go"), tools: Vec::new() });
    run
}

fn step(run: &mut Run, input: Input) -> (Vec<Effect>, Changes) {
    let mut changes = Changes::default();
    let settings = Settings::default();
    let mut fresh = || RequestId(Uuid::from_u128(1));
    let mut cx = Cx { now: Timestamp::UNIX_EPOCH, settings: &settings, fresh: &mut fresh };
    let effects = run.step(&mut OpenRound::default(), input, &mut cx, &mut changes).unwrap();
    (effects, changes)
}

fn decided(run: &Run, word: DecisionWord, rule: Option<RuleUsed>) -> Fact {
    let by = By { actor: ActorId::new("op").ok(), via: Via::Human };
    let digest = run.to_set_aside(ASKED, 5, Timestamp::UNIX_EPOCH).digest;
    let decision = Decision {
        word,
        by,
        rule,
        digest,
        reason: None,
        arguments: None,
        result: None,
        then: Then::Continue,
        at: Timestamp::UNIX_EPOCH,
    };
    Fact::Decided { request: ASKED, decision: Box::new(decision) }
}

fn aside() -> Fact {
    Fact::SetAside { request: ASKED }
}

#[test]
fn whoever_loads_it_before_an_operator_decided_does_nothing() {
    let mut run = started();
    let (effects, changes) = step(&mut run, Input::Recovered { facts: vec![aside()] });
    assert!(effects.is_empty() && changes.events.is_empty(), "{effects:?} {changes:?}");
    assert_eq!(run.standing(), Standing::SetAside);
    let [pending] = &run.pending()[..] else { panic!("{:?}", run.pending()) };
    assert_eq!(
        (pending.request_id, pending.kind, pending.call_id),
        (ASKED, InteractionKind::Quarantine, None)
    );
    // Nor later, and stored in between.
    let mut run: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    let (effects, _) = step(&mut run, Input::Recovered { facts: Vec::new() });
    assert!(effects.is_empty());
    let facts = vec![decided(&run, DecisionWord::Approve, None)];
    let (effects, _) = step(&mut run, Input::Recovered { facts });
    assert!(matches!(effects[..], [Effect::CallModel { round: 1 }]), "{effects:?}");
}

#[test]
fn an_approve_and_nothing_else_has_it_go_on() {
    let rule = RuleUsed { name: "r".into(), version: "1".into(), written_by: ActorId::new("ana").unwrap() };
    let cases = [
        (DecisionWord::Approve, None, true),
        (DecisionWord::Approve, Some(rule), false),
        (DecisionWord::ApproveWith, None, false),
        (DecisionWord::Decline, None, false),
        (DecisionWord::Feedback, None, false),
        (DecisionWord::Answer, None, false),
        (DecisionWord::Ran, None, false),
        (DecisionWord::Leave, None, false),
    ];
    for (word, rule, goes_on) in cases {
        let mut run = started();
        let facts = vec![aside(), decided(&run, word, rule.clone())];
        let (effects, changes) = step(&mut run, Input::Recovered { facts });
        let what = format!("{word:?} {rule:?}");
        assert_eq!(!effects.is_empty(), goes_on, "{what}");
        assert_eq!(run.stage(), if goes_on { Stage::Asking } else { Stage::Failed }, "{what}");
        let resumed = changes.events.iter().any(|event| matches!(event, EventBody::Resumed(_)));
        assert_eq!(resumed, goes_on, "{what}");
        assert!(run.pending().is_empty());
    }
}

#[test]
fn a_decision_on_another_request_does_not_free_it() {
    let mut run = started();
    let other = match decided(&run, DecisionWord::Approve, None) {
        Fact::Decided { decision, .. } => Fact::Decided { request: RequestId(Uuid::from_u128(8)), decision },
        other => other,
    };
    let (effects, _) = step(&mut run, Input::Recovered { facts: vec![aside(), other] });
    assert!(effects.is_empty());
    assert_eq!(run.standing(), Standing::SetAside);
}

#[test]
fn a_cancel_closes_its_request_and_ends_it() {
    for kind in [CancelKind::Cancel, CancelKind::Supersede] {
        let mut run = started();
        let by = ActorId::new("bo").unwrap();
        let facts = vec![aside(), Fact::Cancelled { by, kind }];
        let (_, changes) = step(&mut run, Input::Recovered { facts });
        assert_eq!(changes.closed.iter().map(|closed| closed.request).collect::<Vec<_>>(), [ASKED]);
        assert_eq!(run.standing(), Standing::Finished);
    }
}
