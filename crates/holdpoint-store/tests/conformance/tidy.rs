//! Making room.

use std::time::Duration;

use holdpoint_store::{ChainCheck, KEY_KEPT, KeyUse, RunFilter, StoredAnswer, Tidied};

use crate::bed::{Bed, ana, conformance, cx};
use crate::keys::key;
use crate::walk::{Walk, conversation};

conformance!(
    a_conversation_that_ended_long_ago_goes_with_everything_of_it,
    what_waits_is_kept_however_old_it_is,
    an_old_run_is_kept_as_long_as_its_conversation_goes_on,
    without_a_time_to_keep_no_conversation_goes,
    as_many_go_at_once_as_were_asked_for,
    an_answer_for_a_repeated_request_is_kept_for_a_week,
);

const DAY: Duration = Duration::from_secs(86_400);

/// The clock of the bed moves to this long after what was just made. (Ids begin with the real time, which is not the bed's.)
fn later(bed: &Bed, by: Duration) {
    let real = holdpoint_store::Clock::now(&holdpoint_store::SystemClock::new());
    let ahead = real.as_millisecond() - holdpoint_store::Clock::now(&*bed.clock).as_millisecond();
    bed.clock.advance_ms(u64::try_from(ahead.max(0)).unwrap() + u64::try_from(by.as_millis()).unwrap());
}

async fn a_conversation_that_ended_long_ago_goes_with_everything_of_it(bed: Bed) {
    let first = Walk::suspended(&bed, &ana(), "old").await.decided_to_the_end().await;
    let mut second = Walk::unborn(&bed, &ana(), "old");
    second.try_start(Some(key("k", "body"))).await.unwrap();
    let second = second.until_suspended().await.decided_to_the_end().await;
    let elsewhere = Walk::suspended(&bed, &cx("other", "bo"), "old").await.decided_to_the_end().await;
    later(&bed, 30 * DAY);
    assert_eq!(bed.store.tidy(Some(31 * DAY), 10).await.unwrap(), Tidied::default());

    let tidied = bed.store.tidy(Some(29 * DAY), 10).await.unwrap();
    assert_eq!((tidied.conversations, tidied.runs, tidied.more), (2, 3, false));
    for (cx, walk) in [(ana(), &first), (ana(), &second), (cx("other", "bo"), &elsewhere)] {
        assert!(bed.store.run(&cx, walk.id()).await.unwrap().is_none());
        assert!(bed.store.load(&cx, walk.id()).await.unwrap().is_none());
        assert!(bed.store.events(&cx, walk.id(), 0, 10).await.unwrap().is_none());
        assert!(bed.store.verify(&cx, walk.id()).await.unwrap().is_none());
        assert!(bed.store.audit(&cx, walk.id(), 0, 10).await.unwrap().is_empty());
        for request in walk.requests() {
            assert!(bed.store.interaction(&cx, request).await.unwrap().is_none());
        }
    }
    assert_eq!(bed.store.started_with(&ana(), &key("k", "body")).await.unwrap(), KeyUse::New);
    assert_eq!(bed.store.tidy(Some(29 * DAY), 10).await.unwrap().conversations, 0);

    // The name is free, for anybody.
    let again = Walk::suspended(&bed, &cx("acme", "bo"), "old").await.decided_to_the_end().await;
    let history = bed.store.history(&cx("acme", "bo"), &conversation("old"), again.id(), None).await.unwrap();
    assert_eq!(history.len(), 6, "only what the new run said: {history:?}");
}

async fn what_waits_is_kept_however_old_it_is(bed: Bed) {
    let waiting = Walk::suspended(&bed, &ana(), "waiting").await;
    later(&bed, 1_000 * DAY);
    assert_eq!(bed.store.tidy(Some(DAY), 10).await.unwrap().conversations, 0);
    let walk = waiting.decided_to_the_end().await;
    assert!(bed.store.run(&ana(), walk.id()).await.unwrap().is_some());
}

async fn an_old_run_is_kept_as_long_as_its_conversation_goes_on(bed: Bed) {
    let first = Walk::suspended(&bed, &ana(), "long").await.decided_to_the_end().await;
    Walk::suspended(&bed, &ana(), "long").await;
    later(&bed, 30 * DAY);
    assert_eq!(bed.store.tidy(Some(DAY), 10).await.unwrap().runs, 0);
    let check = bed.store.verify(&ana(), first.id()).await.unwrap();
    assert!(matches!(check, Some(ChainCheck::Whole { .. })), "{check:?}");
    assert!(!bed.store.events(&ana(), first.id(), 0, 10).await.unwrap().unwrap().is_empty());
}

async fn without_a_time_to_keep_no_conversation_goes(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "old").await.decided_to_the_end().await;
    later(&bed, 10_000 * DAY);
    assert_eq!(bed.store.tidy(None, 10).await.unwrap(), Tidied::default());
    assert!(bed.store.run(&ana(), walk.id()).await.unwrap().is_some());
}

async fn as_many_go_at_once_as_were_asked_for(bed: Bed) {
    for name in ["a", "b", "c"] {
        Walk::suspended(&bed, &ana(), name).await.decided_to_the_end().await;
    }
    later(&bed, 30 * DAY);
    let mut gone = Vec::new();
    loop {
        let tidied = bed.store.tidy(Some(DAY), 2).await.unwrap();
        gone.push(tidied.conversations);
        if !tidied.more {
            break;
        }
    }
    assert_eq!(gone, [2, 1]);
    let page = holdpoint_store::PageRequest::default();
    assert!(bed.store.runs(&ana(), &RunFilter::default(), &page).await.unwrap().items.is_empty());
}

async fn an_answer_for_a_repeated_request_is_kept_for_a_week(bed: Bed) {
    bed.store.remember(&ana(), &key("k", "body")).await.unwrap();
    let answer = StoredAnswer { status: 200, body: "{}".into() };
    bed.store.answer(&ana(), &key("k", "body"), &answer).await.unwrap();
    bed.clock.advance_ms(u64::try_from(KEY_KEPT.as_millis()).unwrap() - 1);
    bed.store.tidy(None, 10).await.unwrap();
    assert_eq!(bed.store.remember(&ana(), &key("k", "body")).await.unwrap(), KeyUse::Answered(answer));
    bed.clock.advance_ms(1);
    bed.store.tidy(None, 10).await.unwrap();
    assert_eq!(bed.store.remember(&ana(), &key("k", "body")).await.unwrap(), KeyUse::New);
}
