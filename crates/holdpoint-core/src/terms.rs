//! How long a request waits for a person, and what happens when nobody says anything.
//!
//! A [`TermsRule`] is what configuration says; each of its parts may be left out. The agent's own rule is the widest,
//! that of a tool is more precise and wins, and a layer of policy or the client that starts a run can only *tighten*
//! what comes out: a shorter time, a stricter end. [`ApprovalTerms::of`] puts them together, and [`Terms`] is what
//! one request then waits under, with times instead of spans. It is kept with the request: what a person was shown is
//! what holds, whatever configuration says by the time the deadline passes.
//!
//! Nothing here releases a call. A timeout ends a request ([`AtDeadline::Deny`]), only reminds ([`AtDeadline::Wait`]),
//! or lets a named preset be asked ([`AtDeadline::Preset`]), which is bound by everything that binds a person.

use std::time::Duration;

use holdpoint_protocol::{GroupName, InteractionKind, OnTimeout, ReminderStage, Timestamp};
use serde::{Deserialize, Serialize};

use crate::policy::Glob;
use crate::tool::ToolDefinition;

/// The shortest time between two reminders of one request, in milliseconds. A shorter one is taken to be this.
pub const REMIND_EVERY_MIN_MS: u64 = 1_000;

/// What happens to a request that nobody decided by its deadline.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtDeadline {
    /// It expires, and its call is not executed.
    #[default]
    Deny,
    /// It stays open: the deadline only reminds and escalates.
    Wait,
    /// The preset of this name is asked. What it does not name expires.
    Preset(String),
}

impl AtDeadline {
    /// The stricter of two. A preset may release in nobody's presence, so it is the loosest; of two different ones
    /// neither is stricter, and then none releases.
    fn stricter(self, other: &Self) -> Self {
        match (&self, other) {
            (Self::Deny, _) | (_, Self::Deny) => Self::Deny,
            (Self::Wait, _) | (_, Self::Wait) => Self::Wait,
            (Self::Preset(one), Self::Preset(two)) if one == two => self,
            (Self::Preset(_), Self::Preset(_)) => Self::Deny,
        }
    }
}

/// What is said of how requests wait. What is left out is said by a wider rule, or has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TermsRule {
    /// How long until the deadline, in milliseconds; without a deadline when nobody says.
    pub timeout_ms: Option<u64>,
    /// What happens at the deadline; [`AtDeadline::Deny`] when nobody says.
    pub at_deadline: Option<AtDeadline>,
    /// How long after a reminder the next one comes, in milliseconds.
    pub remind_every_ms: Option<u64>,
    /// The groups that are to decide.
    pub approvers: Option<Vec<GroupName>>,
    /// The groups that may decide too when nobody has in good time.
    pub escalate_to: Option<Vec<GroupName>>,
}

impl TermsRule {
    /// A deadline after this time, and what happens at it.
    pub fn within(timeout: Duration, at_deadline: AtDeadline) -> Self {
        Self { timeout_ms: Some(ms_of(timeout)), at_deadline: Some(at_deadline), ..Self::default() }
    }

    /// A reminder this long after each reminder.
    #[must_use]
    pub fn remind_every(mut self, every: Duration) -> Self {
        self.remind_every_ms = Some(ms_of(every));
        self
    }

    /// These groups are to decide.
    #[must_use]
    pub fn approvers(mut self, groups: impl IntoIterator<Item = GroupName>) -> Self {
        self.approvers = Some(groups.into_iter().collect());
        self
    }

    /// These groups may decide too when nobody has in good time.
    #[must_use]
    pub fn escalate_to(mut self, groups: impl IntoIterator<Item = GroupName>) -> Self {
        self.escalate_to = Some(groups.into_iter().collect());
        self
    }

