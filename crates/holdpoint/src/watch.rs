//! Watching a run: what is stored, from a number on, and then what happens.
//!
//! A watcher reads the log by itself until it has seen it to its end; from there on it is shown what all watchers of the
//! run are shown, and costs nothing while nothing happens.

use std::collections::VecDeque;
use std::sync::Arc;

use holdpoint_protocol::{Event, RunId};
use holdpoint_store::{Context, Result};

use crate::Runtime;
use crate::inner::Inner;
use crate::lookout::LOG_PAGE;
use crate::ring::{Lagged, Reader};

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
    /// The log may hold more than was read of it.
    behind: bool,
    shown: Reader<Seen>,
    /// The log has been seen to its end once.
    joined: bool,
    over: bool,
}

impl Runtime {
    /// Watches a run after this number (0: from its beginning). `None` when there is no such run for this tenant.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn watch(&self, cx: &Context, run: RunId, after: u64) -> Result<Option<Watch>> {
        let mut watch = Watch {
            rt: Arc::clone(&self.inner),
            cx: cx.clone(),
            run,
            last: after,
            log: VecDeque::new(),
            behind: true,
            // Before the log is read, so that nothing falls between.
            shown: self.inner.hub.watch(run),
            joined: false,
            over: false,
        };
        Ok(watch.read_log().await?.then_some(watch))
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

    /// The next thing; `None` after the run's last event. May be dropped while it waits, and called again.
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
            self.join();
            match self.shown.next().await {
                Ok(Seen::Stored { seq, .. }) if seq <= self.last => {}
                Ok(Seen::Stored { seq, json }) if seq == self.last + 1 => {
                    return Ok(Some(self.stored(seq, json)));
                }
                // Something before it was shown before this watcher came.
                Ok(Seen::Stored { .. }) => self.behind = true,
                Ok(passing @ (Seen::Passing(_) | Seen::Lagged)) => return Ok(Some(passing)),
                Err(Lagged) => {
                    self.behind = true;
                    return Ok(Some(Seen::Lagged));
                }
            }
        }
    }

    /// From here on everything is shown.
    fn join(&mut self) {
        if !self.joined {
            self.joined = true;
            self.log = VecDeque::new();
            self.rt.hub.caught_up(self.run, &self.cx, self.last);
        }
    }

    fn stored(&mut self, seq: u64, json: Arc<str>) -> Seen {
        self.last = seq;
        let seen = Seen::Stored { seq, json };
        self.over = seen.is_terminal();
        seen
    }

    /// Reads the next page of the log; false when there is no such run.
    async fn read_log(&mut self) -> Result<bool> {
        let log = self.rt.store.events(&self.cx, self.run, self.last, LOG_PAGE).await?;
        let exists = log.is_some();
        let log = log.unwrap_or_default();
        self.behind = log.len() == LOG_PAGE;
        self.log = log.into();
        Ok(exists)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.rt.hub.unwatched(self.run);
    }
}
