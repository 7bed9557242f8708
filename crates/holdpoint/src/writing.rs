//! Whether anything can be written: learned from the writes that fail, and, once one has, from a probe every second until it can.
//!
//! A store that nobody writes to is not written to for this: as long as nothing fails, nothing is asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_store::{Call, Doing, Error, Store, Wrap};
use tokio::sync::Notify;

use crate::inner::Inner;

/// How often a store that could not be written to is tried.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// What is known of it.
#[derive(Default)]
pub(crate) struct Writing {
    trouble: Mutex<Option<Error>>,
    failed: Notify,
}

impl Writing {
    /// Why nothing can be written just now.
    pub(crate) fn trouble(&self) -> Option<Error> {
        self.lock().clone()
    }

    fn failed(&self, error: &Error) {
        // There is no doubt about a full disk. Another failure may have been that one write's: the probe says.
        if matches!(error, Error::Full(_)) {
            *self.lock() = Some(error.clone());
        }
        self.failed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Error>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store, and what its writes say about it.
pub(crate) struct Minded {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) writing: Arc<Writing>,
}

impl Wrap for Minded {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn around<'a, T: Send + 'a>(&'a self, call: Call, doing: Doing<'a, T>) -> Doing<'a, T> {
        if !call.writes || call.name == "probe" {
            return doing;
        }
        Box::pin(async move {
            let done = doing.await;
            if let Err(error) = &done
                && error.passes()
                && !matches!(error, Error::Busy(_))
            {
                self.writing.failed(error);
            }
            done
        })
    }
}

/// Looks after a failed write whether others go through, until they do.
pub(crate) async fn mind(rt: Arc<Inner>) {
    loop {
        tokio::select! {
            () = rt.writing.failed.notified() => {}
            () = rt.shutdown.cancelled() => return,
        }
        while let Err(error) = rt.store.probe().await {
            if rt.writing.lock().replace(error.clone()).is_none() {
                tracing::warn!(%error, "nothing can be written; this instance is not ready until it can");
            }
            tokio::select! {
                () = tokio::time::sleep(PROBE_EVERY) => {}
                () = rt.shutdown.cancelled() => return,
            }
        }
        if rt.writing.lock().take().is_some() {
            tracing::info!("the store can be written to again");
        }
        // Writes that fail one by one, and not because of the store, are not each probed for.
        tokio::select! {
            () = tokio::time::sleep(PROBE_EVERY) => {}
            () = rt.shutdown.cancelled() => return,
        }
    }
}