    /// This rule, with what it leaves out taken from a wider one.
    #[must_use]
    pub fn or(self, wider: &Self) -> Self {
        Self {
            timeout_ms: self.timeout_ms.or(wider.timeout_ms),
            at_deadline: self.at_deadline.or_else(|| wider.at_deadline.clone()),
            remind_every_ms: self.remind_every_ms.or(wider.remind_every_ms),
            approvers: self.approvers.or_else(|| wider.approvers.clone()),
            escalate_to: self.escalate_to.or_else(|| wider.escalate_to.clone()),
        }
    }

    /// This rule under a layer above it: the shorter time, the stricter end, the layer's groups where it names some.
    #[must_use]
    fn under(self, layer: &Self) -> Self {
        Self {
            timeout_ms: least(self.timeout_ms, layer.timeout_ms),
            at_deadline: match (self.at_deadline, &layer.at_deadline) {
                (Some(own), Some(above)) => Some(own.stricter(above)),
                (own, above) => own.or_else(|| above.clone()),
            },
            remind_every_ms: least(self.remind_every_ms, layer.remind_every_ms),
            approvers: layer.approvers.clone().or(self.approvers),
            escalate_to: layer.escalate_to.clone().or(self.escalate_to),
        }
    }

    /// This rule under what a tool or a handler says. What nobody configured has its default, which is not loosened.
    #[must_use]
    fn at_most(self, bound: &AtMost) -> Self {
        let at_deadline = match &bound.at_deadline {
            Some(end) => Some(self.at_deadline.clone().unwrap_or_default().stricter(end)),
            None => self.at_deadline.clone(),
        };
        Self { at_deadline, ..self }.shortened(bound.timeout_ms)
    }

    /// This rule for somebody who asks for less time. A request cut short is never released by a preset: who may ask
    /// for less time must not bring an unattended release forward.
    #[must_use]
    fn shortened(self, to_ms: Option<u64>) -> Self {
        match to_ms {
            Some(ms) if self.timeout_ms.is_none_or(|own| ms < own) => {
                let at_deadline = match self.at_deadline {
                    Some(AtDeadline::Preset(_)) => Some(AtDeadline::Deny),
                    kept @ (Some(AtDeadline::Deny | AtDeadline::Wait) | None) => kept,
                };
                Self { timeout_ms: Some(ms), at_deadline, ..self }
            }
            Some(_) | None => self,
        }
    }
}

/// What a tool or an approval handler says of how its requests wait. It can only make what is configured stricter: a shorter time, a
/// stricter end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AtMost {
    /// The longest time until the deadline, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What happens at the deadline at the most: with [`AtDeadline::Deny`] it expires, whatever is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_deadline: Option<AtDeadline>,
}

impl AtMost {
    /// No longer than this.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout_ms = Some(ms_of(timeout));
        self
    }

    /// At the deadline this, or something stricter.
    #[must_use]
    pub fn then(mut self, what: AtDeadline) -> Self {
        self.at_deadline = Some(what);
        self
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn ms_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn least(one: Option<u64>, two: Option<u64>) -> Option<u64> {
    [one, two].into_iter().flatten().min()
}

/// What is said of the requests for some tools.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolTerms {
    /// The tools.
    pub tools: Vec<Glob>,
    /// What is said.
    pub rule: TermsRule,
}

impl ToolTerms {
    fn is_for(&self, tool: &str) -> bool {
        self.tools.iter().any(|glob| glob.matches(tool))
    }
}

/// Everything that is said of how the requests of an agent wait.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalTerms {
    /// Of all its requests.
    pub agent: TermsRule,
    /// Of those for some tools, more precisely. The first that is for a tool is taken.
    pub tools: Vec<ToolTerms>,
    /// By layers of policy, from the outermost inwards. Each that is for a tool tightens.
    pub layers: Vec<ToolTerms>,
    /// By the approval handler: tightens the approvals of all tools.
    pub handler: AtMost,
}

impl ApprovalTerms {
    /// What holds for a tool.
    pub fn of(&self, tool: &str) -> TermsRule {
        let own = self.tools.iter().find(|terms| terms.is_for(tool));
        let own = own.map_or_else(TermsRule::default, |terms| terms.rule.clone()).or(&self.agent);
        let layers = self.layers.iter().filter(|terms| terms.is_for(tool));
        layers.rev().fold(own, |rule, layer| rule.under(&layer.rule))
    }

