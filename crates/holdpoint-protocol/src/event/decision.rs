//! How requests are closed: the words, who, and the events that say so.

use serde::{Deserialize, Serialize};

use crate::{ActorId, CallId, RequestId, RuleUsed, Timestamp};

/// The words a request can be decided with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionWord {
    /// Run exactly this; take up again what was set aside.
    Approve,
    /// Run it with other arguments.
    ApproveWith,
    /// Do not run it; end what was set aside.
    Decline,
    /// Do not run it; tell the model what to do instead.
    Feedback,
    /// An answer to a question.
    Answer,
    /// In doubt: it ran, and this was its result.
    Ran,
    /// In doubt: leave it unknown.
    Leave,
}

impl DecisionWord {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::ApproveWith => "approve_with",
            Self::Decline => "decline",
            Self::Feedback => "feedback",
            Self::Answer => "answer",
            Self::Ran => "ran",
            Self::Leave => "leave",
        }
    }
}

/// `vote`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// The request.
    pub request_id: RequestId,
    /// How many approves there are.
    pub have: u32,
    /// How many it needs.
    pub need: u32,
}

/// How an interaction was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// A person.
    Human,
    /// An approval handler of the embedding program.
    Handler,
    /// A standing release.
    Grant,
    /// A named preset.
    Preset,
    /// A run started with prompts bypassed.
    Bypass,
    /// The deadline.
    Timeout,
    /// The run was cancelled.
    Cancel,
    /// Another request took its place.
    Superseded,
    /// The gate failed.
    GateError,
}

/// Who closed an interaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// The authenticated person or handler; absent where nobody decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actor: Option<ActorId>,
    /// How.
    pub via: Via,
}

/// `decision`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionEvent {
    /// The request that is closed.
    pub request_id: RequestId,
    /// The call it is about; absent where it is about the run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<CallId>,
    /// A decision word, or `expired`, `cancelled`, `superseded`, `gate_error`.
    pub decision: String,
    /// Who and how.
    pub by: By,
    /// The rule, where one took the decision.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<RuleUsed>,
    /// What the person wrote.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// The edited arguments, for `approve_with`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments: Option<String>,
    /// When.
    pub at: Timestamp,
}
