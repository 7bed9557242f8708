//! What is shown is stored: looked at in the moment in which it is shown. (What SSE shows is a prefix of the log because of it.)

use std::sync::Arc;

use holdpoint::protocol::Event;
use holdpoint::store::{MemoryStore, Store};
use holdpoint::{Listener, local};

use crate::at_once::at_once;
use crate::world::World;

/// Sees what watchers see.
pub struct Watcher {
    /// What survives the process.
    pub stored: Arc<MemoryStore>,
    /// Where what must not be is noted.
    pub world: Arc<World>,
}

impl Listener for Watcher {
    fn on_event(&self, event: &Event) {
        // What has no number is not stored, and nobody is told that it is.
        let Some(seq) = event.seq else { return };
        let shown = event.to_json();
        match self.stored_at(event, seq) {
            Some(stored) if *stored == *shown => {}
            Some(stored) => {
                self.world.note(format!("event {seq} was shown as {shown} and is stored as {stored}"))
            }
            None => self.world.note(format!("event {seq} was shown before it was stored: {shown}")),
        }
    }
}

impl Watcher {
    fn stored_at(&self, event: &Event, seq: u64) -> Option<Arc<str>> {
        let cx = local();
        let found = at_once(self.stored.events(&cx, event.run_id, seq - 1, 1))?.ok().flatten()?;
        found.into_iter().find(|(found, _)| *found == seq).map(|(_, json)| json)
    }
}
