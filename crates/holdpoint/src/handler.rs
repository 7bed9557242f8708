//! Deciding in the embedding program: an approval handler.

use std::collections::HashMap;

use async_trait::async_trait;
use holdpoint_core::terms::AtMost;
use holdpoint_protocol::{ApprovalRequest, CallId, Then, Timestamp};
use holdpoint_tools::Extensions;
use tokio_util::sync::CancellationToken;

use crate::{DecideError, RunInfo};

/// Decides the requests of a batch. It is called once per batch after the requests are stored, and again, with the
/// same request ids, when a process takes the run over.
#[async_trait]
pub trait ApprovalHandler: Send + Sync + 'static {
    /// The name it stands under in decisions: `handler:<name>`.
    fn name(&self) -> &str;

    /// Answers per call id. A call that is left out stays pending, and can be decided later by any other way. An
    /// error or a panic closes the open requests of the batch as `gate_error`: they are not executed.
    async fn decide(&self, batch: ApprovalBatch) -> Result<HashMap<CallId, Answer>, HandlerError>;

    /// How long a request waits for this handler at most, and what happens then: read once, when the agent is built. It can only make
    /// what is configured stricter.
    fn at_most(&self) -> AtMost {
        AtMost::default()
    }

    /// Told that an answer did not count: another decision was stored first, or it was refused as a decision.
    fn not_taken(&self, request: &ApprovalRequest, why: &DecideError) {
        let _ = (request, why);
    }
}

/// What a handler is asked.
#[derive(Debug, Clone)]
pub struct ApprovalBatch {
    /// The run: conversation, agent, actor.
    pub run: RunInfo,
    /// The requests of the batch, in the order of the calls.
    pub requests: Vec<ApprovalRequest>,
    /// The values that tools get.
    pub context: ExtensionsDebug,
    /// The earliest deadline of the batch.
    pub deadline: Option<Timestamp>,
    /// Fires when nothing is left to answer - all of it was decided elsewhere, expired, or the run ended - and when the
    /// process stops. The call of the handler is dropped then.
    pub cancel: CancellationToken,
}

/// [`Extensions`] in a struct that can be printed.
#[derive(Clone, Default)]
pub struct ExtensionsDebug(pub Extensions);

impl std::fmt::Debug for ExtensionsDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Extensions")
    }
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Run exactly this.
    Approve,
    /// Run it with these arguments.
    ApproveWith {
        /// The whole argument text.
        arguments: String,
    },
    /// Do not run it.
    Decline {
        /// Why.
        reason: Option<String>,
        /// What follows.
        then: Then,
    },
    /// Do not run it; tell the model what to do instead.
    Feedback {
        /// What.
        text: String,
        /// What follows.
        then: Then,
    },
}

impl Answer {
    /// A plain decline.
    pub fn decline(reason: impl Into<String>) -> Self {
        Self::Decline { reason: Some(reason.into()), then: Then::Continue }
    }
}

/// A handler that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HandlerError {
    /// What went wrong.
    pub message: String,
}
