//! The durable stores beside the memory store as their model: whatever is done to both, both say and hold the same.

use std::sync::Arc;

use holdpoint_core::decision::CancelKind;
use holdpoint_core::run::Settings;
use holdpoint_core::terms::{AtDeadline, TermsRule};
use holdpoint_protocol::{DecisionWord, GroupName, InteractionStatus, RequestId, RunId};
use holdpoint_store::{
    Committed, Context, InteractionFilter, Next, PageRequest, RunFilter, StartRun, Started, Step,
};
use proptest::prelude::*;

use crate::bed::{Bed, block_on, cx};
use crate::keys::key;
use crate::walk::{Walk, conversation, decision, waiting};

/// One thing that is done to both stores. Numbers choose among the runs, requests and people there are.
#[derive(Debug, Clone)]
enum Act {
    Start {
        person: usize,
        conversation: usize,
        key: Option<u8>,
        terms: u8,
    },
    /// The owner goes on: replies, starts what it may, ends what it started, answers.
    GoOn {
        run: usize,
        next: u8,
    },
    /// The owner goes on from a state that is older than what is stored.
    GoOnStale {
        run: usize,
    },
    Decide {
        person: usize,
        request: usize,
        approve: bool,
    },
    FailGate {
        person: usize,
        request: usize,
    },
    Cancel {
        person: usize,
        run: usize,
        supersede: bool,
    },
    Expire {
        limit: usize,
    },
    Remind {
        limit: usize,
    },
    CloseDue {
        person: usize,
        request: usize,
        release: bool,
    },
    Take {
        person: usize,
        run: usize,
    },
    Release {
        run: usize,
        after: u64,
    },
    Recover {
        limit: usize,
    },
    Remember {
        person: usize,
        key: u8,
        body: u8,
    },
    Wait {
        ms: u64,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let n = 0..8usize;
    prop_oneof![
        3 => (0..3usize, 0..3usize, prop::option::weighted(0.3, 0..2u8), 0..6u8)
            .prop_map(|(person, conversation, key, terms)| Act::Start { person, conversation, key, terms }),
        10 => (n.clone(), 0..4u8).prop_map(|(run, next)| Act::GoOn { run, next }),
        1 => n.clone().prop_map(|run| Act::GoOnStale { run }),
        6 => (0..3usize, n.clone(), any::<bool>())
            .prop_map(|(person, request, approve)| Act::Decide { person, request, approve }),
        1 => (0..3usize, n.clone()).prop_map(|(person, request)| Act::FailGate { person, request }),
        1 => (0..3usize, n.clone(), any::<bool>())
            .prop_map(|(person, run, supersede)| Act::Cancel { person, run, supersede }),
        1 => (0..4usize).prop_map(|limit| Act::Expire { limit }),
        2 => (0..4usize).prop_map(|limit| Act::Remind { limit }),
        2 => (0..3usize, n.clone(), any::<bool>())
            .prop_map(|(person, request, release)| Act::CloseDue { person, request, release }),
        2 => (0..3usize, n.clone()).prop_map(|(person, run)| Act::Take { person, run }),
        1 => (n.clone(), 0..50u64).prop_map(|(run, after)| Act::Release { run, after }),
        1 => (0..3usize).prop_map(|limit| Act::Recover { limit }),
        1 => (0..3usize, 0..3u8, 0..2u8).prop_map(|(person, key, body)| Act::Remember { person, key, body }),
        2 => (0..60u64).prop_map(|ms| Act::Wait { ms }),
    ]
}

/// Ways to wait, by number.
fn settings(terms: u8) -> Settings {
    let rule = |timeout_ms, at_deadline| TermsRule { timeout_ms, at_deadline, ..TermsRule::default() };
    let leads = || Some(vec![GroupName::new("leads").unwrap()]);
    waiting(match terms {
        0 => TermsRule::default(),
        1 => rule(Some(40), None),
        2 => TermsRule { escalate_to: leads(), ..rule(Some(60), Some(AtDeadline::Deny)) },
        3 => TermsRule { escalate_to: leads(), approvers: leads(), ..rule(Some(30), Some(AtDeadline::Wait)) },
        4 => TermsRule { remind_every_ms: Some(0), ..rule(None, Some(AtDeadline::Wait)) },
        _ => rule(Some(50), Some(AtDeadline::Preset("night".into()))),
    })
}

fn people() -> [Context; 3] {
    [cx("acme", "ana"), cx("acme", "bo"), cx("other", "ana")]
}

struct Both {
    memory: Bed,
    durable: Bed,
    /// Every run that was started in both, and whose it is.
    runs: Vec<(Context, RunId, Settings)>,
    requests: Vec<RequestId>,
}

impl Both {
    fn run(&self, n: usize) -> Option<&(Context, RunId, Settings)> {
        self.runs.get(n % self.runs.len().max(1))
    }

