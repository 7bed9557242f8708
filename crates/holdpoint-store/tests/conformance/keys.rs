//! Idempotency keys.

use holdpoint_store::{IdempotencyKey, KEY_RESERVED_MS, KeyUse, StoredAnswer};

use crate::bed::{Bed, ana, conformance, cx};

conformance!(
    a_key_gets_the_first_answer_for_ever,
    a_key_with_another_body_is_refused,
    a_key_is_its_tenants_and_its_actors_own,
    a_reservation_that_nobody_answered_runs_out,
);

pub fn key(key: &str, body: &str) -> IdempotencyKey {
    IdempotencyKey { scope: "POST /chat".into(), key: key.into(), body_digest: body.into() }
}

fn answer(status: u16, body: &str) -> StoredAnswer {
    StoredAnswer { status, body: body.into() }
}

async fn a_key_gets_the_first_answer_for_ever(bed: Bed) {
    let key = key("k", "body");
    assert_eq!(bed.store.remember(&ana(), &key).await.unwrap(), KeyUse::New);
    assert_eq!(bed.store.remember(&ana(), &key).await.unwrap(), KeyUse::Pending);
    bed.store.answer(&ana(), &key, &answer(200, "{}")).await.unwrap();
    bed.store.answer(&ana(), &key, &answer(500, "later")).await.unwrap();
    for wait in [0, KEY_RESERVED_MS, 86_400_000] {
        bed.clock.advance_ms(wait);
        assert_eq!(bed.store.remember(&ana(), &key).await.unwrap(), KeyUse::Answered(answer(200, "{}")));
    }
    let elsewhere = IdempotencyKey { scope: "POST /other".into(), ..key };
    assert_eq!(bed.store.remember(&ana(), &elsewhere).await.unwrap(), KeyUse::New);
}

async fn a_key_with_another_body_is_refused(bed: Bed) {
    bed.store.remember(&ana(), &key("k", "body")).await.unwrap();
    assert_eq!(bed.store.remember(&ana(), &key("k", "other")).await.unwrap(), KeyUse::Reused);
    bed.store.answer(&ana(), &key("k", "other"), &answer(200, "wrong")).await.unwrap();
    assert_eq!(bed.store.remember(&ana(), &key("k", "body")).await.unwrap(), KeyUse::Pending);
    bed.store.answer(&ana(), &key("k", "body"), &answer(200, "right")).await.unwrap();
    assert_eq!(bed.store.remember(&ana(), &key("k", "other")).await.unwrap(), KeyUse::Reused);
}

async fn a_key_is_its_tenants_and_its_actors_own(bed: Bed) {
    bed.store.remember(&ana(), &key("k", "body")).await.unwrap();
    for cx in [cx("acme", "bo"), cx("other", "ana")] {
        assert_eq!(bed.store.started_with(&cx, &key("k", "other")).await.unwrap(), KeyUse::New);
        assert_eq!(bed.store.remember(&cx, &key("k", "other")).await.unwrap(), KeyUse::New);
    }
}

async fn a_reservation_that_nobody_answered_runs_out(bed: Bed) {
    bed.store.remember(&ana(), &key("k", "body")).await.unwrap();
    bed.clock.advance_ms(KEY_RESERVED_MS - 1);
    assert_eq!(bed.store.remember(&ana(), &key("k", "body")).await.unwrap(), KeyUse::Pending);
    bed.clock.advance_ms(1);
    assert_eq!(bed.store.remember(&ana(), &key("k", "body")).await.unwrap(), KeyUse::New);
    assert_eq!(bed.store.remember(&ana(), &key("k", "body")).await.unwrap(), KeyUse::Pending);
}
