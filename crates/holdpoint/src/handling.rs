//! Which runs have an approval handler at work.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdpoint_protocol::RunId;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub(crate) struct Handling {
    active: Mutex<HashMap<RunId, (usize, CancellationToken)>>,
}

impl Handling {
    /// A handler begins with a batch of this run; the token fires when the run is cancelled.
    pub(crate) fn begin(&self, run: RunId, parent: &CancellationToken) -> CancellationToken {
        let mut active = self.lock();
        let entry = active.entry(run).or_insert_with(|| (0, parent.child_token()));
        entry.0 += 1;
        entry.1.clone()
    }

    pub(crate) fn end(&self, run: RunId) {
        let mut active = self.lock();
        if let Some((count, _)) = active.get_mut(&run) {
            *count -= 1;
            if *count == 0 {
                active.remove(&run);
            }
        }
    }

    pub(crate) fn is_active(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    pub(crate) fn cancel(&self, run: RunId) {
        if let Some((_, token)) = self.lock().get(&run) {
            token.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, (usize, CancellationToken)>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
