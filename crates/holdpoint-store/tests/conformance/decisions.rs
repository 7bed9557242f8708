//! Decisions: one compare-and-set.

use std::sync::Arc;

use holdpoint_core::decision::{CancelKind, Decision, Fact};
use holdpoint_core::run::Input;
use holdpoint_protocol::{
    DecisionWord, Event, EventBody, InteractionStatus, RequestId, RunId, RunStatus, Then, Via,
};
use holdpoint_store::{CancelReply, ChainCheck, Decide, DecideReply, Next, Owner};

use crate::bed::{Bed, ana, conformance, cx};
use crate::walk::{Walk, decide, decision, expiring, facts};

conformance!(
    a_decision_takes_a_run_without_an_owner,
    a_decision_rings_the_owner_that_lives,
    semantics_18_the_same_decision_again_gets_the_same_answer,
    another_decision_gets_a_conflict_that_names_the_winner,
    a_decision_on_another_digest_does_not_decide,
    a_decision_of_another_tenant_or_on_nothing_finds_nothing,
    of_64_decisions_at_once_one_counts,
    an_edit_keeps_its_text,
    a_failed_handler_closes_what_is_open,
    a_cancel_is_noted_once_and_outranks_a_supersede,
    a_request_that_its_run_closed_cannot_be_decided,
    a_decision_after_a_cancel_does_not_count,
    a_step_comes_with_its_decision,
    a_step_that_was_overtaken_is_left_out,
    what_expires_after_a_cancel_is_closed_once,
);

fn taken(reply: DecideReply) -> holdpoint_store::Noted {
    match reply {
        DecideReply::Taken { noted, .. } => noted,
        other => panic!("{other:?}"),
    }
}

async fn a_decision_takes_a_run_without_an_owner(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let requests = walk.requests();
    bed.clock.advance_ms(7);
    let bo = cx("acme", "bo");
    let noted =
        taken(bed.store.decide(&bo, decision(requests[1], DecisionWord::Approve, "bo")).await.unwrap());
    assert_eq!(noted.owner, Owner::Taken);
    // The run goes on in the name of the one who started it.
    assert_eq!((noted.cx, noted.run), (ana(), walk.id()));
    assert_eq!(noted.event.seq, Some(walk.next_seq));
    let now = bed.store.now().await.unwrap();
    let EventBody::Decision(said) = &noted.event.body else { panic!("{:?}", noted.event) };
    assert_eq!((said.request_id, said.decision.as_str(), said.at), (requests[1], "approve", now));
    let events = bed.store.events(&ana(), walk.id(), walk.next_seq - 1, 10).await.unwrap().unwrap();
    assert_eq!(&*events[0].1, noted.event.to_json());
    assert_eq!(bed.store.run(&ana(), walk.id()).await.unwrap().unwrap().status, RunStatus::Running);

    let loaded = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!((loaded.epoch, loaded.next_seq), (2, walk.next_seq + 1));
    let [Fact::Decided { request, decision }] = &loaded.facts[..] else { panic!("{:?}", loaded.facts) };
    assert_eq!((*request, decision.word, decision.at), (requests[1], DecisionWord::Approve, now));
    let shown = bed.store.interaction(&ana(), requests[1]).await.unwrap().unwrap();
    assert_eq!(
        (shown.status, shown.decision.unwrap().decision.as_str()),
        (InteractionStatus::Decided, "approve")
    );
    // The other one is open, and its decision finds the owner.
    let noted = taken(
        bed.store.decide(&bo, super::walk::decision(requests[0], DecisionWord::Decline, "bo")).await.unwrap(),
    );
    assert_eq!(noted.owner, Owner::Here);
    assert_eq!(facts(&bed.store, &ana(), walk.id()).await.len(), 2);
}

async fn a_decision_rings_the_owner_that_lives(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let changes = walk.proposed().await;
    walk.stored(changes, Next::Keep).await;
    let reply =
        bed.store.decide(&ana(), decision(walk.requests()[0], DecisionWord::Approve, "ana")).await.unwrap();
    assert_eq!(taken(reply).owner, Owner::Here);
    assert_eq!(bed.store.load(&ana(), walk.id()).await.unwrap().unwrap().epoch, 1);
}

