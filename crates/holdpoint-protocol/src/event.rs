//! The events of a run: one JSON object each, its kind in `type`.
//!
//! A durable event has a sequence number that rises by one within a root run; it is the SSE `id`.
//! `token`, `reasoning`, `heartbeat` and `closing` are not durable and have none.

use serde::{Deserialize, Serialize};

use crate::{
    ActorId, AgentName, CallId, ConversationId, Executed, GroupName, OnTimeout, RawJson, Reminder, RequestId,
    RuleUsed, RunId, Status, Timestamp,
};

/// One event of a run.
#[derive(Debug, Clone)]
pub struct Event {
    /// The sequence number, for a durable event.
    pub seq: Option<u64>,
    /// The root run.
    pub run_id: RunId,
    /// Set when the event is of a subagent's run; its kind is then written `subagent_<type>`.
    pub child: Option<Child>,
    /// What happened.
    pub body: EventBody,
}

/// Which subagent an event is of.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Child {
    /// The subagent's own run.
    pub child_run_id: RunId,
    /// The subagent's name.
    pub name: AgentName,
    /// The way down from the root: `main/researcher`.
    pub path: String,
}

macro_rules! event_bodies {
    ($($(#[$doc:meta])* $variant:ident($body:ty) = $word:literal, durable: $durable:literal;)*) => {
        /// What happened, by kind.
        #[derive(Debug, Clone)]
        pub enum EventBody { $($(#[$doc])* $variant($body),)* }

        impl EventBody {
            /// The word in `type`.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $word,)* }
            }

            /// Whether the event is kept in the log and carries a sequence number.
            pub fn is_durable(&self) -> bool {
                match self { $(Self::$variant(_) => $durable,)* }
            }

            fn write(&self, head: &Head<'_>) -> Result<String, serde_json::Error> {
                match self { $(Self::$variant(body) => serde_json::to_string(&Whole { head, body }),)* }
            }

            fn read(kind: &str, json: &str) -> Result<Self, serde_json::Error> {
                match kind {
                    $($word => serde_json::from_str::<$body>(json).map(Self::$variant),)*
                    other => Err(serde::de::Error::custom(format!("unknown event type `{other}`"))),
                }
            }
        }
    };
}

event_bodies! {
    /// The run exists in the store.
    RunStarted(RunStarted) = "run_started", durable: true;
    /// A piece of the model's text.
    Token(Piece) = "token", durable: false;
    /// A piece of the model's reasoning.
    Reasoning(Piece) = "reasoning", durable: false;
    /// A round's text is complete.
    Message(RoundMessage) = "message", durable: true;
    /// The model's calls, complete, before anything else happens to them.
    ToolCall(ToolCalls) = "tool_call", durable: true;
    /// A person must decide.
    ApprovalRequest(ApprovalRequest) = "approval_request", durable: true;
    /// The agent asks a question.
    QuestionRequest(QuestionRequest) = "question_request", durable: true;
    /// A call may have run; a person says what is to be done.
    InDoubtRequest(InDoubtRequest) = "in_doubt_request", durable: true;
    /// An approve is stored, the quorum is open.
    Vote(Vote) = "vote", durable: true;
    /// An interaction has been open for long: people are reminded, and perhaps a further group may decide.
    Reminder(Reminder) = "reminder", durable: true;
    /// An interaction is closed.
    Decision(DecisionEvent) = "decision", durable: true;
    /// The claim on a call is taken; it is about to run.
    ToolStarted(ToolStarted) = "tool_started", durable: true;
    /// A sign of life from a running tool.
    ToolProgress(ToolProgress) = "tool_progress", durable: true;
    /// Calls have settled.
    ToolResult(ToolResults) = "tool_result", durable: true;
    /// The round is in the history.
    RoundCommitted(Round) = "round_committed", durable: true;
    /// The round is asked again after tokens were shown; what was shown of it is void.
    RoundRestarted(Round) = "round_restarted", durable: true;
    /// Something a watcher should know that changes nothing: more than one choice, an invalid call.
    Notice(Notice) = "notice", durable: true;
    /// Nothing can go on without a person.
    Suspended(Suspended) = "suspended", durable: true;
    /// The run goes on.
    Resumed(Resumed) = "resumed", durable: true;
    /// The run ended.
    Finish(Finish) = "finish", durable: true;
    /// This connection ends, not the run.
    Closing(Closing) = "closing", durable: false;
    /// The run failed.
    Error(RunError) = "error", durable: true;
    /// A sign of life from the stream.
    Heartbeat(Empty) = "heartbeat", durable: false;
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    r#type: &'a str,
    run_id: RunId,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    child: Option<&'a Child>,
}

#[derive(Serialize)]
struct Whole<'a, B> {
    #[serde(flatten)]
    head: &'a Head<'a>,
    #[serde(flatten)]
    body: &'a B,
}

impl Event {
    /// The JSON object that goes into `data:`. The sequence number is not in it.
    pub fn to_json(&self) -> String {
        let prefixed;
        let kind = match (&self.child, &self.body) {
            (None, body) | (Some(_), body @ EventBody::Heartbeat(_)) => body.kind(),
            (Some(_), EventBody::RunStarted(_)) => "subagent_start",
            (Some(_), body) => {
                prefixed = format!("subagent_{}", body.kind());
                &prefixed
            }
        };
        let head = Head { r#type: kind, run_id: self.run_id, child: self.child.as_ref() };
        // Our own structs of strings and numbers: writing them to memory has no way to fail.
        self.body.write(&head).unwrap_or_default()
    }

    /// Reads the JSON object of an event back.
    pub fn from_json(seq: Option<u64>, json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Read {
            r#type: String,
            run_id: RunId,
            #[serde(flatten)]
            child: Option<Child>,
        }
        let head: Read = serde_json::from_str(json)?;
        let kind = match head.r#type.as_str() {
            "subagent_start" => "run_started",
            other => other.strip_prefix("subagent_").unwrap_or(other),
        };
        let body = EventBody::read(kind, json)?;
        Ok(Self { seq, run_id: head.run_id, child: head.child, body })
    }
}

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

/// The words a request can be decided with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionWord {
    /// Run exactly this.
    Approve,
    /// Run it with other arguments.
    ApproveWith,
    /// Do not run it.
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

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
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
    /// The call it is about.
    pub call_id: CallId,
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
}

/// A pending request, named.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The id to decide by.
    pub request_id: RequestId,
    /// Our call id.
    pub call_id: CallId,
    /// What kind it is.
    pub kind: InteractionKind,
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
    /// `shutdown` or `slow_reader`.
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

/// An event without fields of its own.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Empty {}
