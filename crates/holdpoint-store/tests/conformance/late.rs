//! A decision that was in time when it was judged and is late when it is written: the clock that counts is the database's, at the
//! moment of the write.

use std::time::Duration;

use holdpoint_protocol::{DecisionWord, InteractionStatus};
use holdpoint_store::{DecideReply, PostgresOptions, PostgresStore};

use crate::bed::{Bed, ana, block_on, clock};
use crate::cluster::database;
use crate::walk::{Walk, decision, expiring};

const TIMEOUT_MS: u64 = 1_500;

#[test]
fn a_decision_that_waits_for_a_lock_until_its_deadline_has_passed_does_not_count() {
    block_on(async {
        let database = database().await;
        // By the database's own clock: it cannot be stopped, and need not be.
        let store = PostgresStore::connect(&database.url, PostgresOptions::default()).await.unwrap();
        let bed = Bed::of(store, clock());
        let walk = Walk::suspended_with(&bed, &ana(), "job", expiring(TIMEOUT_MS)).await;
        let request = walk.requests()[0];

        let mut holder = database.client().await;
        let lock = holder.transaction().await.unwrap();
        let sql = "SELECT 1 FROM request WHERE request_id = $1 FOR UPDATE";
        lock.query_one(sql, &[&request.0]).await.unwrap();
        let store = bed.store.clone();
        let deciding = tokio::spawn(async move {
            store.decide(&ana(), decision(request, DecisionWord::Approve, "ana")).await
        });
        tokio::time::sleep(Duration::from_millis(TIMEOUT_MS + 200)).await;
        assert!(!deciding.is_finished(), "it waits for the lock");
        lock.rollback().await.unwrap();

        let late = deciding.await.unwrap().unwrap();
        assert!(matches!(late, DecideReply::Expired), "{late:?}");
        let expired = bed.store.expire_due(10).await.unwrap();
        assert_eq!(expired.len(), 2);
        let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
        assert_eq!(shown.status, InteractionStatus::Expired);
    });
}
