use holdpoint_protocol::InteractionKind::{Approval, InDoubt, Question};
use proptest::prelude::*;

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap()
}

fn groups(names: &[&str]) -> Vec<GroupName> {
    names.iter().map(|name| GroupName::new(name).unwrap()).collect()
}

fn rule(timeout_ms: u64, at_deadline: AtDeadline) -> TermsRule {
    TermsRule { timeout_ms: Some(timeout_ms), at_deadline: Some(at_deadline), ..TermsRule::default() }
}

fn of_tool(tool: &str, rule: TermsRule) -> ToolTerms {
    ToolTerms { tools: vec![tool.parse().unwrap()], rule }
}

fn preset(name: &str) -> AtDeadline {
    AtDeadline::Preset(name.into())
}

#[test]
fn a_tool_is_more_precise_than_its_agent_and_a_layer_only_tightens() {
    let terms = ApprovalTerms {
        agent: rule(60_000, AtDeadline::Wait),
        tools: vec![
            of_tool("Bash", rule(5_000, preset("night"))),
            of_tool("B*", rule(1, AtDeadline::Deny)),
            of_tool("Write", TermsRule { timeout_ms: Some(120_000), ..TermsRule::default() }),
        ],
        layers: vec![
            of_tool("*", TermsRule { timeout_ms: Some(90_000), ..TermsRule::default() }),
            of_tool("Delete", rule(10_000, AtDeadline::Deny)),
        ],
        ..ApprovalTerms::default()
    };
    for (tool, timeout, end) in [
        ("Read", 60_000, AtDeadline::Wait),
        ("Bash", 5_000, preset("night")),
        // What the tool leaves out, the agent says; what is longer than the layer allows is cut.
        ("Write", 90_000, AtDeadline::Wait),
        ("Delete", 10_000, AtDeadline::Deny),
    ] {
        let found = terms.of(tool);
        assert_eq!((found.timeout_ms, found.at_deadline), (Some(timeout), Some(end)), "{tool}");
    }
}

#[test]
fn of_two_ends_the_stricter_holds_and_two_presets_release_nothing() {
    for (one, two, holds) in [
        (AtDeadline::Deny, AtDeadline::Wait, AtDeadline::Deny),
        (AtDeadline::Deny, preset("a"), AtDeadline::Deny),
        (AtDeadline::Wait, preset("a"), AtDeadline::Wait),
        (preset("a"), preset("a"), preset("a")),
        (preset("a"), preset("b"), AtDeadline::Deny),
    ] {
        assert_eq!(one.clone().stricter(&two), holds, "{one:?} {two:?}");
        assert_eq!(two.clone().stricter(&one), holds, "{two:?} {one:?}");
    }
}

#[test]
fn a_client_can_cut_an_approval_short_and_nothing_else() {
    let wait = |own: Option<u64>, end: AtDeadline, kind, asked| {
        let rule = TermsRule { timeout_ms: own, at_deadline: Some(end), ..TermsRule::default() };
        let terms = Terms::new(rule, kind, Some(asked), at(0));
        (terms.deadline.map(|deadline| deadline.as_millisecond() - at(0).as_millisecond()), terms.at_deadline)
    };
    assert_eq!(wait(Some(100), AtDeadline::Deny, Approval, 40), (Some(40), AtDeadline::Deny));
    assert_eq!(wait(Some(100), AtDeadline::Deny, Approval, 400), (Some(100), AtDeadline::Deny));
    assert_eq!(wait(None, AtDeadline::Deny, Approval, 40), (Some(40), AtDeadline::Deny));
    assert_eq!(wait(Some(100), AtDeadline::Wait, Approval, 40), (Some(40), AtDeadline::Wait));
    // A shorter time must not be a way to have something released sooner.
    assert_eq!(wait(Some(100), preset("a"), Approval, 40), (Some(40), AtDeadline::Deny));
    assert_eq!(wait(None, preset("a"), Approval, 40), (Some(40), AtDeadline::Deny));
    assert_eq!(wait(Some(100), preset("a"), Approval, 100), (Some(100), preset("a")));
    assert_eq!(wait(Some(100), AtDeadline::Deny, InDoubt, 40), (Some(100), AtDeadline::Deny));
}

#[test]
fn no_preset_answers_a_question_or_a_doubt_and_a_doubt_is_left() {
    for (kind, end, holds, said) in [
        (Approval, preset("a"), preset("a"), OnTimeout::Policy),
        (Approval, AtDeadline::Wait, AtDeadline::Wait, OnTimeout::Wait),
        (Question, preset("a"), AtDeadline::Deny, OnTimeout::Deny),
        (Question, AtDeadline::Wait, AtDeadline::Wait, OnTimeout::Wait),
        (InDoubt, preset("a"), AtDeadline::Deny, OnTimeout::Leave),
        (InDoubt, AtDeadline::Wait, AtDeadline::Deny, OnTimeout::Leave),
    ] {
        let terms = Terms::new(rule(10, end.clone()), kind, None, at(0));
        assert_eq!((terms.on_timeout(kind), &terms.at_deadline), (said, &holds), "{kind:?} {end:?}");
    }
}