async fn semantics_18_the_same_decision_again_gets_the_same_answer(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let first = decision(walk.requests()[0], DecisionWord::Decline, "ana");
    taken(bed.store.decide(&ana(), first.clone()).await.unwrap());
    let stored_at = bed.store.now().await.unwrap();
    let before = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap();
    for wait in [0, 1, 86_400_000] {
        bed.clock.advance_ms(wait);
        let again = Decide { reason: Some("in other words".into()), ..first.clone() };
        match bed.store.decide(&ana(), again).await.unwrap() {
            DecideReply::Repeated { decision } => {
                assert_eq!((decision.word, decision.at), (DecisionWord::Decline, stored_at));
                assert_eq!(decision.reason.as_deref(), Some("not allowed by policy"));
            }
            other => panic!("{other:?}"),
        }
    }
    // A stop that is not stored must not be acknowledged.
    let stop = Decide { then: Then::Stop, ..first.clone() };
    let refused = bed.store.decide(&ana(), stop).await.unwrap();
    assert!(matches!(refused, DecideReply::Conflict { .. }), "{refused:?}");
    assert_eq!(bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap(), before);
    assert_eq!(facts(&bed.store, &ana(), walk.id()).await.len(), 1);
    // For ever: after the run has ended, too.
    let requests = walk.requests();
    decide(&bed.store, &ana(), requests[1], DecisionWord::Approve).await;
    let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    walk.stored(changes, Next::Keep).await;
    walk.executed(2, "build ok", Next::Keep).await;
    walk.answered().await;
    let again = bed.store.decide(&ana(), first).await.unwrap();
    assert!(matches!(again, DecideReply::Repeated { .. }), "{again:?}");
}

