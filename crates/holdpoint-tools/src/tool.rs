//! The trait a tool stands behind, and what it is given.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use holdpoint_core::message::ResultContent;
use holdpoint_core::permit::Permit;
pub use holdpoint_core::tool::{EffectClass, ToolDefinition};
use holdpoint_protocol::{ActorId, AgentName, CallId, ConversationId, ExecId, RawJson, RunId, TenantId};
use tokio_util::sync::CancellationToken;

/// A tool. Its body is reached through an [`Invocation`] alone, and that through a [`Permit`] alone.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What it is to the model and to the gate.
    fn definition(&self) -> &ToolDefinition;

    /// Runs it. The future is dropped when the time is up; `invocation.cancel()` fires first.
    async fn call(&self, invocation: Invocation) -> Result<ToolOutput, ToolError>;

    /// For a `verifiable` tool: did the execution with this key take effect?
    async fn probe(&self, exec: ExecId, context: &ToolContext) -> Probe {
        let _ = (exec, context);
        Probe::Unknown
    }
}

// So that one list can hold tools of every kind, and a tool already shared can be handed on.
#[async_trait]
impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn definition(&self) -> &ToolDefinition {
        (**self).definition()
    }

    async fn call(&self, invocation: Invocation) -> Result<ToolOutput, ToolError> {
        (**self).call(invocation).await
    }

    async fn probe(&self, exec: ExecId, context: &ToolContext) -> Probe {
        (**self).probe(exec, context).await
    }
}

/// What a `verifiable` tool says of an earlier execution.
#[derive(Debug, Clone)]
pub enum Probe {
    /// It took effect, with this result.
    Done(ToolOutput),
    /// It did not take effect.
    NotDone,
    /// It cannot be known.
    Unknown,
}

/// One permitted execution: what the tool gets.
pub struct Invocation {
    permit: Permit,
    context: Arc<ToolContext>,
    cancel: CancellationToken,
    progress: Box<dyn Progress>,
}

/// Where a running tool reports how far it is.
pub trait Progress: Send + Sync {
    /// A sign of life: a sentence, a fraction from 0 to 1, or both.
    fn report(&self, message: Option<&str>, fraction: Option<f64>);
}

/// Progress nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn report(&self, _message: Option<&str>, _fraction: Option<f64>) {}
}

impl Invocation {
    /// Spends the permit.
    pub fn new(
        permit: Permit,
        context: Arc<ToolContext>,
        cancel: CancellationToken,
        progress: Box<dyn Progress>,
    ) -> Self {
        Self { permit, context, cancel, progress }
    }

    /// The exact argument text: one JSON object that fits the tool's schema.
    pub fn arguments(&self) -> &str {
        self.permit.arguments()
    }

    /// The arguments as a type of the tool's own.
    pub fn parse<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, ToolError> {
        serde_json::from_str(self.permit.arguments())
            .map_err(|error| ToolError::new("INVALID_ARGUMENTS", error.to_string()).not_executed())
    }

    /// Our id of the call.
    pub fn call(&self) -> CallId {
        self.permit.call()
    }

    /// The idempotency key: the same for every attempt of this call.
    pub fn exec(&self) -> ExecId {
        self.permit.exec()
    }

    /// The key for a service that takes one: `TENANT:EXEC`, the same for every attempt of this call and for no other call.
    pub fn idempotency_key(&self) -> String {
        format!("{}:{}", self.context.tenant, self.permit.exec())
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.permit.attempt()
    }

    /// The trusted context: from authentication and the embedding program, never from the model.
    pub fn context(&self) -> &ToolContext {
        &self.context
    }

    /// Fires when the run is cancelled or the time is up.
    pub fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Reports progress to whoever watches the run.
    pub fn progress(&self, message: Option<&str>, fraction: Option<f64>) {
        self.progress.report(message, fraction);
    }
}

impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation").field("permit", &self.permit).finish_non_exhaustive()
    }
}

/// Who a call is for: trusted, and never the model's to write.
#[derive(Clone)]
pub struct ToolContext {
    /// Whose data it is.
    pub tenant: TenantId,
    /// Who is behind the run.
    pub actor: ActorId,
    /// The run.
    pub run: RunId,
    /// The conversation.
    pub conversation: ConversationId,
    /// The agent, with the way down to it: `main`, `main/researcher`.
    pub agent: AgentName,
    /// Values of the embedding program, by type.
    pub extensions: Extensions,
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("tenant", &self.tenant)
            .field("actor", &self.actor)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

/// Values of the embedding program that reach tools, one per type.
#[derive(Clone, Default)]
pub struct Extensions {
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Extensions {
    /// Adds a value; one of the same type before it is replaced.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref())
    }
}

/// What a tool returned.
#[derive(Debug, Clone)]
pub struct ToolOutput {
    /// The result.
    pub content: ResultContent,
}

impl ToolOutput {
    /// Text, as it is.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: ResultContent::Text(text.into()) }
    }

    /// JSON, as it is.
    pub fn json(json: RawJson) -> Self {
        Self { content: ResultContent::Json(json) }
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// A tool that ran and failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    /// The stable code the model reads.
    pub code: String,
    /// What went wrong, fit for the model: no stack traces, no secrets, no paths of the host.
    pub message: String,
    /// Set when the tool proves that it had no effect.
    pub not_executed: bool,
    /// Set when the tool itself cannot tell: it lost its connection in the middle of the call. Such a call is
    /// `outcome_unknown`, and not `failed`.
    pub outcome_unknown: bool,
}

impl ToolError {
    /// An error with a stable code.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), not_executed: false, outcome_unknown: false }
    }

    /// Says that the tool had no effect at all.
    pub fn not_executed(mut self) -> Self {
        self.not_executed = true;
        self.outcome_unknown = false;
        self
    }

    /// Says that it may have had its effect or not.
    pub fn outcome_unknown(mut self) -> Self {
        self.outcome_unknown = true;
        self.not_executed = false;
        self
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for ToolError {}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self::new("FAILED", message)
    }
}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        Self::new("FAILED", message)
    }
}

/// The kind of the error alone: its own text may hold paths, which are not the model's to read.
impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        Self::new("IO_ERROR", error.kind().to_string())
    }
}
