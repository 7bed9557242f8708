//! How a call ended: the words are stable, on the wire, in the store and for the model.

use serde::{Deserialize, Serialize};

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The tool ran and returned a result.
    Succeeded,
    /// A person edited the arguments; the tool ran with the edited ones.
    ExecutedWithChanges,
    /// A person said no.
    Declined,
    /// A person said no, and what to do instead.
    Feedback,
    /// Nobody decided before the deadline.
    Expired,
    /// A policy denies this call.
    PolicyDenied,
    /// This caller may not use this tool.
    Forbidden,
    /// The run was cancelled first.
    Cancelled,
    /// A newer message or request took its place.
    Superseded,
    /// A limit was reached.
    Limit,
    /// The arguments could not be read, or do not fit the tool's schema.
    InvalidArguments,
    /// The arguments are over the size bound.
    ArgumentsTooLarge,
    /// No tool of that name was offered in this round.
    UnknownTool,
    /// The reply ended by length or a filter: its calls do not stand.
    MalformedStream,
    /// The reply broke off: its calls do not stand.
    StreamInterrupted,
    /// The gate itself failed (a handler, a hook): not executed.
    GateError,
    /// The tool ran and reported an error.
    Failed,
    /// The tool did not return in its time.
    TimedOut,
    /// Whether the tool took effect is not known.
    OutcomeUnknown,
}

impl Status {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::ExecutedWithChanges => "executed_with_changes",
            Self::Declined => "declined",
            Self::Feedback => "feedback",
            Self::Expired => "expired",
            Self::PolicyDenied => "policy_denied",
            Self::Forbidden => "forbidden",
            Self::Cancelled => "cancelled",
            Self::Superseded => "superseded",
            Self::Limit => "limit",
            Self::InvalidArguments => "invalid_arguments",
            Self::ArgumentsTooLarge => "arguments_too_large",
            Self::UnknownTool => "unknown_tool",
            Self::MalformedStream => "malformed_stream",
            Self::StreamInterrupted => "stream_interrupted",
            Self::GateError => "gate_error",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// Whether a call took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executed {
    /// It ran to its end.
    Yes,
    /// It was never started, or the tool proves that it had no effect.
    No,
    /// It was started and may have taken effect.
    Unknown,
}

impl Executed {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}
