//! The control state of a run: small, serialisable, and without a message in it.

use std::collections::BTreeMap;

use holdpoint_protocol::{
    ActorId, AgentName, By, CallId, ConversationId, Executed, FinishStatus, InteractionKind, RequestId,
    RunId, Status, TenantId, Timestamp, UsageTotal,
};
use serde::{Deserialize, Serialize};

use crate::digest::{CallDigest, DefinitionDigest};
use crate::limits::Limits;
use crate::policy::Verdict;
use crate::terms::ApprovalTerms;
use crate::tool::EffectClass;

/// The version of the stored form. A newer one is left alone, visibly.
pub const SNAPSHOT_VERSION: u32 = 1;

/// One pass of an agent from an input to an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub(crate) id: RunId,
    pub(crate) tenant: TenantId,
    pub(crate) actor: ActorId,
    pub(crate) agent: AgentName,
    pub(crate) conversation: ConversationId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bypass: Option<ActorId>,
    /// The model the run was started on, where the request named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// The longest an approval of it may wait, in milliseconds, where the client that started it asked for less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approval_at_most_ms: Option<u64>,
    /// One call without a model.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) single: bool,
    pub(crate) stage: Stage,
    pub(crate) round: u32,
    pub(crate) calls: Vec<Call>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<Ending>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) suspended: bool,
    /// Its agent or its model was not loaded where it was last taken up, and that has been said.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) unavailable: bool,
    #[serde(default)]
    pub(crate) spent: Spent,
    /// A soft limit was reached: the model gets one more round to finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) over: Option<Over>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) broken_in_a_row: u8,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) past: Vec<PastCall>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form serde calls
fn is_false(value: &bool) -> bool {
    !*value
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form serde calls
fn is_zero(value: &u8) -> bool {
    *value == 0
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nothing has happened.
    New,
    /// The model has been asked for the reply of this round.
    Asking,
    /// The reply is here; its calls are being ruled on. Never stored.
    Ruling,
    /// The calls of the round are being answered.
    Answering,
    /// The run ended.
    Finished(FinishStatus),
    /// The run failed.
    Failed,
}

/// Why a run is on its way to an end before its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// Somebody cancelled it.
    Cancel { by: ActorId },
    /// A newer message takes its place.
    Supersede { by: ActorId },
    /// A person declined and said stop.
    Stop,
    /// A call could not be read and the agent is set to stop then.
    Invalid { status: Status },
}

/// How far over a soft limit the run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Over {
    /// Which limit.
    pub(crate) what: String,
    /// Whether the one more round has begun.
    pub(crate) last_round: bool,
}

/// What a run used so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    pub(crate) calls: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) per_tool: BTreeMap<String, u32>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<u64>,
    pub(crate) replies: u32,
    #[serde(default)]
    pub(crate) active_ms: u64,
}

/// A call this run has had before: to notice a repeated one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PastCall {
    /// Over tenant, tool, definition and arguments, without the position.
    pub(crate) fingerprint: CallDigest,
    pub(crate) at: Timestamp,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) declined: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<By>,
}

/// The control state of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) definition: Option<DefinitionDigest>,
    /// The digest of what may run: bound to the current revision, attempt and text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<CallDigest>,
    #[serde(default)]
    pub(crate) effect: EffectClass,
    #[serde(default)]
    pub(crate) direct: bool,
    #[serde(default)]
    pub(crate) revision: u32,
    /// Attempts that were started.
    #[serde(default)]
    pub(crate) attempts: u32,
    /// The attempt the digest names.
    #[serde(default)]
    pub(crate) digest_attempt: u32,
    /// What it needs was not loaded when its turn came, and that has been said.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) unavailable: bool,
    /// An attempt that was cut off may have taken effect, and nothing has shown whether it did.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) unsure: bool,
    /// The edited text, while the round is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) edited: Option<std::sync::Arc<str>>,
    pub(crate) state: CallState,
}

/// Where one call stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallState {
    /// It has not been ruled on.
    Proposed,
    /// A person must say something first.
    Waiting { request: RequestId, kind: InteractionKind },
    /// It may run when its turn comes.
    Cleared { release: Release },
    /// A process holds the claim and runs it.
    Executing { since: Timestamp, release: Release },
    /// A `verifiable` tool is asked whether it ran.
    Probing { since: Timestamp, release: Release },
    /// It is answered.
    Settled { status: Status, executed: Executed },
}

/// What lets a call run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Release {
    /// Policy allowed it unattended.
    Policy,
    /// A stored decision released it.
    Decision { request: RequestId, by: By },
    /// The run was started with prompts bypassed, by someone allowed to.
    Bypass { by: ActorId },
}

impl Release {
    /// The verdict that this release answers: a stricter one now asks again.
    pub(crate) fn covers(&self) -> Verdict {
        match self {
            Self::Policy => Verdict::Allow,
            Self::Decision { .. } | Self::Bypass { .. } => Verdict::Ask,
        }
    }
}

impl Call {
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state, CallState::Settled { .. })
    }

    pub(crate) fn request(&self) -> Option<(RequestId, InteractionKind)> {
        match self.state {
            CallState::Waiting { request, kind } => Some((request, kind)),
            CallState::Proposed
            | CallState::Cleared { .. }
            | CallState::Executing { .. }
            | CallState::Probing { .. }
            | CallState::Settled { .. } => None,
        }
    }
}

/// How the calls of one reply are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// When it is cleared and every earlier call has settled.
    #[default]
    Sequential,
    /// As soon as it is cleared.
    Parallel,
    /// When every call of the reply is decided.
    Hold,
}

