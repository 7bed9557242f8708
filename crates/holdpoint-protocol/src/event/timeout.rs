//! What happens to a request that nobody decides: reminders, a deadline, and the rule that may decide then.

use serde::{Deserialize, Serialize};

use crate::{ActorId, CallId, GroupName, RequestId, Timestamp};

/// What happens at the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The request expires; the call is not executed.
    #[default]
    Deny,
    /// The request stays open; the deadline only reminds and escalates.
    Wait,
    /// A named preset decides.
    Policy,
    /// In doubt only: the call is left as unknown.
    Leave,
}

/// Which moment in the life of an open request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReminderStage {
    /// Half of the time until the deadline has passed.
    HalfTime,
    /// The deadline has passed, and the request stays open.
    Deadline,
    /// The configured time has passed since the last one.
    Again,
}

impl ReminderStage {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HalfTime => "half_time",
            Self::Deadline => "deadline",
            Self::Again => "again",
        }
    }
}

/// `reminder`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reminder {
    /// The request that is open.
    pub request_id: RequestId,
    /// The call it is about; absent where it is about the run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<CallId>,
    /// Why now.
    pub stage: ReminderStage,
    /// The deadline, which may have passed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline: Option<Timestamp>,
    /// What happens at it.
    pub on_timeout: OnTimeout,
    /// The groups that may decide too from here on.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub escalated_to: Vec<GroupName>,
    /// The groups that are to decide, from here on, where some are named.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approvers: Option<Vec<GroupName>>,
    /// When.
    pub at: Timestamp,
}

/// The rule that took a decision in nobody's presence: which one, as it was, and who wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleUsed {
    /// Its name.
    pub name: String,
    /// A digest of it: another one as soon as anything in it is.
    pub version: String,
    /// The authenticated person who wrote it, or `configuration`.
    pub written_by: ActorId,
}
