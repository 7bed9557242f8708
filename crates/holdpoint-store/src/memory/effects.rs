//! Effects under business keys, in memory.

use std::collections::hash_map::Entry;

use async_trait::async_trait;
use holdpoint_protocol::{TenantId, Timestamp};

use super::MemoryStore;
use super::state::State;
use crate::effects::EffectRow;
use crate::{Context, EffectEnd, EffectKey, EffectRecord, EffectUse, Result};

/// Whose key it is, of which tool, and the key.
pub(super) type EffectId = (TenantId, String, String);

fn id(cx: &Context, key: &EffectKey) -> EffectId {
    (cx.tenant.clone(), key.tool.clone(), key.key.clone())
}

impl State {
    fn begin_effect(&mut self, cx: &Context, key: &EffectKey, now: Timestamp) -> EffectUse {
        match self.effects.entry(id(cx, key)) {
            Entry::Occupied(row) => row.get().clone().used_by(key),
            Entry::Vacant(place) => {
                place.insert(EffectRow {
                    exec: key.exec,
                    arguments: key.arguments,
                    since: now,
                    recorded: None,
                });
                EffectUse::Free
            }
        }
    }

    fn end_effect(&mut self, cx: &Context, key: &EffectKey, end: EffectEnd, now: Timestamp) {
        let Entry::Occupied(mut row) = self.effects.entry(id(cx, key)) else { return };
        if row.get().exec != key.exec || row.get().recorded.is_some() {
            return;
        }
        match end {
            EffectEnd::Recorded(result) => row.get_mut().recorded = Some((now, result)),
            EffectEnd::NoEffect => drop(row.remove()),
        }
    }
}

#[async_trait]
impl EffectRecord for MemoryStore {
    async fn begin_effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        let now = self.clock.now();
        Ok(self.open()?.begin_effect(cx, key, now))
    }

    async fn effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        let row = self.open()?.effects.get(&id(cx, key)).cloned();
        Ok(row.map_or(EffectUse::Free, |row| row.used_by(key)))
    }

    async fn end_effect(&self, cx: &Context, key: &EffectKey, end: EffectEnd) -> Result<()> {
        let now = self.clock.now();
        self.open()?.end_effect(cx, key, end, now);
        Ok(())
    }
}
