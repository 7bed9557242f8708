//! What time does to an open request besides ending it: people are reminded, further groups are told, a rule is asked.

use std::sync::Arc;

use holdpoint_core::decision::{CancelKind, Fact};
use holdpoint_core::run::Settings;
use holdpoint_core::terms::{AtDeadline, TermsRule};
use holdpoint_protocol::{
    ActorId, DecisionWord, EventBody, GroupName, InteractionStatus, OnTimeout, ReminderStage, RequestId,
    RuleUsed, RunStatus, Via,
};
use holdpoint_store::{
    ChainCheck, DecideReply, InteractionFilter, Next, Noted, Owner, PageRequest, RuleRelease,
};

use crate::bed::{Bed, ana, conformance, cx};
use crate::walk::{Walk, decision, facts, waiting};

conformance!(
    a_request_that_stays_open_never_expires_and_can_be_decided_after_its_deadline,
    people_are_reminded_once_at_each_time_and_the_run_goes_on_waiting,
    a_reminder_that_a_further_group_is_told_of_says_so_and_is_kept,
    at_half_time_it_escalates_and_the_deadline_still_denies,
    what_nobody_could_be_reminded_of_in_time_is_told_once,
    a_request_that_is_closed_reminds_nobody,
    reminders_are_sent_in_batches,
    a_step_that_a_reminder_overtook_is_made_again,
    reminders_are_no_facts_and_change_no_decision,
    a_rule_is_asked_after_the_deadline_and_only_then,
    a_rule_that_releases_nothing_is_an_expiry,
    a_release_that_does_not_fit_is_an_expiry,
    exactly_one_of_decided_expired_and_released,
    a_preset_request_is_decided_by_people_until_its_deadline,
    a_group_finds_what_it_is_to_decide,
    figures_count_what_stays_open_beyond_its_deadline,
);

const TIMEOUT_MS: u64 = 10_000;

fn groups(names: &[&str]) -> Vec<GroupName> {
    names.iter().map(|name| GroupName::new(name).unwrap()).collect()
}

fn rule(at_deadline: AtDeadline) -> TermsRule {
    TermsRule { timeout_ms: Some(TIMEOUT_MS), at_deadline: Some(at_deadline), ..TermsRule::default() }
}

fn wait() -> TermsRule {
    TermsRule {
        escalate_to: Some(groups(&["leads"])),
        approvers: Some(groups(&["ops"])),
        ..rule(AtDeadline::Wait)
    }
}

fn preset() -> Settings {
    waiting(rule(AtDeadline::Preset("night".into())))
}

pub fn release(name: &str) -> RuleRelease {
    let actor = ActorId::new(&format!("preset:{name}")).unwrap();
    let written_by = ActorId::new("configuration").unwrap();
    RuleRelease { actor, rule: RuleUsed { name: name.into(), version: "v1".into(), written_by } }
}

fn stages(noted: &[Noted]) -> Vec<(RequestId, ReminderStage, usize)> {
    noted
        .iter()
        .map(|noted| match &noted.event.body {
            EventBody::Reminder(said) => (said.request_id, said.stage, said.escalated_to.len()),
            other => panic!("{other:?}"),
        })
        .collect()
}

async fn a_request_that_stays_open_never_expires_and_can_be_decided_after_its_deadline(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(rule(AtDeadline::Wait))).await;
    bed.clock.advance_ms(365 * 86_400_000);
    assert!(bed.store.expire_due(10).await.unwrap().is_empty());
    assert!(bed.store.presets_due(10).await.unwrap().is_empty());
    for request in walk.requests() {
        assert!(bed.store.close_due(&ana(), request, None).await.unwrap().is_none());
        let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
        assert_eq!((shown.status, shown.on_timeout), (InteractionStatus::Pending, OnTimeout::Wait));
        let reply = bed.store.decide(&ana(), decision(request, DecisionWord::Approve, "ana")).await.unwrap();
        assert!(matches!(reply, DecideReply::Taken { .. }), "{reply:?}");
    }
}

