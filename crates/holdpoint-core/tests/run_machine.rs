//! Any interleaving of inputs keeps the invariants: whatever a driver, a store or a person throws at the run machine,
//! sensible or not, nothing runs that was not released, nothing is answered twice, and what is refused changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)] // the helpers of a test are tests too

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdpoint_core::arguments::Arguments;
use holdpoint_core::decision::{CancelKind, Decision, Fact};
use holdpoint_core::digest::{CallDigest, definition_digest};
use holdpoint_core::limits::Limits;
use holdpoint_core::message::{AssistantItem, AssistantMessage, ProposedCall, ResultContent, UserMessage};
use holdpoint_core::policy::{Ruling, Verdict};
use holdpoint_core::run::{
    Birth, Changes, Check, Cx, Effect, Execution, Input, LedgerLine, OpenRound, Probed, Refused, Replied,
    ReplyEnd, Ruled, Run, Settings, Stage, ToolEnd,
};
use holdpoint_core::tool::{EffectClass, ToolDefinition};
use holdpoint_protocol::{
    ActorId, AgentName, By, CallId, ConversationId, DecisionWord, EventBody, Executed, InteractionKind,
    Reason, RequestId, RunId, TenantId, Then, Timestamp, Via,
};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

const TOOLS: [(&str, EffectClass); 4] = [
    ("read", EffectClass::ReadOnly),
    ("put", EffectClass::Idempotent),
    ("ask_bank", EffectClass::Verifiable),
    ("pay", EffectClass::AtMostOnce),
];

/// One thing thrown at the machine. Numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Move {
    Reply {
        calls: Vec<(usize, u8)>,
        end: u8,
    },
    ModelFails,
    Decide {
        which: usize,
        word: u8,
        stale: bool,
        stop: bool,
    },
    Expire {
        which: usize,
    },
    GateError {
        which: usize,
    },
    Cancel {
        supersede: bool,
    },
    Finish {
        which: usize,
        attempt: u32,
        end: u8,
    },
    Probe {
        which: usize,
        says: u8,
    },
    Progress {
        which: usize,
    },
    Recover,
    /// What the run needs is not loaded where it was taken up; some facts wait there.
    Unavailable {
        cancel: bool,
    },
    GraceOver,
    StartAgain,
    RuleOutOfTurn,
    CheckOutOfTurn {
        which: usize,
    },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (proptest::collection::vec((0..TOOLS.len(), 0u8..8), 0..5), 0u8..8).prop_map(|(calls, end)| Move::Reply { calls, end }),
        1 => Just(Move::ModelFails),
        8 => (any::<usize>(), 0u8..7, prop::bool::weighted(0.1), prop::bool::weighted(0.1))
            .prop_map(|(which, word, stale, stop)| Move::Decide { which, word, stale, stop }),
        2 => any::<usize>().prop_map(|which| Move::Expire { which }),
        1 => any::<usize>().prop_map(|which| Move::GateError { which }),
        1 => any::<bool>().prop_map(|supersede| Move::Cancel { supersede }),
        8 => (any::<usize>(), 0u32..3, 0u8..6).prop_map(|(which, attempt, end)| Move::Finish { which, attempt, end }),
        2 => (any::<usize>(), 0u8..3).prop_map(|(which, says)| Move::Probe { which, says }),
        1 => any::<usize>().prop_map(|which| Move::Progress { which }),
        2 => Just(Move::Recover),
        1 => prop::bool::weighted(0.2).prop_map(|cancel| Move::Unavailable { cancel }),
        1 => Just(Move::GraceOver),
        1 => Just(Move::StartAgain),
        1 => Just(Move::RuleOutOfTurn),
        1 => any::<usize>().prop_map(|which| Move::CheckOutOfTurn { which }),
    ];
    proptest::collection::vec(one, 1..60)
}

