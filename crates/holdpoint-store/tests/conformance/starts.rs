//! Starting runs.

use holdpoint_protocol::InteractionKind;
use holdpoint_store::{Error, KeyUse, Next, Started};

use crate::bed::{Bed, FEW, ana, conformance, cx};
use crate::keys::key;
use crate::walk::{Walk, conversation, tools};

conformance!(
    a_started_run_is_read_back_as_it_was,
    a_conversation_has_one_open_run,
    a_conversation_is_its_owners,
    conversations_of_one_name_in_two_tenants_are_two,
    a_second_run_continues_the_history_of_the_first,
    a_start_with_a_known_key_finds_the_run,
    a_run_is_started_once,
    a_run_is_started_for_the_one_who_asks,
);

mod bounds {
    use super::*;
    conformance!(crate::bed::FEW; the_tenant_with_as_many_pending_as_it_may_have_starts_nothing);
    use super::the_tenant_with_as_many_pending_as_it_may_have_starts_nothing;
}

async fn a_started_run_is_read_back_as_it_was(bed: Bed) {
    let mut walk = Walk::unborn(&bed, &ana(), "first");
    let started = walk.try_start(None).await.unwrap();
    let now = bed.store.now().await.unwrap();
    assert!(matches!(started, Started::Created { at, previous: None } if at == now), "{started:?}");

    let loaded = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(&loaded.run).unwrap(), serde_json::to_value(&walk.run).unwrap());
    assert_eq!((loaded.epoch, loaded.next_seq, loaded.created_at), (1, walk.next_seq, now));
    assert_eq!(*loaded.tools, *tools().tools);
    assert!(loaded.open.is_empty() && loaded.facts.is_empty());
    assert!(bed.store.load(&cx("other", "ana"), walk.id()).await.unwrap().is_none());
}

async fn a_conversation_has_one_open_run(bed: Bed) {
    let first = Walk::suspended(&bed, &ana(), "one").await;
    let mut second = Walk::unborn(&bed, &ana(), "one");
    match second.try_start(None).await.unwrap() {
        Started::Open { run, pending } => {
            assert_eq!(run, first.id());
            let found: Vec<_> = pending.iter().map(|pending| (pending.request_id, pending.kind)).collect();
            let expected: Vec<_> =
                first.requests().into_iter().map(|request| (request, InteractionKind::Approval)).collect();
            assert_eq!(found, expected);
        }
        other => panic!("{other:?}"),
    }
    assert!(bed.store.load(&ana(), second.id()).await.unwrap().is_none());
}

async fn a_conversation_is_its_owners(bed: Bed) {
    Walk::suspended(&bed, &ana(), "one").await.decided_to_the_end().await;
    let started = Walk::unborn(&bed, &cx("acme", "bo"), "one").try_start(None).await.unwrap();
    assert!(matches!(started, Started::NotYours), "{started:?}");
}

async fn conversations_of_one_name_in_two_tenants_are_two(bed: Bed) {
    Walk::started(&bed, &ana(), "one").await;
    let started = Walk::unborn(&bed, &cx("other", "bo"), "one").try_start(None).await.unwrap();
    assert!(matches!(started, Started::Created { previous: None, .. }), "{started:?}");
}

async fn a_second_run_continues_the_history_of_the_first(bed: Bed) {
    let first = Walk::suspended(&bed, &ana(), "one").await.decided_to_the_end().await;
    bed.clock.advance_ms(5);
    let mut second = Walk::unborn(&bed, &ana(), "one");
    let started = second.try_start(None).await.unwrap();
    assert!(
        matches!(started, Started::Created { previous: Some(run), .. } if run == first.id()),
        "{started:?}"
    );

    // User, reply with three calls, three answers, reply; then the next user message.
    let all = bed.store.history(&ana(), &conversation("one"), second.id(), None).await.unwrap();
    assert_eq!(kinds(&all), "user assistant tool0 tool1 tool2 assistant user");
    let of_first = bed.store.history(&ana(), &conversation("one"), first.id(), None).await.unwrap();
    assert_eq!(kinds(&of_first), "user assistant tool0 tool1 tool2 assistant");
    // What is known of a run is not read again, nor what came before the run.
    for (run, after, rest) in [
        (first.id(), 0, "assistant tool0 tool1 tool2 assistant"),
        (first.id(), 1, "assistant"),
        (first.id(), 2, ""),
        (first.id(), u32::MAX, ""),
        (second.id(), 0, ""),
    ] {
        let late = bed.store.history(&ana(), &conversation("one"), run, Some(after)).await.unwrap();
        assert_eq!(kinds(&late), rest, "after {after}");
    }
    for (cx, conversation, run) in [
        (cx("other", "ana"), conversation("one"), second.id()),
        (ana(), conversation("two"), second.id()),
        (ana(), conversation("one"), holdpoint_protocol::RunId(uuid::Uuid::now_v7())),
    ] {
        assert!(bed.store.history(&cx, &conversation, run, None).await.unwrap().is_empty());
    }
}