async fn people_are_reminded_once_at_each_time_and_the_run_goes_on_waiting(bed: Bed) {
    let terms = TermsRule { remind_every_ms: Some(3_000), ..rule(AtDeadline::Wait) };
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(terms)).await;
    let requests = walk.requests();
    let opened = bed.store.now().await.unwrap().as_millisecond();
    let mut events = walk.next_seq;
    for (after, stage) in [
        (5_000, ReminderStage::HalfTime),
        (10_000, ReminderStage::Deadline),
        (13_000, ReminderStage::Again),
        (16_000, ReminderStage::Again),
    ] {
        let next = bed.store.next_deadline().await.unwrap().unwrap().as_millisecond();
        assert_eq!(next - opened, after);
        let now = bed.store.now().await.unwrap().as_millisecond();
        bed.clock.advance_ms((next - now - 1) as u64);
        assert!(bed.store.remind_due(10).await.unwrap().is_empty(), "not before its time");
        bed.clock.advance_ms(1);
        let noted = bed.store.remind_due(10).await.unwrap();
        assert_eq!(stages(&noted), [(requests[0], stage, 0), (requests[1], stage, 0)]);
        for noted in &noted {
            assert_eq!((noted.owner, &noted.cx, noted.run), (Owner::Nobody, &ana(), walk.id()));
            assert_eq!(noted.event.seq, Some(events));
            let stored = bed.store.events(&ana(), walk.id(), events - 1, 1).await.unwrap().unwrap();
            assert_eq!(&*stored[0].1, noted.event.to_json());
            events += 1;
        }
        assert!(bed.store.remind_due(10).await.unwrap().is_empty(), "once");
    }
    let shown = bed.store.interaction(&ana(), requests[0]).await.unwrap().unwrap();
    assert_eq!((shown.reminders, shown.escalated_at, shown.approvers), (4, None, None));
    // It waits as it waited: no owner, the same epoch, nothing to apply, nothing to take up.
    let loaded = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!((loaded.epoch, loaded.next_seq, loaded.facts.len()), (1, events, 0));
    assert_eq!(bed.store.run(&ana(), walk.id()).await.unwrap().unwrap().status, RunStatus::Suspended);
    assert!(bed.store.recover(10).await.unwrap().is_empty());
    let chain = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap();
    assert_eq!(chain.iter().filter(|row| row.record.contains("request_reminded")).count(), 8);
    assert!(matches!(bed.store.verify(&ana(), walk.id()).await.unwrap(), Some(ChainCheck::Whole { .. })));
    // And it is carried on from there as ever.
    let reply = bed.store.decide(&ana(), decision(requests[0], DecisionWord::Approve, "ana")).await.unwrap();
    let DecideReply::Taken { noted, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((noted.owner, noted.event.seq), (Owner::Taken, Some(events)));
}

async fn a_reminder_that_a_further_group_is_told_of_says_so_and_is_kept(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(wait())).await;
    let request = walk.requests()[0];
    let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
    assert_eq!((shown.approvers, shown.escalated_at), (Some(groups(&["ops"])), None));
    bed.clock.advance_ms(5_000);
    assert_eq!(stages(&bed.store.remind_due(1).await.unwrap()), [(request, ReminderStage::HalfTime, 0)]);
    bed.clock.advance_ms(5_000);
    let noted = bed.store.remind_due(10).await.unwrap();
    let now = bed.store.now().await.unwrap();
    let EventBody::Reminder(said) = &noted[0].event.body else { panic!("{noted:?}") };
    assert_eq!((said.stage, said.on_timeout, said.at), (ReminderStage::Deadline, OnTimeout::Wait, now));
    assert_eq!(
        (&said.escalated_to, &said.approvers),
        (&groups(&["leads"]), &Some(groups(&["ops", "leads"])))
    );
    let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
    assert_eq!((shown.approvers, shown.escalated_at), (Some(groups(&["ops", "leads"])), Some(now)));
    assert_eq!((shown.reminders, shown.next_reminder), (2, None));
    let chain = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap();
    assert!(chain.iter().any(|row| row.record.contains("deadline escalated_to=leads")), "{chain:?}");
}