/// The machine, and what an observer who trusts nothing keeps of it.
struct Bench {
    run: Run,
    open: OpenRound,
    settings: Settings,
    ids: u128,
    /// Requests that were opened, and whether they are open still.
    requests: BTreeMap<RequestId, (CallId, InteractionKind, CallDigest, bool)>,
    /// Calls that policy allowed, that were approved, and how often.
    released: BTreeMap<CallId, u32>,
    ran: BTreeSet<(CallId, u32)>,
    /// Calls of which an attempt was cut off, and nothing has shown that it had no effect.
    cut: BTreeSet<CallId>,
    proposed: BTreeMap<u32, u32>,
    answered: BTreeSet<CallId>,
    committed: BTreeSet<u32>,
    ended: bool,
}

impl Bench {
    fn new(execution: Execution) -> Self {
        let run = Run::new(Birth {
            id: RunId(Uuid::from_u128(7)),
            tenant: TenantId::new("t").unwrap(),
            actor: ActorId::new("ana").unwrap(),
            agent: AgentName::new("main").unwrap(),
            conversation: ConversationId::new("c").unwrap(),
            model: None,
            bypass: None,
        });
        let limits = Limits { calls_total: 12, calls_per_tool: 6, rounds: 6, ..Limits::default() };
        Self {
            run,
            open: OpenRound::default(),
            settings: Settings { execution, limits, ..Settings::default() },
            ids: 0,
            requests: BTreeMap::new(),
            released: BTreeMap::new(),
            ran: BTreeSet::new(),
            cut: BTreeSet::new(),
            proposed: BTreeMap::new(),
            answered: BTreeSet::new(),
            committed: BTreeSet::new(),
            ended: false,
        }
    }

    /// One input with everything it asks for at once, as a driver would, and the invariants after it.
    fn take(&mut self, input: Input) -> Result<(), Refused> {
        let mut queue = self.step(input)?;
        while let Some(effect) = queue.pop() {
            match effect {
                Effect::Rule => {
                    let ruled = self.rule();
                    queue.extend(self.step(Input::Ruled(ruled)).expect("a ruling that was asked for"));
                }
                Effect::Check { index } => {
                    // Asked for more than once in one go only if it is still due.
                    if let Ok(more) = self.step(Input::Checked { index, check: check(self.tool_of(index)) }) {
                        queue.extend(more);
                    }
                }
                Effect::Execute(permit) => {
                    assert!(self.ran.insert((permit.call(), permit.attempt())), "I6: one attempt ran twice");
                    let runs = self.ran.iter().filter(|(call, _)| *call == permit.call()).count() as u32;
                    let released = self.released.get(&permit.call()).copied().unwrap_or(0);
                    assert!(released > 0, "I1: {} ran without a release", permit.call());
                    if permit.tool() == "pay" {
                        assert!(
                            runs <= released,
                            "I9: {} ran {runs} times on {released} releases",
                            permit.call()
                        );
                    }
                }
                Effect::CallModel { .. }
                | Effect::Recheck { .. }
                | Effect::Probe { .. }
                | Effect::CancelTool { .. }
                | Effect::CancelModel
                | Effect::Release => {}
            }
        }
        Ok(())
    }

    fn step(&mut self, input: Input) -> Result<Vec<Effect>, Refused> {
        let before = serde_json::to_string(&self.run).unwrap();
        let mut changes = Changes::default();
        let ids = &mut self.ids;
        let mut fresh = || {
            *ids += 1;
            RequestId(Uuid::from_u128(*ids))
        };
        let mut cx = Cx {
            now: Timestamp::from_millisecond(1_000).unwrap(),
            settings: &self.settings,
            fresh: &mut fresh,
        };
        let result = self.run.step(&mut self.open, input, &mut cx, &mut changes);
        match &result {
            Err(_) => {
                assert_eq!(
                    before,
                    serde_json::to_string(&self.run).unwrap(),
                    "a refused input changed something"
                );
                assert!(
                    changes.events.is_empty() && changes.messages.is_empty() && changes.opened.is_empty()
                );
            }
            Ok(_) => self.observe(&changes),
        }
        // What is stored can be read back, and is the same.
        let stored = serde_json::to_string(&self.run).unwrap();
        let read: Run = serde_json::from_str(&stored).unwrap();
        assert_eq!(stored, serde_json::to_string(&read).unwrap());
        result
    }

