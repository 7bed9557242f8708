//! What a run comes to, for whoever waits for it.

use holdpoint_protocol::{Finish, Pending, RunError, RunId};

/// How a run ended.
#[derive(Debug, Clone)]
pub enum Ended {
    /// It finished; the status says how.
    Finished(Finish),
    /// It failed.
    Failed(RunError),
}

/// What whoever waits for a run is told.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// The run.
    pub run: RunId,
    /// How it stands.
    pub state: RunState,
}

/// How a run stands when nothing more happens by itself.
#[derive(Debug, Clone)]
pub enum RunState {
    /// It ended.
    Ended(Ended),
    /// It waits for people.
    Suspended {
        /// For what.
        pending: Vec<Pending>,
    },
}

impl RunOutcome {
    /// The answer, when the run finished.
    pub fn text(&self) -> Option<&str> {
        match &self.state {
            RunState::Ended(Ended::Finished(finish)) => Some(&finish.text),
            RunState::Ended(Ended::Failed(_)) | RunState::Suspended { .. } => None,
        }
    }

    /// How it finished, when it did.
    pub fn finish(&self) -> Option<&Finish> {
        match &self.state {
            RunState::Ended(Ended::Finished(finish)) => Some(finish),
            RunState::Ended(Ended::Failed(_)) | RunState::Suspended { .. } => None,
        }
    }

    /// What it waits for.
    pub fn pending(&self) -> &[Pending] {
        match &self.state {
            RunState::Suspended { pending } => pending,
            RunState::Ended(_) => &[],
        }
    }
}
