//! The trait a model stands behind, and what goes in and out of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdpoint_core::message::{AssistantMessage, Message};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::Status;
use tokio_util::sync::CancellationToken;

/// A model: messages and tools in, one reply out.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// The model's name, as it stands in events, logs and costs.
    fn name(&self) -> &str;

    /// What so many tokens cost on this model, in millionths of a dollar; `None` where its price is not known.
    fn cost_micro_dollars(&self, usage: Usage) -> Option<u64> {
        let _ = usage;
        None
    }

    /// Asks for one reply. Pieces of text and reasoning go to `pieces` as they arrive (only when
    /// `request.stream`); calls never do: they are in the reply, and only when it ended well.
    ///
    /// An error means that no reply came about. A reply that began and broke off is no error but a
    /// [`Reply`] whose [`ReplyEnd`] says so.
    async fn reply(&self, request: &ModelRequest, pieces: &mut dyn Pieces) -> Result<Reply, ModelError>;
}

/// Where pieces of a reply go while it is made.
pub trait Pieces: Send {
    /// A piece of text for the user.
    fn text(&mut self, piece: &str);
    /// A piece of reasoning.
    fn reasoning(&mut self, piece: &str);
}

/// Pieces nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Pieces for Unwatched {
    fn text(&mut self, _piece: &str) {}
    fn reasoning(&mut self, _piece: &str) {}
}

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The agent's instructions (the system prompt); may be empty.
    pub instructions: Arc<str>,
    /// The conversation: whole rounds only, every call answered.
    pub messages: Vec<Arc<Message>>,
    /// The tools the model may call in this round.
    pub tools: Arc<[ToolDefinition]>,
    /// Whether the reply is streamed.
    pub stream: bool,
    /// Fires when the run is cancelled: stop reading, drop the connection.
    pub cancel: CancellationToken,
}

/// One reply.
#[derive(Debug, Clone)]
pub struct Reply {
    /// What was said and called, in order. Calls stand only when `end` is [`ReplyEnd::Complete`].
    pub message: AssistantMessage,
    /// How it ended.
    pub end: ReplyEnd,
    /// What it cost.
    pub usage: Usage,
    /// How many further choices the reply held, which nobody read (only choice 0 is).
    pub other_choices: u32,
    /// Whether one of those had tool calls.
    pub other_choices_had_calls: bool,
}

/// How a reply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEnd {
    /// Well, whatever the finish reason said. (The reason never decides whether there are calls.)
    Complete,
    /// Cut by `length` / `max_tokens`: nothing stands.
    Length,
    /// Cut by a content filter or a refusal that leaves the reply unfinished: nothing stands.
    Filtered,
    /// An error inside the stream, a broken or missing terminator, a lost connection: nothing stands.
    Interrupted(String),
}

impl ReplyEnd {
    /// What [`AssistantMessage::incomplete`] holds for a reply that ended so.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Complete => None,
            Self::Length | Self::Filtered => Some(Status::MalformedStream),
            Self::Interrupted(_) => Some(Status::StreamInterrupted),
        }
    }
}

/// What a reply cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens that came back.
    pub output_tokens: u64,
}

/// No reply came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError {
    /// The stable code: `provider_error`, `rate_limited`, `unauthorized`, `timeout`, `bad_request`, `overloaded`, `cancelled`.
    pub code: &'static str,
    /// What went wrong, without keys or addresses.
    pub message: String,
    /// Whether asking again could help.
    pub retryable: bool,
    /// How long the provider asked us to wait.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// A request that cannot be written down.
    #[cfg(feature = "wire")]
    pub(crate) fn unwritable(error: serde_json::Error) -> Self {
        let message = format!("the request cannot be written: {error}");
        Self { code: "bad_request", message, retryable: false, retry_after: None }
    }

    /// Every code there is.
    pub const CODES: [&'static str; 7] = [
        "provider_error",
        "rate_limited",
        "unauthorized",
        "timeout",
        "bad_request",
        "overloaded",
        "cancelled",
    ];

    /// The run was cancelled while the model was asked.
    pub fn cancelled() -> Self {
        Self {
            code: "cancelled",
            message: "the run was cancelled".into(),
            retryable: false,
            retry_after: None,
        }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for ModelError {}
