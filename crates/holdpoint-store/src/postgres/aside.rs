//! Setting a run aside that ended every process which carried it on. Any instance does it; what one has locked, the others pass over.

use std::sync::Arc;

use deadpool_postgres::GenericClient;
use holdpoint_core::decision::Fact;
use holdpoint_core::run::Run;
use holdpoint_protocol::{Event, InteractionKind, RunId, RunStatus, TenantId};
use tokio_postgres::types::ToSql;

use super::error::of_commit;
use super::fact::{NUMBERED, Parts};
use super::rows::{self, Done, due};
use super::{PostgresStore, Work};
use crate::chain::ms;
use crate::facts::{self, CLAIMS_WITHOUT_PROGRESS_MAX};
use crate::version::snapshot_version;
use crate::{Context, Error, Noted, Owner, codes, stored};

impl PostgresStore {
    /// First what instances left behind whose lease has run out; then what was set aside before there were requests for operators.
    pub(super) async fn try_set_aside(&self, limit: usize) -> Done<Vec<Noted>> {
        self.live_by_the_database().await?;
        let left = concat!(
            "SELECT tenant_id, run_id, actor, claims, snapshot_version, snapshot FROM run \
             WHERE owner IS NOT NULL AND owner <> $2 AND claims >= $3 AND snapshot_version <= $5 AND NOT EXISTS \
             (SELECT 1 FROM instance WHERE instance_id = run.owner AND expires_at > ",
            due!("1"),
            ") ORDER BY run_id LIMIT $4 FOR UPDATE SKIP LOCKED"
        );
        let unasked = "SELECT tenant_id, run_id, actor, claims, snapshot_version, snapshot FROM run \
                       WHERE status = 5 AND NOT EXISTS (SELECT 1 FROM request q WHERE q.tenant_id = run.tenant_id \
                       AND q.run_id = run.run_id AND q.kind = 3 AND q.status = 0) \
                       AND ($1::bigint IS NULL OR $2::uuid IS NOT NULL) AND $3::integer IS NOT NULL AND snapshot_version <= $5 \
                       ORDER BY run_id LIMIT $4 FOR UPDATE SKIP LOCKED";
        let mut noted = Vec::new();
        for sql in [left, unasked] {
            let mut client = self.connection(Work::Own).await?;
            let transaction = client.transaction().await?;
            let statement = transaction.prepare_cached(sql).await?;
            let room = i64::try_from(limit.saturating_sub(noted.len())).unwrap_or(i64::MAX);
            let (most, version) = (CLAIMS_WITHOUT_PROGRESS_MAX as i32, snapshot_version() as i32);
            let parameters: [&(dyn ToSql + Sync); 5] =
                [&self.given(), &self.instance.0, &most, &room, &version];
            for row in transaction.query(&statement, &parameters).await? {
                let tenant = TenantId::new(row.try_get(0)?).map_err(|_| Error::Corrupt("a name".into()))?;
                let cx = Context { tenant, actor: rows::actor(row.try_get(2)?)? };
                let id = RunId(row.try_get(1)?);
                let read = stored::snapshot(id, rows::small(row.try_get(4)?), row.try_get(5)?);
                let Some(run) = stored::readable(read)? else {
                    continue;
                };
                let claims = rows::small(row.try_get(3)?);
                noted.extend(self.set_one_aside(&transaction, cx, &run, claims).await?);
            }
            transaction.commit().await.map_err(of_commit)?;
        }
        Ok(noted)
    }

    /// Its row is locked. Its next epoch is nobody's. Nothing happens where it has such a request by now.
    async fn set_one_aside(
        &self,
        client: &impl GenericClient,
        cx: Context,
        run: &Run,
        claims: u32,
    ) -> Done<Option<Noted>> {
        let (id, request, at) = (run.id(), facts::operator_request_id(), self.time(client).await?);
        let aside = run.to_set_aside(request, claims, at);
        let parts = Parts::of(id, aside.event.clone(), &aside.audit, Some(&Fact::SetAside { request }), at)?;
        let sql = format!(
            "WITH opened AS (INSERT INTO request (tenant_id, request_id, run_id, seq, round, call, kind, revision, digest, \
             opened_at, status, on_timeout) SELECT $1, $3, $2, next_seq, 0, 0, $9, 0, $10, $11, 0, 1 \
             FROM run WHERE tenant_id = $1 AND run_id = $2 ON CONFLICT DO NOTHING RETURNING run_id), \
             moved AS (UPDATE run SET status = $12, owner = NULL, wake_at = NULL, epoch = run.epoch + 1, \
             open_requests = run.open_requests + 1, {NUMBERED} FROM opened \
             WHERE run.tenant_id = $1 AND run.run_id = opened.run_id RETURNING run.next_seq - 1 AS seq, run.audit_hash, run.epoch), \
             kept AS (INSERT INTO journal (tenant_id, run_id, seq, body) \
             SELECT $1, $2, seq, $7 || audit_hash || $8 FROM moved) \
             SELECT seq, epoch FROM moved"
        );
        let statement = client.prepare_cached(&sql).await?;
        let parameters: [&(dyn ToSql + Sync); 12] = [
            &cx.tenant.as_str(),
            &id.0,
            &request.0,
            &parts.around[0],
            &parts.around[1],
            &parts.around[2],
            &parts.before,
            &parts.after,
            &(codes::request_kind::code(InteractionKind::Quarantine) as i16),
            &aside.digest.as_bytes().as_slice(),
            &ms(at),
            &(codes::run_status::code(RunStatus::Quarantined) as i16),
        ];
        let Some(row) = client.query_opt(&statement, &parameters).await.map_err(of_commit)? else {
            return Ok(None);
        };
        let seq: i64 = row.try_get(0)?;
        let event = Arc::new(Event { seq: Some(seq as u64), run_id: id, child: None, body: aside.event });
        let epoch = row.try_get::<_, i64>(1)? as u64;
        Ok(Some(Noted { cx, run: id, event, owner: Owner::Nobody, epoch }))
    }
}
