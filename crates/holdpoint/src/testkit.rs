//! For the tests of programs that embed Holdpoint: a scripted model, a scripted person, and what they saw.
//!
//! The scripted model is [`crate::models::scripted::Scripted`]; it keeps the requests it got. The scripted person
//! answers the requests of a batch from a list, by tool.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use holdpoint_protocol::{ApprovalRequest, CallId};

use crate::handler::{Answer, ApprovalBatch, ApprovalHandler, HandlerError};

/// A person whose answers are written down beforehand. What it was shown is kept.
#[derive(Clone, Default)]
pub struct ScriptedPerson {
    answers: Arc<Mutex<Vec<(String, Answer)>>>,
    seen: Arc<Mutex<Vec<ApprovalRequest>>>,
}

impl ScriptedPerson {
    /// A person who answers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers the next request for this tool so. Requests nobody wrote an answer for stay pending.
    #[must_use]
    pub fn answers(self, tool: impl Into<String>, answer: Answer) -> Self {
        lock(&self.answers).push((tool.into(), answer));
        self
    }

    /// The requests it was shown, in order.
    pub fn seen(&self) -> Vec<ApprovalRequest> {
        lock(&self.seen).clone()
    }
}

#[async_trait]
impl ApprovalHandler for ScriptedPerson {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn decide(&self, batch: ApprovalBatch) -> Result<HashMap<CallId, Answer>, HandlerError> {
        let mut given = HashMap::new();
        let mut answers = lock(&self.answers);
        for request in &batch.requests {
            if let Some(at) = answers.iter().position(|(tool, _)| *tool == request.tool_name) {
                given.insert(request.call_id, answers.remove(at).1);
            }
        }
        lock(&self.seen).extend(batch.requests);
        Ok(given)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
