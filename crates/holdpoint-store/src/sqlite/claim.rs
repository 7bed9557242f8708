//! Becoming a run's owner.

use holdpoint_protocol::{RunId, RunStatus};
use rusqlite::{Row, params};

use super::rows;
use super::txn::{Done, Head, Txn};
use crate::chain::ms;
use crate::codes;
use crate::facts::{self, CLAIMS_ALONE_FROM, CLAIMS_WITHOUT_PROGRESS_MAX};
use crate::version::snapshot_version;
use crate::{Context, Taken};

impl Txn<'_> {
    /// Takes a run that has no owner, or one that is gone.
    pub(super) fn take(&mut self, cx: &Context, run: RunId) -> Done<bool> {
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(false) };
        let Some(mut head) = self.head(tenant, run)? else { return Ok(false) };
        if head.has_ended() || head.is_newer || head.owner == Some(self.caches.incarnation) {
            return Ok(false);
        }
        self.own(&mut head)?;
        Ok(true)
    }

    /// First what an earlier process left behind, then what was put off until now.
    pub(super) fn recover(&mut self, limit: usize) -> Done<Vec<Taken>> {
        let mut taken = Vec::new();
        let rows = i64::try_from(limit).unwrap_or(i64::MAX);
        let left = "SELECT tenant, id FROM run WHERE owner > 0 AND owner < ?1 AND snapshot_version <= ?3 \
                    ORDER BY claims, id LIMIT ?2";
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, rows::run_id(row, 1)?));
        for (tenant, run) in
            self.many(left, params![self.caches.incarnation, rows, snapshot_version()], read)?
        {
            let Some(mut head) = self.head(tenant, run)? else { continue };
            if head.claims >= CLAIMS_WITHOUT_PROGRESS_MAX {
                self.quarantine(&mut head)?;
            } else if head.claims < CLAIMS_ALONE_FROM || !self.has_a_suspect()? {
                self.own(&mut head)?;
                taken.push(Taken { cx: self.cx(&head)?, run, crashed: true });
            }
        }
        let rows = i64::try_from(limit.saturating_sub(taken.len())).unwrap_or(i64::MAX);
        let ready = "SELECT tenant, id FROM run WHERE owner = 0 AND wake_at <= ?1 AND snapshot_version <= ?3 \
             ORDER BY wake_at, id LIMIT ?2";
        for (tenant, run) in self.many(ready, params![ms(self.now()), rows, snapshot_version()], read)? {
            let Some(mut head) = self.head(tenant, run)? else { continue };
            self.own(&mut head)?;
            taken.push(Taken { cx: self.cx(&head)?, run, crashed: false });
        }
        Ok(taken)
    }

    /// Whether this process has a run in hand that it took up as one to be alone with.
    fn has_a_suspect(&self) -> Done<bool> {
        let sql = "SELECT 1 FROM run WHERE owner = ?1 AND claims > ?2 LIMIT 1";
        let found = self.many(sql, params![self.caches.incarnation, CLAIMS_ALONE_FROM], |_| Ok(()))?;
        Ok(!found.is_empty())
    }

    /// Gives back a run that this process owns at this epoch.
    pub(super) fn release(&mut self, cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> Done<()> {
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(()) };
        let at = ms(crate::clock::after(self.now(), after_ms));
        let sql = "UPDATE run SET owner = 0, wake_at = ?5 WHERE tenant = ?1 AND id = ?2 AND owner = ?3 AND epoch = ?4";
        let (me, epoch) = (self.caches.incarnation, i64::try_from(epoch).unwrap_or(i64::MAX));
        self.execute(sql, params![tenant, run.0.as_bytes(), me, epoch, at])?;
        Ok(())
    }

    fn own(&self, head: &mut Head) -> Done<()> {
        // A claim on what a process left behind counts against the run until it makes a step.
        let crashed = head.owner.is_some_and(|owner| owner > 0);
        head.claims += u32::from(crashed);
        head.own(self.caches.incarnation);
        let sql = "UPDATE run SET owner = ?3, wake_at = NULL, epoch = ?4, claims = ?5, status = ?6 \
                   WHERE tenant = ?1 AND id = ?2";
        let (status, epoch) = (codes::run_status::code(head.status), head.epoch as i64);
        self.execute(
            sql,
            params![head.tenant, head.id.0.as_bytes(), head.owner, epoch, head.claims, status],
        )?;
        Ok(())
    }

    /// Sets a run aside that ended every process that carried it on. Its next epoch is nobody's.
    fn quarantine(&self, head: &mut Head) -> Done<()> {
        let (event, record) = facts::quarantine(head.claims);
        self.append_fact(head, event, &record, None, self.now())?;
        let sql = "UPDATE run SET status = ?3, owner = NULL, wake_at = NULL, epoch = epoch + 1, next_seq = ?4, \
                   audit_records = ?5, audit_hash = ?6 WHERE tenant = ?1 AND id = ?2";
        let status = codes::run_status::code(RunStatus::Quarantined);
        let (next_seq, records) = (head.next_seq as i64, head.chain.records as i64);
        let id = head.id.0.as_bytes();
        self.execute(sql, params![head.tenant, id, status, next_seq, records, head.chain.hash])?;
        Ok(())
    }
}
