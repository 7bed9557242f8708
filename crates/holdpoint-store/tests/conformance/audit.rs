//! The audit chain.

use holdpoint_store::ChainCheck;

use crate::bed::{Bed, ana, conformance, cx};
use crate::walk::Walk;

conformance!(every_change_is_on_record_in_a_chain_that_is_whole, a_chain_is_read_from_any_place);

async fn every_change_is_on_record_in_a_chain_that_is_whole(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await.decided_to_the_end().await;
    let rows = bed.store.audit(&ana(), walk.id(), 0, 1_000).await.unwrap();
    let kinds: Vec<String> = rows
        .iter()
        .map(|row| {
            serde_json::from_str::<serde_json::Value>(&row.record).unwrap()["kind"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        kinds.join(" "),
        "run_started request_opened request_opened execution_started call_settled decision decision call_settled \
         execution_started call_settled run_ended"
    );
    let whole = ChainCheck::Whole { records: rows.len() as u64 };
    assert_eq!(bed.store.verify(&ana(), walk.id()).await.unwrap(), Some(whole));
    assert_eq!(bed.store.verify(&cx("other", "ana"), walk.id()).await.unwrap(), None);
    assert!(bed.store.audit(&cx("other", "ana"), walk.id(), 0, 10).await.unwrap().is_empty());
}

async fn a_chain_is_read_from_any_place(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let all = bed.store.audit(&ana(), walk.id(), 0, 1_000).await.unwrap();
    assert!(all.iter().zip(1..).all(|(row, n)| row.n == n && row.run_id == walk.id()));
    for after in 0..=all.len() {
        let rows = bed.store.audit(&ana(), walk.id(), after as u64, 2).await.unwrap();
        assert_eq!(rows, all[after..].iter().take(2).cloned().collect::<Vec<_>>());
    }
}
