//! Setting a run aside that ended every process which carried it on.

use holdpoint_core::run::Run;
use holdpoint_protocol::{InteractionKind, RunId, RunStatus};
use rusqlite::params;

use super::rows;
use super::txn::{Done, Head, Txn};
use crate::chain::ms;
use crate::compact::FactRef;
use crate::facts::{self, CLAIMS_WITHOUT_PROGRESS_MAX};
use crate::version::snapshot_version;
use crate::{Noted, Owner, codes, stored};

impl Txn<'_> {
    /// First what ended the process before this one and those before it; then what was set aside before there were requests
    /// for operators.
    pub(super) fn set_aside(&mut self, limit: usize) -> Done<Vec<Noted>> {
        let left = "SELECT tenant, id, snapshot_version, snapshot FROM run WHERE owner > 0 AND owner < ?1 AND claims >= ?2 AND snapshot_version <= ?4 \
                    ORDER BY id LIMIT ?3";
        // By their index, which a parameter in place of the number would leave unused.
        let unasked = "SELECT tenant, id, snapshot_version, snapshot FROM run WHERE status = 5 AND NOT EXISTS \
                       (SELECT 1 FROM request WHERE request.tenant = run.tenant AND request.run = run.id \
                       AND request.kind = ?2 AND request.status = 0) AND ?1 > 0 AND snapshot_version <= ?4 LIMIT ?3";
        let (me, most) = (self.caches.incarnation, i64::from(CLAIMS_WITHOUT_PROGRESS_MAX));
        let kind = codes::request_kind::code(InteractionKind::Quarantine);
        let mut noted = Vec::new();
        for (sql, second) in [(left, most), (unasked, kind)] {
            let rows = i64::try_from(limit.saturating_sub(noted.len())).unwrap_or(i64::MAX);
            let found = self.many(sql, params![me, second, rows, snapshot_version()], |row| {
                let snapshot: (u32, Vec<u8>) = (row.get(2)?, row.get(3)?);
                Ok((row.get::<_, i64>(0)?, rows::run_id(row, 1)?, snapshot))
            })?;
            for (tenant, id, (version, snapshot)) in found {
                let Some(run) = stored::readable(stored::snapshot(id, version, &snapshot))? else { continue };
                let Some(head) = self.head(tenant, id)? else { continue };
                noted.push(self.set_one_aside(head, &run, id)?);
            }
        }
        Ok(noted)
    }

    /// Its next epoch is nobody's.
    fn set_one_aside(&mut self, mut head: Head, run: &Run, id: RunId) -> Done<Noted> {
        let (request, now) = (facts::operator_request_id(), self.now());
        let aside = run.to_set_aside(request, head.claims, now);
        let sql = "INSERT INTO request (tenant, run, seq, id, round, call, kind, revision, digest, opened_at, status, \
                   on_timeout) VALUES (?1, ?2, ?3, ?4, 0, 0, ?5, 0, ?6, ?7, 0, 1)";
        let kind = codes::request_kind::code(InteractionKind::Quarantine);
        let (run_id, seq) = (id.0.as_bytes(), head.next_seq as i64);
        let request_id = request.0.as_bytes();
        self.execute(
            sql,
            params![head.tenant, run_id, seq, request_id, kind, aside.digest.as_bytes(), ms(now)],
        )?;
        self.pending_changed(head.tenant, 1, 0);
        head.open += 1;
        let fact = FactRef::SetAside(request);
        let event = self.append_fact(&mut head, aside.event, &aside.audit, Some(&fact), now)?;
        self.moved_on(&head)?;
        let sql = "UPDATE run SET status = ?3, owner = NULL, wake_at = NULL, epoch = epoch + 1 \
                   WHERE tenant = ?1 AND id = ?2";
        let status = codes::run_status::code(RunStatus::Quarantined);
        self.execute(sql, params![head.tenant, run_id, status])?;
        Ok(Noted { cx: self.cx(&head)?, run: id, event, owner: Owner::Nobody, epoch: head.epoch + 1 })
    }
}