#[test]
fn what_stays_open_never_expires_and_what_expires_does_not_stay_open() {
    let terms = |end| Terms::new(rule(10, end), Approval, None, at(0));
    assert_eq!(
        (terms(AtDeadline::Wait).expires_at(), terms(AtDeadline::Wait).waits_until()),
        (None, Some(at(10)))
    );
    for end in [AtDeadline::Deny, preset("a")] {
        assert_eq!((terms(end.clone()).expires_at(), terms(end).waits_until()), (Some(at(10)), None));
    }
}

/// Every reminder of a request up to a time, when somebody looks all the time: when, which, and whether it escalates.
fn story(terms: &Terms, until: i64) -> Vec<(i64, ReminderStage, bool)> {
    let mut found = Vec::new();
    let mut next = terms.first_reminder();
    while let Some(planned) = next.filter(|planned| *planned <= at(until)) {
        let due = terms.due(planned, planned);
        found.push((planned.as_millisecond() - at(0).as_millisecond(), due.stage, due.escalates));
        next = due.next;
    }
    found
}

#[test]
fn what_stays_open_reminds_at_half_time_and_escalates_at_the_deadline_and_reminds_again() {
    use ReminderStage::{Again, Deadline, HalfTime};
    let wait = TermsRule {
        remind_every_ms: Some(4_000),
        escalate_to: Some(groups(&["leads"])),
        ..rule(10_000, AtDeadline::Wait)
    };
    let terms = Terms::new(wait.clone(), Approval, None, at(0));
    assert_eq!(
        story(&terms, 20_000),
        [(5_000, HalfTime, false), (10_000, Deadline, true), (14_000, Again, false), (18_000, Again, false)]
    );
    let once = Terms::new(TermsRule { remind_every_ms: None, ..wait }, Approval, None, at(0));
    assert_eq!(story(&once, i64::from(u32::MAX)), [(5_000, HalfTime, false), (10_000, Deadline, true)]);
}

/// Nobody reacts within ten minutes; at half time the escalation group is told, and the default stays deny.
#[test]
fn what_is_to_expire_escalates_at_half_time_where_there_is_somebody_to_escalate_to() {
    use ReminderStage::{Again, HalfTime};
    let deny = rule(600_000, AtDeadline::Deny);
    assert_eq!(story(&Terms::new(deny.clone(), Approval, None, at(0)), 600_000), []);
    let told = TermsRule { escalate_to: Some(groups(&["leads"])), ..deny.clone() };
    let terms = Terms::new(told, Approval, None, at(0));
    assert_eq!(story(&terms, 600_000), [(300_000, HalfTime, true)]);
    assert_eq!(terms.at_deadline, AtDeadline::Deny);
    let again = TermsRule { remind_every_ms: Some(120_000), ..deny };
    let terms = Terms::new(again, Approval, None, at(0));
    // Nothing is said at or after the deadline: then it is over.
    assert_eq!(
        story(&terms, 900_000),
        [(300_000, HalfTime, false), (420_000, Again, false), (540_000, Again, false)]
    );
}

#[test]
fn a_request_without_a_deadline_reminds_only_where_somebody_said_how_often() {
    let terms = |every| {
        let rule = TermsRule {
            remind_every_ms: every,
            escalate_to: Some(groups(&["leads"])),
            ..TermsRule::default()
        };
        Terms::new(rule, Approval, None, at(0))
    };
    assert_eq!(terms(None).first_reminder(), None);
    let again = ReminderStage::Again;
    assert_eq!(story(&terms(Some(3_000)), 7_000), [(3_000, again, false), (6_000, again, false)]);
    // Never a storm.
    assert_eq!(story(&terms(Some(0)), 2_000), [(1_000, again, false), (2_000, again, false)]);
}

#[test]
fn of_reminders_that_nobody_could_send_the_last_one_stands_for_all() {
    let rule = TermsRule {
        remind_every_ms: Some(4_000),
        escalate_to: Some(groups(&["leads"])),
        ..rule(10_000, AtDeadline::Wait)
    };
    let terms = Terms::new(rule, Approval, None, at(0));
    let due = terms.due(at(5_000), at(1_000_001));
    assert_eq!((due.stage, due.escalates), (ReminderStage::Deadline, true));
    assert_eq!(due.next, Some(at(1_001_000)));
    let due = terms.due(at(14_000), at(26_000));
    assert_eq!((due.stage, due.escalates, due.next), (ReminderStage::Again, false, Some(at(30_000))));
}

#[test]
fn after_the_escalation_the_further_group_may_decide_too() {
    let with = |approvers: Option<&[&str]>| {
        let rule = TermsRule {
            approvers: approvers.map(groups),
            escalate_to: Some(groups(&["leads", "ops"])),
            ..TermsRule::default()
        };
        Terms::new(rule, Approval, None, at(0))
    };
    assert_eq!(with(Some(&["ops"])).approvers(false), Some(groups(&["ops"])));
    assert_eq!(with(Some(&["ops"])).approvers(true), Some(groups(&["ops", "leads"])));
    // Where nobody is named, anybody may; naming a further group must not narrow that.
    assert_eq!(with(None).approvers(true), None);
    let leads = &groups(&["leads"])[0];
    assert!(!with(None).concerns(leads, false) && with(None).concerns(leads, true));
}

