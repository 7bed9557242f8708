//! The inbox, live: which requests open and close, over all runs.

use std::collections::{HashSet, VecDeque};

use holdpoint_protocol::{Interaction, InteractionStatus, RequestId};
use holdpoint_store::{Context, InteractionFilter, PAGE_MAX, PageRequest, Result};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::Runtime;

/// How much of the list is looked at: what waits beyond it is in the list, and is not told live.
const LOOK_PAGES: usize = 10;

/// A request of some run opened or closed.
#[derive(Debug, Clone)]
pub enum InboxChange {
    /// How it stands now.
    Changed(Box<Interaction>),
    /// The watcher was too slow and missed some: list the pending ones again.
    Lagged,
}

/// The requests of all runs of a tenant, as they open and close.
pub struct Inbox {
    runtime: Runtime,
    cx: Context,
    live: broadcast::Receiver<RequestId>,
    /// Heard of, not yet read: kept here so that a wait that is broken off loses nothing.
    next: VecDeque<RequestId>,
    /// Pending when it was last looked, and told.
    known: HashSet<RequestId>,
    everything: watch::Receiver<u64>,
    look_at: Option<tokio::time::Instant>,
}

impl Runtime {
    /// Watches which requests open and close from here on. What is open already is in the list.
    pub fn inbox(&self, cx: &Context) -> Inbox {
        Inbox {
            runtime: self.clone(),
            cx: cx.clone(),
            live: self.inner.hub.inbox(),
            next: VecDeque::new(),
            known: HashSet::new(),
            everything: self.inner.ears.everything(),
            look_at: self.inner.next_look(),
        }
    }
}

impl Inbox {
    /// These have been seen in the list, and are not told again because they wait.
    pub fn seen(&mut self, listed: &[Interaction]) {
        if self.look_at.is_some() {
            self.known.extend(listed.iter().map(|interaction| interaction.request_id));
        }
    }

    /// The next change. May be dropped while it waits, and called again.
    ///
    /// # Errors
    /// When the store cannot be read; the same change comes again with the next call.
    pub async fn next(&mut self) -> Result<InboxChange> {
        loop {
            let Some(&request) = self.next.front() else {
                let heard = tokio::select! {
                    heard = self.live.recv() => heard,
                    () = crate::driver::at(self.look_at) => {
                        self.look().await?;
                        continue;
                    }
                    // The runtime holds the other end, and we hold the runtime.
                    _ = self.everything.changed() => {
                        self.look_at = self.look_at.map(|at| at.min(crate::hear::soon()));
                        continue;
                    }
                };
                match heard {
                    Ok(request) => self.next.push_back(request),
                    Err(RecvError::Lagged(_)) => return Ok(InboxChange::Lagged),
                    // The runtime holds the other end, and we hold the runtime.
                    Err(RecvError::Closed) => std::future::pending().await,
                }
                continue;
            };
            // Read under the tenant of the one who watches: what belongs to another is not there.
            let interaction = self.runtime.store().interaction(&self.cx, request).await?;
            self.next.pop_front();
            if let Some(interaction) = interaction {
                if self.look_at.is_some() {
                    match interaction.status {
                        InteractionStatus::Pending => self.known.insert(request),
                        InteractionStatus::Decided
                        | InteractionStatus::Expired
                        | InteractionStatus::Cancelled
                        | InteractionStatus::Superseded => self.known.remove(&request),
                    };
                }
                return Ok(InboxChange::Changed(Box::new(interaction)));
            }
        }
    }

    /// Compares the list with what was told: a bell of another instance may not have been heard.
    async fn look(&mut self) -> Result<()> {
        self.look_at = self.runtime.inner.next_look();
        let filter = InteractionFilter { status: Some(InteractionStatus::Pending), ..Default::default() };
        let mut page = PageRequest { limit: PAGE_MAX, ..PageRequest::default() };
        let mut pending = HashSet::new();
        for _ in 0..LOOK_PAGES {
            let listed = self.runtime.store().interactions(&self.cx, &filter, &page).await?;
            pending.extend(listed.items.iter().map(|interaction| interaction.request_id));
            page.cursor = listed.next_cursor;
            if page.cursor.is_none() {
                break;
            }
        }
        // Of a list that was not read to its end, what is missing may only stand further down.
        let gone = self.known.difference(&pending).filter(|_| page.cursor.is_none());
        let changed: Vec<RequestId> = gone.chain(pending.difference(&self.known)).copied().collect();
        self.next.extend(changed);
        Ok(())
    }
}