/// What an unknown tool or broken arguments do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalidCall {
    /// The model is told, and goes on.
    #[default]
    Answer,
    /// The run stops. No tool of the reply runs.
    Stop,
}

/// How an agent's runs behave.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How the calls of one reply are started.
    pub execution: Execution,
    /// What an unknown tool or broken arguments do.
    pub on_invalid_call: OnInvalidCall,
    /// What a run may use.
    pub limits: Limits,
    /// How long a request waits for a decision, and what happens then.
    pub approval: ApprovalTerms,
}

/// How a run stands, as far as the store and its driver are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There is something to do.
    Working,
    /// Nothing can go on without a person: no owner, no task.
    Suspended,
    /// It is being cancelled, and something still runs.
    Cancelling,
    /// It ended.
    Finished,
    /// It failed.
    Failed,
}

/// Who starts a run, and what for.
#[derive(Debug, Clone)]
pub struct Birth {
    /// The run's id.
    pub id: RunId,
    /// Whose data it is.
    pub tenant: TenantId,
    /// Who is behind it.
    pub actor: ActorId,
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub conversation: ConversationId,
    /// The model, where the request named one.
    pub model: Option<String>,
    /// Set when prompts are bypassed: who was allowed to.
    pub bypass: Option<ActorId>,
}

impl Run {
    /// A run that has not begun.
    pub fn new(birth: Birth) -> Self {
        Self {
            id: birth.id,
            tenant: birth.tenant,
            actor: birth.actor,
            agent: birth.agent,
            conversation: birth.conversation,
            bypass: birth.bypass,
            model: birth.model,
            approval_at_most_ms: None,
            single: false,
            stage: Stage::New,
            round: 0,
            calls: Vec::new(),
            ending: None,
            suspended: false,
            unavailable: false,
            spent: Spent::default(),
            over: None,
            broken_in_a_row: 0,
            past: Vec::new(),
        }
    }

    /// Has its approvals wait no longer than this many milliseconds, where more is configured.
    #[must_use]
    pub fn approvals_at_most(mut self, ms: Option<u64>) -> Self {
        self.approval_at_most_ms = ms;
        self
    }

    /// The run's id.
    pub fn id(&self) -> RunId {
        self.id
    }
    /// Whose data it is.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }
    /// Who is behind it.
    pub fn actor(&self) -> &ActorId {
        &self.actor
    }
    /// The agent.
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }
    /// The conversation.
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }
    /// Where it stands.
    pub fn stage(&self) -> Stage {
        self.stage
    }
    /// The round in progress, from 1; 0 before the first.
    pub fn round(&self) -> u32 {
        self.round
    }
    /// The model the run was started on, where the request named one.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
    /// Who may bypass prompts in it.
    pub fn bypass(&self) -> Option<&ActorId> {
        self.bypass.as_ref()
    }

    /// Bypassing prompts is not granted to its actor any more: from here on it asks like any other.
    pub fn revoke_bypass(&mut self) {
        self.bypass = None;
    }

    /// What it used.
    pub fn usage(&self) -> UsageTotal {
        UsageTotal {
            input_tokens: self.spent.input_tokens,
            output_tokens: self.spent.output_tokens,
            rounds: self.spent.replies,
            tool_calls: self.spent.calls,
            cost_micro_dollars: self.spent.cost,
        }
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        match self.stage {
            Stage::Finished(_) => Standing::Finished,
            Stage::Failed => Standing::Failed,
            Stage::New | Stage::Asking | Stage::Ruling | Stage::Answering => match self.ending {
                _ if self.suspended => Standing::Suspended,
                Some(Ending::Cancel { .. } | Ending::Supersede { .. }) => Standing::Cancelling,
                Some(Ending::Stop | Ending::Invalid { .. }) | None => Standing::Working,
            },
        }
    }

    /// The open requests, in the order of the calls.
    pub fn pending(&self) -> Vec<holdpoint_protocol::Pending> {
        (0u32..)
            .zip(&self.calls)
            .filter_map(|(index, call)| {
                let (request_id, kind) = call.request()?;
                Some(holdpoint_protocol::Pending { request_id, call_id: self.call_id(index), kind })
            })
            .collect()
    }

    /// The id of a call of the open round.
    pub fn call_id(&self, index: u32) -> CallId {
        CallId { run: self.id, round: self.round, index }
    }

    /// The edited text of a call of the open round, if a person edited it.
    pub fn edited(&self, index: u32) -> Option<&std::sync::Arc<str>> {
        self.calls.get(index as usize).and_then(|call| call.edited.as_ref())
    }

    /// The digest of the definition a call of the open round was resolved to.
    pub fn definition(&self, index: u32) -> Option<DefinitionDigest> {
        self.calls.get(index as usize).and_then(|call| call.definition)
    }

    /// The tool a call of the open round names.
    pub fn tool_of(&self, index: u32) -> Option<&str> {
        self.calls.get(index as usize).map(|call| call.tool.as_str())
    }

    /// What a decision on a call of the open round binds to.
    pub fn digest_of(&self, index: u32) -> Option<CallDigest> {
        self.calls.get(index as usize).and_then(|call| call.digest)
    }

    /// The call a request is about.
    pub fn call_of(&self, request: RequestId) -> Option<u32> {
        (0u32..)
            .zip(&self.calls)
            .find(|(_, call)| call.request().is_some_and(|(id, _)| id == request))
            .map(|(index, _)| index)
    }

    /// Adds the time the run worked since it was last stored. Waiting for people is not in it.
    pub fn add_active_ms(&mut self, ms: u64) {
        self.spent.active_ms = self.spent.active_ms.saturating_add(ms);
    }
}
