//! The inbox, live: which requests open and close, over all runs.
//!
//! Of each request that opens or closes here, one task reads how it stands: once for a tenant, however many watch. Where
//! other instances write too, their bells are heard here, and the same task looks from time to time at what waits and tells what has
//! changed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_core::limits::STREAM_BUFFER_EVENTS;
use holdpoint_protocol::{EventBody, Interaction, InteractionStatus, RequestId, TenantId, Timestamp};
use holdpoint_store::{Context, Result};
use tokio::sync::Notify;

use crate::Runtime;
use crate::inner::Inner;
use crate::ring::{Reader, Ring};

/// How many of those that wait are looked at, the newest: what was opened before them is in the list, and that it closed
/// elsewhere is not told live.
const LOOKED_AT: usize = 2_000;
/// How long a store that could not be read is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// A request of some run opened or closed.
#[derive(Debug, Clone)]
pub enum InboxChange {
    /// How it stands now.
    Changed(Arc<Interaction>),
    /// The watcher was too slow and missed some: list the pending ones again.
    Lagged,
}

/// The requests of all runs of a tenant, as they open and close.
pub struct Inbox {
    rt: Arc<Inner>,
    tenant: TenantId,
    changes: Reader<InboxChange>,
}

impl Runtime {
    /// Watches which requests open and close from here on. What is open already is in the list: read it after this.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn inbox(&self, cx: &Context) -> Result<Inbox> {
        let inbox = Inbox {
            rt: Arc::clone(&self.inner),
            tenant: cx.tenant.clone(),
            changes: self.inner.hub.desks().watch(cx),
        };
        if self.inner.store.is_shared() {
            // What waits now is not news later. Of what changes after this, the next look tells.
            let waiting = self.inner.store.newest_pending(cx, LOOKED_AT).await?;
            self.inner.hub.desks().begin(&cx.tenant, &waiting);
        }
        Ok(inbox)
    }
}

impl Inbox {
    /// Whether nothing can be stored or read just now ([`Runtime::is_degraded`]).
    pub fn is_degraded(&self) -> bool {
        self.rt.is_degraded()
    }

    /// The next change. May be dropped while it waits, and called again.
    pub async fn next(&mut self) -> InboxChange {
        self.changes.next().await.unwrap_or(InboxChange::Lagged)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.rt.hub.desks().unwatched(&self.tenant);
    }
}

/// The inboxes that are watched, and what was heard that concerns them.
#[derive(Default)]
pub(crate) struct Desks {
    by_tenant: Mutex<HashMap<TenantId, Desk>>,
    heard: Mutex<VecDeque<RequestId>>,
    bell: Notify,
}

/// The inbox of a tenant, for all who watch it.
struct Desk {
    cx: Context,
    changes: Arc<Ring<InboxChange>>,
    watchers: usize,
    /// What waited at the last look; none before the first.
    known: Option<HashMap<RequestId, Timestamp>>,
}

impl Desks {
    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Desk>> {
        self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<RequestId>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, cx: &Context) -> Reader<InboxChange> {
        let mut desks = self.lock();
        let desk = desks.entry(cx.tenant.clone()).or_insert_with(|| Desk {
            cx: cx.clone(),
            changes: Ring::new(STREAM_BUFFER_EVENTS),
            watchers: 0,
            known: None,
        });
        desk.watchers += 1;
        desk.changes.read()
    }

    fn unwatched(&self, tenant: &TenantId) {
        let mut desks = self.lock();
        if let Some(desk) = desks.get_mut(tenant) {
            desk.watchers -= 1;
            if desk.watchers == 0 {
                desks.remove(tenant);
            }
        }
    }

    fn begin(&self, tenant: &TenantId, waiting: &[(Timestamp, RequestId)]) {
        if let Some(desk) = self.lock().get_mut(tenant)
            && desk.known.is_none()
        {
            desk.known = Some(waiting.iter().map(|(at, request)| (*request, *at)).collect());
        }
    }

    /// An event was shown. If a request opened or closed by it, those who watch are to be told how it stands.
    pub(crate) fn heard(&self, body: &EventBody) {
        let Some(request) = body.request() else { return };
        if !self.lock().is_empty() {
            self.hear([request]);
        }
    }

    /// Another instance opened or closed these requests.
    pub(crate) fn heard_of(&self, requests: &[RequestId]) {
        if !requests.is_empty() && !self.lock().is_empty() {
            self.hear(requests.iter().copied());
        }
    }

