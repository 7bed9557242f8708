//! What those who watch ask for.

use holdpoint_protocol::{DecisionWord, RunId, TenantId};
use holdpoint_store::Known;

use crate::bed::{Bed, ana, conformance, cx};
use crate::walk::{Walk, decide};

conformance!(
    runs_that_have_moved_are_told_from_those_that_have_not,
    the_newest_requests_that_wait_come_first,
);

async fn runs_that_have_moved_are_told_from_those_that_have_not(bed: Bed) {
    let mut walks = Vec::new();
    for n in 0..4 {
        walks.push(Walk::suspended(&bed, &ana(), &format!("job-{n}")).await);
    }
    let mut known = Vec::new();
    for walk in &walks {
        let last = bed.store.events(&ana(), walk.id(), 0, 1_000).await.unwrap().unwrap().len() as u64;
        known.push(Known { tenant: ana().tenant, run: walk.id(), last });
    }
    assert_eq!(bed.store.moved(&known).await.unwrap(), []);
    assert_eq!(bed.store.moved(&[]).await.unwrap(), []);

    decide(&bed.store, &ana(), walks[1].requests()[0], DecisionWord::Decline).await;
    let later = Known { last: known[2].last - 1, ..known[2].clone() };
    let elsewhere = Known { tenant: TenantId::new("other").unwrap(), last: 0, ..known[3].clone() };
    let nowhere = Known { tenant: TenantId::new("nobody").unwrap(), last: 0, ..known[3].clone() };
    let unknown = Known { run: RunId(uuid::Uuid::now_v7()), last: 0, ..known[3].clone() };
    Walk::started(&bed, &cx("other", "ana"), "job").await;
    let asked = [known[0].clone(), known[1].clone(), later, known[3].clone(), elsewhere, nowhere, unknown];
    let mut moved = bed.store.moved(&asked).await.unwrap();
    moved.sort();
    let mut expected = vec![walks[1].id(), walks[2].id()];
    expected.sort();
    assert_eq!(moved, expected);
}

async fn the_newest_requests_that_wait_come_first(bed: Bed) {
    assert_eq!(bed.store.newest_pending(&ana(), 10).await.unwrap(), []);
    let mut opened = Vec::new();
    for n in 0..4 {
        let requests = Walk::suspended(&bed, &ana(), &format!("job-{n}")).await.requests();
        Walk::suspended(&bed, &cx("other", "ana"), &format!("job-{n}")).await;
        opened.extend(requests);
        bed.clock.advance_ms(1);
    }
    decide(&bed.store, &ana(), opened[5], DecisionWord::Decline).await;
    let mut expected: Vec<_> = opened.iter().copied().filter(|id| *id != opened[5]).collect();
    expected.reverse();
    for limit in [0, 1, 3, 7, 100] {
        let newest = bed.store.newest_pending(&ana(), limit).await.unwrap();
        let ids: Vec<_> = newest.iter().map(|(_, id)| *id).collect();
        assert_eq!(ids, expected[..limit.min(expected.len())], "{limit}");
        assert!(newest.windows(2).all(|two| two[0].0 >= two[1].0));
    }
}
