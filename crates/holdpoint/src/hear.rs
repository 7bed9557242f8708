//! What other instances store, heard by the bell: drivers, watchers, the inbox and whoever waits are told to look.
//!
//! A bell is a hint. Each of them looks by itself as well - seldom while the bell is proven to be heard, every second while
//! it is not - and what it finds in the store is what counts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_protocol::{Event, RunId, TenantId};
use holdpoint_store::{Bell, Context, Hearing, Ring};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::inner::Inner;

/// How often is looked at what others store, while their bells are not heard.
const LOOK_DEAF: Duration = Duration::from_secs(1);
/// The same while they are proven to be.
const LOOK_PROVEN: Duration = Duration::from_secs(30);
/// When everything is to be looked at, not everybody does in the same moment.
const SPREAD: Duration = Duration::from_millis(250);
/// How often an instance whose lease is not known to hold sees whether it is again.
const LEASE_LOOK: Duration = Duration::from_millis(100);
/// Events read at once for the watchers of a run.
const PAGE: usize = 256;

/// What is told of other instances.
#[derive(Default)]
pub(crate) struct Ears {
    everything: watch::Sender<u64>,
    followed: Mutex<HashMap<RunId, Followed>>,
}

/// A run that is watched here. However many watch it, its log is read once for each bell.
#[derive(Default)]
struct Followed {
    /// On whose behalf. A run belongs to one tenant; who asked for it on behalf of another reads nothing.
    readers: HashMap<TenantId, (Context, usize)>,
    /// What is to be read: everything after this number.
    after: Option<u64>,
    reading: bool,
}

/// A watcher is there until this is dropped.
pub(crate) struct Follow {
    rt: Arc<Inner>,
    run: RunId,
    tenant: TenantId,
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut followed = self.rt.ears.lock();
        let Some(place) = followed.get_mut(&self.run) else { return };
        if let Some((_, count)) = place.readers.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                place.readers.remove(&self.tenant);
            }
        }
        if place.readers.is_empty() {
            followed.remove(&self.run);
        }
    }
}

impl Ears {
    /// Changes whenever everything is to be looked at.
    pub(crate) fn everything(&self) -> watch::Receiver<u64> {
        self.everything.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// How long until what others store is looked at without having heard of it. `None` where there are no others.
    pub(crate) fn look_every(&self) -> Option<Duration> {
        let every = match self.store.standing()?.hearing {
            Hearing::Proven => LOOK_PROVEN,
            Hearing::Deaf | Hearing::PollOnly => LOOK_DEAF,
        };
        Some(every - spread(every / 10))
    }

    /// When that is next.
    pub(crate) fn next_look(&self) -> Option<tokio::time::Instant> {
        self.look_every().map(|every| tokio::time::Instant::now() + every)
    }

    /// Comes when something may begin here: at once, but for an instance that may have lost its lease.
    pub(crate) async fn until_it_may_begin(&self) {
        while !self.store.may_begin() {
            tokio::time::sleep(LEASE_LOOK).await;
        }
    }

    /// What others store of this run is read for its watchers, as long as there are any.
    pub(crate) fn read_for(self: &Arc<Self>, cx: &Context, run: RunId) -> Follow {
        let mut followed = self.ears.lock();
        let readers = &mut followed.entry(run).or_default().readers;
        readers.entry(cx.tenant.clone()).or_insert_with(|| (cx.clone(), 0)).1 += 1;
        Follow { rt: Arc::clone(self), run, tenant: cx.tenant.clone() }
    }

    fn rung(self: &Arc<Self>, ring: Ring) {
        self.drivers.ring(ring.run);
        self.waiters.look(ring.run);
        for request in ring.requests {
            self.hub.heard_of(request);
        }
        if self.drivers.has(ring.run) {
            // Its driver shows it, in order.
            return;
        }
        let mut followed = self.ears.lock();
        let Some(place) = followed.get_mut(&ring.run) else { return };
        place.after = Some(place.after.map_or(ring.after, |after| after.min(ring.after)));
        if !std::mem::replace(&mut place.reading, true) {
            let rt = Arc::clone(self);
            self.tasks.spawn(async move { rt.read_for_watchers(ring.run).await });
        }
    }

    fn rung_for_everything(&self) {
        self.drivers.look();
        self.waiters.look_all();
        self.ears.everything.send_modify(|times| *times += 1);
    }

    /// Reads what is to be read of a run until there is nothing more.
    async fn read_for_watchers(&self, run: RunId) {
        loop {
            let (after, readers) = {
                let mut followed = self.ears.lock();
                let Some(place) = followed.get_mut(&run) else { return };
                let Some(after) = place.after.take() else {
                    place.reading = false;
                    return;
                };
                let readers: Vec<Context> = place.readers.values().map(|(cx, _)| cx.clone()).collect();
                (after, readers)
            };
            for cx in readers {
                self.pass_on(&cx, run, after).await;
            }
        }
    }

    /// A watcher that is not shown something here finds it when it looks.
    async fn pass_on(&self, cx: &Context, run: RunId, mut after: u64) {
        while let Ok(Some(events)) = self.store.events(cx, run, after, PAGE).await {
            let last = events.len() < PAGE;
            for (seq, json) in events {
                after = seq;
                if let Ok(event) = Event::from_json(Some(seq), &json) {
                    self.hub.pass_on(run, Arc::new(event));
                }
            }
            if last {
                return;
            }
        }
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
            Ok(Bell::Run(ring)) => rt.rung(ring),
            Ok(Bell::Everything) | Err(RecvError::Lagged(_)) => rt.rung_for_everything(),
            Err(RecvError::Closed) => return,
        }
    }
}

/// When somebody who was told to look at everything does so.
pub(crate) fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + spread(SPREAD)
}

/// Some time up to this: one after the other get times that lie well apart, whatever their number.
fn spread(within: Duration) -> Duration {
    static TURN: AtomicU32 = AtomicU32::new(0);
    // The golden ratio of 2^32.
    let turn = TURN.fetch_add(0x9E37_79B9, Ordering::Relaxed);
    within.mul_f64(f64::from(turn) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spread_evenly() {
        let mut tenths = [0; 10];
        for _ in 0..1_000 {
            let at = spread(Duration::from_millis(1_000));
            tenths[usize::try_from(at.as_millis() / 100).unwrap().min(9)] += 1;
        }
        assert!(tenths.iter().all(|count| (80..=120).contains(count)), "{tenths:?}");
    }
}
