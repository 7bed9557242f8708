//! What time does to open requests: they expire, a rule is asked about them, people are reminded of them. Any instance
//! helps: what one has locked, the others pass over.

use std::sync::Arc;

use deadpool_postgres::{GenericClient, Transaction};
use holdpoint_protocol::{Event, InstanceId, RequestId, RunId, Timestamp};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::error::{Fault, of_commit};
use super::fact::{NUMBERED, Parts};
use super::rows::{self, Done, due, now, select_request};
use super::{PostgresStore, Work};
use crate::chain::ms;
use crate::clock::from_ms;
use crate::facts::{self, Closing, Request};
use crate::failpoint::failpoint;
use crate::version::snapshot_version;
use crate::{Context, Error, Noted, Owner, PresetDue, RuleRelease, stored};

impl PostgresStore {
    pub(super) async fn try_expire_due(&self, limit: usize) -> Done<Vec<Noted>> {
        let mut client = self.connection(Work::New).await?;
        let transaction = client.transaction().await?;
        let sql = concat!(
            select_request!("status = 0 AND deadline IS NOT NULL AND on_timeout <> 2 AND deadline <= "),
            due!("1"),
            " ORDER BY deadline, tenant_id, run_id, seq LIMIT $2 FOR UPDATE SKIP LOCKED"
        );
        let (found, at) = self.due(&transaction, sql, limit).await?;
        let mut noted = Vec::with_capacity(found.len());
        for (tenant, request) in &found {
            noted.extend(self.close_by_fact(&transaction, tenant, request, Closing::Expired, at).await?);
        }
        if !noted.is_empty() {
            failpoint("store.expire.before_commit");
        }
        transaction.commit().await.map_err(of_commit)?;
        if !noted.is_empty() {
            failpoint("store.expire.after_commit");
        }
        Ok(noted)
    }

    async fn due(
        &self,
        transaction: &Transaction<'_>,
        sql: &str,
        limit: usize,
    ) -> Done<(Vec<(String, Request)>, Timestamp)> {
        let statement = transaction.prepare_cached(sql).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = transaction.query(&statement, &[&self.given(), &limit]).await?;
        if found.is_empty() {
            return Ok((Vec::new(), Timestamp::UNIX_EPOCH));
        }
        let mut read = Vec::with_capacity(found.len());
        for row in &found {
            let request = stored::readable(rows::request(row).map_err(Error::from))?;
            if let Some(request) = request {
                read.push((row.try_get(0)?, request));
            }
        }
        Ok((read, self.time(transaction).await?))
    }

    async fn time(&self, transaction: &Transaction<'_>) -> Done<Timestamp> {
        let statement = transaction.prepare_cached(concat!("SELECT ", now!("1"))).await?;
        Ok(from_ms(transaction.query_one(&statement, &[&self.given()]).await?.try_get(0)?))
    }

    pub(super) async fn try_presets_due(&self, limit: usize) -> Done<Vec<PresetDue>> {
        let client = self.connection(Work::New).await?;
        let sql = concat!(
            "SELECT q.tenant_id, q.run_id, q.request_id, q.terms, r.actor FROM request q \
             JOIN run r ON r.tenant_id = q.tenant_id AND r.run_id = q.run_id \
             WHERE q.status = 0 AND q.deadline IS NOT NULL AND q.on_timeout = 2 AND r.snapshot_version <= $3 \
             AND q.deadline <= ",
            due!("1"),
            " ORDER BY q.deadline LIMIT $2"
        );
        let statement = client.prepare_cached(sql).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let version = snapshot_version() as i32;
        let found = client.query(&statement, &[&self.given(), &limit, &version]).await?;
        let read = |row: &tokio_postgres::Row| {
            let (run, request) = (RunId(row.try_get(1)?), RequestId(row.try_get(2)?));
            Ok(stored::preset_due(run, request, row.try_get(3)?, row.try_get(0)?, row.try_get(4)?)?)
        };
        let mut due = Vec::with_capacity(found.len());
        for row in &found {
            due.extend(stored::readable(read(row).map_err(|fault: Fault| Error::from(fault)))?);
        }
        Ok(due)
    }

