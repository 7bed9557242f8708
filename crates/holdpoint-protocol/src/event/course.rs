//! The course of a run: how it begins, what its model says, what its calls do, how it ends.

use serde::{Deserialize, Serialize};

use super::is_false;
use crate::{ActorId, AgentName, CallId, ConversationId, Executed, Pending, RawJson, Status};

/// `run_started`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// The agent that runs.
    pub agent: AgentName,
    /// The conversation it belongs to.
    pub conversation_id: ConversationId,
    /// The names of the tools the model may call.
    pub tools: Vec<String>,
    /// Set when the run was started with prompts bypassed: who was allowed to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bypass: Option<ActorId>,
}

/// `token` and `reasoning`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Piece {
    /// The text.
    pub data: String,
}

/// `message`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundMessage {
    /// The round, from 1.
    pub round: u32,
    /// The model's text.
    pub text: String,
    /// The model's reasoning, where it shows it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reasoning: Option<String>,
    /// Set when the reply did not end well: `malformed_stream` or `stream_interrupted`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub incomplete: Option<Status>,
}

/// `tool_call`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCalls {
    /// The calls, in the order of the reply.
    pub tool_calls: Vec<ProposedCall>,
}

/// A call as the model proposed it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProposedCall {
    /// The provider's id: data, possibly empty or repeated.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The argument text, exactly as the model wrote it.
    pub arguments: String,
    /// Our id.
    pub call_id: CallId,
}

/// `tool_started`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolStarted {
    /// The provider's call id.
    pub tool_call_id: String,
    /// Our call id.
    pub call_id: CallId,
    /// Which attempt, from 1.
    pub attempt: u32,
}

/// `tool_progress`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolProgress {
    /// The provider's call id.
    pub tool_call_id: String,
    /// Our call id.
    pub call_id: CallId,
    /// What the tool says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// How far it is, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fraction: Option<f64>,
}

/// `tool_result`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResults {
    /// The calls that settled.
    pub tool_results: Vec<ToolResult>,
}

/// How one call ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The provider's call id.
    pub id: String,
    /// Our call id.
    pub call_id: CallId,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// The stable reason code.
    pub code: String,
    /// What the model is told: a JSON string for text, else the JSON value. Never empty.
    pub result: RawJson,
    /// Whether it took effect.
    pub executed: Executed,
    /// Whether the result is an error of the tool.
    #[serde(skip_serializing_if = "is_false", default)]
    pub is_error: bool,
}

/// `round_committed` and `round_restarted`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// The round, from 1.
    pub round: u32,
}

/// `notice`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// The stable code.
    pub code: String,
    /// What happened.
    pub message: String,
    /// The call it concerns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<CallId>,
}

/// `suspended`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Suspended {
    /// What it waits for.
    pub interactions: Vec<Pending>,
}

/// `resumed`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resumed {
    /// `decision`, `timeout`, `recovery`.
    pub by: String,
}

/// How a run ended, where it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishStatus {
    /// The model gave its answer.
    Success,
    /// A person said stop.
    Stopped,
    /// A limit ended it.
    LimitExceeded,
    /// It was cancelled.
    Cancelled,
    /// A new message took its place.
    Superseded,
}

/// `finish`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finish {
    /// How it ended.
    pub status: FinishStatus,
    /// The answer.
    pub text: String,
    /// The results, when they are the answer themselves (`return_direct`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub results: Option<Vec<ToolResult>>,
    /// What was used, over all rounds.
    pub usage: UsageTotal,
}

/// What a run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageTotal {
    /// Tokens sent to models.
    pub input_tokens: u64,
    /// Tokens that came back.
    pub output_tokens: u64,
    /// Model replies.
    pub rounds: u32,
    /// Calls proposed.
    pub tool_calls: u32,
    /// What the tokens cost, in millionths of a dollar; absent where no model of the run has a price.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_micro_dollars: Option<u64>,
}

/// `closing`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Closing {
    /// `shutdown`, `slow_reader`, or `unavailable`: it could not be opened just now.
    pub reason: String,
    /// When to come back, in milliseconds.
    pub retry_after_ms: u64,
}

/// `error`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunError {
    /// The stable code.
    pub code: String,
    /// What went wrong, without anything internal.
    pub message: String,
    /// Whether the same request could succeed later.
    pub retryable: bool,
}

/// `heartbeat`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Whether the server cannot store or read just now: nothing is lost by it, and nothing is shown before it can.
    #[serde(skip_serializing_if = "is_false", default)]
    pub degraded: bool,
}