async fn another_decision_gets_a_conflict_that_names_the_winner(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let request = walk.requests()[0];
    let edit = Decide { arguments: Some("{}".into()), ..decision(request, DecisionWord::ApproveWith, "ana") };
    taken(bed.store.decide(&ana(), edit.clone()).await.unwrap());
    for (what, other) in [
        ("another word", decision(request, DecisionWord::Decline, "ana")),
        ("another actor", Decide { by: crate::walk::by("bo"), ..edit.clone() }),
        ("other arguments", Decide { arguments: Some("{ }".into()), ..edit.clone() }),
        (
            "answers",
            Decide { result: Some(serde_json::value::RawValue::from_string("1".into()).unwrap()), ..edit },
        ),
    ] {
        match bed.store.decide(&ana(), other).await.unwrap() {
            DecideReply::Conflict { status: InteractionStatus::Decided, winner: Some(winner) } => {
                assert_eq!(winner.decision, "approve_with", "{what}");
                assert_eq!(winner.by, crate::walk::by("ana"), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    assert_eq!(facts(&bed.store, &ana(), walk.id()).await.len(), 1);
}

async fn a_decision_on_another_digest_does_not_decide(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let requests = walk.requests();
    let digest_of = async |request| -> holdpoint_core::digest::CallDigest {
        let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
        let shown: serde_json::Value = serde_json::from_str(shown.request.get()).unwrap();
        shown["digest"].as_str().unwrap().parse().unwrap()
    };
    let (first, second) = (digest_of(requests[0]).await, digest_of(requests[1]).await);
    let records = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap().len();
    let approve = || decision(requests[0], DecisionWord::Approve, "ana");
    // Of something else, and of what its taker knows to have changed.
    let stale = [
        Decide { digest: Some(second), ..approve() },
        Decide { redefined: true, digest: Some(first), ..approve() },
    ];
    for (n, stale) in stale.into_iter().enumerate() {
        match bed.store.decide(&ana(), stale).await.unwrap() {
            DecideReply::Stale { digest } => assert_eq!(digest, first),
            other => panic!("{other:?}"),
        }
        assert_eq!(
            bed.store.interaction(&ana(), requests[0]).await.unwrap().unwrap().status,
            InteractionStatus::Pending
        );
        let chain = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap();
        assert_eq!(chain.len(), records + n + 1);
        let tried = &chain[records + n].record;
        assert!(tried.contains("stale_decision") && tried.contains(r#""actor":"ana""#), "{tried}");
    }
    // An attempt changes nothing for watchers or for the owner.
    assert_eq!(bed.store.load(&ana(), walk.id()).await.unwrap().unwrap().next_seq, walk.next_seq);
    let right = Decide { digest: Some(first), ..decision(requests[0], DecisionWord::Approve, "ana") };
    taken(bed.store.decide(&ana(), right).await.unwrap());
}

async fn a_decision_of_another_tenant_or_on_nothing_finds_nothing(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let request = walk.requests()[0];
    for (cx, request) in [
        (cx("other", "ana"), request),
        (ana(), RequestId(uuid::Uuid::new_v4())),
        (ana(), RequestId(walk.id().0)),
    ] {
        let reply = bed.store.decide(&cx, decision(request, DecisionWord::Approve, "ana")).await.unwrap();
        assert!(matches!(reply, DecideReply::NotFound), "{reply:?}");
        assert!(bed.store.fail_gate(&cx, &[request]).await.unwrap().is_empty() || cx == ana());
    }
    assert!(bed.store.interaction(&cx("other", "ana"), request).await.unwrap().is_none());
    let reply = bed.store.cancel(&cx("other", "ana"), walk.id(), CancelKind::Cancel).await.unwrap();
    assert!(matches!(reply, CancelReply::NotFound), "{reply:?}");
    assert_eq!(
        bed.store.interaction(&ana(), request).await.unwrap().unwrap().status,
        InteractionStatus::Pending
    );
}

async fn of_64_decisions_at_once_one_counts(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let request = walk.requests()[0];
    let tries: Vec<_> = (0..64)
        .map(|n| {
            let store = Arc::clone(&bed.store);
            tokio::spawn(async move {
                let word = if n % 2 == 0 { DecisionWord::Approve } else { DecisionWord::Decline };
                store.decide(&ana(), decision(request, word, &format!("actor-{n}"))).await.unwrap()
            })
        })
        .collect();
    let mut winner = None;
    let mut told = Vec::new();
    for tried in tries {
        match tried.await.unwrap() {
            DecideReply::Taken { decision, .. } => {
                assert!(winner.replace(decision.by).is_none(), "two winners")
            }
            DecideReply::Conflict { status: InteractionStatus::Decided, winner: Some(view) } => {
                told.push(view.by)
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told.len(), 63);
    assert!(told.iter().all(|by| Some(by) == winner.as_ref()));
    assert_eq!(facts(&bed.store, &ana(), walk.id()).await.len(), 1);
    let chain = bed.store.audit(&ana(), walk.id(), 0, 1_000).await.unwrap();
    assert_eq!(chain.iter().filter(|row| row.record.contains(r#""kind":"decision""#)).count(), 1);
}

async fn an_edit_keeps_its_text(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let request = walk.requests()[0];
    let text = "{\"path\": \"out.txt\",  \"content\":\"9007199254740993 \\u0041 \u{202e}\"}";
    let edit = Decide { arguments: Some(text.into()), ..decision(request, DecisionWord::ApproveWith, "ana") };
    let noted = taken(bed.store.decide(&ana(), edit).await.unwrap());
    let EventBody::Decision(said) = &noted.event.body else { panic!("{:?}", noted.event) };
    assert_eq!(said.arguments.as_deref(), Some(text));
    let [Fact::Decided { decision, .. }] = &facts(&bed.store, &ana(), walk.id()).await[..] else { panic!() };
    assert_eq!(decision.arguments.as_deref(), Some(text));
    // The chain says which text it was without holding it.
    let chain = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap();
    let record = &chain.last().unwrap().record;
    assert!(
        record.contains("approve_with via=human arguments=sha256:") && !record.contains("out.txt"),
        "{record}"
    );
}

async fn a_failed_handler_closes_what_is_open(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let requests = walk.requests();
    decide(&bed.store, &ana(), requests[0], DecisionWord::Approve).await;
    let noted = bed.store.fail_gate(&ana(), &requests).await.unwrap();
    assert_eq!(noted.len(), 1);
    assert_eq!((noted[0].owner, noted[0].run), (Owner::Here, walk.id()));
    let EventBody::Decision(said) = &noted[0].event.body else { panic!("{:?}", noted[0].event) };
    assert_eq!((said.decision.as_str(), said.by.via, &said.by.actor), ("gate_error", Via::GateError, &None));
    let found = facts(&bed.store, &ana(), walk.id()).await;
    assert!(
        matches!(found[..], [Fact::Decided { .. }, Fact::GateError { request }] if request == requests[1]),
        "{found:?}"
    );
    let late = bed.store.decide(&ana(), decision(requests[1], DecisionWord::Approve, "ana")).await.unwrap();
    let winner = match late {
        DecideReply::Conflict { status: InteractionStatus::Cancelled, winner } => winner.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(winner.decision, "gate_error");
    assert!(bed.store.fail_gate(&ana(), &requests).await.unwrap().is_empty());
}

async fn a_cancel_is_noted_once_and_outranks_a_supersede(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let replies = [
        (CancelKind::Supersede, Some(Owner::Taken)),
        (CancelKind::Supersede, None),
        (CancelKind::Cancel, Some(Owner::Here)),
        (CancelKind::Cancel, None),
        (CancelKind::Supersede, None),
    ];
    for (n, (kind, expected)) in replies.into_iter().enumerate() {
        match bed.store.cancel(&ana(), walk.id(), kind).await.unwrap() {
            CancelReply::Noted(noted) => {
                assert_eq!(Some(noted.owner), expected, "{n}");
                let EventBody::Notice(said) = &noted.event.body else { panic!("{:?}", noted.event) };
                assert!(said.code == "cancel_requested" && said.message.contains("ana"), "{said:?}");
            }
            CancelReply::Repeated => assert_eq!(None, expected, "{n}"),
            other => panic!("{n}: {other:?}"),
        }
    }
    let found = facts(&bed.store, &ana(), walk.id()).await;
    let kinds: Vec<_> = found
        .iter()
        .map(|fact| match fact {
            Fact::Cancelled { kind, .. } => *kind,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [CancelKind::Supersede, CancelKind::Cancel]);
    // Applied, it ends the run; then there is nothing to cancel.
    let loaded = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    let mut walk = Walk::of(&bed.store, &ana(), loaded);
    let changes = walk.step(vec![holdpoint_core::run::Input::Facts(found)]).await;
    walk.stored(changes, Next::End).await;
    let ended = bed.store.cancel(&ana(), walk.id(), CancelKind::Cancel).await.unwrap();
    assert!(matches!(ended, CancelReply::Ended), "{ended:?}");
    let unknown = bed.store.cancel(&ana(), RunId(uuid::Uuid::now_v7()), CancelKind::Cancel).await.unwrap();
    assert!(matches!(unknown, CancelReply::NotFound), "{unknown:?}");
}

async fn a_request_that_its_run_closed_cannot_be_decided(bed: Bed) {
    for (kind, status) in [
        (CancelKind::Cancel, InteractionStatus::Cancelled),
        (CancelKind::Supersede, InteractionStatus::Superseded),
    ] {
        let walk = Walk::suspended(&bed, &ana(), &format!("{kind:?}")).await;
        let requests = walk.requests();
        bed.store.cancel(&ana(), walk.id(), kind).await.unwrap();
        let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
        walk.stored(changes, Next::End).await;
        for request in requests {
            let reply =
                bed.store.decide(&ana(), decision(request, DecisionWord::Approve, "bo")).await.unwrap();
            match reply {
                DecideReply::Conflict { status: found, winner: Some(winner) } => {
                    assert_eq!(found, status);
                    assert_eq!(winner.by.actor, Some(ana().actor));
                }
                other => panic!("{other:?}"),
            }
        }
        // Its messages up to the last whole round are there, and its log is whole.
        let events = bed.store.events(&ana(), walk.id(), 0, 1_000).await.unwrap().unwrap();
        let last = Event::from_json(None, &events.last().unwrap().1).unwrap();
        assert!(matches!(last.body, EventBody::Finish(_)), "{last:?}");
    }
}

/// Between the cancel and the step that closes the requests, they stand open; a decision of them would be a promise that
/// is not kept.
async fn a_decision_after_a_cancel_does_not_count(bed: Bed) {
    for (kind, expected, word) in [
        (CancelKind::Cancel, InteractionStatus::Cancelled, "cancelled"),
        (CancelKind::Supersede, InteractionStatus::Superseded, "superseded"),
    ] {
        let walk = Walk::suspended(&bed, &ana(), &format!("{kind:?}")).await;
        let requests = walk.requests();
        decide(&bed.store, &ana(), requests[0], DecisionWord::Approve).await;
        bed.store.cancel(&cx("acme", "bo"), walk.id(), kind).await.unwrap();
        let late =
            bed.store.decide(&ana(), decision(requests[1], DecisionWord::Approve, "ana")).await.unwrap();
        match late {
            DecideReply::Conflict { status, winner: Some(winner) } => {
                assert_eq!((status, winner.decision.as_str()), (expected, word));
                assert_eq!(winner.by.actor, Some(cx("acme", "bo").actor));
            }
            other => panic!("{other:?}"),
        }
        let again =
            bed.store.decide(&ana(), decision(requests[0], DecisionWord::Approve, "ana")).await.unwrap();
        assert!(matches!(again, DecideReply::Repeated { .. }), "{again:?}");
        let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
        walk.stored(changes, Next::End).await;
    }
}

async fn what_expires_after_a_cancel_is_closed_once(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", expiring(10)).await;
    let requests = walk.requests();
    bed.store.cancel(&ana(), walk.id(), CancelKind::Cancel).await.unwrap();
    bed.store.fail_gate(&ana(), &requests[..1]).await.unwrap();
    bed.clock.advance_ms(10);
    assert_eq!(bed.store.expire_due(10).await.unwrap().len(), 1);
    let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    walk.stored(changes, Next::End).await;
    let status = async |request| bed.store.interaction(&ana(), request).await.unwrap().unwrap().status;
    assert_eq!(status(requests[0]).await, InteractionStatus::Cancelled);
    assert_eq!(status(requests[1]).await, InteractionStatus::Expired);
    assert_eq!(bed.store.stats().await.unwrap().pending, 0);
}

/// The decline of the first request, with the step that follows from it.
async fn declined_with_its_step(walk: &Walk) -> Decide {
    let decide = decision(walk.requests()[0], DecisionWord::Decline, "bo");
    let mut ahead = walk.copy();
    ahead.next_seq += 1;
    let stored = Decision {
        word: decide.word,
        by: decide.by.clone(),
        rule: None,
        digest: walk.run.digest_of(walk.run.call_of(decide.request).unwrap()).unwrap(),
        reason: decide.reason.clone(),
        arguments: None,
        result: None,
        then: Then::Continue,
        at: walk.store.now().await.unwrap(),
    };
    let fact = Fact::Decided { request: decide.request, decision: Box::new(stored) };
    let changes = ahead.step(vec![Input::Facts(vec![fact])]).await;
    Decide { step: Some(Box::new(ahead.made(changes, Next::Suspend))), ..decide }
}

async fn a_step_comes_with_its_decision(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let declined = declined_with_its_step(&walk).await;
    let before = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    let noted = taken(bed.store.decide(&ana(), declined.clone()).await.unwrap());
    assert_eq!(noted.event.seq, Some(walk.next_seq));

    let after = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    let status = bed.store.run(&ana(), walk.id()).await.unwrap().unwrap().status;
    let events = bed.store.events(&ana(), walk.id(), walk.next_seq - 1, 10).await.unwrap().unwrap();
    assert_eq!(noted.epoch, after.epoch);
    assert!(events[0].1.contains(r#""type":"decision""#), "{events:?}");
    assert_eq!(noted.owner, Owner::Nobody);
    assert_eq!((status, after.epoch, after.facts.len()), (RunStatus::Suspended, before.epoch, 0));
    assert_eq!((after.next_seq, events.len()), (walk.next_seq + 2, 2));
    assert!(events[1].1.contains(r#""type":"tool_result""#), "{events:?}");
    assert_eq!(after.run.pending().len(), 1);
    assert_eq!(after.open.len(), before.open.len() + 1, "the answer is in the round");
    let chain = bed.store.verify(&ana(), walk.id()).await.unwrap();
    assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
    let shown = bed.store.interaction(&ana(), declined.request).await.unwrap().unwrap();
    assert_eq!(shown.status, InteractionStatus::Decided);
    let again = bed.store.decide(&ana(), declined).await.unwrap();
    assert!(matches!(again, DecideReply::Repeated { .. }), "{again:?}");

    // It goes on to its end.
    decide(&bed.store, &ana(), walk.requests()[1], DecisionWord::Approve).await;
    let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    walk.stored(changes, Next::Keep).await;
    walk.executed(2, "build ok", Next::Keep).await;
    walk.answered().await;
}

async fn a_step_that_was_overtaken_is_left_out(bed: Bed) {
    // By another decision: its run is in somebody's hands.
    let walk = Walk::suspended(&bed, &ana(), "one").await;
    let declined = declined_with_its_step(&walk).await;
    decide(&bed.store, &ana(), walk.requests()[1], DecisionWord::Approve).await;
    let noted = taken(bed.store.decide(&ana(), declined).await.unwrap());
    assert_eq!(noted.owner, Owner::Here);
    assert_eq!(facts(&bed.store, &ana(), walk.id()).await.len(), 2);

    // By a step: nobody has the run any more, and it is another than the one that was looked at.
    let mut walk = Walk::suspended(&bed, &ana(), "two").await;
    let declined = declined_with_its_step(&walk).await;
    let taken_up = bed.store.take(&ana(), walk.id()).await.unwrap().unwrap();
    walk.epoch = taken_up.epoch;
    walk.stored(holdpoint_core::run::Changes::default(), Next::Suspend).await;
    let noted = taken(bed.store.decide(&ana(), declined).await.unwrap());
    assert_eq!(noted.owner, Owner::Taken);
    let loaded = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(
        (loaded.facts.len(), loaded.run.pending().len()),
        (1, 2),
        "the decision, and nothing of its step"
    );
}
