//! Proof that a call may run.

use std::sync::Arc;

use holdpoint_protocol::{CallId, ExecId};

/// Proof that exactly this call may run, once.
///
/// Only the gate makes one, and only in the step that also writes `started`; the runtime hands it on after
/// that step is durable. It is not `Clone`: using it consumes it. An executor accepts nothing else.
#[derive(Debug)]
#[must_use = "a permit that is dropped is a call that was claimed and never ran"]
pub struct Permit {
    pub(crate) call: CallId,
    pub(crate) exec: ExecId,
    pub(crate) attempt: u32,
    pub(crate) tool: String,
    pub(crate) arguments: Arc<str>,
    pub(crate) digest: String,
}

impl Permit {
    /// The call.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// The idempotency key: the same for every attempt of this call.
    pub fn exec(&self) -> ExecId {
        self.exec
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The tool.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The exact argument text that was decided on: one JSON object.
    pub fn arguments(&self) -> &Arc<str> {
        &self.arguments
    }

    /// The digest the decision was bound to.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}
