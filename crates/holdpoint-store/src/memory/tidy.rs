//! Making room in memory.

use std::time::Duration;

use async_trait::async_trait;
use holdpoint_protocol::RunId;

use super::MemoryStore;
use super::state::{StandsFor, State};
use crate::clock::after;
use crate::tidy::{KEY_KEPT, first_kept};
use crate::{Result, Tidied, Tidy};

impl State {
    fn tidy(&mut self, first_kept: RunId, limit: usize) -> Tidied {
        let old = self.conversations.values().filter(|conversation| {
            conversation.open.is_none() && conversation.runs.last().is_some_and(|last| *last < first_kept)
        });
        let old: Vec<Vec<RunId>> = old.take(limit).map(|conversation| conversation.runs.clone()).collect();
        let mut tidied = Tidied { more: old.len() == limit, ..Tidied::default() };
        for runs in old {
            tidied.conversations += 1;
            tidied.runs += runs.len() as u64;
            for run in runs {
                self.finished.retain(|finished| *finished != run);
                self.forget(run);
            }
        }
        tidied
    }
}

#[async_trait]
impl Tidy for MemoryStore {
    async fn tidy(&self, keep: Option<Duration>, limit: usize) -> Result<Tidied> {
        let now = self.clock.now();
        let mut state = self.open()?;
        let kept_ms = u64::try_from(KEY_KEPT.as_millis()).unwrap_or(u64::MAX);
        state.keys.retain(|_, row| match row.stands_for {
            StandsFor::Reserved { since } | StandsFor::Answer { since, .. } => after(since, kept_ms) > now,
            StandsFor::Run(_) => true,
        });
        Ok(keep.map_or_else(Tidied::default, |keep| state.tidy(first_kept(now, keep), limit)))
    }
}
