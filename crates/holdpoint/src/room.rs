//! A run that is watched here: one place for all who watch it, filled once.

use std::sync::Arc;

use holdpoint_core::limits::STREAM_BUFFER_EVENTS;
use holdpoint_protocol::{Event, RunId};
use holdpoint_store::Context;

use crate::ring::{Reader, Ring};
use crate::watch::Seen;

/// What all watchers of a run share.
pub(crate) struct Room {
    shown: Arc<Ring<Seen>>,
    /// The number of the last stored event that was shown; 0 while that is not known.
    last: u64,
    /// On whose behalf the log is read; none until somebody here has seen it to its end.
    cx: Option<Context>,
    watchers: usize,
}

/// Whether what was shown follows on what had been shown before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    Yes,
    /// Something before it was not shown here: the log has it.
    No,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self { shown: Ring::new(STREAM_BUFFER_EVENTS), last: 0, cx: None, watchers: 0 }
    }

    /// One more watches.
    pub(crate) fn enter(&mut self) -> Reader<Seen> {
        self.watchers += 1;
        self.shown.read()
    }

    /// One goes; true when it was the last.
    pub(crate) fn leave(&mut self) -> bool {
        self.watchers -= 1;
        self.watchers == 0
    }

    /// A watcher has read the log up to here, and goes on with what is shown. No when it knows more than was shown.
    pub(crate) fn caught_up(&mut self, cx: &Context, last: u64) -> Follows {
        if self.cx.is_none() {
            self.cx = Some(cx.clone());
        }
        if self.last == 0 {
            self.last = last;
        }
        if self.last < last { Follows::No } else { Follows::Yes }
    }

    /// Shows an event, if it is the next; each stored one is shown once.
    pub(crate) fn show(&mut self, event: &Arc<Event>, json: impl FnOnce() -> Arc<str>) -> Follows {
        match event.seq {
            None => {
                self.shown.push(Seen::Passing(Arc::clone(event)));
                Follows::Yes
            }
            Some(seq) if seq <= self.last => Follows::Yes,
            Some(seq) if self.is_next(seq) => {
                self.stored(seq, json());
                Follows::Yes
            }
            Some(_) => Follows::No,
        }
    }

    /// Shows what was read from the log.
    pub(crate) fn fill(&mut self, log: impl IntoIterator<Item = (u64, Arc<str>)>) {
        for (seq, json) in log {
            if self.is_next(seq) {
                self.stored(seq, json);
            }
        }
    }

    /// From where on the log is to be read; none while the watchers read it by themselves.
    pub(crate) fn place(&self) -> Option<(&Context, u64)> {
        self.cx.as_ref().map(|cx| (cx, self.last))
    }

    fn is_next(&self, seq: u64) -> bool {
        self.last == 0 || seq == self.last + 1
    }

    fn stored(&mut self, seq: u64, json: Arc<str>) {
        self.last = seq;
        self.shown.push(Seen::Stored { seq, json });
    }
}

/// A run that is watched, and the last event of it that was shown here.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) cx: Context,
    pub(crate) run: RunId,
    pub(crate) last: u64,
}
