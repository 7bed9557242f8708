//! The events of a run: one JSON object each, its kind in `type`.
//!
//! A durable event has a sequence number that rises by one within a root run; it is the SSE `id`.
//! `token`, `reasoning`, `heartbeat` and `closing` are not durable and have none.

mod course;
mod decision;
mod request;
mod timeout;

use serde::{Deserialize, Serialize};

pub use self::course::*;
pub use self::decision::*;
pub use self::request::*;
pub use self::timeout::*;
use crate::{AgentName, RequestId, RunId};

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
    /// The run was set aside; an operator says whether it is taken up again.
    QuarantineRequest(QuarantineRequest) = "quarantine_request", durable: true;
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
    Heartbeat(Heartbeat) = "heartbeat", durable: false;
}

impl EventBody {
    /// The request that the event opens: it asks a person.
    pub fn opens(&self) -> Option<RequestId> {
        match self {
            Self::ApprovalRequest(request) => Some(request.request_id),
            Self::QuestionRequest(request) => Some(request.request_id),
            Self::InDoubtRequest(request) => Some(request.request_id),
            Self::QuarantineRequest(request) => Some(request.request_id),
            Self::RunStarted(_)
            | Self::Token(_)
            | Self::Reasoning(_)
            | Self::Message(_)
            | Self::ToolCall(_)
            | Self::Vote(_)
            | Self::Reminder(_)
            | Self::Decision(_)
            | Self::ToolStarted(_)
            | Self::ToolProgress(_)
            | Self::ToolResult(_)
            | Self::RoundCommitted(_)
            | Self::RoundRestarted(_)
            | Self::Notice(_)
            | Self::Suspended(_)
            | Self::Resumed(_)
            | Self::Finish(_)
            | Self::Closing(_)
            | Self::Error(_)
            | Self::Heartbeat(_) => None,
        }
    }

    /// The request that the event opens, reminds of or closes.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Decision(decision) => Some(decision.request_id),
            Self::Reminder(reminder) => Some(reminder.request_id),
            other => other.opens(),
        }
    }
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

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}
