//! The task that keeps one server: connects, lists, listens for changes, and begins again when it is lost.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rmcp::model::{ServerNotification, SubscriptionFilter};
use rmcp::service::{Peer, RoleClient};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::change::changes;
use super::config::{McpServerConfig, Target};
use super::connection::{Connection, connect};
use super::definition::{self, Offered};
use super::handler::Handler;
use super::listing::list;
use super::tool::{Link, McpTool};
use crate::{Snapshot, SourceStatus, Tool};

/// How long to wait before a lost server is tried again: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A server that has worked for so long is tried again as if for the first time.
const STEADY: Duration = Duration::from_secs(60);
/// Announcements that come this close together are answered by one listing.
const GATHER: Duration = Duration::from_millis(50);
/// How long a connection has to close.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// What is there while a server is connected.
pub struct Live {
    pub peer: Peer<RoleClient>,
    pub handler: Handler,
    /// The definitions as last listed, by the names the model calls them.
    pub pins: RwLock<HashMap<String, String>>,
    /// Up to which announced change the listing has been read.
    pub listed: watch::Sender<u64>,
}

pub struct Keeper {
    pub link: Arc<Link>,
    pub config: McpServerConfig,
    pub target: Target,
    pub snapshot: watch::Sender<Arc<Snapshot>>,
    pub cancel: CancellationToken,
    /// What was last listed. Kept when the server is lost, so that another listing afterwards is a change.
    pub known: Option<Vec<Offered>>,
}

enum End {
    Cancelled,
    Lost(String),
}

impl Keeper {
    pub async fn keep(mut self) {
        let cancel = self.cancel.clone();
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            let end = self.session().await;
            self.link.live.send_replace(None);
            match end {
                End::Cancelled => break,
                End::Lost(why) => self.publish(|next| next.status = SourceStatus::Down(why)),
            }
            if began.elapsed() >= STEADY {
                pause = PAUSE_MIN;
            }
            let link = self.link.clone();
            let wanted = async {
                sleep(PAUSE_MIN).await;
                link.wanted.notified().await;
            };
            tokio::select! {
                () = cancel.cancelled() => break,
                () = sleep(pause) => {}
                () = wanted => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        self.publish(|next| next.status = SourceStatus::Closed);
    }

    /// One connection, from its beginning to its end.
    async fn session(&mut self) -> End {
        let handler = Handler::default();
        let connecting =
            timeout(self.config.start_timeout(), connect(&self.target, &self.config, handler.clone()));
        let connection = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return End::Cancelled,
            connected = connecting => match connected {
                Ok(Ok(connection)) => connection,
                Ok(Err(why)) => return End::Lost(why),
                Err(_) => return End::Lost(format!("it did not answer within {} ms", self.config.start_timeout_ms)),
            },
        };
        let Connection { running, process } = connection;
        let live = Arc::new(Live {
            peer: running.peer().clone(),
            handler,
            pins: RwLock::default(),
            listed: watch::Sender::new(0),
        });
        let stop = running.cancellation_token();
        let closed = CancellationToken::new();
        let closing = closed.clone();
        tokio::spawn(async move {
            let _ = running.waiting().await;
            closing.cancel();
        });
        let end = self.serve(&live, &closed).await;
        self.link.live.send_replace(None);
        stop.cancel();
        let _ = timeout(CLOSE_GRACE, closed.cancelled()).await;
        match (end, process) {
            (end, None) => end,
            (End::Cancelled, Some(process)) => {
                process.end().await;
                End::Cancelled
            }
            (End::Lost(why), Some(process)) => End::Lost(format!("{why}; {}", process.end().await)),
        }
    }

    async fn serve(&mut self, live: &Arc<Live>, closed: &CancellationToken) -> End {
        let cancel = self.cancel.clone();
        let link = self.link.clone();
        let mut announced = live.handler.announced();
        let _listener = listen(live, closed);
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return End::Cancelled,
                () = closed.cancelled() => return End::Lost("it closed the connection".into()),
                refreshed = self.refresh(live) => if let Err(why) = refreshed {
                    return End::Lost(why);
                },
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return End::Cancelled,
                () = closed.cancelled() => return End::Lost("it closed the connection".into()),
                // A call found the connection broken: the listing tells whether it is.
                () = link.suspect.notified() => {}
                _ = announced.changed() => sleep(GATHER).await,
            }
        }
    }

    /// Lists the tools, and makes known what is different.
    async fn refresh(&mut self, live: &Arc<Live>) -> Result<(), String> {
        // What is announced while the list is read is not in it.
        let seen = *live.handler.announced().borrow();
        let tools = timeout(self.config.list_timeout(), list(&live.peer))
            .await
            .map_err(|_| format!("it did not list its tools within {} ms", self.config.list_timeout_ms))??;
        let listing = definition::read(&self.link.server, &self.config, tools);
        let changes = self.known.as_ref().map(|known| changes(known, &listing.offered)).unwrap_or_default();
        let pins =
            listing.offered.iter().map(|one| (one.definition.name.clone(), one.digest.clone())).collect();
        *live.pins.write().unwrap_or_else(PoisonError::into_inner) = pins;
        let same = self.known.is_some() && changes.is_empty();
        let ready = {
            let now = self.snapshot.borrow();
            now.status == SourceStatus::Ready && now.unusable == listing.unusable
        };
        if !(same && ready) {
            let tools = listing.offered.iter().map(|one| self.tool(one)).collect();
            self.publish(|next| {
                next.status = SourceStatus::Ready;
                next.tools = tools;
                next.unusable = listing.unusable;
                next.changes = changes;
            });
        }
        self.known = Some(listing.offered);
        live.listed.send_replace(seen);
        self.link.live.send_if_modified(|now| {
            let first = now.is_none();
            if first {
                *now = Some(live.clone());
            }
            first
        });
        Ok(())
    }

    fn tool(&self, offered: &Offered) -> Arc<dyn Tool> {
        Arc::new(McpTool { offered: offered.clone(), link: self.link.clone() })
    }

    fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        self.snapshot.send_modify(|now| {
            let mut next =
                Snapshot { revision: now.revision + 1, changes: Vec::new(), ..Snapshot::clone(now) };
            change(&mut next);
            *now = Arc::new(next);
        });
    }
}

/// In the newer era a server announces changes only to those who ask.
fn listen(live: &Arc<Live>, closed: &CancellationToken) -> Option<tokio_util::task::AbortOnDropHandle<()>> {
    let info = live.peer.peer_info()?;
    let announces = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
    if info.protocol_version.has_initialize() || !announces {
        return None;
    }
    let (peer, handler, closed) = (live.peer.clone(), live.handler.clone(), closed.clone());
    let listening = async move {
        loop {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            if let Ok(mut subscription) = peer.listen(filter).await {
                // What changed since the last listing, while nobody listened, was announced to nobody.
                handler.announce();
                while let Ok(Some(notification)) = subscription.next().await {
                    if let ServerNotification::ToolListChangedNotification(_) = notification {
                        handler.announce();
                    }
                }
            }
            sleep(PAUSE_MIN).await;
        }
    };
    Some(tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::select! {
            () = closed.cancelled() => {}
            () = listening => {}
        }
    })))
}
