//! Making room in PostgreSQL.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_postgres::types::ToSql;

use super::error::{Fault, of_commit};
use super::rows::Done;
use super::{AGAIN_MAX, PostgresStore, Work, again, partitions};
use crate::chain::ms;
use crate::tidy::{KEY_KEPT, first_kept};
use crate::{Error, Result, Tidied, Tidy, stored};

/// How long an instance is remembered after its lease ran out: nobody asks for it any more.
const INSTANCE_KEPT: Duration = Duration::from_secs(60 * 60);

/// Conversations are locked, so that no new run joins one meanwhile; one that is locked is in use, and not old. Their journal goes
/// with its week.
const CONVERSATIONS: &str = "\
    WITH RECURSIVE old AS ( \
        SELECT c.tenant_id, c.name, c.last_run FROM conversation c \
        JOIN run r ON r.tenant_id = c.tenant_id AND r.run_id = c.last_run \
        WHERE c.last_run < $1 AND r.status IN (3, 4) ORDER BY c.last_run LIMIT $2 FOR UPDATE OF c SKIP LOCKED \
    ), chain AS ( \
        SELECT tenant_id, last_run AS run_id FROM old \
        UNION \
        SELECT r.tenant_id, r.previous FROM chain JOIN run r USING (tenant_id, run_id) WHERE r.previous IS NOT NULL \
    ), requests AS ( \
        DELETE FROM request t USING chain c WHERE t.tenant_id = c.tenant_id AND t.run_id = c.run_id \
    ), lates AS ( \
        DELETE FROM late_result t USING chain c WHERE t.tenant_id = c.tenant_id AND t.run_id = c.run_id \
    ), executions AS ( \
        DELETE FROM execution t USING chain c WHERE t.tenant_id = c.tenant_id AND t.run_id = c.run_id \
    ), keys AS ( \
        DELETE FROM idempotency t USING chain c WHERE t.tenant_id = c.tenant_id AND t.run_id = c.run_id \
    ), conversations AS ( \
        DELETE FROM conversation t USING old o WHERE t.tenant_id = o.tenant_id AND t.name = o.name \
    ), runs AS ( \
        DELETE FROM run t USING chain c WHERE t.tenant_id = c.tenant_id AND t.run_id = c.run_id RETURNING 1 \
    ) SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM runs)";

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl PostgresStore {
    /// In a transaction of its own each: only what is kept has to find room.
    pub(super) async fn try_probe(&self) -> Done<()> {
        let client = self.connection(Work::Own).await?;
        let sql =
            "INSERT INTO tool_set (tenant_id, digest, tools) VALUES ('', $1, $2) ON CONFLICT DO NOTHING";
        let statement = client.prepare_cached(sql).await?;
        client
            .execute(&statement, &[&stored::BALLAST_DIGEST, &stored::ballast()])
            .await
            .map_err(of_commit)?;
        let sql = "DELETE FROM tool_set WHERE tenant_id = '' AND digest = $1";
        let statement = client.prepare_cached(sql).await?;
        client.execute(&statement, &[&stored::BALLAST_DIGEST]).await.map_err(of_commit)?;
        Ok(())
    }

    async fn try_tidy(&self, keep: Option<Duration>, limit: usize) -> Done<Tidied> {
        let now = self.try_now().await?;
        let mut client = self.connection(Work::New).await?;
        partitions::prepare(&mut client, ms(now)).await?;
        for (sql, kept) in [
            ("DELETE FROM idempotency WHERE run_id IS NULL AND at <= $1", KEY_KEPT),
            ("DELETE FROM instance WHERE expires_at <= $1", INSTANCE_KEPT),
        ] {
            client.execute(sql, &[&ms(now).saturating_sub(millis(kept))]).await.map_err(of_commit)?;
        }
        let Some(keep) = keep else { return Ok(Tidied::default()) };

        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 2] = [&first_kept(now, keep).0, &limit];
        let row = client.query_one(CONVERSATIONS, &parameters).await.map_err(of_commit)?;
        let (conversations, runs): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let more = conversations == limit;
        let weeks = match more {
            true => 0,
            false => partitions::drop_old(&mut client, ms(now).saturating_sub(millis(keep))).await?,
        };
        Ok(Tidied { conversations: conversations.unsigned_abs(), runs: runs.unsigned_abs(), weeks, more })
    }
}

#[async_trait]
impl Tidy for PostgresStore {
    async fn tidy(&self, keep: Option<Duration>, limit: usize) -> Result<Tidied> {
        self.open()?;
        again!(self, self.try_tidy(keep, limit))
    }
}
