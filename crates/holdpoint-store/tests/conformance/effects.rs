//! Effects under business keys.

use holdpoint_protocol::ExecId;
use holdpoint_store::{EffectEnd, EffectKey, EffectUse, RecordedEffect};

use crate::bed::{Bed, ana, conformance, cx};

conformance!(
    a_key_is_reserved_once_and_its_result_is_kept_for_whoever_comes_with_it,
    the_attempts_of_one_execution_share_its_reservation,
    a_reservation_never_runs_out_by_itself,
    a_key_with_other_arguments_is_refused_before_and_after_it_has_a_result,
    an_execution_that_had_no_effect_frees_its_key_and_no_other,
    a_key_is_its_tenants_and_its_tools_own,
    of_many_at_once_one_reserves,
);

fn key(key: &str, exec: u128, arguments: u8) -> EffectKey {
    EffectKey {
        tool: "pay".into(),
        key: key.into(),
        exec: ExecId(uuid::Uuid::from_u128(exec)),
        arguments: [arguments; 32],
    }
}

fn result(text: &str) -> EffectEnd {
    EffectEnd::Recorded(text.into())
}

async fn a_key_is_reserved_once_and_its_result_is_kept_for_whoever_comes_with_it(bed: Bed) {
    let (first, second) = (key("order-7", 1, 0), key("order-7", 2, 0));
    assert_eq!(bed.store.effect(&ana(), &first).await.unwrap(), EffectUse::Free);
    assert_eq!(bed.store.begin_effect(&ana(), &first).await.unwrap(), EffectUse::Free);
    let since = bed.store.now().await.unwrap();
    let unfinished = EffectUse::Unfinished { exec: first.exec, since };
    assert_eq!(bed.store.begin_effect(&ana(), &second).await.unwrap(), unfinished);
    bed.store.end_effect(&ana(), &second, result("not theirs to say")).await.unwrap();
    assert_eq!(bed.store.effect(&ana(), &second).await.unwrap(), unfinished);

    bed.clock.advance_ms(5);
    let at = bed.store.now().await.unwrap();
    bed.store.end_effect(&ana(), &first, result("{\"text\":\"paid \\u0000\"}")).await.unwrap();
    bed.clock.advance_ms(5);
    bed.store.end_effect(&ana(), &first, result("later")).await.unwrap();
    bed.store.end_effect(&ana(), &first, EffectEnd::NoEffect).await.unwrap();
    let recorded = RecordedEffect { exec: first.exec, at, result: "{\"text\":\"paid \\u0000\"}".into() };
    for key in [first, second] {
        assert_eq!(bed.store.effect(&ana(), &key).await.unwrap(), EffectUse::Recorded(recorded.clone()));
        assert_eq!(
            bed.store.begin_effect(&ana(), &key).await.unwrap(),
            EffectUse::Recorded(recorded.clone())
        );
    }
}

async fn the_attempts_of_one_execution_share_its_reservation(bed: Bed) {
    let key = key("order-7", 1, 0);
    assert_eq!(bed.store.begin_effect(&ana(), &key).await.unwrap(), EffectUse::Free);
    assert_eq!(bed.store.begin_effect(&ana(), &key).await.unwrap(), EffectUse::Mine);
    // A person may have edited the arguments of the attempt that they ordered.
    let edited = EffectKey { arguments: [9; 32], ..key };
    assert_eq!(bed.store.begin_effect(&ana(), &edited).await.unwrap(), EffectUse::Mine);
}

async fn a_reservation_never_runs_out_by_itself(bed: Bed) {
    bed.store.begin_effect(&ana(), &key("order-7", 1, 0)).await.unwrap();
    bed.clock.advance_ms(365 * 86_400_000);
    let other = bed.store.begin_effect(&ana(), &key("order-7", 2, 0)).await.unwrap();
    assert!(matches!(other, EffectUse::Unfinished { .. }), "{other:?}");
}

async fn a_key_with_other_arguments_is_refused_before_and_after_it_has_a_result(bed: Bed) {
    let (first, other) = (key("order-7", 1, 0), key("order-7", 2, 1));
    bed.store.begin_effect(&ana(), &first).await.unwrap();
    let since = bed.store.now().await.unwrap();
    let reused = EffectUse::Reused { exec: first.exec, since };
    assert_eq!(bed.store.begin_effect(&ana(), &other).await.unwrap(), reused);
    bed.store.end_effect(&ana(), &first, result("1")).await.unwrap();
    assert_eq!(bed.store.begin_effect(&ana(), &other).await.unwrap(), reused);
}

async fn an_execution_that_had_no_effect_frees_its_key_and_no_other(bed: Bed) {
    let (first, second) = (key("order-7", 1, 0), key("order-7", 2, 1));
    bed.store.begin_effect(&ana(), &first).await.unwrap();
    bed.store.end_effect(&ana(), &second, EffectEnd::NoEffect).await.unwrap();
    assert_eq!(bed.store.effect(&ana(), &first).await.unwrap(), EffectUse::Mine);
    bed.store.end_effect(&ana(), &first, EffectEnd::NoEffect).await.unwrap();
    assert_eq!(bed.store.begin_effect(&ana(), &second).await.unwrap(), EffectUse::Free);
}

async fn a_key_is_its_tenants_and_its_tools_own(bed: Bed) {
    bed.store.begin_effect(&ana(), &key("order-7", 1, 0)).await.unwrap();
    let elsewhere = EffectKey { tool: "refund".into(), ..key("order-7", 2, 1) };
    assert_eq!(bed.store.begin_effect(&ana(), &elsewhere).await.unwrap(), EffectUse::Free);
    assert_eq!(
        bed.store.begin_effect(&cx("other", "ana"), &key("order-7", 3, 1)).await.unwrap(),
        EffectUse::Free
    );
    // Of one tenant it does not matter who is behind the run.
    let of_bo = bed.store.begin_effect(&cx("acme", "bo"), &key("order-7", 4, 0)).await.unwrap();
    assert!(matches!(of_bo, EffectUse::Unfinished { .. }), "{of_bo:?}");
}

async fn of_many_at_once_one_reserves(bed: Bed) {
    let mut tasks = tokio::task::JoinSet::new();
    for exec in 1..=16 {
        let store = bed.store.clone();
        tasks.spawn(async move { store.begin_effect(&ana(), &key("order-7", exec, 0)).await.unwrap() });
    }
    let uses = tasks.join_all().await;
    assert_eq!(uses.iter().filter(|found| **found == EffectUse::Free).count(), 1, "{uses:?}");
}
