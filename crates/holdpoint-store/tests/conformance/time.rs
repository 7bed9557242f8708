//! Deadlines: exactly one of decided and expired.

use std::sync::Arc;

use holdpoint_core::decision::Fact;
use holdpoint_core::run::Settings;
use holdpoint_protocol::{DecisionWord, EventBody, InteractionStatus, Via};
use holdpoint_store::{DecideReply, Owner};

use crate::bed::{Bed, ana, conformance};
use crate::walk::{Walk, decision, expiring, facts};

conformance!(
    a_request_expires_at_its_deadline_and_not_before,
    a_decision_at_the_deadline_is_late,
    a_late_decision_is_refused_and_on_record,
    exactly_one_of_decided_and_expired_in_the_same_millisecond,
    what_is_due_is_expired_in_batches,
    a_request_without_a_deadline_waits_for_ever,
);

const TIMEOUT_MS: u64 = 1_000;

fn settings() -> Settings {
    expiring(TIMEOUT_MS)
}

async fn a_request_expires_at_its_deadline_and_not_before(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", settings()).await;
    let deadline = bed.store.next_deadline().await.unwrap().unwrap();
    assert_eq!(
        deadline.as_millisecond(),
        bed.store.now().await.unwrap().as_millisecond() + TIMEOUT_MS as i64
    );
    bed.clock.advance_ms(TIMEOUT_MS - 1);
    assert!(bed.store.expire_due(10).await.unwrap().is_empty());
    bed.clock.advance_ms(1);
    let noted = bed.store.expire_due(10).await.unwrap();
    let owners: Vec<_> = noted.iter().map(|noted| noted.owner).collect();
    assert_eq!(owners, [Owner::Taken, Owner::Here]);
    for noted in &noted {
        let EventBody::Decision(said) = &noted.event.body else { panic!("{:?}", noted.event) };
        assert_eq!((said.decision.as_str(), said.by.via, &said.by.actor), ("expired", Via::Timeout, &None));
    }
    let found = facts(&bed.store, &ana(), walk.id()).await;
    assert!(matches!(found[..], [Fact::Expired { .. }, Fact::Expired { .. }]), "{found:?}");
    for request in walk.requests() {
        let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
        assert_eq!(shown.status, InteractionStatus::Expired);
    }
    assert_eq!(bed.store.next_deadline().await.unwrap(), None);
    assert!(bed.store.expire_due(10).await.unwrap().is_empty());
}

async fn a_decision_at_the_deadline_is_late(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", settings()).await;
    let requests = walk.requests();
    bed.clock.advance_ms(TIMEOUT_MS - 1);
    let last = bed.store.decide(&ana(), decision(requests[0], DecisionWord::Approve, "ana")).await.unwrap();
    assert!(matches!(last, DecideReply::Taken { .. }), "{last:?}");
    bed.clock.advance_ms(1);
    let late = bed.store.decide(&ana(), decision(requests[1], DecisionWord::Approve, "ana")).await.unwrap();
    assert!(matches!(late, DecideReply::Expired), "{late:?}");
    // The sweeper notes the expiry, and of the other one finds nothing to expire.
    assert_eq!(bed.store.expire_due(10).await.unwrap().len(), 1);
    assert_eq!(
        bed.store.interaction(&ana(), requests[0]).await.unwrap().unwrap().status,
        InteractionStatus::Decided
    );
}

async fn a_late_decision_is_refused_and_on_record(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", settings()).await;
    bed.clock.advance_ms(TIMEOUT_MS);
    for swept in [false, true] {
        if swept {
            bed.store.expire_due(10).await.unwrap();
        }
        let before = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap().len();
        let late = bed
            .store
            .decide(&ana(), decision(walk.requests()[0], DecisionWord::Approve, "bo"))
            .await
            .unwrap();
        assert!(matches!(late, DecideReply::Expired), "{late:?}");
        let chain = bed.store.audit(&ana(), walk.id(), before as u64, 100).await.unwrap();
        assert_eq!(chain.len(), 1);
        assert!(chain[0].record.contains("late_decision") && chain[0].record.contains("\"bo\""), "{chain:?}");
    }
    let found = facts(&bed.store, &ana(), walk.id()).await;
    assert!(found.iter().all(|fact| matches!(fact, Fact::Expired { .. })), "{found:?}");
}

async fn exactly_one_of_decided_and_expired_in_the_same_millisecond(bed: Bed) {
    for round in 0..8 {
        let walk = Walk::suspended_with(&bed, &ana(), &format!("job-{round}"), settings()).await;
        let requests = walk.requests();
        bed.clock.advance_ms(TIMEOUT_MS - 1);
        let clock = Arc::clone(&bed.clock);
        let (store, sweeper) = (Arc::clone(&bed.store), Arc::clone(&bed.store));
        let decide = tokio::spawn(async move {
            let mut taken = Vec::new();
            for request in requests {
                let reply =
                    store.decide(&ana(), decision(request, DecisionWord::Approve, "ana")).await.unwrap();
                match reply {
                    DecideReply::Taken { .. } => taken.push(request),
                    DecideReply::Expired => {}
                    other => panic!("{other:?}"),
                }
            }
            taken
        });
        let expire = tokio::spawn(async move {
            clock.advance_ms(1);
            sweeper.expire_due(10).await.unwrap()
        });
        let (taken, expired) = (decide.await.unwrap(), expire.await.unwrap());
        assert_eq!(taken.len() + expired.len(), 2, "round {round}");
        let found = facts(&bed.store, &ana(), walk.id()).await;
        for fact in &found {
            match fact {
                Fact::Decided { request, .. } => assert!(taken.contains(request), "round {round}"),
                Fact::Expired { request } => assert!(!taken.contains(request), "round {round}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(found.len(), 2);
    }
}

async fn what_is_due_is_expired_in_batches(bed: Bed) {
    for n in 0..3 {
        Walk::suspended_with(&bed, &ana(), &format!("job-{n}"), settings()).await;
    }
    bed.clock.advance_ms(TIMEOUT_MS);
    let mut batches = Vec::new();
    loop {
        let noted = bed.store.expire_due(4).await.unwrap();
        if noted.is_empty() {
            break;
        }
        batches.push(noted.len());
    }
    assert_eq!(batches, [4, 2]);
}

async fn a_request_without_a_deadline_waits_for_ever(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    assert_eq!(bed.store.next_deadline().await.unwrap(), None);
    bed.clock.advance_ms(10 * 365 * 86_400_000);
    assert!(bed.store.expire_due(10).await.unwrap().is_empty());
    let reply =
        bed.store.decide(&ana(), decision(walk.requests()[0], DecisionWord::Approve, "ana")).await.unwrap();
    assert!(matches!(reply, DecideReply::Taken { .. }), "{reply:?}");
}