pub fn kinds(messages: &[std::sync::Arc<holdpoint_core::message::Message>]) -> String {
    use holdpoint_core::message::Message;
    let kind = |message: &Message| match message {
        Message::User(_) => "user".to_owned(),
        Message::Assistant(_) => "assistant".to_owned(),
        Message::Tool(tool) => format!("tool{}", tool.index),
        Message::Note(_) => "note".to_owned(),
    };
    messages.iter().map(|message| kind(message)).collect::<Vec<_>>().join(" ")
}

async fn a_start_with_a_known_key_finds_the_run(bed: Bed) {
    let mut first = Walk::unborn(&bed, &ana(), "one");
    first.try_start(Some(key("k", "body"))).await.unwrap();

    let again = Walk::unborn(&bed, &ana(), "two").try_start(Some(key("k", "body"))).await.unwrap();
    assert!(matches!(again, Started::Existing { run } if run == first.id()), "{again:?}");
    let reused = Walk::unborn(&bed, &ana(), "two").try_start(Some(key("k", "other body"))).await.unwrap();
    assert!(matches!(reused, Started::KeyReused), "{reused:?}");
    // Of another actor or tenant, it is another key.
    for (cx, name) in [(cx("acme", "bo"), "bos"), (cx("other", "ana"), "two")] {
        let other = Walk::unborn(&bed, &cx, name).try_start(Some(key("k", "other body"))).await.unwrap();
        assert!(matches!(other, Started::Created { .. }), "{other:?}");
    }
    assert_eq!(bed.store.started_with(&ana(), &key("k", "body")).await.unwrap(), KeyUse::Run(first.id()));
    assert_eq!(bed.store.started_with(&ana(), &key("k", "other")).await.unwrap(), KeyUse::Reused);
    assert_eq!(bed.store.started_with(&ana(), &key("new", "body")).await.unwrap(), KeyUse::New);
}

async fn a_run_is_started_once(bed: Bed) {
    let walk = Walk::started(&bed, &ana(), "one").await;
    let mut again = Walk::unborn(&bed, &ana(), "two");
    let start = again.first().await;
    let mut twice = Walk::unborn(&bed, &ana(), "two");
    twice.run = holdpoint_core::run::Run::new(holdpoint_core::run::Birth {
        id: walk.id(),
        ..crate::walk::birth(&ana(), "two")
    });
    let refused = twice.try_start(None).await;
    assert!(matches!(refused, Err(Error::Inconsistent(_))), "{refused:?}");
    // Nothing of it is left: the conversation is still free.
    let started = bed.store.start(&ana(), start).await.unwrap();
    assert!(matches!(started, Started::Created { previous: None, .. }), "{started:?}");
}

async fn a_run_is_started_for_the_one_who_asks(bed: Bed) {
    let mut walk = Walk::unborn(&bed, &ana(), "one");
    let start = walk.first().await;
    for cx in [cx("acme", "bo"), cx("other", "ana")] {
        let refused = bed.store.start(&cx, start.clone()).await;
        assert!(matches!(refused, Err(Error::Inconsistent(_))), "{refused:?}");
    }
}

async fn the_tenant_with_as_many_pending_as_it_may_have_starts_nothing(bed: Bed) {
    let first = Walk::suspended(&bed, &ana(), "one").await;
    // One less than the bound is under it.
    let mut second = Walk::started(&bed, &ana(), "two").await;
    let changes = second.proposed().await;
    second.stored(changes, Next::Keep).await;
    let full = Walk::unborn(&bed, &ana(), "three").try_start(None).await.unwrap();
    assert!(matches!(full, Started::Full { pending: FEW }), "{full:?}");
    let other = Walk::unborn(&bed, &cx("other", "ana"), "three").try_start(None).await.unwrap();
    assert!(matches!(other, Started::Created { .. }), "{other:?}");

    crate::walk::decide(&bed.store, &ana(), first.requests()[0], holdpoint_protocol::DecisionWord::Decline)
        .await;
    let room = Walk::unborn(&bed, &ana(), "three").try_start(None).await.unwrap();
    assert!(matches!(room, Started::Created { .. }), "{room:?}");
}