/// Nobody reacts to a request of ten minutes.
async fn at_half_time_it_escalates_and_the_deadline_still_denies(bed: Bed) {
    let terms = TermsRule { escalate_to: Some(groups(&["leads"])), ..rule(AtDeadline::Deny) };
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(terms)).await;
    bed.clock.advance_ms(TIMEOUT_MS / 2);
    let noted = bed.store.remind_due(10).await.unwrap();
    assert!(stages(&noted).iter().all(|(_, stage, told)| (*stage, *told) == (ReminderStage::HalfTime, 1)));
    assert_eq!(noted.len(), 2);
    bed.clock.advance_ms(TIMEOUT_MS / 2);
    assert!(bed.store.remind_due(10).await.unwrap().is_empty());
    assert_eq!(bed.store.expire_due(10).await.unwrap().len(), 2);
    for request in walk.requests() {
        let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
        assert_eq!((shown.status, shown.decision.unwrap().by.actor), (InteractionStatus::Expired, None));
    }
}

/// Nothing was running over a half-time and a deadline.
async fn what_nobody_could_be_reminded_of_in_time_is_told_once(bed: Bed) {
    let terms = TermsRule { remind_every_ms: Some(1_000), ..wait() };
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(terms.clone())).await;
    let late = Walk::suspended_with(
        &bed,
        &ana(),
        "late",
        waiting(TermsRule { at_deadline: Some(AtDeadline::Deny), ..terms }),
    )
    .await;
    bed.clock.advance_ms(1_000_500);
    // What is over expires, and is not told of first.
    let noted = bed.store.remind_due(10).await.unwrap();
    let told: Vec<_> =
        walk.requests().into_iter().map(|request| (request, ReminderStage::Deadline, 1)).collect();
    assert_eq!(stages(&noted), told);
    assert!(bed.store.remind_due(10).await.unwrap().is_empty());
    assert_eq!(
        bed.store.expire_due(10).await.unwrap().iter().filter(|noted| noted.run == late.id()).count(),
        2
    );
    bed.clock.advance_ms(499);
    assert!(bed.store.remind_due(10).await.unwrap().is_empty());
    bed.clock.advance_ms(1);
    assert_eq!(
        stages(&bed.store.remind_due(1).await.unwrap()),
        [(walk.requests()[0], ReminderStage::Again, 0)]
    );
}

async fn a_request_that_is_closed_reminds_nobody(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(wait())).await;
    let requests = walk.requests();
    bed.store.decide(&ana(), decision(requests[0], DecisionWord::Decline, "ana")).await.unwrap();
    bed.clock.advance_ms(5_000);
    assert_eq!(stages(&bed.store.remind_due(10).await.unwrap()), [(requests[1], ReminderStage::HalfTime, 0)]);
    bed.store.cancel(&ana(), walk.id(), CancelKind::Cancel).await.unwrap();
    let (mut walk, changes) = Walk::resumed(&bed.store, &ana(), walk.id()).await;
    walk.stored(changes, Next::End).await;
    bed.clock.advance_ms(TIMEOUT_MS);
    assert!(bed.store.remind_due(10).await.unwrap().is_empty());
    assert_eq!(bed.store.next_deadline().await.unwrap(), None);
    let shown = bed.store.interaction(&ana(), requests[1]).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.next_reminder), (InteractionStatus::Cancelled, None));
}

async fn reminders_are_sent_in_batches(bed: Bed) {
    for n in 0..3 {
        Walk::suspended_with(&bed, &ana(), &format!("job-{n}"), waiting(wait())).await;
    }
    bed.clock.advance_ms(5_000);
    let mut batches = Vec::new();
    loop {
        let noted = bed.store.remind_due(4).await.unwrap();
        if noted.is_empty() {
            break;
        }
        batches.push(noted.len());
    }
    assert_eq!(batches, [4, 2]);
}

