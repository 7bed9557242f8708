//! What other instances store, heard by the bell: drivers, watchers, the inbox and whoever waits are told to look.
//!
//! A bell is a hint. Each of them looks by itself as well - seldom while the bell is proven to be heard, every second while
//! it is not - and what it finds in the store is what counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdpoint_store::{Bell, Hearing, Ring};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::inner::Inner;

/// How often is looked at what others store, while their bells are not heard.
const LOOK_DEAF: Duration = Duration::from_secs(1);
/// The same while they are proven to be.
const LOOK_PROVEN: Duration = Duration::from_secs(30);
/// How often a driver looks where there are no others: what is found then was stored here, by a call that was cut off or whose answer
/// was lost.
const LOOK_ALONE: Duration = Duration::from_secs(10);
/// When everything is to be looked at, not everybody does in the same moment.
const SPREAD: Duration = Duration::from_millis(250);
/// How often an instance whose lease is not known to hold sees whether it is again.
const LEASE_LOOK: Duration = Duration::from_millis(100);

/// Tells everybody who watches to look.
#[derive(Default)]
pub(crate) struct Ears {
    everything: watch::Sender<u64>,
    turn: AtomicU32,
}

impl Ears {
    /// Changes whenever everything is to be looked at.
    pub(crate) fn everything(&self) -> watch::Receiver<u64> {
        self.everything.subscribe()
    }

    /// When somebody who was told to look at everything does so.
    pub(crate) fn soon(&self) -> tokio::time::Instant {
        tokio::time::Instant::now() + self.spread(SPREAD)
    }

    /// Some time up to this: one after the other get times that lie well apart, whatever their number.
    fn spread(&self, within: Duration) -> Duration {
        // The golden ratio of 2^32.
        let turn = self.turn.fetch_add(0x9E37_79B9, Ordering::Relaxed);
        within.mul_f64(f64::from(turn) / f64::from(u32::MAX))
    }
}

impl Inner {
    /// How long until what others store is looked at without having heard of it. `None` where there are no others.
    pub(crate) fn look_every(&self) -> Option<Duration> {
        if !self.store.is_shared() {
            return None;
        }
        let every = match self.store.standing().map(|standing| standing.hearing) {
            Some(Hearing::Proven) => LOOK_PROVEN,
            Some(Hearing::Deaf | Hearing::PollOnly) | None => LOOK_DEAF,
        };
        Some(every - self.ears.spread(every / 10))
    }

    /// When that is next.
    pub(crate) fn next_look(&self) -> Option<tokio::time::Instant> {
        self.look_every().map(|every| tokio::time::Instant::now() + every)
    }

    /// When a driver looks whether something was stored of its run that it was not told of.
    pub(crate) fn next_look_at_a_run(&self) -> tokio::time::Instant {
        tokio::time::Instant::now() + self.look_every().unwrap_or(LOOK_ALONE)
    }

    /// Comes when something may begin here: at once, but for an instance that may have lost its lease.
    pub(crate) async fn until_it_may_begin(&self) {
        while self.store.term().is_none() {
            tokio::time::sleep(LEASE_LOOK).await;
        }
    }

    fn rung(&self, ring: &Ring) {
        self.drivers.ring(ring.run);
        self.waiters.look(ring.run);
        self.hub.ring_watched(ring.run);
        self.hub.desks().heard_of(&ring.requests);
    }

    fn rung_for_everything(&self) {
        self.drivers.look();
        self.waiters.look_all();
        self.ears.everything.send_modify(|times| *times += 1);
    }
}

/// Takes up bells until the runtime stops.
pub(crate) async fn hear(rt: Arc<Inner>) {
    let Some(mut bells) = rt.store.bells() else { return };
    loop {
        let bell = tokio::select! {
            bell = bells.recv() => bell,
            () = rt.shutdown.cancelled() => return,
        };
        match bell {
            Ok(Bell::Run(ring)) => rt.rung(&ring),
            Ok(Bell::Everything) | Err(RecvError::Lagged(_)) => rt.rung_for_everything(),
            Err(RecvError::Closed) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spread_evenly() {
        let ears = Ears::default();
        let mut tenths = [0; 10];
        for _ in 0..1_000 {
            let at = ears.spread(Duration::from_millis(1_000));
            tenths[usize::try_from(at.as_millis() / 100).unwrap().min(9)] += 1;
        }
        assert!(tenths.iter().all(|count| (80..=120).contains(count)), "{tenths:?}");
    }
}
