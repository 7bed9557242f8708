//! A run that ends every process which carries it on: it is set aside, and an operator says what becomes of it.

use std::sync::Arc;

use holdpoint_core::decision::{CancelKind, Fact};
use holdpoint_core::run::{Changes, Input};
use holdpoint_protocol::{
    By, DecisionWord, Event, EventBody, InteractionKind, InteractionStatus, OnTimeout, RequestId, RunStatus,
    Via,
};
use holdpoint_store::{
    CLAIMS_WITHOUT_PROGRESS_MAX, CancelReply, ChainCheck, Committed, Decide, DecideReply, ManualClock,
    MemoryStore, Next, Owner, SqliteStore, Step, Store,
};

use crate::bed::{Bed, ana, block_on, clock, cx};
#[cfg(feature = "postgres")]
use crate::cluster::{Database, database};
use crate::walk::{Walk, decision};

/// What stays when a process ends.
enum Ground {
    Memory(Arc<MemoryStore>),
    File(tempfile::TempDir),
    #[cfg(feature = "postgres")]
    Postgres(Database),
}

/// Processes, one after the other, on the same ground.
pub struct House {
    ground: Ground,
    clock: Arc<ManualClock>,
    bed: Option<Bed>,
}

impl House {
    fn on(ground: impl FnOnce(&Arc<ManualClock>) -> Ground) -> Self {
        let clock = clock();
        Self { ground: ground(&clock), clock, bed: None }
    }

    async fn all() -> Vec<Self> {
        vec![
            Self::on(|clock| Ground::Memory(Arc::new(MemoryStore::new(clock.clone())))),
            Self::on(|_| Ground::File(tempfile::tempdir().unwrap())),
            #[cfg(feature = "postgres")]
            {
                let database = database().await;
                Self::on(|_| Ground::Postgres(database))
            },
        ]
    }

    /// The process that is there ends, and the next one begins.
    async fn next(&mut self) -> &Bed {
        let before = self.bed.take();
        let store: Arc<dyn Store> = match &self.ground {
            Ground::Memory(store) => {
                store.process_died();
                Arc::clone(store) as Arc<dyn Store>
            }
            Ground::File(dir) => {
                if let Some(bed) = before {
                    bed.store.close().await.unwrap();
                    drop(bed);
                }
                let path = dir.path().join("holdpoint.db");
                Arc::new(SqliteStore::open(path, self.clock.clone()).unwrap())
            }
            #[cfg(feature = "postgres")]
            Ground::Postgres(database) => {
                if let Some(bed) = before {
                    bed.store.close().await.unwrap();
                }
                database.store(u64::MAX, self.clock.clone()).await
            }
        };
        self.bed.insert(Bed::of(store, self.clock.clone()))
    }

    /// Each process takes it up and ends, until nobody is to any more.
    async fn poisoned(&mut self) -> &Bed {
        for _ in 0..CLAIMS_WITHOUT_PROGRESS_MAX {
            let bed = self.next().await;
            assert!(bed.store.set_aside(10).await.unwrap().is_empty());
            let taken = bed.store.recover(10).await.unwrap();
            assert_eq!(taken.len(), 1);
            let loaded = bed.store.load(&ana(), taken[0].run).await.unwrap().unwrap();
            let mut walk = Walk::of(&bed.store, &ana(), loaded);
            walk.run.add_active_ms(1);
            let step = Step { progress: false, ..walk.made(Changes::default(), Next::Keep) };
            assert!(matches!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Done { .. }));
        }
        let bed = self.next().await;
        assert!(bed.store.recover(10).await.unwrap().is_empty(), "nobody takes it up");
        bed
    }

    /// A run with a call that may have run and two that wait for a person, set aside.
    async fn set_aside(&mut self) -> (Arc<dyn Store>, Walk, RequestId) {
        let mut walk = Walk::started(self.next().await, &ana(), "poison").await;
        let changes = walk.proposed().await;
        walk.stored(changes, Next::Keep).await;
        let changes = walk.checked(0).await;
        walk.stored(changes, Next::Keep).await;
        let store = Arc::clone(&self.poisoned().await.store);
        walk.store = Arc::clone(&store);
        let noted = store.set_aside(10).await.unwrap();
        assert_eq!(noted.len(), 1);
        assert_eq!((noted[0].run, noted[0].owner, &noted[0].cx), (walk.id(), Owner::Nobody, &ana()));
        let request = noted[0].event.body.opens().expect("it opens a request");
        (store, walk, request)
    }
}

