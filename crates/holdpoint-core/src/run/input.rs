//! What a run is told.

use std::sync::Arc;

use holdpoint_protocol::Timestamp;

use crate::arguments::{Arguments, InvalidArguments};
use crate::decision::Fact;
use crate::digest::DefinitionDigest;
use crate::message::{AssistantMessage, ResultContent, UserMessage};
use crate::policy::Ruling;
use crate::tool::ToolDefinition;

/// One input to [`crate::run::Run::step`].
#[derive(Debug, Clone)]
pub enum Input {
    /// The run begins with this message.
    Start {
        /// What the user said.
        message: UserMessage,
        /// The names of the tools on offer.
        tools: Vec<String>,
    },
    /// One call without a model: the run begins with it and ends with its result.
    Invoke {
        /// The tool.
        tool: String,
        /// The argument text.
        arguments: String,
    },
    /// The model replied.
    Replied {
        /// The round the reply is for.
        round: u32,
        /// The reply.
        reply: Replied,
    },
    /// The model could not be asked.
    ModelFailed {
        /// The round it was asked for.
        round: u32,
        /// The stable code.
        code: String,
        /// What went wrong.
        message: String,
        /// Whether the same request could succeed later.
        retryable: bool,
    },
    /// What resolve, validate, permission and policy say of each call, in the order of the reply.
    Ruled(Vec<Ruled>),
    /// What was stored about the run since its last step, in order: decisions, expiries, a cancel. All of them are applied
    /// before anything follows from one: a request that one of them closed is not closed again on account of another.
    Facts(Vec<Fact>),
    /// The answer to [`crate::run::Effect::Check`]: how things stand now, in the step that would start the call.
    Checked {
        /// The call.
        index: u32,
        /// How things stand.
        check: Check,
    },
    /// The answer to [`crate::run::Effect::Recheck`]: the tool of a call that waits is defined otherwise now.
    Changed {
        /// The call.
        index: u32,
        /// The tool as it is loaded now.
        tool: Arc<ToolDefinition>,
        /// The digest of its definition now.
        definition: DefinitionDigest,
        /// What policy says now.
        ruling: Ruling,
        /// Set when the call's arguments do not fit it any more: then nobody need be asked.
        invalid: Option<InvalidArguments>,
    },
    /// A call ended.
    Finished {
        /// The call.
        index: u32,
        /// The attempt that ended.
        attempt: u32,
        /// How.
        end: ToolEnd,
    },
    /// A `verifiable` tool said whether an earlier attempt ran.
    Probed {
        /// The call.
        index: u32,
        /// What it said: a result, "not done", or "unknown".
        probe: Probed,
    },
    /// A running tool gave a sign of life.
    Progress {
        /// The call.
        index: u32,
        /// What it says.
        message: Option<String>,
        /// How far it is, 0 to 1.
        fraction: Option<f64>,
    },
    /// Another process has taken the run over; what was running there is not running here.
    Recovered {
        /// What was stored about the run since its last step. It is applied first, so that nothing is asked about which
        /// somebody has already put an end to.
        facts: Vec<Fact>,
    },
    /// A process has taken the run over that cannot carry it on: what it needs is not loaded there.
    Unavailable {
        /// What was stored about the run since its last step. It is applied: an end needs nothing to be loaded.
        facts: Vec<Fact>,
        /// What is not loaded, as people read it.
        what: String,
    },
    /// What is being cancelled did not stop in its time.
    GraceOver,
}

/// A model's reply.
#[derive(Debug, Clone)]
pub struct Replied {
    /// What was said and called.
    pub message: AssistantMessage,
    /// How it ended.
    pub end: ReplyEnd,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens that came back.
    pub output_tokens: u64,
    /// What they cost, in millionths of a dollar, where the model has a price.
    pub cost_micro_dollars: Option<u64>,
    /// Further choices that nobody read, and whether one had calls.
    pub other_choices: (u32, bool),
}

/// How a reply ended. Its calls stand only when it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEnd {
    /// Well.
    Complete,
    /// By `length` or a filter.
    Malformed(&'static str),
    /// By an error in the stream or a lost connection.
    Interrupted(String),
}

/// What is said of one proposed call.
#[derive(Debug, Clone)]
pub enum Ruled {
    /// No tool of that name was offered in this round.
    Unknown {
        /// The names that were.
        known: Vec<String>,
    },
    /// The arguments cannot be read or do not fit.
    Invalid(InvalidArguments),
    /// This caller may not.
    Forbidden {
        /// The stable reason code.
        code: String,
    },
    /// The permission check itself failed.
    Failed {
        /// What went wrong.
        what: String,
    },
    /// Policy has spoken.
    Verdict {
        /// The arguments.
        arguments: Arguments,
        /// The tool that was offered.
        tool: Arc<ToolDefinition>,
        /// The digest of its definition.
        definition: DefinitionDigest,
        /// What policy says.
        ruling: Ruling,
    },
}

/// How things stand when a call is about to start.
#[derive(Debug, Clone)]
pub enum Check {
    /// The tool or the agent is not loaded in this process.
    Unavailable {
        /// What is missing.
        what: String,
    },
    /// The caller may no longer.
    Forbidden {
        /// The stable reason code.
        code: String,
    },
    /// The arguments do not fit the tool's schema as it is now.
    Invalid(InvalidArguments),
    /// The permission check itself failed.
    Failed {
        /// What went wrong.
        what: String,
    },
    /// Policy, now.
    Now {
        /// The tool as it is loaded now.
        tool: Arc<ToolDefinition>,
        /// The digest of its definition now.
        definition: DefinitionDigest,
        /// What policy says now.
        ruling: Ruling,
    },
}

/// How a started call ended.
#[derive(Debug, Clone)]
pub enum ToolEnd {
    /// With a result.
    Output(ResultContent),
    /// Not executed: it was done before under its business key, with this result.
    Replayed {
        /// The recorded result.
        content: ResultContent,
        /// When it was recorded.
        recorded_at: Timestamp,
    },
    /// With an error of the tool.
    Error {
        /// The stable code.
        code: String,
        /// What went wrong.
        message: String,
        /// Whether the tool proves that it had no effect.
        not_executed: bool,
    },
    /// It cannot tell: what it works through was lost in the middle of the call.
    Lost {
        /// The stable code.
        code: String,
        /// What went wrong.
        message: String,
    },
    /// Not in its time.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It panicked.
    Panicked,
}

/// What a `verifiable` tool said.
#[derive(Debug, Clone)]
pub enum Probed {
    /// It ran, with this result.
    Done(ResultContent),
    /// It did not run.
    NotDone,
    /// It cannot be known.
    Unknown,
}

/// An input that does not fit where the run stands. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the run does not take this now: {0}")]
pub struct Refused(pub &'static str);

/// What a step is given besides its input: time and ids come from outside.
pub struct Cx<'a> {
    /// Now.
    pub now: Timestamp,
    /// How this agent's runs behave.
    pub settings: &'a super::Settings,
    /// Fresh request ids: 122 random bits each.
    pub fresh: &'a mut dyn FnMut() -> holdpoint_protocol::RequestId,
}
