//! What a person is asked.

use serde::{Deserialize, Serialize};

use super::{is_false, is_zero};
use crate::{AgentName, CallId, DecisionWord, GroupName, OnTimeout, RawJson, RequestId, Timestamp};

/// Which kind of interaction it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InteractionKind {
    /// A call waits for approval.
    Approval,
    /// A question waits for an answer.
    Question,
    /// A call may have run.
    InDoubt,
    /// A run was set aside: an operator says whether it is taken up again.
    Quarantine,
}

/// A pending request, named.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The id to decide by.
    pub request_id: RequestId,
    /// Our call id; absent where it is about the run and not about one call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<CallId>,
    /// What kind it is.
    pub kind: InteractionKind,
}

/// Which policy and which rule of it made a person necessary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The policy's name.
    pub policy: String,
    /// The rule in it.
    pub rule: String,
}

/// What a person is shown, made by the server from the tool's identity and the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Render {
    /// The heading: who wants to run which tool.
    pub title: String,
    /// The arguments, one line each, in the order of the text, every deceiving character made visible.
    pub fields: Vec<RenderField>,
    /// What the reader should be warned of.
    pub warnings: Vec<String>,
}

/// One argument as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderField {
    /// The argument's name.
    pub name: String,
    /// Its value, safe to show.
    pub value: String,
}

/// `approval_request`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// The id to decide by.
    pub request_id: RequestId,
    /// Our call id.
    pub call_id: CallId,
    /// The provider's call id.
    pub tool_call_id: String,
    /// The tool.
    pub tool_name: String,
    /// The exact text that would run.
    pub arguments: String,
    /// The digest the decision binds to.
    pub digest: String,
    /// Why a person is asked.
    pub reason: Reason,
    /// The words this request can be decided with.
    pub decisions: Vec<DecisionWord>,
    /// The standing releases that could be given along with an approve.
    pub grants: Vec<String>,
    /// When what `on_timeout` says happens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline: Option<Timestamp>,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// The preset that decides then, with `on_timeout` = `policy`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub preset: Option<String>,
    /// The groups that are to decide, where some are named.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approvers: Option<Vec<GroupName>>,
    /// The groups that are told, and may decide too, when nobody does in good time.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub escalate_to: Vec<GroupName>,
    /// What to show.
    pub render: Render,
    /// The revision of the request for this call, from 0; higher when it was asked again.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub revision: u32,
    /// Why it is asked again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changed: Option<String>,
    /// True when it is sent again to a client that connects.
    #[serde(skip_serializing_if = "is_false", default)]
    pub replayed: bool,
}

/// `question_request`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionRequest {
    /// The id to answer by.
    pub request_id: RequestId,
    /// Our call id.
    pub call_id: CallId,
    /// The provider's call id.
    pub tool_call_id: String,
    /// The questions, one to four.
    pub questions: Vec<Question>,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline: Option<Timestamp>,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// True when it is sent again to a client that connects.
    #[serde(skip_serializing_if = "is_false", default)]
    pub replayed: bool,
}

/// One question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// The key of its answer.
    pub id: String,
    /// A short heading.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub header: Option<String>,
    /// The question.
    pub question: String,
    /// What can be chosen.
    pub options: Vec<QuestionOption>,
    /// Whether more than one may be chosen.
    pub multiple: bool,
    /// Whether a text of one's own is allowed.
    pub allow_freeform: bool,
    /// Whether the answer is a credential, which only the tool that needs it may see.
    pub secret: bool,
}

/// One option of a question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuestionOption {
    /// The key of the option.
    pub id: String,
    /// What is shown.
    pub label: String,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub description: Option<String>,
}

/// `in_doubt_request`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InDoubtRequest {
    /// The id to decide by.
    pub request_id: RequestId,
    /// Our call id.
    pub call_id: CallId,
    /// The provider's call id.
    pub tool_call_id: String,
    /// The tool.
    pub tool_name: String,
    /// The text it was started with.
    pub arguments: String,
    /// The digest of running it again: the same call, attempt + 1.
    pub digest: String,
    /// Which attempt is in doubt, from 1.
    pub attempt: u32,
    /// When it was started.
    pub started_at: Timestamp,
    /// A result that came after the claim was lost: evidence, not the outcome.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub late_result: Option<RawJson>,
    /// The words this request can be decided with.
    pub decisions: Vec<DecisionWord>,
    /// When it is left as unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline: Option<Timestamp>,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// What to show.
    pub render: Render,
    /// True when it is sent again to a client that connects.
    #[serde(skip_serializing_if = "is_false", default)]
    pub replayed: bool,
}

/// `quarantine_request`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuarantineRequest {
    /// The id to decide by.
    pub request_id: RequestId,
    /// The agent.
    pub agent: AgentName,
    /// The round in progress.
    pub round: u32,
    /// How many processes that had taken it up ended without getting it on.
    pub claims: u32,
    /// Since when it has been set aside.
    pub since: Timestamp,
    /// The calls that had been started and of which no end is known: each may have run.
    pub calls: Vec<UnendedCall>,
    /// What a decision binds to: this run, set aside this time, with these calls.
    pub digest: String,
    /// The words this request can be decided with: `approve` takes the run up again, `decline` ends it as failed.
    pub decisions: Vec<DecisionWord>,
    /// It stays open until an operator decides, or the run is cancelled.
    pub on_timeout: OnTimeout,
    /// What to show.
    pub render: Render,
    /// True when it is sent again to a client that connects.
    #[serde(skip_serializing_if = "is_false", default)]
    pub replayed: bool,
}

/// A call that was started, and of which no end is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnendedCall {
    /// Our call id.
    pub call_id: CallId,
    /// The tool.
    pub tool_name: String,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// When it was started.
    pub started_at: Timestamp,
}
