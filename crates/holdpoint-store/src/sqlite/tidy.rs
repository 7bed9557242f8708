//! Making room in SQLite. The pages that become free are used again; the file does not shrink by itself.

use std::time::Duration;

use async_trait::async_trait;
use holdpoint_protocol::RunId;
use rusqlite::{Row, params};

use super::SqliteStore;
use super::rows;
use super::txn::{Done, Txn};
use crate::chain::ms;
use crate::tidy::{KEY_KEPT, first_kept};
use crate::{Result, Tidied, Tidy, stored};

/// Everything of a run, by its tenant and id.
const OF_A_RUN: [&str; 5] = [
    "DELETE FROM journal WHERE tenant = ?1 AND run = ?2",
    "DELETE FROM request WHERE tenant = ?1 AND run = ?2",
    "DELETE FROM execution WHERE tenant = ?1 AND run = ?2",
    "DELETE FROM idempotency WHERE tenant = ?1 AND run = ?2",
    "DELETE FROM run WHERE tenant = ?1 AND id = ?2",
];

impl Txn<'_> {
    /// What only has to find room.
    pub(super) fn probe(&mut self) -> Done<()> {
        let sql = "INSERT OR REPLACE INTO tool_set (digest, tools) VALUES (?1, ?2)";
        self.execute(sql, params![stored::BALLAST_DIGEST, stored::ballast()])?;
        Ok(())
    }

    pub(super) fn end_probe(&mut self) -> Done<()> {
        self.execute("DELETE FROM tool_set WHERE digest = ?1", params![stored::BALLAST_DIGEST])?;
        Ok(())
    }

    fn tidy(&mut self, keep: Option<Duration>, limit: usize) -> Done<Tidied> {
        let now = self.now();
        let kept = i64::try_from(KEY_KEPT.as_millis()).unwrap_or(i64::MAX);
        let answers = "DELETE FROM idempotency WHERE run IS NULL AND at <= ?1";
        self.execute(answers, params![ms(now).saturating_sub(kept)])?;
        let Some(keep) = keep else { return Ok(Tidied::default()) };

        let old = "SELECT c.tenant, c.name, c.last_run FROM conversation c \
                   JOIN run r ON r.tenant = c.tenant AND r.id = c.last_run \
                   WHERE c.last_run < ?1 AND r.status IN (3, 4) ORDER BY c.last_run LIMIT ?2";
        let first = *first_kept(now, keep).0.as_bytes();
        let rows = i64::try_from(limit).unwrap_or(i64::MAX);
        let read =
            |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, rows::run_id(row, 2)?));
        let old = self.many(old, params![first, rows], read)?;
        let mut tidied = Tidied { more: old.len() == limit, ..Tidied::default() };
        for (tenant, name, last) in old {
            for run in self.runs_before(tenant, last)? {
                for sql in OF_A_RUN {
                    self.execute(sql, params![tenant, run.0.as_bytes()])?;
                }
                tidied.runs += 1;
            }
            self.execute("DELETE FROM conversation WHERE tenant = ?1 AND name = ?2", params![tenant, name])?;
            tidied.conversations += 1;
        }
        Ok(tidied)
    }

    /// A run and those before it in its conversation.
    fn runs_before(&self, tenant: i64, last: RunId) -> rusqlite::Result<Vec<RunId>> {
        let sql = "WITH RECURSIVE chain (id) AS ( \
                       VALUES (?2) UNION \
                       SELECT r.previous FROM chain JOIN run r ON r.tenant = ?1 AND r.id = chain.id \
                       WHERE r.previous IS NOT NULL \
                   ) SELECT id FROM chain";
        self.many(sql, params![tenant, last.0.as_bytes()], |row| rows::run_id(row, 0))
    }
}

#[async_trait]
impl Tidy for SqliteStore {
    async fn tidy(&self, keep: Option<Duration>, limit: usize) -> Result<Tidied> {
        self.writer.write("tidy", move |txn| txn.tidy(keep, limit)).await
    }
}