    fn observe(&mut self, changes: &Changes) {
        assert!(!self.ended || changes.events.is_empty(), "something follows the end");
        for opened in &changes.opened {
            self.requests.insert(opened.request, (opened.call, opened.kind, opened.digest, true));
            assert!(matches!(
                &changes.events[opened.event],
                EventBody::ApprovalRequest(_) | EventBody::InDoubtRequest(_)
            ));
        }
        for closed in &changes.closed {
            let request =
                self.requests.get_mut(&closed.request).expect("a request that is closed was opened");
            assert!(request.3, "a request is closed once");
            request.3 = false;
        }
        for line in &changes.executions {
            if let LedgerLine::Ended { call, executed: Executed::Unknown, .. } = line
                && self.effect_of(*call) != EffectClass::ReadOnly
            {
                self.cut.insert(*call);
            }
        }
        for event in &changes.events {
            match event {
                EventBody::ToolCall(calls) => {
                    // Not the run's round: a batch that is answered at once has committed its round in the same step.
                    let round = calls.tool_calls[0].call_id.round;
                    self.proposed.insert(round, calls.tool_calls.len() as u32);
                }
                EventBody::ToolResult(results) => {
                    for result in &results.tool_results {
                        assert!(
                            self.answered.insert(result.call_id),
                            "I3: {} was answered twice",
                            result.call_id
                        );
                        assert!(
                            result.executed != Executed::No || !self.cut.contains(&result.call_id),
                            "{} may have taken effect, and is said not to have",
                            result.call_id
                        );
                    }
                }
                EventBody::RoundCommitted(round) => {
                    assert!(self.committed.insert(round.round), "a round is committed once");
                    let calls = self.proposed.get(&round.round).copied().unwrap_or(0);
                    let answers =
                        self.answered.iter().filter(|call| call.round == round.round).count() as u32;
                    assert_eq!(calls, answers, "I3: round {} is committed with all its answers", round.round);
                }
                EventBody::Finish(_) | EventBody::Error(_) => {
                    self.ended = true;
                    assert!(
                        self.requests.values().all(|request| !request.3),
                        "nothing stays open after the end"
                    );
                }
                _ => {}
            }
        }
    }

    fn effect_of(&self, call: CallId) -> EffectClass {
        let name = self.open.slots.get(call.index as usize).map_or("", |slot| slot.proposed.name.as_str());
        TOOLS.iter().find(|(tool, _)| *tool == name).map_or(EffectClass::AtMostOnce, |(_, effect)| *effect)
    }

    fn rule(&mut self) -> Vec<Ruled> {
        let run = self.run.id();
        let round = self.run.round();
        let mut ruled = Vec::new();
        for (index, slot) in (0u32..).zip(&self.open.slots).filter(|(_, slot)| slot.result.is_none()) {
            let Some((_, effect)) = TOOLS.iter().find(|(name, _)| *name == slot.proposed.name) else {
                ruled.push(Ruled::Unknown { known: vec!["read".into()] });
                continue;
            };
            let arguments = match Arguments::parse(&slot.proposed.arguments, 1_000) {
                Ok(arguments) => arguments,
                Err(why) => {
                    ruled.push(Ruled::Invalid(why));
                    continue;
                }
            };
            let verdict = match arguments.value()["v"].as_u64() {
                Some(0) => Verdict::Allow,
                Some(1) => Verdict::Deny,
                Some(2) => {
                    ruled.push(Ruled::Forbidden { code: "NOT_YOURS".into() });
                    continue;
                }
                Some(3) => {
                    ruled.push(Ruled::Failed { what: "broke".into() });
                    continue;
                }
                _ => Verdict::Ask,
            };
            if verdict == Verdict::Allow {
                *self.released.entry(CallId { run, round, index }).or_insert(0) += 1;
            }
            let tool = Arc::new(definition(&slot.proposed.name, *effect));
            let ruling = Ruling { verdict, reason: reason() };
            ruled.push(Ruled::Verdict { arguments, definition: definition_digest(&tool), tool, ruling });
        }
        ruled
    }