    pub(super) async fn try_close_due(
        &self,
        cx: &Context,
        id: RequestId,
        release: Option<RuleRelease>,
    ) -> Done<Option<Noted>> {
        let client = self.connection(Work::New).await?;
        let Some((request, cancel, at)) = self.request_and_time(&client, cx, id).await? else {
            return Ok(None);
        };
        match facts::close_due(&request, cancel.as_ref(), release, at) {
            // Where somebody was faster, it is closed: there is nothing left to do.
            Some(closing) => self.close_by_fact(&client, cx.tenant.as_str(), &request, closing, at).await,
            None => Ok(None),
        }
    }

    pub(super) async fn try_remind_due(&self, limit: usize) -> Done<Vec<Noted>> {
        let mut client = self.connection(Work::New).await?;
        let transaction = client.transaction().await?;
        let sql = concat!(
            select_request!("status = 0 AND escalate_at IS NOT NULL AND escalate_at <= "),
            due!("1"),
            " AND (deadline IS NULL OR deadline > ",
            due!("1"),
            ") ORDER BY escalate_at, tenant_id, run_id, seq LIMIT $2 FOR UPDATE SKIP LOCKED"
        );
        let (found, at) = self.due(&transaction, sql, limit).await?;
        let mut noted = Vec::with_capacity(found.len());
        for (tenant, request) in &found {
            noted.extend(self.remind(&transaction, tenant, request, at).await?);
        }
        if !noted.is_empty() {
            failpoint("store.remind.before_commit");
        }
        transaction.commit().await.map_err(of_commit)?;
        if !noted.is_empty() {
            failpoint("store.remind.after_commit");
        }
        Ok(noted)
    }

    /// Writes a reminder of a request that is locked. Its run is numbered on, and left to whoever owns it.
    async fn remind(
        &self,
        transaction: &Transaction<'_>,
        tenant: &str,
        request: &Request,
        at: Timestamp,
    ) -> Done<Option<Noted>> {
        let Some(due) = request.reminder_due(at) else { return Ok(None) };
        let (event, record) = facts::remind(request, due, at);
        let run = request.run();
        let parts = Parts::of(run, event.clone(), &record, None, at)?;
        let sql = format!(
            "WITH reminded AS (UPDATE request SET escalate_at = $9, reminders = reminders + 1, \
             escalated_at = COALESCE(escalated_at, $10) \
             WHERE tenant_id = $1 AND request_id = $3 AND status = 0 RETURNING run_id), \
             moved AS (UPDATE run SET {NUMBERED} WHERE tenant_id = $1 AND run_id = $2 \
             AND EXISTS (SELECT 1 FROM reminded) RETURNING next_seq - 1 AS seq, audit_hash, owner, actor, epoch), \
             kept AS (INSERT INTO journal (tenant_id, run_id, seq, body) \
             SELECT $1, $2, seq, $7 || audit_hash || $8 FROM moved) \
             SELECT seq, owner, actor, epoch FROM moved"
        );
        let statement = transaction.prepare_cached(&sql).await?;
        let (next, escalated_at) = (due.next.map(ms), due.escalates.then(|| ms(at)));
        let parameters: [&(dyn ToSql + Sync); 10] = [
            &tenant,
            &run.0,
            &request.id.0,
            &parts.around[0],
            &parts.around[1],
            &parts.around[2],
            &parts.before,
            &parts.after,
            &next,
            &escalated_at,
        ];
        let Some(row) = transaction.query_opt(&statement, &parameters).await.map_err(of_commit)? else {
            return Ok(None);
        };
        let (seq, owner): (i64, Option<Uuid>) = (row.try_get(0)?, row.try_get(1)?);
        let event = Arc::new(Event { seq: Some(seq as u64), run_id: run, child: None, body: event });
        let owner = match owner {
            None => Owner::Nobody,
            Some(owner) if owner == self.instance.0 => Owner::Here,
            Some(owner) => Owner::Elsewhere(InstanceId(owner)),
        };
        let tenant =
            holdpoint_protocol::TenantId::new(tenant).map_err(|_| Error::Corrupt("a name".into()))?;
        let cx = Context { tenant, actor: rows::actor(row.try_get(2)?)? };
        Ok(Some(Noted { cx, run, event, owner, epoch: row.try_get::<_, i64>(3)? as u64 }))
    }
}
