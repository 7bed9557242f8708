//! What a step asks for: changes to be stored in one transaction, then effects to be performed.

use holdpoint_protocol::{ActorId, CallId, EventBody, ExecId, Executed, InteractionKind, RequestId, Status};
use serde::{Deserialize, Serialize};

use crate::digest::CallDigest;
use crate::message::Message;
use crate::permit::Permit;
use crate::terms::Terms;

/// Everything one or more steps changed. It is stored as one transaction, before any effect is performed.
#[derive(Debug, Default)]
pub struct Changes {
    /// Durable events, in order.
    pub events: Vec<EventBody>,
    /// Messages, by round and slot. Slot 0 is the reply (or the user's message in round 0), slot `1 + i` the answer
    /// to call `i`.
    pub messages: Vec<(u32, u32, Message)>,
    /// Requests that open.
    pub opened: Vec<Opened>,
    /// Requests that the run itself closes. A request that a fact closed is not among them.
    pub closed: Vec<Closed>,
    /// What is written in the ledger of executions.
    pub executions: Vec<LedgerLine>,
    /// Records for the audit chain.
    pub audit: Vec<AuditRecord>,
}

/// A request that opens.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Its id.
    pub request: RequestId,
    /// The call.
    pub call: CallId,
    /// What kind it is.
    pub kind: InteractionKind,
    /// Its revision for this call.
    pub revision: u32,
    /// What a decision binds to.
    pub digest: CallDigest,
    /// How long it waits, and what happens then.
    pub terms: Terms,
    /// Which of the events of this transaction announces it.
    pub event: usize,
}

/// A request that the run closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Its id.
    pub request: RequestId,
    /// Why.
    pub why: ClosedBy,
}

/// Why the run closed a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    /// The run was cancelled or stopped.
    Cancel,
    /// Another request took its place.
    Superseded,
}

/// A line of the ledger of executions.
#[derive(Debug, Clone)]
pub enum LedgerLine {
    /// Written before the tool is called.
    Started {
        /// The call.
        call: CallId,
        /// The attempt, from 1. A second row for the same attempt is refused by the store.
        attempt: u32,
        /// The idempotency key.
        exec: ExecId,
        /// The digest that runs.
        digest: CallDigest,
        /// The request whose decision is spent; absent where policy or a bypass released it.
        request: Option<RequestId>,
    },
    /// Written when it ended.
    Ended {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: u32,
        /// How.
        status: Status,
        /// Whether it took effect.
        executed: Executed,
    },
}

/// One record of what was done, by whom, on what grounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// `run_started`, `request_opened`, `decision`, `execution_started`, `call_settled`, `request_closed`, `quarantined`,
    /// `run_ended` and others: what they are is said where they are made.
    pub kind: String,
    /// Who is behind it, where somebody is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorId>,
    /// The call it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The request it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The digest it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<CallDigest>,
    /// What happened, in stable words: a verdict and its rule, a decision word, a status.
    pub what: String,
}

/// Something to do after the changes are stored.
#[derive(Debug)]
pub enum Effect {
    /// Ask the model for the reply of this round.
    CallModel {
        /// The round.
        round: u32,
    },
    /// Resolve, validate and rule on the calls of the open round; answer with `Input::Ruled`. Nothing needs to be
    /// stored first.
    Rule,
    /// Check how things stand for this call, now; answer with `Input::Checked`. Nothing needs to be stored first:
    /// the answer and the claim belong into the same transaction.
    Check {
        /// The call.
        index: u32,
    },
    /// See whether the tool of this call, which waits, is still defined as it was; answer with `Input::Changed` when it is
    /// not.
    Recheck {
        /// The call.
        index: u32,
    },
    /// Run it.
    Execute(Permit),
    /// Ask a `verifiable` tool whether an earlier attempt ran.
    Probe {
        /// The call.
        index: u32,
        /// The key it ran with.
        exec: ExecId,
    },
    /// Fire the cancellation token of a running call.
    CancelTool {
        /// The call.
        index: u32,
    },
    /// Stop asking the model.
    CancelModel,
    /// Give the run back: what it needs is not loaded here.
    Release,
}
