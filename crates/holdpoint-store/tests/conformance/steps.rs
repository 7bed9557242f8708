//! Steps: all of one, or nothing.

use std::sync::Arc;

use holdpoint_core::decision::CancelKind;
use holdpoint_core::run::LedgerLine;
use holdpoint_protocol::{CallId, DecisionWord, Event, EventBody, InteractionStatus, RequestId, RunStatus};
use holdpoint_store::{Committed, Error, Next, Step};

use crate::bed::{Bed, ana, conformance, cx};
use crate::starts::kinds;
use crate::walk::{Walk, conversation, decide};

conformance!(
    the_main_job_is_stored_from_start_to_end,
    the_round_in_progress_is_read_back_in_the_order_of_its_slots,
    a_step_made_from_an_older_state_writes_nothing,
    a_claim_that_a_cancel_overtook_is_not_taken,
    a_step_of_a_lower_epoch_writes_nothing,
    a_step_of_another_tenant_writes_nothing,
    a_step_that_says_nothing_to_watchers_is_stored_too,
    a_run_without_an_owner_takes_no_step,
    an_attempt_is_started_once,
    a_claim_needs_the_stored_decision_it_spends,
    a_step_that_contradicts_itself_writes_nothing,
    a_run_does_not_end_with_a_request_open,
    a_history_holds_a_round_from_its_commit_on,
);

async fn the_main_job_is_stored_from_start_to_end(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let waiting = bed.store.run(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!((waiting.status, waiting.pending.len()), (RunStatus::Suspended, 2));
    assert!(waiting.text.is_none() && waiting.finish.is_none());
    let walk = walk.decided_to_the_end().await;

    let view = bed.store.run(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(view.status, RunStatus::Finished);
    assert_eq!(view.text.as_deref(), Some("done"));
    assert_eq!(view.usage.unwrap().rounds, 2);
    assert!(view.pending.is_empty());
    assert!(bed.store.run(&cx("other", "ana"), walk.id()).await.unwrap().is_none());

    let events = bed.store.events(&ana(), walk.id(), 0, 1_000).await.unwrap().unwrap();
    let numbers: Vec<u64> = events.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..walk.next_seq).collect::<Vec<_>>());
    let kinds: Vec<&str> =
        events.iter().map(|(seq, json)| Event::from_json(Some(*seq), json).unwrap().body.kind()).collect();
    assert_eq!(
        kinds.join(" "),
        "run_started tool_call approval_request approval_request tool_started tool_result suspended decision decision \
         tool_result resumed tool_started tool_result round_committed message round_committed finish"
    );
    // From anywhere, and in pages.
    for after in 0..walk.next_seq {
        let page = bed.store.events(&ana(), walk.id(), after, 3).await.unwrap().unwrap();
        let expected: Vec<_> = events.iter().filter(|(seq, _)| *seq > after).take(3).cloned().collect();
        assert_eq!(page, expected, "after {after}");
    }
    assert!(bed.store.events(&cx("other", "ana"), walk.id(), 0, 10).await.unwrap().is_none());
}

async fn the_round_in_progress_is_read_back_in_the_order_of_its_slots(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let loaded = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    let slots: Vec<u32> = loaded.open.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, [0, 1]);
    let messages: Vec<_> = loaded.open.into_iter().map(|(_, message)| message).collect();
    assert_eq!(kinds(&messages), "assistant tool0");
    // Stored and read back, it goes on where it stood.
    let (again, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    assert!(changes.events.is_empty());
    assert_eq!(again.requests(), walk.requests());
}

