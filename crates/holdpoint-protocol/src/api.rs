//! The bodies of requests and answers.

use serde::{Deserialize, Serialize};

use crate::{
    ActorId, AgentName, By, ConversationId, DecisionWord, FinishStatus, GroupName, InteractionKind,
    OnTimeout, Pending, RawJson, RequestId, RuleUsed, RunId, Timestamp, UsageTotal,
};

/// `POST /chat` and `POST /chat/stream`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatRequest {
    /// What the user says.
    pub query: String,
    /// The agent; the default one when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<AgentName>,
    /// One of the models the agent allows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The conversation to go on with; a new one when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub conversation_id: Option<ConversationId>,
    /// Run without prompts, where configuration allows this caller to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bypass_approval: Option<bool>,
    /// How long the requests of this run wait, in milliseconds, where that is shorter than what is configured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_timeout_ms: Option<u64>,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It works.
    Running,
    /// It waits for a person; nothing is in memory.
    Suspended,
    /// It is being cancelled.
    Cancelling,
    /// It ended.
    Finished,
    /// It failed.
    Failed,
    /// It was set aside after failing to make progress; an operator says what becomes of it.
    Quarantined,
}

/// `GET /v1/runs/{runId}` and a row of `GET /v1/runs`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// The run.
    pub run_id: RunId,
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Who started it.
    pub actor: ActorId,
    /// How it stands.
    pub status: RunStatus,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finish: Option<FinishStatus>,
    /// The answer, once there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
    /// The direct results, where they are the answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub results: Option<RawJson>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<crate::RunError>,
    /// What it waits for.
    pub pending: Vec<Pending>,
    /// What it used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub usage: Option<UsageTotal>,
    /// When it was started.
    pub created_at: Timestamp,
}

/// One interaction: `GET /v1/interactions/{requestId}` and a row of the inbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interaction {
    /// The id to decide by.
    pub request_id: RequestId,
    /// The run.
    pub run_id: RunId,
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// What kind it is.
    pub kind: InteractionKind,
    /// `pending`, `decided`, `expired`, `cancelled`, `superseded`.
    pub status: InteractionStatus,
    /// The request, the same object as the event that announced it.
    pub request: RawJson,
    /// The number of that event in its run's log.
    pub seq: u64,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When what `on_timeout` says happens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline: Option<Timestamp>,
    /// What happens at the deadline.
    pub on_timeout: OnTimeout,
    /// The groups that are to decide, as it is now, where some are named.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approvers: Option<Vec<GroupName>>,
    /// When a further group was told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub escalated_at: Option<Timestamp>,
    /// How many times people were reminded.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub reminders: u32,
    /// When they are reminded next, if nobody decides.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_reminder: Option<Timestamp>,
    /// How it was closed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decision: Option<DecisionView>,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// How an interaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InteractionStatus {
    /// Open.
    Pending,
    /// A decision closed it.
    Decided,
    /// The deadline closed it.
    Expired,
    /// The run was cancelled.
    Cancelled,
    /// Another request took its place.
    Superseded,
}

/// What closed an interaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionView {
    /// The word.
    pub decision: String,
    /// Who and how.
    pub by: By,
    /// The rule, where one took the decision.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<Box<RuleUsed>>,
    /// What the person wrote.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// What follows for the run after a decline or feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The model goes on.
    #[default]
    Continue,
    /// The batch is settled and the run ends.
    Stop,
}

/// A decision as a client of ours posts it. (The server reads the body itself, byte-exact; this is for writing.)
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRequest {
    /// The word.
    pub decision: DecisionWord,
    /// What the person wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The edited argument text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// In doubt, `ran`: the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
    /// The digest of what was shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// What follows for the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<Then>,
}

/// `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Problem {
    /// A URI reference that names the kind of problem.
    pub r#type: String,
    /// The kind of problem, in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This occurrence: what, where, what to do.
    pub detail: String,
    /// The stable code.
    pub code: String,
}

/// A page of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page starts; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
}
