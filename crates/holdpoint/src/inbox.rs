//! The inbox, live: which requests open and close, over all runs.

use holdpoint_protocol::{Interaction, RequestId};
use holdpoint_store::{Context, Result};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::Runtime;

/// A request of some run opened or closed.
#[derive(Debug, Clone)]
pub enum InboxChange {
    /// How it stands now.
    Changed(Box<Interaction>),
    /// The watcher was too slow and missed some: list the pending ones again.
    Lagged,
}

/// The requests of all runs of a tenant, as they open and close in this process.
pub struct Inbox {
    runtime: Runtime,
    cx: Context,
    live: broadcast::Receiver<RequestId>,
    /// Heard of, not yet read: kept here so that a wait that is broken off loses nothing.
    next: Option<RequestId>,
}

impl Runtime {
    /// Watches which requests open and close from here on. What is open already is in the list.
    pub fn inbox(&self, cx: &Context) -> Inbox {
        Inbox { runtime: self.clone(), cx: cx.clone(), live: self.inner.hub.inbox(), next: None }
    }
}

impl Inbox {
    /// The next change. May be dropped while it waits, and called again.
    ///
    /// # Errors
    /// When the store cannot be read; the same change comes again with the next call.
    pub async fn next(&mut self) -> Result<InboxChange> {
        loop {
            let request = match self.next {
                Some(request) => request,
                None => match self.live.recv().await {
                    Ok(request) => request,
                    Err(RecvError::Lagged(_)) => return Ok(InboxChange::Lagged),
                    // The runtime holds the other end, and we hold the runtime.
                    Err(RecvError::Closed) => std::future::pending().await,
                },
            };
            self.next = Some(request);
            // Read under the tenant of the one who watches: what belongs to another is not there.
            let interaction = self.runtime.store().interaction(&self.cx, request).await?;
            self.next = None;
            if let Some(interaction) = interaction {
                return Ok(InboxChange::Changed(Box::new(interaction)));
            }
        }
    }
}