async fn a_step_made_from_an_older_state_writes_nothing(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let changes = walk.proposed().await;
    walk.stored(changes, Next::Keep).await;
    let changes = walk.checked(0).await;
    let step = walk.made(changes, Next::Keep);
    decide(&bed.store, &ana(), walk.requests()[1], DecisionWord::Approve).await;

    let before = bed.store.events(&ana(), walk.id(), 0, 100).await.unwrap().unwrap();
    assert_eq!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Moved);
    assert_eq!(bed.store.events(&ana(), walk.id(), 0, 100).await.unwrap().unwrap(), before);
    // Read again, the fact is there, and the step goes through.
    let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    walk.stored(changes, Next::Keep).await;
    walk.executed(0, "contents", Next::Suspend).await;
    assert!(bed.store.load(&ana(), walk.id()).await.unwrap().unwrap().facts.is_empty());
}

/// Approved, checked, and about to be claimed: a cancel that is stored first is seen by the transaction that would write the
/// claim, and there is none.
async fn a_claim_that_a_cancel_overtook_is_not_taken(bed: Bed) {
    for kind in [CancelKind::Cancel, CancelKind::Supersede] {
        let walk = Walk::suspended(&bed, &ana(), &format!("{kind:?}")).await;
        let requests = walk.requests();
        decide(&bed.store, &ana(), requests[0], DecisionWord::Decline).await;
        decide(&bed.store, &ana(), requests[1], DecisionWord::Approve).await;
        let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
        walk.stored(changes, Next::Keep).await;
        let changes = walk.checked(2).await;
        let claim = walk.made(changes, Next::Keep);
        assert!(matches!(claim.writes.executions[..], [LedgerLine::Started { .. }]));
        bed.store.cancel(&ana(), walk.id(), kind).await.unwrap();
        assert_eq!(bed.store.commit(&ana(), &claim).await.unwrap(), Committed::Moved);
        let audit = bed.store.audit(&ana(), walk.id(), 0, 1_000).await.unwrap();
        let started = audit.iter().filter(|row| row.record.contains("execution_started")).count();
        assert_eq!(started, 1, "the free call of the beginning, and no other");
        let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
        walk.stored(changes, Next::End).await;
    }
}

async fn a_step_of_a_lower_epoch_writes_nothing(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    bed.store.release(&ana(), walk.id(), 1, 0).await.unwrap();
    let taken = bed.store.take(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(taken.epoch, 2);

    let changes = walk.proposed().await;
    let step = walk.made(changes, Next::Keep);
    for epoch in [0, 1, 3] {
        let step = Step { epoch, ..step.clone() };
        assert_eq!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Fenced, "{epoch}");
    }
    assert!(bed.store.interaction(&ana(), walk.requests()[0]).await.unwrap().is_none());
    let step = Step { epoch: 2, ..step };
    assert!(matches!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Done { .. }));
}

async fn a_step_of_another_tenant_writes_nothing(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let changes = walk.proposed().await;
    let step = walk.made(changes, Next::Keep);
    assert_eq!(bed.store.commit(&cx("other", "ana"), &step).await.unwrap(), Committed::Fenced);
    assert_eq!(bed.store.load(&ana(), walk.id()).await.unwrap().unwrap().next_seq, walk.next_seq);
}

async fn a_step_that_says_nothing_to_watchers_is_stored_too(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let before = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap().len();
    walk.run.add_active_ms(1_234);
    let mut step = walk.made(holdpoint_core::run::Changes::default(), Next::Keep);
    assert_eq!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Done { next_seq: walk.next_seq });
    step.writes.audit = walk.first_record().await;
    assert_eq!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Done { next_seq: walk.next_seq });

    let loaded = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(&loaded.run).unwrap(), serde_json::to_value(&walk.run).unwrap());
    assert_eq!(bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap().len(), before + 1);
    assert_eq!(
        bed.store.events(&ana(), walk.id(), 0, 100).await.unwrap().unwrap().len() as u64,
        walk.next_seq - 1
    );
}

impl Walk {
    /// The record a new run begins with.
    async fn first_record(&self) -> Vec<holdpoint_core::run::AuditRecord> {
        let mut other =
            Self { run: holdpoint_core::run::Run::new(crate::walk::birth(&self.cx, "x")), ..self.copy() };
        other.first().await.writes.audit
    }
}

