//! Becoming a run's owner, and giving it back.

use deadpool_postgres::GenericClient;
use holdpoint_protocol::{EventBody, RunId};
use tokio_postgres::types::ToSql;

use super::error::of_commit;
use super::rows::{self, Done, due, now};
use super::step::TAKE;
use super::{PostgresStore, Work};
use crate::chain::{self, ms};
use crate::clock::from_ms;
use crate::compact::EntryBuilder;
use crate::facts::{self, CLAIMS_ALONE_FROM, CLAIMS_WITHOUT_PROGRESS_MAX};
use crate::version::snapshot_version;
use crate::{Context, Error, Taken};

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
    async fn live_by_the_database(&self) -> Done<()> {
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
            ") AND snapshot_version <= $4 ORDER BY claims, run_id LIMIT $3 FOR UPDATE SKIP LOCKED"
        );
        let ready = concat!(
            "SELECT tenant_id, run_id, actor, claims FROM run WHERE owner IS NULL AND wake_at IS NOT NULL \
             AND wake_at <= ",
            due!("1"),
            " AND $2::uuid IS NOT NULL AND snapshot_version <= $4 ORDER BY wake_at, run_id LIMIT $3 FOR UPDATE SKIP LOCKED"
        );
        let mut taken = Vec::new();
        for (sql, crashed) in [(left, true), (ready, false)] {
            let mut client = self.connection(Work::Own).await?;
            let transaction = client.transaction().await?;
            let statement = transaction.prepare_cached(sql).await?;
            let room = limit - i64::try_from(taken.len()).unwrap_or(limit);
            let version = snapshot_version() as i32;
            let parameters: [&(dyn ToSql + Sync); 4] = [&self.given(), &self.instance.0, &room, &version];
            for row in transaction.query(&statement, &parameters).await? {
                let (tenant, run): (&str, RunId) = (row.try_get(0)?, RunId(row.try_get(1)?));
                let claims = rows::small(row.try_get(3)?);
                if crashed && claims >= CLAIMS_WITHOUT_PROGRESS_MAX {
                    self.quarantine(&transaction, tenant, run, claims).await?;
                } else if crashed && claims >= CLAIMS_ALONE_FROM && self.has_a_suspect(&transaction).await? {
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

    /// Sets a run aside that ended every process that carried it on. Its next epoch is nobody's.
    async fn quarantine(
        &self,
        client: &impl GenericClient,
        tenant: &str,
        run: RunId,
        claims: u32,
    ) -> Done<()> {
        let time = client.prepare_cached(concat!("SELECT ", now!("1"))).await?;
        let at = from_ms(client.query_one(&time, &[&self.given()]).await?.try_get(0)?);
        let (body, record): (EventBody, _) = facts::quarantine(claims);
        let event =
            std::sync::Arc::new(holdpoint_protocol::Event { seq: None, run_id: run, child: None, body });
        let mut entry = EntryBuilder::content(run, &[event], &[])?;
        let text = chain::text_of(&record)?;
        let around = chain::around(ms(at), &text);
        let after = entry.audit_around_hash(run, ms(at), &text);
        let sql = "WITH moved AS (UPDATE run SET status = 5, owner = NULL, wake_at = NULL, epoch = run.epoch + 1, \
                   next_seq = run.next_seq + 1, audit_records = run.audit_records + 1, \
                   audit_hash = sha256($3 || run.audit_hash || $4 || int8send(run.audit_records + 1) || $5) \
                   WHERE tenant_id = $1 AND run_id = $2 RETURNING next_seq - 1 AS seq, audit_hash) \
                   INSERT INTO journal (tenant_id, run_id, seq, body) \
                   SELECT $1, $2, seq, $6 || audit_hash || $7 FROM moved";
        let statement = client.prepare_cached(sql).await?;
        let before = entry.finish();
        let parameters: [&(dyn ToSql + Sync); 7] =
            [&tenant, &run.0, &around[0], &around[1], &around[2], &before, &after];
        client.execute(&statement, &parameters).await?;
        Ok(())
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