    /// What holds for an approval of a tool, with what the handler and the tool itself say.
    pub fn of_approval(&self, tool: &ToolDefinition) -> TermsRule {
        self.of(&tool.name).at_most(&self.handler).at_most(&tool.approval)
    }

    /// Every preset that is named somewhere.
    pub fn presets(&self) -> impl Iterator<Item = &str> {
        let rules = self.tools.iter().chain(&self.layers).map(|terms| &terms.rule);
        std::iter::once(&self.agent).chain(rules).filter_map(|rule| match &rule.at_deadline {
            Some(AtDeadline::Preset(name)) => Some(name.as_str()),
            Some(AtDeadline::Deny | AtDeadline::Wait) | None => None,
        })
    }
}

/// What one request waits under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// When it was asked.
    pub asked_at: Timestamp,
    /// The deadline; it never ends without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What happens at the deadline.
    #[serde(default)]
    pub at_deadline: AtDeadline,
    /// How long after a reminder the next one comes, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_every_ms: Option<u64>,
    /// The groups that are to decide, where some are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Vec<GroupName>>,
    /// The groups that may decide too when nobody has in good time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalate_to: Vec<GroupName>,
}

/// A reminder that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Which one.
    pub stage: ReminderStage,
    /// Whether the further groups may decide from here on.
    pub escalates: bool,
    /// When the next one is due.
    pub next: Option<Timestamp>,
}

impl Terms {
    /// What a request of this kind that is asked now waits under. `at_most_ms` is what the client that started the run
    /// asked for: it can cut an approval short and nothing else.
    pub fn new(rule: TermsRule, kind: InteractionKind, at_most_ms: Option<u64>, now: Timestamp) -> Self {
        let rule = match kind {
            InteractionKind::Approval => rule.shortened(at_most_ms),
            InteractionKind::Question | InteractionKind::InDoubt => rule,
        };
        let at_deadline = match (kind, rule.at_deadline.unwrap_or_default()) {
            (InteractionKind::Approval, any) => any,
            (InteractionKind::Question, AtDeadline::Wait) => AtDeadline::Wait,
            // No preset answers a question, and a doubt is left at its deadline whatever is configured.
            (InteractionKind::Question, AtDeadline::Deny | AtDeadline::Preset(_))
            | (InteractionKind::InDoubt, _) => AtDeadline::Deny,
        };
        Self {
            asked_at: now,
            deadline: rule.timeout_ms.and_then(|ms| later(now, ms)),
            at_deadline,
            remind_every_ms: rule.remind_every_ms.map(|ms| ms.max(REMIND_EVERY_MIN_MS)),
            approvers: rule.approvers,
            escalate_to: rule.escalate_to.unwrap_or_default(),
        }
    }

    /// A plain deadline, or none: what a request has when nothing else is said.
    pub fn plain(asked_at: Timestamp, deadline: Option<Timestamp>) -> Self {
        Self {
            asked_at,
            deadline,
            at_deadline: AtDeadline::Deny,
            remind_every_ms: None,
            approvers: None,
            escalate_to: Vec::new(),
        }
    }

    /// Whether there is nothing to them but a deadline.
    pub fn is_plain(&self) -> bool {
        self.at_deadline == AtDeadline::Deny
            && self.remind_every_ms.is_none()
            && self.approvers.is_none()
            && self.escalate_to.is_empty()
    }