async fn a_run_without_an_owner_takes_no_step(bed: Bed) {
    let mut walk = Walk::suspended(&bed, &ana(), "job").await;
    walk.run.add_active_ms(1);
    let step = walk.made(holdpoint_core::run::Changes::default(), Next::Keep);
    assert_eq!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Fenced);
    let mut ended = Walk::suspended(&bed, &ana(), "other-job").await.decided_to_the_end().await;
    ended.run.add_active_ms(1);
    let step = ended.made(holdpoint_core::run::Changes::default(), Next::Keep);
    assert_eq!(bed.store.commit(&ana(), &step).await.unwrap(), Committed::Fenced);
}

async fn an_attempt_is_started_once(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let changes = walk.proposed().await;
    walk.stored(changes, Next::Keep).await;
    let changes = walk.checked(0).await;
    let mut again = walk.made(changes.clone_for_test(), Next::Keep);
    walk.stored(changes, Next::Keep).await;

    // The same claim once more, with numbers that fit.
    again.expected_seq = walk.next_seq;
    for (seq, event) in (walk.next_seq..).zip(&mut again.writes.events) {
        *event = Arc::new(Event { seq: Some(seq), ..(**event).clone() });
    }
    let refused = bed.store.commit(&ana(), &again).await;
    assert!(matches!(refused, Err(Error::Inconsistent(_))), "{refused:?}");
    assert_eq!(bed.store.load(&ana(), walk.id()).await.unwrap().unwrap().next_seq, walk.next_seq);
    // The store takes other steps after it.
    let changes = walk.finished(0, "contents").await;
    walk.stored(changes, Next::Suspend).await;
}

trait CloneForTest {
    fn clone_for_test(&self) -> Self;
}

impl CloneForTest for holdpoint_core::run::Changes {
    fn clone_for_test(&self) -> Self {
        Self {
            events: self.events.clone(),
            messages: self.messages.clone(),
            opened: self.opened.clone(),
            closed: self.closed.clone(),
            executions: self.executions.clone(),
            audit: self.audit.clone(),
        }
    }
}

async fn a_claim_needs_the_stored_decision_it_spends(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let requests = walk.requests();
    decide(&bed.store, &ana(), requests[0], DecisionWord::Decline).await;
    decide(&bed.store, &ana(), requests[1], DecisionWord::Approve).await;
    let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    walk.stored(changes, Next::Keep).await;
    let open = Walk::suspended(&bed, &ana(), "waiting").await.requests()[0];

    let changes = walk.checked(2).await;
    let right = walk.made(changes, Next::Keep);
    let digest_of_another = match &right.writes.executions[0] {
        LedgerLine::Started { .. } => {
            let shown = bed.store.interaction(&ana(), requests[0]).await.unwrap().unwrap();
            let shown: serde_json::Value = serde_json::from_str(shown.request.get()).unwrap();
            shown["digest"].as_str().unwrap().parse().unwrap()
        }
        LedgerLine::Ended { .. } => panic!("the claim comes first"),
    };
    let wrong: [(&str, &dyn Fn(&mut LedgerLine)); 5] = [
        ("a declined request", &|line| set(line, Some(requests[0]), None, None)),
        ("a request nobody made", &|line| set(line, Some(RequestId(uuid::Uuid::new_v4())), None, None)),
        ("a request that is open", &|line| set(line, Some(open), None, None)),
        ("another digest", &|line| set(line, None, Some(digest_of_another), None)),
        ("another call", &|line| set(line, None, None, Some(1))),
    ];
    for (what, change) in wrong {
        let mut step = right.clone();
        change(&mut step.writes.executions[0]);
        let refused = bed.store.commit(&ana(), &step).await;
        assert!(matches!(refused, Err(Error::Inconsistent(_))), "{what}: {refused:?}");
    }
    assert!(matches!(bed.store.commit(&ana(), &right).await.unwrap(), Committed::Done { .. }));
}