    fn hear(&self, requests: impl IntoIterator<Item = RequestId>) {
        let mut heard = self.queue();
        heard.extend(requests);
        let over = heard.len().saturating_sub(2 * LOOKED_AT);
        if over > 0 {
            // The store is away, or slower than the runs: what is lost here is in the list.
            heard.clear();
            self.lock().values().for_each(|desk| desk.changes.push(InboxChange::Lagged));
        }
        drop(heard);
        self.bell.notify_one();
    }

    /// The one heard of first that has not been told; it stays until [`Self::told`], so that none is lost.
    fn next(&self) -> Option<RequestId> {
        self.queue().front().copied()
    }

    fn told(&self, request: RequestId) {
        let mut heard = self.queue();
        if heard.front() == Some(&request) {
            heard.pop_front();
        }
    }

    fn contexts(&self) -> Vec<Context> {
        self.lock().values().map(|desk| desk.cx.clone()).collect()
    }

    fn tell(&self, tenant: &TenantId, interaction: Interaction) {
        if let Some(desk) = self.lock().get_mut(tenant) {
            if let Some(known) = &mut desk.known {
                match interaction.status {
                    InteractionStatus::Pending => {
                        known.insert(interaction.request_id, interaction.created_at)
                    }
                    InteractionStatus::Decided
                    | InteractionStatus::Expired
                    | InteractionStatus::Cancelled
                    | InteractionStatus::Superseded => known.remove(&interaction.request_id),
                };
            }
            desk.changes.push(InboxChange::Changed(Arc::new(interaction)));
        }
    }

    /// What opened and closed since the last look.
    fn news(&self, tenant: &TenantId, waiting: Vec<(Timestamp, RequestId)>) -> Vec<RequestId> {
        let mut desks = self.lock();
        let Some(desk) = desks.get_mut(tenant) else { return Vec::new() };
        // Where there are more than were looked at, what is older may wait still.
        let oldest = waiting.last().filter(|_| waiting.len() == LOOKED_AT).map(|(at, _)| *at);
        let now: HashMap<RequestId, Timestamp> = waiting.into_iter().map(|(at, id)| (id, at)).collect();
        let Some(known) = desk.known.replace(now) else { return Vec::new() };
        let Some(now) = &desk.known else { return Vec::new() };
        let gone =
            known.iter().filter(|(id, at)| !now.contains_key(id) && oldest.is_none_or(|old| **at > old));
        let new = now.keys().filter(|id| !known.contains_key(id));
        let changed: HashSet<RequestId> = gone.map(|(id, _)| *id).chain(new.copied()).collect();
        changed.into_iter().collect()
    }
}

/// Tells those who watch an inbox what has changed, until the runtime stops.
pub(crate) async fn mind_desks(rt: Arc<Inner>) {
    let desks = rt.hub.desks();
    let mut everything = rt.ears.everything();
    let mut look_at = rt.next_look();
    loop {
        tokio::select! {
            () = desks.bell.notified() => {}
            () = crate::driver::at(look_at) => {
                look_at = rt.next_look();
                look(&rt).await;
            }
            // The runtime holds the other end, and we hold the runtime.
            _ = everything.changed() => {
                look_at = rt.next_look().map(|at| at.min(rt.ears.soon()));
                continue;
            }
            () = rt.shutdown.cancelled() => return,
        }
        while let Some(request) = desks.next() {
            if let Err(error) = tell(&rt, request).await {
                tracing::warn!(%error, "a request could not be read; the inboxes that are watched wait");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => continue,
                    () = rt.shutdown.cancelled() => return,
                }
            }
            desks.told(request);
        }
    }
}

/// Reads how a request stands, under each tenant that is watched: what belongs to another is not there.
async fn tell(rt: &Inner, request: RequestId) -> Result<()> {
    for cx in rt.hub.desks().contexts() {
        if let Some(interaction) = rt.store.interaction(&cx, request).await? {
            rt.hub.desks().tell(&cx.tenant, interaction);
        }
    }
    Ok(())
}

/// Compares what waits with what was known: a bell of another instance may not have been heard.
async fn look(rt: &Inner) {
    for cx in rt.hub.desks().contexts() {
        match rt.store.newest_pending(&cx, LOOKED_AT).await {
            Ok(waiting) => rt.hub.desks().hear(rt.hub.desks().news(&cx.tenant, waiting)),
            Err(error) => tracing::warn!(%error, "what waits could not be looked at; inboxes are told later"),
        }
    }
}
