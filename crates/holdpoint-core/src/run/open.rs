//! The content of the round in progress: texts and results, which the control state does not hold.

use std::sync::Arc;

use crate::arguments::Arguments;
use crate::message::{AssistantMessage, ProposedCall, ToolMessage};
use crate::tool::ToolDefinition;

/// The round in progress. It is rebuilt from the stored messages when a run is loaded.
#[derive(Debug, Clone, Default)]
pub struct OpenRound {
    /// The text the model wrote beside its calls.
    pub text: String,
    /// The calls, in order.
    pub slots: Vec<Slot>,
}

/// One call of the open round.
#[derive(Debug, Clone)]
pub struct Slot {
    /// What the model wrote.
    pub proposed: ProposedCall,
    /// What would run: the proposal, or the text a person edited. Absent when it cannot be read.
    pub arguments: Option<Arguments>,
    /// The tool it was resolved to.
    pub tool: Option<Arc<ToolDefinition>>,
    /// How it ended.
    pub result: Option<ToolMessage>,
}

impl OpenRound {
    /// The round of a reply of which nothing has been answered.
    pub fn of(reply: &AssistantMessage) -> Self {
        let slots = reply
            .calls()
            .map(|call| Slot { proposed: call.clone(), arguments: None, tool: None, result: None })
            .collect();
        Self { text: reply.text(), slots }
    }
}
