//! Hooks, named for where they stand: around the run (once) and around the round (each model call).
//!
//! A hook can prepare and look; it cannot release a call. Nothing it does reaches the gate.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use holdpoint_models::{ModelRequest, Reply};

use crate::{Ended, RunInfo};

/// Stands around a run, once: before its first round, after its end. Not around a resume.
#[async_trait]
pub trait AroundRun: Send + Sync + 'static {
    /// Before the first round. An error ends the run before a model was asked.
    async fn before(&self, run: &RunInfo) -> Result<(), HookError> {
        let _ = run;
        Ok(())
    }

    /// After the end.
    async fn after(&self, run: &RunInfo, ended: &Ended) {
        let _ = (run, ended);
    }
}

/// Stands around each model call.
#[async_trait]
pub trait AroundRound: Send + Sync + 'static {
    /// Before the model is asked: may change what it is told, and which of the agent's tools it is offered.
    async fn before(&self, run: &RunInfo, round: u32, request: &mut ModelRequest) -> Result<(), HookError> {
        let _ = (run, round, request);
        Ok(())
    }

    /// After the reply, before its calls are looked at. It cannot be changed.
    async fn after(&self, run: &RunInfo, round: u32, reply: &Reply) {
        let _ = (run, round, reply);
    }
}

/// How long a hook that is told of a run's end may take.
const TOLD_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells a hook of a run's end. The run has ended whatever the hook does.
pub(crate) async fn told(hook: &dyn AroundRun, run: &RunInfo, ended: &Ended) {
    let after = std::panic::AssertUnwindSafe(async { hook.after(run, ended).await });
    match tokio::time::timeout(TOLD_TIMEOUT, after.catch_unwind()).await {
        Ok(Ok(())) => {}
        Ok(Err(_panic)) => tracing::error!(run = %run.run, "a hook around the run panicked after its end"),
        Err(_elapsed) => {
            tracing::error!(run = %run.run, "a hook around the run did not return after its end")
        }
    }
}

/// A hook that says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HookError {
    /// What for.
    pub message: String,
}
