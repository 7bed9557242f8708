//! Which run it is: what hooks, handlers and permission checks are told.

use holdpoint_core::run::Run;
use holdpoint_protocol::{ActorId, AgentName, ConversationId, RunId, TenantId};

/// Which run it is. All of it is trusted: from authentication and configuration, never from a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    /// The run.
    pub run: RunId,
    /// Whose data it is.
    pub tenant: TenantId,
    /// Who is behind it.
    pub actor: ActorId,
    /// The agent.
    pub agent: AgentName,
    /// The way down to it from the root: `main`.
    pub path: String,
    /// The conversation.
    pub conversation: ConversationId,
}

impl RunInfo {
    pub(crate) fn of(run: &Run) -> Self {
        Self {
            run: run.id(),
            tenant: run.tenant().clone(),
            actor: run.actor().clone(),
            agent: run.agent().clone(),
            path: run.agent().to_string(),
            conversation: run.conversation().clone(),
        }
    }
}