proptest! {
    #[test]
    fn a_layer_and_a_client_never_give_more_time_or_a_looser_end(
        own in prop::option::of(1u64..1_000), above in prop::option::of(1u64..1_000), asked in prop::option::of(1u64..1_000),
        ends in prop::collection::vec(prop_oneof![Just(AtDeadline::Deny), Just(AtDeadline::Wait), Just(preset("a")), Just(preset("b"))], 2),
    ) {
        let looseness = |end: &AtDeadline| match end { AtDeadline::Deny => 0, AtDeadline::Wait => 1, AtDeadline::Preset(_) => 2 };
        let one = TermsRule { timeout_ms: own, at_deadline: Some(ends[0].clone()), ..TermsRule::default() };
        let two = TermsRule { timeout_ms: above, at_deadline: Some(ends[1].clone()), ..TermsRule::default() };
        let terms = ApprovalTerms { agent: one.clone(), tools: Vec::new(), layers: vec![of_tool("*", two)], ..ApprovalTerms::default() };
        let plain = Terms::new(one, Approval, None, at(0));
        let tight = Terms::new(terms.of("x"), Approval, asked, at(0));
        prop_assert!(looseness(&tight.at_deadline) <= looseness(&plain.at_deadline));
        prop_assert!(tight.deadline.unwrap_or(Timestamp::MAX) <= plain.deadline.unwrap_or(Timestamp::MAX));
    }

    #[test]
    fn reminders_only_ever_move_forward_and_one_expiring_is_never_planned_past_its_end(
        timeout in prop::option::of(0u64..20_000), every in prop::option::of(0u64..9_000), wait in any::<bool>(),
        late in 0i64..40_000,
    ) {
        let end = if wait { AtDeadline::Wait } else { AtDeadline::Deny };
        let rule = TermsRule { timeout_ms: timeout, at_deadline: Some(end), remind_every_ms: every, ..TermsRule::default() };
        let terms = Terms::new(rule, Approval, None, at(0));
        let mut next = terms.first_reminder();
        for _ in 0..20 {
            let Some(planned) = next else { break };
            let now = at((planned.as_millisecond() - at(0).as_millisecond()) + late);
            let due = terms.due(planned, now);
            prop_assert!(due.next.is_none_or(|after| after > planned && (after > now || Some(after) == terms.waits_until())));
            prop_assert!(due.next.is_none_or(|after| terms.expires_at().is_none_or(|end| after < end)));
            next = due.next;
        }
    }
}

/// What a program says beside its configuration: never more time, never a looser end.
#[test]
fn a_tool_and_a_handler_only_make_stricter_what_is_configured() {
    use crate::tool::ToolDefinition;
    let preset = || AtDeadline::Preset("night".into());
    let pay = |approval: AtMost| ToolDefinition {
        approval,
        ..ToolDefinition::new("pay", "Pays.", serde_json::json!({"type": "object"}))
    };
    let said = |ms: u64, end| AtMost { timeout_ms: Some(ms), at_deadline: end };
    for (configured, tool, handler, ms, end) in [
        (
            (Some(10), Some(AtDeadline::Wait)),
            said(5, Some(AtDeadline::Deny)),
            AtMost::default(),
            Some(5),
            Some(AtDeadline::Deny),
        ),
        (
            (Some(10), Some(AtDeadline::Deny)),
            said(20, Some(AtDeadline::Wait)),
            AtMost::default(),
            Some(10),
            Some(AtDeadline::Deny),
        ),
        // Nobody configured an end: it is the default, and stays it.
        (
            (Some(10), None),
            said(10, Some(AtDeadline::Wait)),
            AtMost::default(),
            Some(10),
            Some(AtDeadline::Deny),
        ),
        ((Some(10), None), said(10, Some(preset())), AtMost::default(), Some(10), Some(AtDeadline::Deny)),
        // A release in nobody's presence is never brought forward.
        ((Some(10), Some(preset())), said(5, None), AtMost::default(), Some(5), Some(AtDeadline::Deny)),
        (
            (Some(10), Some(preset())),
            AtMost::default().then(AtDeadline::Wait),
            AtMost::default(),
            Some(10),
            Some(AtDeadline::Wait),
        ),
        ((None, None), AtMost::default(), said(7, None), Some(7), None),
        ((None, None), said(9, None), said(7, Some(AtDeadline::Deny)), Some(7), Some(AtDeadline::Deny)),
        ((Some(10), Some(preset())), AtMost::default(), AtMost::default(), Some(10), Some(preset())),
    ] {
        let rule = TermsRule { timeout_ms: configured.0, at_deadline: configured.1, ..TermsRule::default() };
        let terms = ApprovalTerms { agent: rule, handler: handler.clone(), ..ApprovalTerms::default() };
        let found = terms.of_approval(&pay(tool.clone()));
        assert_eq!((found.timeout_ms, found.at_deadline), (ms, end), "{tool:?} {handler:?}");
    }
}