/// Runs a test on every store.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod each {
            $(#[test]
            fn $name() {
                super::block_on(async {
                    for house in super::House::all().await {
                        super::$name(house).await;
                    }
                });
            })*
        }
    };
}

on_every_store!(
    a_run_that_ends_every_process_asks_an_operator,
    what_happens_to_a_run_set_aside_waits_for_the_operator,
    an_approve_takes_it_up_again_and_counts_anew,
    a_decline_has_it_taken_to_be_ended,
    a_cancel_ends_it_and_closes_the_request,
    a_cancel_that_did_not_end_it_can_be_asked_for_again,
    only_a_person_decides_it,
    of_many_operators_one_counts,
);

async fn a_run_that_ends_every_process_asks_an_operator(mut house: House) {
    let (store, walk, request) = house.set_aside().await;
    assert!(store.set_aside(10).await.unwrap().is_empty(), "once");
    assert!(store.take(&ana(), walk.id()).await.unwrap().is_none(), "nobody's");
    let view = store.run(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(view.status, RunStatus::Quarantined);
    let waits: Vec<_> = view.pending.iter().map(|pending| (pending.kind, pending.call_id)).collect();
    assert_eq!(waits.last(), Some(&(InteractionKind::Quarantine, None)));
    assert_eq!(waits.len(), 3);
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.quarantined, stats.pending, stats.running), (1, 3, 0));

    let shown = store.interaction(&ana(), request).await.unwrap().unwrap();
    assert_eq!((shown.kind, shown.status), (InteractionKind::Quarantine, InteractionStatus::Pending));
    assert_eq!((shown.on_timeout, shown.deadline, shown.next_reminder), (OnTimeout::Wait, None, None));
    let event = Event::from_json(Some(shown.seq), shown.request.get()).unwrap();
    let EventBody::QuarantineRequest(asked) = event.body else { panic!("{event:?}") };
    assert_eq!((asked.request_id, asked.claims), (request, CLAIMS_WITHOUT_PROGRESS_MAX));
    assert_eq!(asked.decisions, [DecisionWord::Approve, DecisionWord::Decline]);
    let calls: Vec<_> = asked.calls.iter().map(|call| (call.tool_name.as_str(), call.attempt)).collect();
    assert_eq!(calls, [("Read", 1)]);
    // It is the last thing that is said of the run, under its number.
    let events = store.events(&ana(), walk.id(), 0, 100).await.unwrap().unwrap();
    assert_eq!((events.last().unwrap().0, &*events.last().unwrap().1), (shown.seq, shown.request.get()));
    assert!((1..).zip(&events).all(|(seq, (found, _))| seq == *found));
    // And on record, in the chain.
    let last = last_record(&store, &walk).await;
    assert_eq!((&last["kind"], &last["request"]), (&"quarantined".into(), &request.to_string().into()));
    assert_eq!(last["digest"], asked.digest);
    whole(&store, &walk).await;
    assert!(store.interaction(&cx("other", "ana"), request).await.unwrap().is_none());
}

