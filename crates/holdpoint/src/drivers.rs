//! The runs in the hands of this process, by the way to ring their drivers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdpoint_protocol::{RunId, TenantId};
use tokio::sync::mpsc;

use crate::driver::{INBOX, Inbox};

#[derive(Default)]
pub(crate) struct Drivers {
    live: Mutex<HashMap<RunId, Live>>,
}

struct Live {
    tenant: TenantId,
    tx: mpsc::Sender<Inbox>,
}

/// The place of a driver. It is given up when it is dropped, however that comes about - a start that is cut off, a driver that
/// breaks down: what is owned here and has no driver is taken up again, and what seems to have one is not.
pub(crate) struct Seat {
    drivers: Arc<Drivers>,
    run: RunId,
    /// The way to ring the driver.
    pub(crate) tx: mpsc::Sender<Inbox>,
}

impl Seat {
    /// Gives it up because the run waits, and says so in the same moment: whoever has a later driver of it here, by a decision,
    /// is not told that it waits. Nothing is said where there is one.
    pub(crate) fn rest(self, say: impl FnOnce()) {
        self.leave(say);
    }

    /// Unless a later driver of the same run has taken its place.
    fn leave(&self, say: impl FnOnce()) {
        let mut live = self.drivers.lock();
        if live.get(&self.run).is_some_and(|current| current.tx.same_channel(&self.tx)) {
            live.remove(&self.run);
            say();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave(|| {});
    }
}

impl Drivers {
    /// Makes the place of a driver before it is loaded, so that a bell rung meanwhile is not lost.
    pub(crate) fn register(self: &Arc<Self>, tenant: &TenantId, run: RunId) -> (Seat, mpsc::Receiver<Inbox>) {
        let (tx, rx) = mpsc::channel(INBOX);
        self.lock().insert(run, Live { tenant: tenant.clone(), tx: tx.clone() });
        (Seat { drivers: Arc::clone(self), run, tx }, rx)
    }

    /// Says that something was stored. A driver that is not there has nothing to be told: whoever takes the run reads it.
    pub(crate) fn ring(&self, run: RunId) {
        if let Some(live) = self.lock().get(&run) {
            // A full inbox is work under way; every commit of it notices the fact.
            let _ = live.tx.try_send(Inbox::Bell);
        }
    }

    /// Something may have been stored of any run: all drivers look, not all of them at once.
    pub(crate) fn look(&self) {
        for live in self.lock().values() {
            let _ = live.tx.try_send(Inbox::Look);
        }
    }

    pub(crate) fn has(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Whether a run of this tenant is in the hands of this process.
    pub(crate) fn has_of(&self, tenant: &TenantId, run: RunId) -> bool {
        self.lock().get(&run).is_some_and(|live| live.tenant == *tenant)
    }

    pub(crate) fn shut_down(&self) -> usize {
        let live = self.lock();
        for driver in live.values() {
            let _ = driver.tx.try_send(Inbox::Shutdown);
        }
        live.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
