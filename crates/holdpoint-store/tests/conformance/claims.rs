//! Who owns a run.

use holdpoint_protocol::{DecisionWord, RunId};
use holdpoint_store::{Committed, Next};

use crate::bed::{Bed, ana, conformance, cx};
use crate::walk::{Walk, decide};

conformance!(
    a_suspended_run_is_nobodys_and_can_be_taken,
    a_run_is_taken_once,
    a_run_put_off_is_found_when_its_time_has_come,
    a_run_given_back_keeps_its_facts,
    a_waiting_run_is_no_work,
    a_closed_store_takes_nothing_more,
    an_instance_knows_what_it_owns,
);

async fn a_suspended_run_is_nobodys_and_can_be_taken(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    assert!(bed.store.take(&cx("other", "ana"), walk.id()).await.unwrap().is_none());
    assert!(bed.store.take(&ana(), RunId(uuid::Uuid::now_v7())).await.unwrap().is_none());
    let taken = bed.store.take(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(taken.epoch, 2);
    // Owned by an instance that lives - this one - it cannot be taken again.
    assert!(bed.store.take(&ana(), walk.id()).await.unwrap().is_none());
    let ended = Walk::suspended(&bed, &ana(), "other").await.decided_to_the_end().await;
    assert!(bed.store.take(&ana(), ended.id()).await.unwrap().is_none());
}

async fn a_run_is_taken_once(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let tries: Vec<_> = (0..16)
        .map(|_| {
            let (store, run) = (std::sync::Arc::clone(&bed.store), walk.id());
            tokio::spawn(async move { store.take(&ana(), run).await.unwrap().is_some() })
        })
        .collect();
    let mut taken = 0;
    for tried in tries {
        taken += u32::from(tried.await.unwrap());
    }
    assert_eq!(taken, 1);
}

async fn a_run_put_off_is_found_when_its_time_has_come(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let changes = walk.proposed().await;
    walk.stored(changes, Next::Later(500)).await;
    bed.clock.advance_ms(499);
    assert!(bed.store.recover(10).await.unwrap().is_empty());
    bed.clock.advance_ms(1);
    assert!(bed.store.recover(0).await.unwrap().is_empty());
    let taken = bed.store.recover(10).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].run, taken[0].crashed, &taken[0].cx), (walk.id(), false, &ana()));
    assert!(bed.store.recover(10).await.unwrap().is_empty());
    let (again, _) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    assert_eq!(again.epoch, 2);
}

async fn a_run_given_back_keeps_its_facts(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    decide(&bed.store, &ana(), walk.requests()[0], DecisionWord::Approve).await;
    for epoch in [1, 3] {
        bed.store.release(&ana(), walk.id(), epoch, 0).await.unwrap();
        assert!(bed.store.recover(10).await.unwrap().is_empty(), "not owned at epoch {epoch}");
    }
    bed.store.release(&cx("other", "ana"), walk.id(), 2, 0).await.unwrap();
    assert!(bed.store.recover(10).await.unwrap().is_empty());
    bed.store.release(&ana(), walk.id(), 2, 100).await.unwrap();
    assert!(bed.store.recover(10).await.unwrap().is_empty());
    bed.clock.advance_ms(100);
    assert_eq!(bed.store.recover(10).await.unwrap().len(), 1);
    let (mut again, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    assert_eq!((again.epoch, again.requests().len()), (3, 1));
    let step = again.made(changes, Next::Suspend);
    assert!(matches!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Done { .. }));
    again.run.add_active_ms(1);
}

async fn a_waiting_run_is_no_work(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    bed.clock.advance_ms(86_400_000);
    assert!(bed.store.recover(10).await.unwrap().is_empty());
    let stats = bed.store.stats().await.unwrap();
    assert_eq!((stats.pending, stats.running, stats.quarantined), (2, 0, 0));
    assert!(stats.oldest_pending.is_some() && stats.commits > 0 && stats.operations >= stats.commits);
    decide(&bed.store, &ana(), walk.requests()[0], DecisionWord::Approve).await;
    let stats = bed.store.stats().await.unwrap();
    assert_eq!((stats.pending, stats.running), (1, 1));
}

async fn a_closed_store_takes_nothing_more(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let changes = walk.proposed().await;
    let step = walk.made(changes, Next::Keep);
    bed.store.close().await.unwrap();
    bed.store.close().await.unwrap();
    let refused = bed.store.commit(&ana(), &step).await;
    assert!(matches!(refused, Err(holdpoint_store::Error::Unavailable(_))), "{refused:?}");
    assert!(bed.store.load(&ana(), walk.id()).await.is_err());
}

async fn an_instance_knows_what_it_owns(bed: Bed) {
    assert!(bed.store.owned(10).await.unwrap().is_empty());
    let walk = Walk::suspended(&bed, &ana(), "waiting").await;
    let started = Walk::started(&bed, &cx("other", "bo"), "working").await;
    let owned = bed.store.owned(10).await.unwrap();
    assert_eq!(owned.len(), 1);
    assert_eq!((owned[0].run, &owned[0].cx, owned[0].crashed), (started.id(), &cx("other", "bo"), false));
    decide(&bed.store, &ana(), walk.requests()[0], DecisionWord::Approve).await;
    assert_eq!(bed.store.owned(10).await.unwrap().len(), 2);
    assert_eq!(bed.store.owned(1).await.unwrap().len(), 1);
}