fn set(
    line: &mut LedgerLine,
    spends: Option<RequestId>,
    runs: Option<holdpoint_core::digest::CallDigest>,
    index: Option<u32>,
) {
    if let LedgerLine::Started { call, request, digest, .. } = line {
        *request = spends.or(*request);
        *digest = runs.unwrap_or(*digest);
        *call = CallId { index: index.unwrap_or(call.index), ..*call };
    }
}

async fn a_step_that_contradicts_itself_writes_nothing(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let other = Walk::suspended(&bed, &ana(), "other").await;
    let changes = walk.proposed().await;
    let right = walk.made(changes, Next::Keep);
    let renumbered = |seq| {
        let event = &right.writes.events[0];
        Arc::new(Event { seq, ..(**event).clone() })
    };
    let token = EventBody::Token(holdpoint_protocol::Piece { data: "x".into() });
    let token = Arc::new(Event { body: token, ..(*right.writes.events[0]).clone() });
    let wrong: [(&str, &dyn Fn(&mut Step<'static>)); 7] = [
        ("an event with a gap before it", &|step| step.writes.events[0] = renumbered(Some(9))),
        ("an event without a number", &|step| step.writes.events[0] = renumbered(None)),
        ("an event that is not kept", &|step| step.writes.events[0] = Arc::clone(&token)),
        ("a request that no event announces", &|step| step.writes.opened[0].event = 0),
        ("a request past the events", &|step| step.writes.opened[0].event = 99),
        ("a request twice", &|step| {
            let first = step.writes.opened[0].clone();
            step.writes.opened.push(first);
        }),
        ("the closing of what is not open", &|step| {
            let request = other.requests()[0];
            step.writes
                .closed
                .push(holdpoint_core::run::Closed { request, why: holdpoint_core::run::ClosedBy::Cancel });
        }),
    ];
    for (what, change) in wrong {
        let mut step = right.clone();
        change(&mut step);
        let refused = bed.store.commit(&ana(), &step).await;
        assert!(matches!(refused, Err(Error::Inconsistent(_))), "{what}: {refused:?}");
        assert!(
            bed.store.interaction(&ana(), right.writes.opened[1].request).await.unwrap().is_none(),
            "{what}"
        );
    }
    let untouched = bed.store.interaction(&ana(), other.requests()[0]).await.unwrap().unwrap();
    assert_eq!(untouched.status, InteractionStatus::Pending);
    assert!(matches!(bed.store.commit(&ana(), &right).await.unwrap(), Committed::Done { .. }));
}

async fn a_run_does_not_end_with_a_request_open(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    let changes = walk.proposed().await;
    walk.stored(changes, Next::Keep).await;
    let changes = walk.checked(0).await;
    let step = walk.made(changes, Next::End);
    let refused = bed.store.commit(&ana(), &step).await;
    assert!(matches!(refused, Err(Error::Inconsistent(_))), "{refused:?}");
}

async fn a_history_holds_a_round_from_its_commit_on(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let history = bed.store.history(&ana(), &conversation("job"), walk.id(), None).await.unwrap();
    assert_eq!(kinds(&history), "user");
    decide(&bed.store, &ana(), walk.requests()[0], DecisionWord::Decline).await;
    decide(&bed.store, &ana(), walk.requests()[1], DecisionWord::Approve).await;
    let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    walk.stored(changes, Next::Keep).await;
    let history = bed.store.history(&ana(), &conversation("job"), walk.id(), None).await.unwrap();
    assert_eq!(kinds(&history), "user");
    // The answers of the round in progress are read as such, and not as history.
    let late = bed.store.history(&ana(), &conversation("job"), walk.id(), Some(0)).await.unwrap();
    assert_eq!(kinds(&late), "");
    walk.executed(2, "build ok", Next::Keep).await;
    let history = bed.store.history(&ana(), &conversation("job"), walk.id(), None).await.unwrap();
    assert_eq!(kinds(&history), "user assistant tool0 tool1 tool2");
}