    fn request(&self, n: usize) -> RequestId {
        let unknown = RequestId(uuid::Uuid::from_u128(1));
        self.requests.get(n % self.requests.len().max(1)).copied().unwrap_or(unknown)
    }

    async fn act(&mut self, act: Act) {
        let (memory, durable) = (Arc::clone(&self.memory.store), Arc::clone(&self.durable.store));
        match act {
            Act::Start { person, conversation, key: number, terms } => {
                let cx = people()[person].clone();
                let settings = settings(terms);
                let mut walk = Walk::unborn(&self.memory, &cx, &format!("conversation-{conversation}"));
                let key = number.map(|n| key(&format!("start-{n}"), "body"));
                let start = StartRun { key, ..walk.first().await };
                let a = memory.start(&cx, start.clone()).await;
                let b = durable.start(&cx, start).await;
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
                if let Ok(Started::Created { .. }) = a {
                    self.runs.push((cx, walk.id(), settings));
                }
            }
            Act::GoOn { run, next } => {
                let Some((cx, run, settings)) = self.run(run).cloned() else { return };
                let Some(step) = self.next_step(&cx, run, settings, next).await else { return };
                let opened: Vec<_> = step.writes.opened.iter().map(|opened| opened.request).collect();
                let a = memory.commit(&cx, &step).await;
                let b = durable.commit(&cx, &step).await;
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
                if let Ok(Committed::Done { .. }) = a {
                    self.requests.extend(opened);
                }
            }
            Act::GoOnStale { run } => {
                let Some((cx, run, settings)) = self.run(run).cloned() else { return };
                let Some(mut step) = self.next_step(&cx, run, settings, 0).await else { return };
                step.epoch = step.epoch.saturating_sub(1);
                let a = memory.commit(&cx, &step).await;
                let b = durable.commit(&cx, &step).await;
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::Decide { person, request, approve } => {
                let cx = people()[person].clone();
                let word = if approve { DecisionWord::Approve } else { DecisionWord::Decline };
                let decide = decision(self.request(request), word, cx.actor.as_str());
                let a = memory.decide(&cx, decide.clone()).await.unwrap();
                let b = durable.decide(&cx, decide).await.unwrap();
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::FailGate { person, request } => {
                let (cx, requests) = (people()[person].clone(), [self.request(request)]);
                let a = memory.fail_gate(&cx, &requests).await.unwrap();
                let b = durable.fail_gate(&cx, &requests).await.unwrap();
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::Cancel { person, run, supersede } => {
                let Some((_, run, _)) = self.run(run).cloned() else { return };
                let cx = people()[person].clone();
                let kind = if supersede { CancelKind::Supersede } else { CancelKind::Cancel };
                let a = memory.cancel(&cx, run, kind).await.unwrap();
                let b = durable.cancel(&cx, run, kind).await.unwrap();
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::Expire { limit } => {
                let a = memory.expire_due(limit).await.unwrap();
                let b = durable.expire_due(limit).await.unwrap();
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::Remind { limit } => {
                let a = memory.remind_due(limit).await.unwrap();
                let b = durable.remind_due(limit).await.unwrap();
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::CloseDue { person, request, release } => {
                let (cx, request) = (people()[person].clone(), self.request(request));
                let release = release.then(|| crate::terms::release("night"));
                let a = memory.close_due(&cx, request, release.clone()).await.unwrap();
                let b = durable.close_due(&cx, request, release).await.unwrap();
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::Take { person, run } => {
                let Some((_, run, _)) = self.run(run).cloned() else { return };
                let cx = people()[person].clone();
                let a = memory.take(&cx, run).await.unwrap();
                let b = durable.take(&cx, run).await.unwrap();
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::Release { run, after } => {
                let Some((cx, run, _)) = self.run(run).cloned() else { return };
                let Some(loaded) = memory.load(&cx, run).await.unwrap() else { return };
                memory.release(&cx, run, loaded.epoch, after).await.unwrap();
                durable.release(&cx, run, loaded.epoch, after).await.unwrap();
            }
            Act::Recover { limit } => {
                let a = memory.recover(limit).await.unwrap();
                let b = durable.recover(limit).await.unwrap();
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
            Act::Remember { person, key: number, body } => {
                let (cx, key) =
                    (people()[person].clone(), key(&format!("start-{number}"), &format!("body-{body}")));
                assert_eq!(
                    memory.remember(&cx, &key).await.unwrap(),
                    durable.remember(&cx, &key).await.unwrap()
                );
            }
            Act::Wait { ms } => {
                self.memory.clock.advance_ms(ms);
                self.durable.clock.advance_ms(ms);
            }
        }
    }

    /// What a runtime would do next for a run, made from what is stored.
    async fn next_step(
        &self,
        cx: &Context,
        run: RunId,
        settings: Settings,
        next: u8,
    ) -> Option<Step<'static>> {
        use holdpoint_core::run::{Stage, Standing};
        let loaded = self.memory.store.load(cx, run).await.unwrap()?;
        if let Stage::Finished(_) | Stage::Failed = loaded.run.stage() {
            return None;
        }
        let had_facts = !loaded.facts.is_empty();
        let (mut walk, mut changes) = Walk::resumed(&self.memory.store, cx, run).await;
        walk.settings = settings;
        if !had_facts {
            changes = walk.go_on().await?;
        }
        let next = match walk.run.standing() {
            Standing::Finished | Standing::Failed => Next::End,
            Standing::Suspended | Standing::SetAside => Next::Suspend,
            Standing::Working | Standing::Cancelling if next == 3 => Next::Later(20),
            Standing::Working | Standing::Cancelling => Next::Keep,
        };
        Some(walk.made(changes, next))
    }

    async fn compare(&self) {
        let (memory, durable) = (&self.memory.store, &self.durable.store);
        assert_eq!(memory.next_deadline().await.unwrap(), durable.next_deadline().await.unwrap());
        let (a, b) = (memory.stats().await.unwrap(), durable.stats().await.unwrap());
        assert_eq!((a.pending, a.oldest_pending, a.running), (b.pending, b.oldest_pending, b.running));
        assert_eq!(a.overdue, b.overdue);
        let (mut a, mut b) =
            (memory.presets_due(100).await.unwrap(), durable.presets_due(100).await.unwrap());
        a.sort_by_key(|due| due.request);
        b.sort_by_key(|due| due.request);
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        for (cx, run, _) in &self.runs {
            let (a, b) = (memory.load(cx, *run).await.unwrap(), durable.load(cx, *run).await.unwrap());
            assert_eq!(format!("{a:?}"), format!("{b:?}"));
            let (a, b) = (memory.run(cx, *run).await.unwrap(), durable.run(cx, *run).await.unwrap());
            assert_eq!(format!("{a:?}"), format!("{b:?}"));
            let (a, b) = (
                memory.events(cx, *run, 0, 1_000).await.unwrap(),
                durable.events(cx, *run, 0, 1_000).await.unwrap(),
            );
            assert_eq!(a, b);
            assert_eq!(
                memory.audit(cx, *run, 0, 1_000).await.unwrap(),
                durable.audit(cx, *run, 0, 1_000).await.unwrap()
            );
            assert_eq!(memory.verify(cx, *run).await.unwrap(), durable.verify(cx, *run).await.unwrap());
            for n in 0..3 {
                let conversation = conversation(&format!("conversation-{n}"));
                for after in [None, Some(0), Some(1)] {
                    let a = memory.history(cx, &conversation, *run, after).await.unwrap();
                    let b = durable.history(cx, &conversation, *run, after).await.unwrap();
                    assert_eq!(format!("{a:?}"), format!("{b:?}"));
                }
            }
        }
        for cx in people() {
            for status in [None, Some(InteractionStatus::Pending), Some(InteractionStatus::Decided)] {
                let filter = InteractionFilter { status, ..Default::default() };
                let page = PageRequest { cursor: None, limit: 3 };
                let a = memory.interactions(&cx, &filter, &page).await.unwrap();
                let b = durable.interactions(&cx, &filter, &page).await.unwrap();
                assert_eq!(format!("{:?}", a.items), format!("{:?}", b.items));
            }
            let page = PageRequest { cursor: None, limit: 3 };
            let a = memory.runs(&cx, &RunFilter::default(), &page).await.unwrap();
            let b = durable.runs(&cx, &RunFilter::default(), &page).await.unwrap();
            assert_eq!(format!("{a:?}"), format!("{b:?}"));
        }
    }
}

impl Walk {
    /// One step of the owner, whatever the run waits for. `None` when it waits for a person.
    async fn go_on(&mut self) -> Option<holdpoint_core::run::Changes> {
        use holdpoint_core::message::{AssistantItem, AssistantMessage};
        use holdpoint_core::run::{Input, Replied, ReplyEnd, Stage};
        match self.run.stage() {
            Stage::Asking if self.run.round() < 3 => Some(self.proposed().await),
            Stage::Asking => {
                let items = vec![AssistantItem::Text("done".into())];
                let message = AssistantMessage { items, ..AssistantMessage::default() };
                let reply = Replied {
                    message,
                    end: ReplyEnd::Complete,
                    input_tokens: 1,
                    output_tokens: 1,
                    cost_micro_dollars: None,
                    other_choices: (0, false),
                };
                Some(self.step(vec![Input::Replied { round: self.run.round(), reply }]).await)
            }
            Stage::Answering => {
                for index in 0..3 {
                    for what in [Ready::Check, Ready::Finish] {
                        let mut tried = self.copy();
                        if let Some(changes) = tried.attempt(index, what).await {
                            *self = tried;
                            return Some(changes);
                        }
                    }
                }
                None
            }
            Stage::New | Stage::Ruling | Stage::Finished(_) | Stage::Failed => None,
        }
    }

    /// A check or an end of a call, if the run machine takes it.
    async fn attempt(&mut self, index: u32, what: Ready) -> Option<holdpoint_core::run::Changes> {
        use holdpoint_core::run::{Changes, Cx};
        let input = match what {
            Ready::Check => self.check_of(index),
            Ready::Finish => Self::finish_of(index, "result"),
        };
        let now = self.store.now().await.unwrap();
        let mut changes = Changes::default();
        let mut fresh = || RequestId(uuid::Uuid::new_v4());
        let mut cx = Cx { now, settings: &self.settings, fresh: &mut fresh };
        self.run.step(&mut self.open, input, &mut cx, &mut changes).ok().map(|_| changes)
    }
}

enum Ready {
    Check,
    Finish,
}

async fn compare(durable: Bed, acts: Vec<Act>) {
    let memory = Bed::memory(u64::MAX);
    let mut both = Both { memory, durable, runs: Vec::new(), requests: Vec::new() };
    for act in acts {
        both.act(act).await;
    }
    both.compare().await;
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(48))]

    #[test]
    fn sqlite_says_and_holds_what_the_model_does(acts in prop::collection::vec(act(), 1..60)) {
        block_on(compare(Bed::sqlite(u64::MAX), acts));
    }
}

#[cfg(feature = "postgres")]
proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn postgres_says_and_holds_what_the_model_does(acts in prop::collection::vec(act(), 1..60)) {
        block_on(async { compare(Bed::postgres(u64::MAX).await, acts).await });
    }
}
