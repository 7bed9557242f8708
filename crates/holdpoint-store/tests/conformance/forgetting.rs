//! The store in memory does not grow with the runs that have ended.

use std::sync::Arc;

use holdpoint_store::{ENDED_KEPT, MemoryStore, Next};

use crate::bed::{Bed, ana, block_on, clock};
use crate::walk::Walk;

fn bed(keep: Option<usize>) -> Bed {
    let clock = clock();
    let store = MemoryStore::new(clock.clone());
    let store = match keep {
        Some(keep) => store.forget_finished(keep),
        None => store,
    };
    Bed::of(Arc::new(store), clock)
}

async fn ended(bed: &Bed, name: &str) -> Walk {
    Walk::suspended(bed, &ana(), name).await.decided_to_the_end().await
}

#[test]
fn of_the_runs_that_ended_the_newest_are_kept_and_what_waits_stays() {
    block_on(async {
        let bed = bed(Some(2));
        let waiting = Walk::suspended(&bed, &ana(), "waiting").await;
        let mut all = Vec::new();
        for n in 0..5 {
            all.push(ended(&bed, &format!("c{n}")).await.id());
        }
        for (n, run) in all.iter().enumerate() {
            let kept = bed.store.run(&ana(), *run).await.unwrap().is_some();
            assert_eq!(kept, n >= 3, "run {n}");
        }
        assert!(bed.store.run(&ana(), waiting.id()).await.unwrap().is_some());
        assert!(bed.store.request(&ana(), waiting.requests()[0]).await.unwrap().is_some());
    });
}

#[test]
fn without_a_word_about_it_the_number_is_bounded() {
    block_on(async {
        let bed = bed(None);
        let first = ended(&bed, "first").await.id();
        for n in 1..ENDED_KEPT {
            let mut walk = Walk::unborn(&bed, &ana(), &format!("c{n}"));
            let start = walk.first().await;
            bed.store.start(&ana(), holdpoint_store::StartRun { next: Next::End, ..start }).await.unwrap();
        }
        assert!(bed.store.run(&ana(), first).await.unwrap().is_some());
        ended(&bed, "last").await;
        assert!(bed.store.run(&ana(), first).await.unwrap().is_none());
    });
}
