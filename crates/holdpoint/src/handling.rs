//! Which runs have an approval handler at work, and on what.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdpoint_protocol::{ApprovalRequest, RequestId, RunId};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub(crate) struct Handling {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    active: HashMap<RunId, Vec<Batch>>,
    batches: u64,
    /// What was asked while this process looked at what an earlier one left open: a request can be met twice then, in
    /// the list and as it opens.
    asked: HashSet<RequestId>,
    looked: bool,
}

/// A batch that a handler has in hand.
struct Batch {
    id: u64,
    open: HashSet<RequestId>,
    cancel: CancellationToken,
}

impl Handling {
    /// A handler begins with a batch, or with what is left of it when another call of it has been given some. The token
    /// fires when the run is cancelled or ends, when everything in the batch is closed, and when the process stops.
    pub(crate) fn begin(
        &self,
        run: RunId,
        requests: &mut Vec<ApprovalRequest>,
        parent: &CancellationToken,
    ) -> Option<(u64, CancellationToken)> {
        let mut state = self.lock();
        requests.retain(|request| !state.asked.contains(&request.request_id));
        if requests.is_empty() {
            return None;
        }
        let open: HashSet<_> = requests.iter().map(|request| request.request_id).collect();
        if !state.looked {
            state.asked.extend(&open);
        }
        state.batches += 1;
        let id = state.batches;
        let cancel = parent.child_token();
        state.active.entry(run).or_default().push(Batch { id, open, cancel: cancel.clone() });
        Some((id, cancel))
    }

    pub(crate) fn end(&self, run: RunId, id: u64) {
        let mut state = self.lock();
        if let Some(batches) = state.active.get_mut(&run) {
            batches.retain(|batch| batch.id != id);
            if batches.is_empty() {
                state.active.remove(&run);
            }
        }
    }

    /// A request is closed, by whomever: a batch with nothing open in it needs no answer.
    pub(crate) fn closed(&self, run: RunId, request: RequestId) {
        let mut state = self.lock();
        let Some(batches) = state.active.get_mut(&run) else { return };
        for batch in batches {
            if batch.open.remove(&request) && batch.open.is_empty() {
                batch.cancel.cancel();
            }
        }
    }

    pub(crate) fn is_active(&self, run: RunId) -> bool {
        self.lock().active.contains_key(&run)
    }

    pub(crate) fn cancel(&self, run: RunId) {
        for batch in self.lock().active.get(&run).into_iter().flatten() {
            batch.cancel.cancel();
        }
    }

    /// What an earlier process left open has been looked at.
    pub(crate) fn looked(&self) {
        self.lock().looked = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