async fn a_step_that_a_reminder_overtook_is_made_again(bed: Bed) {
    let mut walk = Walk::started(&bed, &ana(), "job").await;
    walk.settings = waiting(wait());
    let changes = walk.proposed().await;
    walk.stored(changes, Next::Keep).await;
    bed.clock.advance_ms(5_000);
    let noted = bed.store.remind_due(10).await.unwrap();
    assert_eq!(noted.iter().map(|noted| noted.owner).collect::<Vec<_>>(), [Owner::Here, Owner::Here]);
    let step = walk.made(holdpoint_core::run::Changes::default(), Next::Keep);
    assert_eq!(bed.store.commit(&ana(), &step).await.unwrap(), holdpoint_store::Committed::Moved);
    let loaded = bed.store.load(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!((loaded.next_seq, loaded.facts.len(), loaded.epoch), (walk.next_seq + 2, 0, 1));
}

async fn reminders_are_no_facts_and_change_no_decision(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(wait())).await;
    let requests = walk.requests();
    let first = decision(requests[0], DecisionWord::Approve, "ana");
    bed.store.decide(&ana(), first.clone()).await.unwrap();
    bed.clock.advance_ms(5_000);
    assert_eq!(bed.store.remind_due(10).await.unwrap().len(), 1);
    bed.store.decide(&ana(), decision(requests[1], DecisionWord::Decline, "ana")).await.unwrap();
    let found = facts(&bed.store, &ana(), walk.id()).await;
    assert!(matches!(found[..], [Fact::Decided { .. }, Fact::Decided { .. }]), "{found:?}");
    let again = bed.store.decide(&ana(), first).await.unwrap();
    assert!(matches!(again, DecideReply::Repeated { .. }), "{again:?}");
}

async fn a_rule_is_asked_after_the_deadline_and_only_then(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", preset()).await;
    let requests = walk.requests();
    bed.clock.advance_ms(TIMEOUT_MS - 1);
    assert!(bed.store.presets_due(10).await.unwrap().is_empty());
    assert!(bed.store.close_due(&ana(), requests[0], Some(release("night"))).await.unwrap().is_none());
    assert!(bed.store.close_due(&ana(), requests[0], None).await.unwrap().is_none());
    bed.clock.advance_ms(1);
    assert!(bed.store.expire_due(10).await.unwrap().is_empty(), "it is left to the rule");
    let due = bed.store.presets_due(1).await.unwrap();
    assert_eq!((due.len(), due[0].request, due[0].preset.as_str()), (1, requests[0], "night"));
    assert_eq!((&due[0].cx, due[0].run), (&ana(), walk.id()));
    assert_eq!(bed.store.presets_due(10).await.unwrap().len(), 2, "they are only read");

    let noted = bed.store.close_due(&ana(), requests[0], Some(release("night"))).await.unwrap().unwrap();
    assert_eq!((noted.owner, noted.run, &noted.cx), (Owner::Taken, walk.id(), &ana()));
    let now = bed.store.now().await.unwrap();
    let EventBody::Decision(said) = &noted.event.body else { panic!("{noted:?}") };
    assert_eq!((said.decision.as_str(), said.by.via, said.at), ("approve", Via::Preset, now));
    assert_eq!(said.by.actor.as_ref().unwrap().as_str(), "preset:night");
    assert_eq!(said.rule, Some(release("night").rule));
    let found = facts(&bed.store, &ana(), walk.id()).await;
    let [Fact::Decided { request, decision: stored }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (*request, stored.word, &stored.rule),
        (requests[0], DecisionWord::Approve, &Some(release("night").rule))
    );
    let shown = bed.store.interaction(&ana(), requests[0]).await.unwrap().unwrap();
    assert_eq!(
        (shown.status, shown.decision.unwrap().rule),
        (InteractionStatus::Decided, Some(Box::new(release("night").rule)))
    );
    let chain = bed.store.audit(&ana(), walk.id(), 0, 100).await.unwrap();
    let said = "approve via=preset rule=night version=v1 written_by=configuration";
    assert!(chain.last().unwrap().record.contains(said), "{chain:?}");
    assert!(matches!(bed.store.verify(&ana(), walk.id()).await.unwrap(), Some(ChainCheck::Whole { .. })));
    // Once: neither a person nor the rule again.
    assert!(bed.store.close_due(&ana(), requests[0], Some(release("night"))).await.unwrap().is_none());
    let late = bed.store.decide(&ana(), decision(requests[0], DecisionWord::Decline, "ana")).await.unwrap();
    assert!(matches!(late, DecideReply::Conflict { status: InteractionStatus::Decided, .. }), "{late:?}");
    let late = bed.store.decide(&ana(), decision(requests[1], DecisionWord::Approve, "ana")).await.unwrap();
    assert!(matches!(late, DecideReply::Expired), "{late:?}");
}