    fn tool_of(&self, index: u32) -> &'static (&'static str, EffectClass) {
        let name = self.run.tool_of(index).unwrap_or_default();
        TOOLS.iter().find(|(tool, _)| *tool == name).unwrap_or(&TOOLS[0])
    }

    fn open_request(&self, which: usize) -> Option<(RequestId, CallId, InteractionKind, CallDigest)> {
        // Now and then one that is closed already, or never was.
        let all: Vec<_> = self.requests.iter().collect();
        let (id, (call, kind, digest, _)) = all.get(which % all.len().max(1))?;
        Some((**id, *call, *kind, *digest))
    }

    fn throw(&mut self, what: Move) -> Result<(), Refused> {
        match what {
            Move::Reply { calls, end } => {
                let end = match end {
                    0 => ReplyEnd::Malformed("length"),
                    1 => ReplyEnd::Interrupted("cut".into()),
                    _ => ReplyEnd::Complete,
                };
                self.take(Input::Replied { round: self.run.round(), reply: reply(&calls, end) })
            }
            Move::ModelFails => self.take(Input::ModelFailed {
                round: self.run.round(),
                code: "provider_error".into(),
                message: "no".into(),
                retryable: true,
            }),
            Move::Decide { which, word, stale, stop } => self.decide(which, word, stale, stop),
            Move::Expire { which } => self.fact(which, |request| Fact::Expired { request }),
            Move::GateError { which } => self.fact(which, |request| Fact::GateError { request }),
            Move::Cancel { supersede } => {
                let kind = if supersede { CancelKind::Supersede } else { CancelKind::Cancel };
                self.take(Input::Facts(vec![Fact::Cancelled { by: ActorId::new("ana").unwrap(), kind }]))
            }
            Move::Finish { which, attempt, end } => {
                let end = match end {
                    0 => ToolEnd::Error { code: "E".into(), message: "m".into(), not_executed: false },
                    1 => ToolEnd::TimedOut,
                    2 => ToolEnd::Cancelled,
                    3 => ToolEnd::Panicked,
                    _ => ToolEnd::Output(ResultContent::Text("ok".into())),
                };
                let index = which as u32 % 5;
                self.take(Input::Finished { index, attempt: attempt + 1, end })
            }
            Move::Probe { which, says } => {
                let probe = match says {
                    0 => Probed::Done(ResultContent::Text("did".into())),
                    1 => Probed::NotDone,
                    _ => Probed::Unknown,
                };
                let index = which as u32 % 5;
                // It can show that nothing came of the attempt.
                let cut = says == 1 && self.cut.remove(&self.run.call_id(index));
                let taken = self.take(Input::Probed { index, probe });
                if cut && taken.is_err() {
                    self.cut.insert(self.run.call_id(index));
                }
                taken
            }
            Move::Progress { which } => self.take(Input::Progress {
                index: which as u32 % 5,
                message: Some("…".into()),
                fraction: None,
            }),
            Move::Recover => self.take(Input::Recovered { facts: Vec::new() }),
            Move::Unavailable { cancel } => {
                let by = ActorId::new("ana").unwrap();
                let facts = cancel.then_some(Fact::Cancelled { by, kind: CancelKind::Cancel });
                let facts = facts.into_iter().collect();
                let ran = self.ran.len();
                let effects = self.step(Input::Unavailable { facts, what: "the agent".into() })?;
                let begins = |effect: &Effect| {
                    matches!(
                        effect,
                        Effect::Execute(_)
                            | Effect::CallModel { .. }
                            | Effect::Check { .. }
                            | Effect::Probe { .. }
                    )
                };
                assert!(
                    ran == self.ran.len() && !effects.iter().any(begins),
                    "it is not loaded: {effects:?}"
                );
                assert!(!cancel || self.ended, "a cancelled run needs nothing to end");
                Ok(())
            }
            Move::GraceOver => self.take(Input::GraceOver),
            Move::StartAgain => self.take(start()),
            Move::RuleOutOfTurn => self.take(Input::Ruled(Vec::new())),
            Move::CheckOutOfTurn { which } => {
                let index = which as u32 % 5;
                // A check nobody asked for is a check all the same: it may start what is cleared, and nothing else.
                let check = check(self.tool_of(index));
                let effects = self.step(Input::Checked { index, check })?;
                self.perform(effects);
                Ok(())
            }
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Execute(permit) = effect {
                assert!(self.ran.insert((permit.call(), permit.attempt())));
                assert!(self.released.contains_key(&permit.call()), "I1");
            }
        }
    }

    fn fact(&mut self, which: usize, fact: impl Fn(RequestId) -> Fact) -> Result<(), Refused> {
        let Some((request, ..)) = self.open_request(which) else { return Err(Refused("nothing is open")) };
        self.close(request);
        self.take(Input::Facts(vec![fact(request)]))
    }

    /// The store closes a request with the fact; a fact about a closed request is one that no store would make.
    fn close(&mut self, request: RequestId) {
        if let Some(request) = self.requests.get_mut(&request) {
            request.3 = false;
        }
    }

    fn decide(&mut self, which: usize, word: u8, stale: bool, stop: bool) -> Result<(), Refused> {
        let Some((request, call, kind, digest)) = self.open_request(which) else {
            return Err(Refused("nothing is open"));
        };
        let was_open = self.requests[&request].3;
        let word = [
            DecisionWord::Approve,
            DecisionWord::ApproveWith,
            DecisionWord::Decline,
            DecisionWord::Feedback,
            DecisionWord::Ran,
            DecisionWord::Leave,
            DecisionWord::Answer,
        ][usize::from(word)];
        let fits = match kind {
            InteractionKind::Approval => {
                matches!(
                    word,
                    DecisionWord::Approve
                        | DecisionWord::ApproveWith
                        | DecisionWord::Decline
                        | DecisionWord::Feedback
                )
            }
            InteractionKind::InDoubt => matches!(
                word,
                DecisionWord::Approve
                    | DecisionWord::Ran
                    | DecisionWord::Leave
                    | DecisionWord::Decline
                    | DecisionWord::Feedback
            ),
            InteractionKind::Question => false,
        };
        // A decision that is stored closes its request. One that does not fit lets nothing run.
        self.close(request);
        let releases = fits && matches!(word, DecisionWord::Approve | DecisionWord::ApproveWith);
        if was_open && !stale && releases {
            *self.released.entry(call).or_insert(0) += 1;
        }
        let decision = Decision {
            word,
            by: By { actor: Some(ActorId::new("bo").unwrap()), via: Via::Human },
            digest: if stale { format!("sha256:{}", "0".repeat(64)).parse().unwrap() } else { digest },
            rule: None,
            reason: Some("because".into()),
            arguments: (word == DecisionWord::ApproveWith).then(|| r#"{"v":9}"#.into()),
            result: None,
            then: if stop { Then::Stop } else { Then::Continue },
            at: Timestamp::UNIX_EPOCH,
        };
        self.take(Input::Facts(vec![Fact::Decided { request, decision: Box::new(decision) }]))
    }
}

