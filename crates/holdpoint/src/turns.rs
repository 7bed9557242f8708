//! Turns: what one decision of a run stores is shown before the next one stores anything, so that both are seen in the order
//! in which they are stored. A decision that starts nothing leaves a run without a driver, which would put them in order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdpoint_protocol::RunId;
use tokio::sync::OwnedMutexGuard;

/// Who is about to store or show something of a run.
#[derive(Default)]
pub(crate) struct Turns {
    by_run: Mutex<HashMap<RunId, Arc<tokio::sync::Mutex<()>>>>,
}

/// One's turn, until it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    run: RunId,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for one's turn at a run.
    pub(crate) async fn at(&self, run: RunId) -> Turn<'_> {
        let queue = Arc::clone(self.lock().entry(run).or_default());
        // Made first: one who stops waiting leaves nothing behind either.
        let mut turn = Turn { turns: self, run, held: None };
        turn.held = Some(queue.lock_owned().await);
        turn
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Arc<tokio::sync::Mutex<()>>>> {
        self.by_run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut by_run = self.turns.lock();
        if by_run.get(&self.run).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            by_run.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn run() -> RunId {
        RunId(uuid::Uuid::now_v7())
    }

    #[tokio::test]
    async fn one_waits_for_another_at_the_same_run_and_for_nobody_at_another() {
        let (turns, one, other) = (Turns::default(), run(), run());
        let first = turns.at(one).await;
        let _elsewhere = turns.at(other).await;
        let done = AtomicUsize::new(0);
        let second = async {
            let _turn = turns.at(one).await;
            done.fetch_add(1, Ordering::Relaxed)
        };
        let first = async {
            tokio::task::yield_now().await;
            done.fetch_add(1, Ordering::Relaxed);
            drop(first);
        };
        assert_eq!(tokio::join!(second, first).0, 1);
    }

    #[tokio::test]
    async fn nothing_is_left_of_turns_that_are_over_or_were_not_waited_for() {
        let (turns, run) = (Turns::default(), run());
        let first = turns.at(run).await;
        {
            let mut second = std::pin::pin!(turns.at(run));
            assert!(futures_util::poll!(second.as_mut()).is_pending());
        }
        assert_eq!(turns.lock().len(), 1);
        drop(first);
        assert_eq!(turns.lock().len(), 0);
    }
}
