//! Watching a run: what is stored, from a number on, and then what happens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use holdpoint_protocol::{Event, RunId};
use holdpoint_store::{Context, Result};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::Runtime;
use crate::hear::Follow;
use crate::inner::Inner;

/// Events read from the log at once.
const LOG_PAGE: usize = 256;
/// How often the log is looked at when nothing is heard, where no other process writes to it.
const LOG_POLL: Duration = Duration::from_secs(1);

/// One thing a watcher is shown.
#[derive(Debug, Clone)]
pub enum Seen {
    /// A stored event: its number and its JSON.
    Stored {
        /// The number.
        seq: u64,
        /// The JSON object.
        json: Arc<str>,
    },
    /// What is not stored: a piece of text.
    Passing(Arc<Event>),
    /// The watcher was too slow; some of what was not stored is lost. What is stored follows from the log.
    Lagged,
}

impl Seen {
    /// The word in `type`.
    pub fn kind(&self) -> &str {
        match self {
            Self::Stored { json, .. } => kind_of(json),
            Self::Passing(event) => event.body.kind(),
            Self::Lagged => "lagged",
        }
    }

    /// Whether it is the last event of a run.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Stored { .. }) && matches!(self.kind(), "finish" | "error")
    }
}

/// The word in `type`: the first field of every event we write.
fn kind_of(json: &str) -> &str {
    json.strip_prefix("{\"type\":\"").and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

/// A run as it is watched.
pub struct Watch {
    rt: Arc<Inner>,
    cx: Context,
    run: RunId,
    last: u64,
    log: VecDeque<(u64, Arc<str>)>,
    behind: bool,
    live: broadcast::Receiver<Arc<Event>>,
    everything: watch::Receiver<u64>,
    /// When the log is read without having heard anything. Kept here: a wait may be broken off and begun again.
    look_at: tokio::time::Instant,
    over: bool,
    _follow: Follow,
}

impl Runtime {
    /// Watches a run after this number (0: from its beginning). `None` when there is no such run for this tenant.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn watch(&self, cx: &Context, run: RunId, after: u64) -> Result<Option<Watch>> {
        // Subscribed before the log is read, so that nothing falls between.
        let live = self.inner.hub.watch(run);
        let everything = self.inner.ears.everything();
        let follow = self.inner.read_for(cx, run);
        let Some(log) = self.inner.store.events(cx, run, after, LOG_PAGE).await? else {
            drop(live);
            self.inner.hub.unwatched(run);
            return Ok(None);
        };
        let behind = log.len() == LOG_PAGE;
        Ok(Some(Watch {
            rt: Arc::clone(&self.inner),
            cx: cx.clone(),
            run,
            last: after,
            log: log.into(),
            behind,
            live,
            everything,
            look_at: next_look(&self.inner),
            over: false,
            _follow: follow,
        }))
    }
}

impl Watch {
    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The number of the last stored event that was seen.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether what was in the log has been seen: what follows happens now.
    pub fn is_live(&self) -> bool {
        self.log.is_empty() && !self.behind
    }

    /// The next thing; `None` after the run's last event.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn next(&mut self) -> Result<Option<Seen>> {
        loop {
            if self.over {
                return Ok(None);
            }
            if let Some((seq, json)) = self.log.pop_front() {
                if seq <= self.last {
                    continue;
                }
                return Ok(Some(self.stored(seq, json)));
            }
            if self.behind {
                self.read_log().await?;
                continue;
            }
            let heard = tokio::select! {
                heard = tokio::time::timeout_at(self.look_at, self.live.recv()) => heard,
                // The runtime holds the other end, and we hold the runtime.
                _ = self.everything.changed() => {
                    self.look_at = self.look_at.min(crate::hear::soon());
                    continue;
                }
            };
            match heard {
                Ok(Ok(event)) => match event.seq {
                    None => return Ok(Some(Seen::Passing(event))),
                    Some(seq) if seq <= self.last => {}
                    Some(seq) if seq == self.last + 1 => {
                        let json = event.to_json().into();
                        return Ok(Some(self.stored(seq, json)));
                    }
                    // Something before it was stored elsewhere.
                    Some(_) => self.read_log().await?,
                },
                Ok(Err(RecvError::Lagged(_))) => {
                    self.behind = true;
                    return Ok(Some(Seen::Lagged));
                }
                Ok(Err(RecvError::Closed)) => {
                    // The run's place was cleared: it ended, or it rests. Whatever there is stands in the log.
                    self.live = self.rt.hub.watch(self.run);
                    self.read_log().await?;
                }
                Err(_elapsed) => self.read_log().await?,
            }
        }
    }

    fn stored(&mut self, seq: u64, json: Arc<str>) -> Seen {
        self.last = seq;
        let seen = Seen::Stored { seq, json };
        self.over = seen.is_terminal();
        seen
    }

    async fn read_log(&mut self) -> Result<()> {
        let log = self.rt.store.events(&self.cx, self.run, self.last, LOG_PAGE).await?.unwrap_or_default();
        self.behind = log.len() == LOG_PAGE;
        self.log = log.into();
        self.look_at = next_look(&self.rt);
        Ok(())
    }
}

fn next_look(rt: &Inner) -> tokio::time::Instant {
    rt.next_look().unwrap_or_else(|| tokio::time::Instant::now() + LOG_POLL)
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The receiver is dropped after this; the place is cleared by whoever looks next.
        self.rt.hub.unwatched(self.run);
    }
}