fn start() -> Input {
    Input::Start { message: UserMessage::text("go"), tools: Vec::new() }
}

fn reason() -> Reason {
    Reason { policy: "test".into(), rule: "unlisted".into() }
}

fn definition(name: &str, effect: EffectClass) -> ToolDefinition {
    ToolDefinition { effect, ..ToolDefinition::new(name, "a tool", json!({"type": "object"})) }
}

fn check(tool: &(&str, EffectClass)) -> Check {
    let tool = Arc::new(definition(tool.0, tool.1));
    let ruling = Ruling { verdict: Verdict::Allow, reason: reason() };
    Check::Now { definition: definition_digest(&tool), tool, ruling }
}

fn reply(calls: &[(usize, u8)], end: ReplyEnd) -> Replied {
    let call = |&(tool, v): &(usize, u8)| {
        let (name, arguments) = match v {
            6 => ("no_such_tool", "{}".to_owned()),
            7 => (TOOLS[tool].0, "{".to_owned()),
            v => (TOOLS[tool].0, json!({ "v": v }).to_string()),
        };
        AssistantItem::Call(ProposedCall { id: "c".into(), name: name.into(), arguments })
    };
    let mut items: Vec<AssistantItem> = calls.iter().map(call).collect();
    items.insert(0, AssistantItem::Text("text".into()));
    Replied {
        message: AssistantMessage { items, ..AssistantMessage::default() },
        end,
        input_tokens: 1,
        output_tokens: 1,
        cost_micro_dollars: None,
        other_choices: (0, false),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_of_inputs_keeps_the_invariants(moves in moves(), execution in 0u8..3) {
        let execution = [Execution::Sequential, Execution::Parallel, Execution::Hold][usize::from(execution)];
        let mut bench = Bench::new(execution);
        bench.take(start()).unwrap();
        for what in moves {
            // Refused or not, the invariants are looked at inside.
            let _ = bench.throw(what);
            if matches!(bench.run.stage(), Stage::Finished(_) | Stage::Failed) {
                prop_assert!(bench.ended);
                prop_assert!(bench.throw(Move::Reply { calls: vec![(0, 0)], end: 9 }).is_err(), "an end is an end");
                prop_assert!(bench.throw(Move::Recover).is_err());
            }
        }
    }
}

#[test]
fn the_same_input_twice_is_refused_and_not_repeated() {
    let mut bench = Bench::new(Execution::Sequential);
    bench.take(start()).unwrap();
    let once = || Input::Replied { round: 1, reply: reply(&[(3, 5)], ReplyEnd::Complete) };
    bench.take(once()).unwrap();
    assert!(bench.take(once()).is_err());
    bench.throw(Move::Decide { which: 0, word: 0, stale: false, stop: false }).unwrap();
    assert!(bench.throw(Move::Decide { which: 0, word: 0, stale: false, stop: false }).is_err());
    bench.throw(Move::Finish { which: 0, attempt: 0, end: 5 }).unwrap();
    assert!(bench.throw(Move::Finish { which: 0, attempt: 0, end: 5 }).is_err());
    assert_eq!(bench.ran.len(), 1);
}

/// I2: what was decided on is what runs, whatever became of the text in between.
#[test]
fn a_text_that_is_not_the_one_that_was_decided_on_gets_no_permit() {
    let mut bench = Bench::new(Execution::Sequential);
    bench.take(start()).unwrap();
    bench.take(Input::Replied { round: 1, reply: reply(&[(3, 5)], ReplyEnd::Complete) }).unwrap();
    bench.open.slots[0].arguments = Some(Arguments::parse(r#"{"v": 5}"#, 100).unwrap());
    bench.throw(Move::Decide { which: 0, word: 0, stale: false, stop: false }).unwrap();
    assert!(bench.ran.is_empty(), "one space more is another text");
    assert!(bench.answered.iter().any(|call| call.index == 0), "it is answered as a gate error");
}
