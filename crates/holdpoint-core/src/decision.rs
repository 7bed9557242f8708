//! What closes a request: a decision, or a fact nobody decided.

use holdpoint_protocol::{ActorId, By, DecisionWord, RawJson, RequestId, RuleUsed, Then, Timestamp};
use serde::{Deserialize, Serialize};

use crate::digest::CallDigest;

/// A decision as it is stored: taken once, never changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Decision {
    /// The word.
    pub word: DecisionWord,
    /// The authenticated person or handler, and how it came.
    pub by: By,
    /// The rule, where one decided in nobody's presence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleUsed>,
    /// The digest of what was decided on.
    pub digest: CallDigest,
    /// What the person wrote: data, quoted to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `approve_with`: the edited argument text, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// `ran`: the result the person reports. `answer`: the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
    /// What follows for the run.
    #[serde(default)]
    pub then: Then,
    /// When, by the store's clock.
    pub at: Timestamp,
}

/// Why a run is being ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelKind {
    /// Somebody cancelled it.
    Cancel,
    /// A newer message of the conversation takes its place.
    Supersede,
}

/// Something that happened to a run from outside, stored before the run knows of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// A request was decided.
    Decided {
        /// The request.
        request: RequestId,
        /// How.
        decision: Box<Decision>,
    },
    /// Nobody decided a request before its deadline.
    Expired {
        /// The request.
        request: RequestId,
    },
    /// The handler that should have decided failed.
    GateError {
        /// The request.
        request: RequestId,
    },
    /// The run was set aside: every process that carried it on ended. It goes on when an operator's decision on this request
    /// says so, or ends.
    SetAside {
        /// The request that an operator decides.
        request: RequestId,
    },
    /// The run was cancelled.
    Cancelled {
        /// By whom.
        by: ActorId,
        /// Why.
        kind: CancelKind,
    },
}
