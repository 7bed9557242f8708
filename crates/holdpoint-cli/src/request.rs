//! A request as the person who decides it is shown it: whole, safe, the server's own words first.

use holdpoint_protocol::{
    DecisionWord, GroupName, Interaction, InteractionKind, InteractionStatus, OnTimeout, Reason, Render,
    RequestId, Timestamp,
};
use serde::Deserialize;

use crate::fail::{Fail, Result};
use crate::term::Style;
use crate::text::{block, line, safe};

/// What requests have in common, as the event says it: an approval, one about a call in doubt, one about a run set aside.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    pub(crate) request_id: RequestId,
    #[serde(default)]
    pub(crate) tool_name: String,
    #[serde(default)]
    pub(crate) arguments: String,
    pub(crate) digest: String,
    pub(crate) decisions: Vec<DecisionWord>,
    pub(crate) render: Render,
    on_timeout: OnTimeout,
    deadline: Option<Timestamp>,
    preset: Option<String>,
    reason: Option<Reason>,
    approvers: Option<Vec<GroupName>>,
    #[serde(default)]
    escalate_to: Vec<GroupName>,
    changed: Option<String>,
    claims: Option<u32>,
    attempt: Option<u32>,
    started_at: Option<Timestamp>,
    late_result: Option<Box<serde_json::value::RawValue>>,
}

impl Asked {
    /// Out of an interaction, or out of an event.
    pub(crate) fn read(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| Fail::new(format!("the request cannot be read: {error}")))
    }

    /// Whether it is about a call that may have run.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.attempt.is_some()
    }

    /// Whether it is about a run that was set aside, and not about a call.
    pub(crate) fn is_set_aside(&self) -> bool {
        self.claims.is_some()
    }

    pub(crate) fn takes(&self, word: DecisionWord) -> bool {
        self.decisions.contains(&word)
    }

    /// The whole request. `width` is the terminal's, if it is one.
    pub(crate) fn shown(&self, style: Style, width: Option<usize>) -> String {
        let mut out = format!("{}\n", style.bold(&safe(&self.render.title)));
        if let Some(attempt) = self.attempt {
            let when = self.started_at.map(|at| format!(" at {at}")).unwrap_or_default();
            out.push_str(&format!(
                "IT MAY HAVE RUN: attempt {attempt} was started{when}; how it ended is not known, and it may still be running\n"
            ));
        }
        for field in &self.render.fields {
            out.push_str(&format!("{}:\n{}", safe(&field.name), block(&field.value, width)));
        }
        if self.render.fields.is_empty() {
            out.push_str("no arguments\n");
        }
        if let Some(result) = &self.late_result {
            out.push_str(&format!(
                "a result that came too late to count:\n{}",
                block(&line(result.get()), width)
            ));
        }
        for warning in &self.render.warnings {
            out.push_str(&format!("warning: {}\n", safe(warning)));
        }
        if let Some(changed) = &self.changed {
            out.push_str(&format!("asked again, because this changed:\n{}", block(&line(changed), width)));
        }
        out.push_str(&self.small_print(style));
        out
    }

    fn small_print(&self, style: Style) -> String {
        let mut lines = vec![format!("request {}", self.request_id)];
        if let Some(reason) = &self.reason {
            lines.push(format!("asked by policy {}, rule {}", line(&reason.policy), line(&reason.rule)));
        }
        if let Some(approvers) = self.approvers.as_deref().and_then(groups) {
            lines.push(format!("to be decided by {approvers}"));
        }
        lines.extend(
            self.deadline.map(|deadline| at_deadline(deadline, self.on_timeout, self.preset.as_deref())),
        );
        if let (Some(further), Some(_)) = (groups(&self.escalate_to), self.deadline) {
            let when = match self.on_timeout {
                OnTimeout::Wait => "at the deadline",
                OnTimeout::Deny | OnTimeout::Policy | OnTimeout::Leave => "after half of the time",
            };
            lines.push(format!("if nobody decides, {further} may decide too {when}"));
        }
        if !self.is_set_aside() {
            let characters = self.arguments.chars().count();
            lines.push(format!("{characters} characters of arguments, all of them shown"));
        }
        lines.push(format!("digest {}", line(&self.digest)));
        lines.iter().map(|line| format!("{}\n", style.dim(line))).collect()
    }
}

/// What happens at a deadline, in a sentence.
pub(crate) fn at_deadline(deadline: Timestamp, then: OnTimeout, preset: Option<&str>) -> String {
    match then {
        OnTimeout::Deny => format!("until {deadline}, then it expires and is not executed"),
        OnTimeout::Wait => format!("it stays open; at {deadline} people are reminded"),
        OnTimeout::Policy => format!(
            "until {deadline}, then {} is asked; what it does not name expires and is not executed",
            preset.map_or_else(|| "a preset".to_owned(), |name| format!("the preset {}", line(name)))
        ),
        OnTimeout::Leave => format!("until {deadline}, then it is left as unknown"),
    }
}

/// Groups, to be read.
pub(crate) fn groups(groups: &[GroupName]) -> Option<String> {
    let names: Vec<&str> = groups.iter().map(|group| group.as_str()).collect();
    (!names.is_empty()).then(|| line(&names.join(", ")))
}

/// What has become of an open interaction since it was asked, where anything has.
pub(crate) fn so_far(interaction: &Interaction) -> Option<String> {
    let times = match interaction.reminders {
        0 => return None,
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    let now = interaction.approvers.as_deref().and_then(groups);
    let told = interaction.escalated_at.map(|at| match now {
        Some(now) => format!("; since {at} to be decided by {now}"),
        None => format!("; a further group was told at {at}"),
    });
    Some(format!("people were reminded {times}{}", told.unwrap_or_default()))
}

/// How an interaction stands, in a word.
pub(crate) fn status(status: InteractionStatus) -> &'static str {
    match status {
        InteractionStatus::Pending => "pending",
        InteractionStatus::Decided => "decided",
        InteractionStatus::Expired => "expired",
        InteractionStatus::Cancelled => "cancelled",
        InteractionStatus::Superseded => "superseded",
    }
}

/// What kind of interaction it is, in a word or two.
pub(crate) fn kind(kind: InteractionKind) -> &'static str {
    match kind {
        InteractionKind::Approval => "approval",
        InteractionKind::Question => "question",
        InteractionKind::InDoubt => "in doubt",
        InteractionKind::Quarantine => "quarantine",
    }
}

/// What closed an interaction, in a sentence.
pub(crate) fn closed(interaction: &Interaction) -> Option<String> {
    let decision = interaction.decision.as_ref()?;
    let by = match &decision.by.actor {
        Some(actor) => format!(" by {}", line(actor.as_str())),
        None => String::new(),
    };
    let reason = match &decision.reason {
        Some(reason) => format!(": {}", line(reason)),
        None => String::new(),
    };
    let rule = match &decision.rule {
        Some(rule) => format!(
            " (by a rule, not by a person: {} in version {}, written by {})",
            line(&rule.name),
            line(&rule.version),
            line(rule.written_by.as_str())
        ),
        None => String::new(),
    };
    Some(format!("{}{by}{rule} at {}{reason}", line(&decision.decision), decision.at))
}

/// The one line of an interaction in a list.
pub(crate) fn title(interaction: &Interaction) -> String {
    #[derive(Deserialize)]
    struct Titled {
        render: Option<Render>,
    }
    let titled = serde_json::from_str::<Titled>(interaction.request.get()).ok();
    match titled.and_then(|titled| titled.render) {
        Some(render) => safe(&render.title),
        None => format!("{} asks", line(interaction.agent.as_str())),
    }
}