async fn a_rule_that_releases_nothing_is_an_expiry(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", preset()).await;
    let request = walk.requests()[0];
    bed.clock.advance_ms(TIMEOUT_MS);
    assert!(
        bed.store.close_due(&cx("other", "ana"), request, None).await.unwrap().is_none(),
        "another tenant's"
    );
    let noted = bed.store.close_due(&ana(), request, None).await.unwrap().unwrap();
    let EventBody::Decision(said) = &noted.event.body else { panic!("{noted:?}") };
    let by = (&said.by.actor, said.by.via, &said.rule);
    assert_eq!((said.decision.as_str(), by), ("expired", (&None, Via::Timeout, &None)));
    assert!(matches!(facts(&bed.store, &ana(), walk.id()).await[..], [Fact::Expired { .. }]));
    assert_eq!(bed.store.presets_due(10).await.unwrap().len(), 1);
}

async fn a_release_that_does_not_fit_is_an_expiry(bed: Bed) {
    // Of another preset than the request names; of none that it names; of a run that is being cancelled.
    let other = Walk::suspended_with(&bed, &ana(), "other", preset()).await;
    let plain = Walk::suspended_with(&bed, &ana(), "plain", waiting(rule(AtDeadline::Deny))).await;
    let cancelled = Walk::suspended_with(&bed, &ana(), "cancelled", preset()).await;
    bed.clock.advance_ms(TIMEOUT_MS);
    bed.store.cancel(&ana(), cancelled.id(), CancelKind::Cancel).await.unwrap();
    for (walk, name) in [(&other, "day"), (&plain, "night"), (&cancelled, "night")] {
        let request = walk.requests()[0];
        bed.store.close_due(&ana(), request, Some(release(name))).await.unwrap().unwrap();
        let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
        assert_eq!(shown.status, InteractionStatus::Expired, "{name}");
    }
}

async fn exactly_one_of_decided_expired_and_released(bed: Bed) {
    for round in 0..6 {
        let walk = Walk::suspended_with(&bed, &ana(), &format!("job-{round}"), preset()).await;
        let request = walk.requests()[0];
        bed.clock.advance_ms(TIMEOUT_MS - 1);
        let clock = Arc::clone(&bed.clock);
        let stores: [_; 3] = std::array::from_fn(|_| Arc::clone(&bed.store));
        let [one, two, three] = stores;
        let decide = tokio::spawn(async move {
            let reply = one.decide(&ana(), decision(request, DecisionWord::Decline, "ana")).await.unwrap();
            matches!(reply, DecideReply::Taken { .. })
        });
        let released = tokio::spawn(async move {
            clock.advance_ms(1);
            two.close_due(&ana(), request, Some(release("night"))).await.unwrap().is_some()
        });
        let expired =
            tokio::spawn(async move { three.close_due(&ana(), request, None).await.unwrap().is_some() });
        let won = [decide.await.unwrap(), released.await.unwrap(), expired.await.unwrap()];
        let found = facts(&bed.store, &ana(), walk.id()).await;
        assert_eq!((won.iter().filter(|won| **won).count(), found.len()), (1, 1), "round {round}: {won:?}");
        let by_rule = matches!(&found[0], Fact::Decided { decision, .. } if decision.rule.is_some());
        let by_person = matches!(&found[0], Fact::Decided { decision, .. } if decision.rule.is_none());
        assert_eq!([by_person, by_rule, matches!(found[0], Fact::Expired { .. })], won, "round {round}");
    }
}

