//! What those who watch ask for, many runs at a time.

use holdpoint_protocol::{RequestId, RunId, Timestamp};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::readers::Reader;
use crate::clock::from_ms;
use crate::{Known, Result};

impl Reader {
    pub(super) fn moved(&mut self, known: &[Known]) -> Result<Vec<RunId>> {
        let mut moved = Vec::new();
        for Known { tenant, run, last } in known {
            let Some(tenant) = self.tenant(tenant)? else { continue };
            let sql = "SELECT next_seq FROM run WHERE tenant = ?1 AND id = ?2";
            let mut statement = self.connection.prepare_cached(sql)?;
            let next: Option<i64> =
                statement.query_row(params![tenant, run.0.as_bytes()], |row| row.get(0)).optional()?;
            if next.is_some_and(|next| next as u64 > last + 1) {
                moved.push(*run);
            }
        }
        Ok(moved)
    }

    pub(super) fn newest_pending(&self, tenant: i64, limit: usize) -> Result<Vec<(Timestamp, RequestId)>> {
        let sql = "SELECT opened_at, id FROM request WHERE tenant = ?1 AND status = 0 \
                   ORDER BY opened_at DESC, run DESC, seq DESC LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![tenant, limit])?;
        let mut newest = Vec::new();
        while let Some(row) = rows.next()? {
            newest.push((from_ms(row.get(0)?), RequestId(Uuid::from_bytes(row.get(1)?))));
        }
        Ok(newest)
    }
}
