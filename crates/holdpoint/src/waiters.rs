//! Who waits in this process for a run to end or to need a person.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdpoint_protocol::{Pending, RunId};
use tokio::sync::oneshot;

use crate::outcome::{Ended, RunState};

#[derive(Default)]
pub(crate) struct Waiters {
    waiting: Mutex<HashMap<RunId, Vec<oneshot::Sender<RunState>>>>,
}

impl Waiters {
    pub(crate) fn wait(&self, run: RunId) -> oneshot::Receiver<RunState> {
        let (tx, rx) = oneshot::channel();
        let mut waiting = self.lock();
        let list = waiting.entry(run).or_default();
        list.retain(|tx| !tx.is_closed());
        list.push(tx);
        rx
    }

    pub(crate) fn ended(&self, run: RunId, ended: &Ended) {
        self.tell(run, || RunState::Ended(ended.clone()));
    }

    pub(crate) fn suspended(&self, run: RunId, pending: &[Pending]) {
        self.tell(run, || RunState::Suspended { pending: pending.to_vec() });
    }

    /// Something of the run was stored elsewhere: whoever waits looks again.
    pub(crate) fn look(&self, run: RunId) {
        drop(self.lock().remove(&run));
    }

    /// Everybody who waits looks again.
    pub(crate) fn look_all(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    fn tell(&self, run: RunId, state: impl Fn() -> RunState) {
        let Some(waiting) = self.lock().remove(&run) else { return };
        for tx in waiting {
            // Whoever waited may have gone.
            let _ = tx.send(state());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Vec<oneshot::Sender<RunState>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