async fn a_preset_request_is_decided_by_people_until_its_deadline(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", preset()).await;
    let request = walk.requests()[0];
    bed.clock.advance_ms(TIMEOUT_MS - 1);
    let reply = bed.store.decide(&ana(), decision(request, DecisionWord::Decline, "ana")).await.unwrap();
    assert!(matches!(reply, DecideReply::Taken { .. }), "{reply:?}");
    bed.clock.advance_ms(1);
    assert!(bed.store.close_due(&ana(), request, Some(release("night"))).await.unwrap().is_none());
}

async fn a_group_finds_what_it_is_to_decide(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(wait())).await;
    Walk::suspended(&bed, &ana(), "anybody").await;
    let run = walk.id();
    let of = async |group: &str, run| {
        let filter =
            InteractionFilter { group: Some(GroupName::new(group).unwrap()), run, ..Default::default() };
        let page = bed.store.interactions(&ana(), &filter, &PageRequest::default()).await.unwrap();
        page.items.into_iter().map(|item| item.request_id).collect::<Vec<_>>()
    };
    for run in [None, Some(run)] {
        assert_eq!(of("ops", run).await, walk.requests());
        assert_eq!(of("leads", run).await, []);
    }
    bed.clock.advance_ms(TIMEOUT_MS);
    bed.store.remind_due(10).await.unwrap();
    for run in [None, Some(run)] {
        assert_eq!(of("ops", run).await, walk.requests());
        assert_eq!(of("leads", run).await, walk.requests());
        assert_eq!(of("others", run).await, []);
    }
}

async fn figures_count_what_stays_open_beyond_its_deadline(bed: Bed) {
    let walk = Walk::suspended_with(&bed, &ana(), "job", waiting(wait())).await;
    Walk::suspended_with(&bed, &ana(), "other", waiting(rule(AtDeadline::Deny))).await;
    bed.clock.advance_ms(TIMEOUT_MS - 1);
    assert_eq!(bed.store.stats().await.unwrap().overdue, 0);
    bed.clock.advance_ms(1);
    assert_eq!(bed.store.stats().await.unwrap().overdue, 2);
    bed.store.decide(&ana(), decision(walk.requests()[0], DecisionWord::Decline, "ana")).await.unwrap();
    assert_eq!(bed.store.stats().await.unwrap().overdue, 1);
}

/// What makes the table what it was before requests could wait under terms.
pub const BEFORE_TERMS: &str = "DROP INDEX request_remind; DROP INDEX request_overdue; \
    ALTER TABLE request DROP COLUMN on_timeout; ALTER TABLE request DROP COLUMN wait_until; \
    ALTER TABLE request DROP COLUMN escalate_at; ALTER TABLE request DROP COLUMN escalated_at; \
    ALTER TABLE request DROP COLUMN reminders; ALTER TABLE request DROP COLUMN terms";

pub async fn an_open_request_kept_its_deadline(bed: Bed, request: RequestId) {
    let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
    assert_eq!((shown.on_timeout, shown.next_reminder, shown.reminders), (OnTimeout::Deny, None, 0));
    assert_eq!(shown.deadline, bed.store.next_deadline().await.unwrap());
    bed.clock.advance_ms(999);
    assert!(bed.store.expire_due(10).await.unwrap().is_empty());
    bed.clock.advance_ms(1);
    assert!(bed.store.remind_due(10).await.unwrap().is_empty());
    assert_eq!(bed.store.expire_due(10).await.unwrap().len(), 2);
}