    /// When it can be decided no longer. Never, for one that stays open.
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self.at_deadline {
            AtDeadline::Wait => None,
            AtDeadline::Deny | AtDeadline::Preset(_) => self.deadline,
        }
    }

    /// The deadline of one that stays open.
    pub fn waits_until(&self) -> Option<Timestamp> {
        match self.at_deadline {
            AtDeadline::Wait => self.deadline,
            AtDeadline::Deny | AtDeadline::Preset(_) => None,
        }
    }

    /// What is said to happen at the deadline of a request of this kind.
    pub fn on_timeout(&self, kind: InteractionKind) -> OnTimeout {
        match (kind, &self.at_deadline) {
            (InteractionKind::InDoubt, _) => OnTimeout::Leave,
            (InteractionKind::Approval | InteractionKind::Question, AtDeadline::Deny) => OnTimeout::Deny,
            (InteractionKind::Approval | InteractionKind::Question, AtDeadline::Wait) => OnTimeout::Wait,
            (InteractionKind::Approval | InteractionKind::Question, AtDeadline::Preset(_)) => {
                OnTimeout::Policy
            }
        }
    }

    /// The preset that is asked at the deadline.
    pub fn preset(&self) -> Option<&str> {
        match &self.at_deadline {
            AtDeadline::Preset(name) => Some(name),
            AtDeadline::Deny | AtDeadline::Wait => None,
        }
    }

    /// The groups that are to decide, before or after a further one was told.
    pub fn approvers(&self, escalated: bool) -> Option<Vec<GroupName>> {
        let mut groups = self.approvers.clone()?;
        if escalated {
            groups.extend(
                self.escalate_to.iter().filter(|group| !groups.contains(group)).cloned().collect::<Vec<_>>(),
            );
        }
        Some(groups)
    }

    /// Whether a group is to decide, or is told.
    pub fn concerns(&self, group: &GroupName, escalated: bool) -> bool {
        self.approvers.iter().flatten().any(|named| named == group)
            || (escalated && self.escalate_to.contains(group))
    }

    /// When the first reminder is due. A request that ends at its deadline reminds nobody unless somebody said so.
    pub fn first_reminder(&self) -> Option<Timestamp> {
        let said = !self.escalate_to.is_empty() || self.remind_every_ms.is_some();
        match self.half_time() {
            Some(half) if said || self.at_deadline == AtDeadline::Wait => Some(half),
            Some(_) => None,
            None => self.remind_every_ms.and_then(|ms| later(self.asked_at, ms)),
        }
    }

    fn half_time(&self) -> Option<Timestamp> {
        let (from, to) = (self.asked_at.as_millisecond(), self.deadline?.as_millisecond());
        Timestamp::from_millisecond(from + (to - from) / 2).ok()
    }

    /// What the reminder is that was planned for a time that has come. Of those that nobody could send in their time -
    /// nothing was running - the last one stands for all.
    pub fn due(&self, planned: Timestamp, now: Timestamp) -> Due {
        let waits = self.at_deadline == AtDeadline::Wait;
        let stage = match (self.half_time(), self.deadline) {
            (Some(_), Some(deadline)) if waits && planned <= deadline && now >= deadline => {
                ReminderStage::Deadline
            }
            (Some(half), Some(_)) if planned <= half => ReminderStage::HalfTime,
            (Some(_) | None, _) => ReminderStage::Again,
        };
        let escalates = !self.escalate_to.is_empty()
            && match stage {
                ReminderStage::HalfTime => !waits,
                ReminderStage::Deadline => true,
                ReminderStage::Again => false,
            };
        let next = match stage {
            ReminderStage::HalfTime if waits => self.deadline,
            ReminderStage::HalfTime | ReminderStage::Deadline | ReminderStage::Again => {
                self.next_after(planned, now).filter(|next| self.expires_at().is_none_or(|end| *next < end))
            }
        };
        Due { stage, escalates, next }
    }

    /// The next of the regular reminders that is still to come.
    fn next_after(&self, planned: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let every = i64::try_from(self.remind_every_ms?.max(REMIND_EVERY_MIN_MS)).ok()?;
        let (planned, now) = (planned.as_millisecond(), now.as_millisecond());
        let passed = (now - planned).max(0) / every;
        Timestamp::from_millisecond(planned.checked_add(every.checked_mul(passed + 1)?)?).ok()
    }
}

fn later(from: Timestamp, ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(from.as_millisecond().checked_add(i64::try_from(ms).ok()?)?).ok()
}

#[cfg(test)]
mod tests;