async fn what_happens_to_a_run_set_aside_waits_for_the_operator(mut house: House) {
    let (store, walk, request) = house.set_aside().await;
    let others = walk.requests();
    let first = store.decide(&ana(), decision(others[0], DecisionWord::Approve, "ana")).await.unwrap();
    let DecideReply::Taken { noted, .. } = first else { panic!("{first:?}") };
    assert_eq!(noted.owner, Owner::Nobody, "it is stored, and frees nothing");
    let failed = store.fail_gate(&ana(), &[request, others[1]]).await.unwrap();
    assert_eq!(failed.iter().map(|noted| noted.owner).collect::<Vec<_>>(), [Owner::Nobody]);
    let view = store.run(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!((view.status, view.pending.len()), (RunStatus::Quarantined, 1));
    assert!(store.recover(10).await.unwrap().is_empty());
    assert!(store.owned(10).await.unwrap().is_empty());
    // It is not asked about a second time because of it.
    assert!(store.set_aside(10).await.unwrap().is_empty());
    let bed = house.next().await;
    assert!(bed.store.set_aside(10).await.unwrap().is_empty());
    assert!(bed.store.recover(10).await.unwrap().is_empty());
    let facts = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap().facts;
    assert!(
        matches!(&facts[..], [
        Fact::SetAside { request: asked }, Fact::Decided { .. }, Fact::GateError { .. }
    ] if *asked == request),
        "{facts:?}"
    );
    whole(&bed.store, &walk).await;
}

async fn an_approve_takes_it_up_again_and_counts_anew(mut house: House) {
    let (store, walk, request) = house.set_aside().await;
    let before = store.load(&ana(), walk.id()).await.unwrap().unwrap();
    let bo = cx("acme", "bo");
    let reply = store.decide(&bo, decision(request, DecisionWord::Approve, "bo")).await.unwrap();
    let DecideReply::Taken { noted, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((noted.owner, noted.cx), (Owner::Taken, ana()));
    let view = store.run(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!((view.status, view.pending.len()), (RunStatus::Running, 2));
    let loaded = store.load(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(loaded.epoch, before.epoch + 1);
    assert!(matches!(
        &loaded.facts[..],
        [Fact::SetAside { .. }, Fact::Decided { decision, .. }] if decision.word == DecisionWord::Approve
    ));
    let last = last_record(&store, &walk).await;
    assert_eq!((&last["kind"], &last["actor"]), (&"decision".into(), &"bo".into()));
    drop(store);
    // As many processes again, and then another request: the poison was not gone.
    let store = Arc::clone(&house.poisoned().await.store);
    let noted = store.set_aside(10).await.unwrap();
    assert_eq!(noted.len(), 1);
    assert_ne!(noted[0].event.body.opens(), Some(request));
    whole(&store, &walk).await;
}

async fn a_decline_has_it_taken_to_be_ended(mut house: House) {
    let (store, walk, request) = house.set_aside().await;
    let reply = store.decide(&ana(), decision(request, DecisionWord::Decline, "bo")).await.unwrap();
    assert!(matches!(&reply, DecideReply::Taken { noted, .. } if noted.owner == Owner::Taken), "{reply:?}");
    ended(&store, &walk).await;
    let view = store.run(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!((view.status, view.pending.len()), (RunStatus::Failed, 0));
    assert_eq!(view.error.unwrap().code, "quarantined");
    for other in walk.requests() {
        let shown = store.interaction(&ana(), other).await.unwrap().unwrap();
        assert_eq!(shown.status, InteractionStatus::Cancelled);
    }
    // Every call is answered once.
    let events = store.events(&ana(), walk.id(), 0, 100).await.unwrap().unwrap();
    let answered = events.iter().filter(|(_, json)| json.contains("\"tool_result\"")).count();
    assert_eq!(answered, 3);
    whole(&store, &walk).await;
}

async fn a_cancel_ends_it_and_closes_the_request(mut house: House) {
    let (store, walk, request) = house.set_aside().await;
    let reply = store.cancel(&cx("acme", "bo"), walk.id(), CancelKind::Cancel).await.unwrap();
    assert!(matches!(&reply, CancelReply::Noted(noted) if noted.owner == Owner::Taken), "{reply:?}");
    let late = store.decide(&ana(), decision(request, DecisionWord::Approve, "ana")).await.unwrap();
    assert!(matches!(late, DecideReply::Conflict { status: InteractionStatus::Cancelled, .. }), "{late:?}");
    ended(&store, &walk).await;
    let view = store.run(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!((view.status, view.pending.len()), (RunStatus::Finished, 0));
    let shown = store.interaction(&ana(), request).await.unwrap().unwrap();
    assert_eq!(shown.status, InteractionStatus::Cancelled);
    assert_eq!(shown.decision.unwrap().by.actor.unwrap().as_str(), "bo");
    whole(&store, &walk).await;
}

/// What ends the processes may be in the cancelling itself.
async fn a_cancel_that_did_not_end_it_can_be_asked_for_again(mut house: House) {
    let walk = Walk::started(house.next().await, &ana(), "poison").await;
    let cancelled = walk.store.cancel(&ana(), walk.id(), CancelKind::Cancel).await.unwrap();
    assert!(matches!(cancelled, CancelReply::Noted(_)));
    let id = walk.id();
    drop(walk);
    for _ in 0..CLAIMS_WITHOUT_PROGRESS_MAX {
        let bed = house.next().await;
        assert_eq!(bed.store.recover(10).await.unwrap().len(), 1);
    }
    house.clock.advance_ms(1);
    let store = Arc::clone(&house.next().await.store);
    assert_eq!(store.set_aside(10).await.unwrap().len(), 1);
    let again = store.cancel(&ana(), id, CancelKind::Cancel).await.unwrap();
    assert!(matches!(&again, CancelReply::Noted(noted) if noted.owner == Owner::Taken), "{again:?}");
    let again = store.cancel(&ana(), id, CancelKind::Cancel).await.unwrap();
    assert!(matches!(again, CancelReply::Repeated), "{again:?}");
}

async fn only_a_person_decides_it(mut house: House) {
    let (store, walk, request) = house.set_aside().await;
    for via in [Via::Handler, Via::Grant, Via::Preset, Via::Bypass, Via::Timeout] {
        let by = By { via, ..crate::walk::by("robot") };
        let decide = Decide { by, ..decision(request, DecisionWord::Approve, "robot") };
        let reply = store.decide(&ana(), decide).await.unwrap();
        assert!(matches!(reply, DecideReply::NotYours), "{via:?}: {reply:?}");
        let last = last_record(&store, &walk).await;
        assert_eq!((&last["kind"], &last["actor"]), (&"refused_decision".into(), &"robot".into()));
    }
    house.clock.advance_ms(365 * 86_400_000);
    assert!(store.expire_due(10).await.unwrap().is_empty());
    assert!(store.presets_due(10).await.unwrap().is_empty());
    assert!(store.remind_due(10).await.unwrap().is_empty());
    assert!(store.close_due(&ana(), request, None).await.unwrap().is_none());
    let shown = store.interaction(&ana(), request).await.unwrap().unwrap();
    assert_eq!(shown.status, InteractionStatus::Pending);
    whole(&store, &walk).await;
}

async fn of_many_operators_one_counts(mut house: House) {
    let (store, walk, request) = house.set_aside().await;
    let tries: Vec<_> = (0..16)
        .map(|n| {
            let store = Arc::clone(&store);
            let word = if n % 2 == 0 { DecisionWord::Approve } else { DecisionWord::Decline };
            tokio::spawn(async move {
                let reply = store.decide(&ana(), decision(request, word, &format!("op-{n}"))).await.unwrap();
                matches!(reply, DecideReply::Taken { .. })
            })
        })
        .collect();
    let mut taken = 0;
    for tried in tries {
        taken += u32::from(tried.await.unwrap());
    }
    assert_eq!(taken, 1);
    whole(&store, &walk).await;
}

/// Whoever has the run now does what there is to be done, which is to end it.
async fn ended(store: &Arc<dyn Store>, walk: &Walk) {
    let loaded = store.load(&ana(), walk.id()).await.unwrap().unwrap();
    let facts = loaded.facts.clone();
    let mut taken = Walk::of(store, &ana(), loaded);
    let changes = taken.step(vec![Input::Recovered { facts }]).await;
    taken.stored(changes, Next::End).await;
}

async fn last_record(store: &Arc<dyn Store>, walk: &Walk) -> serde_json::Value {
    let records = store.audit(&ana(), walk.id(), 0, 1_000).await.unwrap();
    serde_json::from_str(&records.last().unwrap().record).unwrap()
}

async fn whole(store: &Arc<dyn Store>, walk: &Walk) {
    let chain = store.verify(&ana(), walk.id()).await.unwrap();
    assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
}
