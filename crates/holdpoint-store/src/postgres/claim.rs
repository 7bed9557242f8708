//! Becoming a run's owner, and giving it back.

use deadpool_postgres::GenericClient;
use holdpoint_protocol::RunId;
use tokio_postgres::types::ToSql;

use super::error::of_commit;
use super::rows::{self, Done, due, now};
use super::{PostgresStore, Work};
use crate::facts::{CLAIMS_ALONE_FROM, CLAIMS_WITHOUT_PROGRESS_MAX};
use crate::version::snapshot_version;
use crate::{Context, Error, Taken};

/// Runs that may be taken over: without an owner and due, or of an instance whose lease has run out.
const TAKE: &str = concat!(
    "UPDATE run SET owner = $2, wake_at = NULL, epoch = run.epoch + 1, \
     status = CASE WHEN run.status = 1 THEN 0 ELSE run.status END, \
     claims = run.claims + CASE WHEN run.owner IS NULL THEN 0 ELSE 1 END \
     WHERE tenant_id = $3 AND run_id = $4 AND status NOT IN (3, 4, 5) AND (owner IS NULL OR (owner <> $2 AND NOT EXISTS \
     (SELECT 1 FROM instance WHERE instance_id = run.owner AND expires_at > ",
    due!("1"),
    "))) AND snapshot_version <= $5 RETURNING epoch"
);

impl PostgresStore {
    pub(super) async fn try_take(&self, cx: &Context, run: RunId) -> Done<bool> {
        let client = self.connection(Work::Own).await?;
        self.take_over(&client, cx.tenant.as_str(), run).await
    }

    async fn take_over(&self, client: &impl GenericClient, tenant: &str, run: RunId) -> Done<bool> {
        let statement = client.prepare_cached(TAKE).await?;
        let version = snapshot_version() as i32;
        let parameters: [&(dyn ToSql + Sync); 5] =
            [&self.given(), &self.instance.0, &tenant, &run.0, &version];
        Ok(client.query_opt(&statement, &parameters).await.map_err(of_commit)?.is_some())
    }

    /// Whoever takes runs over lives by the database's clock too: else the next one would take them from it.
    pub(super) async fn live_by_the_database(&self) -> Done<()> {
        let client = self.connection(Work::Own).await?;
        let sql = concat!("SELECT 1 FROM instance WHERE instance_id = $2 AND expires_at > ", due!("1"));
        let statement = client.prepare_cached(sql).await?;
        if client.query_opt(&statement, &[&self.given(), &self.instance.0]).await?.is_none() {
            self.lease.renew(&client).await?;
        }
        Ok(())
    }

    /// What a newer version has written is left to an instance that can read it. First what instances left behind whose lease has run out, then what was put off until now. Rows that another instance
    /// is just taking are passed over.
    pub(super) async fn try_recover(&self, limit: usize) -> Done<Vec<Taken>> {
        self.live_by_the_database().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let left = concat!(
            "SELECT tenant_id, run_id, actor, claims FROM run WHERE owner IS NOT NULL AND owner <> $2 AND NOT EXISTS \
             (SELECT 1 FROM instance WHERE instance_id = run.owner AND expires_at > ",
            due!("1"),
            ") AND claims < $4 AND snapshot_version <= $5 ORDER BY claims, run_id LIMIT $3 FOR UPDATE SKIP LOCKED"
        );
        let ready = concat!(
            "SELECT tenant_id, run_id, actor, claims FROM run WHERE owner IS NULL AND wake_at IS NOT NULL \
             AND wake_at <= ",
            due!("1"),
            " AND $2::uuid IS NOT NULL AND $4::integer IS NOT NULL AND snapshot_version <= $5 \
             ORDER BY wake_at, run_id LIMIT $3 FOR UPDATE SKIP LOCKED"
        );
        let mut taken = Vec::new();
        for (sql, crashed) in [(left, true), (ready, false)] {
            let mut client = self.connection(Work::Own).await?;
            let transaction = client.transaction().await?;
            let statement = transaction.prepare_cached(sql).await?;
            let room = limit - i64::try_from(taken.len()).unwrap_or(limit);
            let (most, version) = (CLAIMS_WITHOUT_PROGRESS_MAX as i32, snapshot_version() as i32);
            let parameters: [&(dyn ToSql + Sync); 5] =
                [&self.given(), &self.instance.0, &room, &most, &version];
            for row in transaction.query(&statement, &parameters).await? {
                let (tenant, run): (&str, RunId) = (row.try_get(0)?, RunId(row.try_get(1)?));
                let claims = rows::small(row.try_get(3)?);
                if crashed && claims >= CLAIMS_ALONE_FROM && self.has_a_suspect(&transaction).await? {
                    // Left to another instance, or to a later look.
                } else if self.take_over(&transaction, tenant, run).await? {
                    let tenant = holdpoint_protocol::TenantId::new(tenant);
                    let tenant = tenant.map_err(|_| Error::Corrupt("a name".into()))?;
                    let cx = Context { tenant, actor: rows::actor(row.try_get(2)?)? };
                    taken.push(Taken { cx, run, crashed });
                }
            }
            transaction.commit().await.map_err(of_commit)?;
        }
        Ok(taken)
    }

    /// Whether this instance has a run in hand that it took up as one to be alone with.
    async fn has_a_suspect(&self, client: &impl GenericClient) -> Done<bool> {
        let sql = "SELECT 1 FROM run WHERE owner = $1 AND claims > $2 LIMIT 1";
        let statement = client.prepare_cached(sql).await?;
        let from = CLAIMS_ALONE_FROM as i32;
        Ok(client.query_opt(&statement, &[&self.instance.0, &from]).await?.is_some())
    }

    pub(super) async fn try_release(&self, cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> Done<()> {
        let client = self.connection(Work::Own).await?;
        let sql = concat!(
            "UPDATE run SET owner = NULL, wake_at = $6 + ",
            now!("1"),
            " WHERE tenant_id = $2 AND run_id = $3 AND owner = $4 AND epoch = $5"
        );
        let statement = client.prepare_cached(sql).await?;
        let (epoch, after) =
            (i64::try_from(epoch).unwrap_or(i64::MAX), i64::try_from(after_ms).unwrap_or(i64::MAX / 4));
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&self.given(), &cx.tenant.as_str(), &run.0, &self.instance.0, &epoch, &after];
        client.execute(&statement, &parameters).await.map_err(of_commit)?;
        Ok(())
    }

    pub(super) async fn try_owned(&self, limit: usize) -> Done<Vec<Taken>> {
        let client = self.connection(Work::Own).await?;
        let sql = "SELECT tenant_id, run_id, actor FROM run WHERE owner = $1 LIMIT $2";
        let statement = client.prepare_cached(sql).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut owned = Vec::new();
        for row in client.query(&statement, &[&self.instance.0, &limit]).await? {
            let tenant = holdpoint_protocol::TenantId::new(row.try_get(0)?);
            let tenant = tenant.map_err(|_| Error::Corrupt("a name".into()))?;
            let cx = Context { tenant, actor: rows::actor(row.try_get(2)?)? };
            owned.push(Taken { cx, run: RunId(row.try_get(1)?), crashed: false });
        }
        Ok(owned)
    }
}
