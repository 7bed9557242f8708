//! Calls under a business key: the record stands around the tool. It is asked before the tool is, the result is stored before
//! anybody is told of it, and what the record already has is given out as what it is - a result of then, and no execution now.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_core::business::NoKey;
use holdpoint_core::message::ResultContent;
use holdpoint_core::run::{Probed, ToolEnd};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::{ExecId, Timestamp};
use holdpoint_store::{Context, EffectEnd, EffectKey, EffectUse, RecordedEffect, Store};
use tokio_util::sync::CancellationToken;

/// How long a store that cannot be reached is left alone, at first and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(2);

/// The record of one execution.
pub(super) struct Record {
    store: Arc<dyn Store>,
    cx: Context,
    key: EffectKey,
}

impl Record {
    /// The record of a call of this tool with these arguments, where the tool has a business key.
    pub(super) fn of(
        store: &Arc<dyn Store>,
        cx: &Context,
        tool: &ToolDefinition,
        exec: ExecId,
        arguments: &str,
    ) -> Result<Option<Self>, NoKey> {
        let Some(found) = tool.business_key(arguments)? else { return Ok(None) };
        let key = EffectKey { tool: tool.name.clone(), key: found.key, exec, arguments: found.arguments };
        Ok(Some(Self { store: Arc::clone(store), cx: cx.clone(), key }))
    }

    /// Reserves the key. `Some` is how the call ends without the tool: what the record has, or that it may not run.
    pub(super) async fn begin(&self, cancel: &CancellationToken) -> Option<ToolEnd> {
        let mut wait = AGAIN_AFTER;
        let found = loop {
            match self.store.begin_effect(&self.cx, &self.key).await {
                Ok(found) => break found,
                Err(error) if error.passes() => {
                    tracing::warn!(%error, tool = self.key.tool, "the business key is not reserved yet; the tool waits");
                }
                Err(error) => return Some(refused("GATE_ERROR", error.to_string())),
            }
            tokio::select! {
                () = cancel.cancelled() => {
                    return Some(refused("GATE_ERROR", "the run ended before the key was reserved".into()));
                }
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(AGAIN_AFTER_MAX),
            }
        };
        match found {
            EffectUse::Free | EffectUse::Mine => None,
            EffectUse::Recorded(recorded) => Some(self.told(recorded)),
            EffectUse::Unfinished { since, .. } => {
                Some(refused("KEY_UNFINISHED", unfinished(&self.key.key, since)))
            }
            EffectUse::Reused { since, .. } => Some(refused("KEY_REUSED", reused(&self.key.key, since))),
        }
    }

    /// Stores how the tool ended, for as long as it takes: nobody is told of a result before.
    pub(super) async fn end(&self, end: &ToolEnd) {
        let end = match end {
            ToolEnd::Output(content) => match serde_json::to_string(content) {
                Ok(result) => EffectEnd::Recorded(result),
                // Text and JSON always serialise. Without a result the key stays reserved: nothing runs under it.
                Err(error) => return tracing::error!(%error, "a result could not be recorded"),
            },
            ToolEnd::Error { not_executed: true, .. } => EffectEnd::NoEffect,
            // Nobody knows what it did, or it says that it did something and failed: not under this key again.
            ToolEnd::Error { not_executed: false, .. }
            | ToolEnd::Replayed { .. }
            | ToolEnd::Lost { .. }
            | ToolEnd::TimedOut
            | ToolEnd::Cancelled
            | ToolEnd::Panicked => return,
        };
        let mut wait = AGAIN_AFTER;
        while let Err(error) = self.store.end_effect(&self.cx, &self.key, end.clone()).await {
            if !error.passes() {
                return tracing::error!(%error, tool = self.key.tool, "a result could not be recorded; its key stays reserved");
            }
            tracing::warn!(%error, tool = self.key.tool, "a result is not recorded yet; it is held back");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(AGAIN_AFTER_MAX);
        }
    }

    /// What the record says of an execution that broke off. `None` where it has only the reservation, which tells nothing.
    pub(super) async fn probe(&self) -> Option<Probed> {
        match self.store.effect(&self.cx, &self.key).await {
            Ok(EffectUse::Recorded(recorded)) if recorded.exec == self.key.exec => {
                content_of(&recorded).map(Probed::Done)
            }
            // Reserved before the tool is called: what never reserved it never called the tool.
            Ok(
                EffectUse::Free
                | EffectUse::Recorded(_)
                | EffectUse::Unfinished { .. }
                | EffectUse::Reused { .. },
            ) => Some(Probed::NotDone),
            Ok(EffectUse::Mine) | Err(_) => None,
        }
    }

    fn told(&self, recorded: RecordedEffect) -> ToolEnd {
        match content_of(&recorded) {
            // An earlier attempt of this very call, whose answer was lost on the way.
            Some(content) if recorded.exec == self.key.exec => ToolEnd::Output(content),
            Some(content) => ToolEnd::Replayed { content, recorded_at: recorded.at },
            None => refused("GATE_ERROR", "the recorded result cannot be read".into()),
        }
    }
}

/// A call that may not run because its arguments have no key.
pub(super) fn without_key(why: &NoKey) -> ToolEnd {
    refused("BUSINESS_KEY", why.to_string())
}

fn content_of(recorded: &RecordedEffect) -> Option<ResultContent> {
    serde_json::from_str(&recorded.result).ok()
}

fn refused(code: &str, message: String) -> ToolEnd {
    ToolEnd::Error { code: code.into(), message, not_executed: true }
}

fn unfinished(key: &str, since: Timestamp) -> String {
    format!(
        "An earlier call for the same request ({key}, since {since}) has no recorded result: it is still running, failed, or \
         broke off. This call was not executed. Do not repeat it with another key; a person has to see what became of the \
         earlier one."
    )
}

fn reused(key: &str, since: Timestamp) -> String {
    format!(
        "The request {key} was used before, at {since}, with other arguments. This call was not executed: one request has one \
         set of arguments."
    )
}
