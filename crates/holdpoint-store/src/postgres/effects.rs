//! Effects under business keys, in PostgreSQL.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use holdpoint_protocol::ExecId;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{Fault, of_commit};
use super::rows::{Done, now};
use super::{AGAIN_MAX, PostgresStore, Work, again};
use crate::clock::from_ms;
use crate::effects::EffectRow;
use crate::{Context, EffectEnd, EffectKey, EffectRecord, EffectUse, Error, Result};

const SELECT: &str = "SELECT exec_id, arguments, started_at, ended_at, result FROM effect \
                      WHERE tenant_id = $1 AND tool = $2 AND key = $3";
const BEGIN: &str = concat!(
    "INSERT INTO effect (tenant_id, tool, key, exec_id, arguments, started_at) VALUES ($1, $2, $3, $4, $5, ",
    now!("6"),
    ") ON CONFLICT (tenant_id, tool, key) DO NOTHING"
);
const RECORD: &str = concat!(
    "UPDATE effect SET result = $5, ended_at = ",
    now!("6"),
    " WHERE tenant_id = $1 AND tool = $2 AND key = $3 AND exec_id = $4 AND ended_at IS NULL"
);
const FREE: &str = "DELETE FROM effect \
                    WHERE tenant_id = $1 AND tool = $2 AND key = $3 AND exec_id = $4 AND ended_at IS NULL";

fn row(row: &Row) -> Done<EffectRow> {
    let arguments: &[u8] = row.try_get(1)?;
    let ended_at: Option<i64> = row.try_get(3)?;
    Ok(EffectRow {
        exec: ExecId(row.try_get(0)?),
        arguments: arguments.try_into().map_err(|_| Error::Corrupt("a digest of another length".into()))?,
        since: from_ms(row.try_get(2)?),
        recorded: ended_at.map(from_ms).zip(row.try_get::<_, Option<String>>(4)?),
    })
}

impl PostgresStore {
    async fn try_effect(&self, cx: &Context, key: &EffectKey) -> Done<Option<EffectRow>> {
        let client = self.connection(Work::Own).await?;
        let statement = client.prepare_cached(SELECT).await?;
        let found = client.query_opt(&statement, &[&cx.tenant.as_str(), &key.tool, &key.key]).await?;
        found.as_ref().map(row).transpose()
    }

    async fn try_begin_effect(&self, cx: &Context, key: &EffectKey) -> Done<EffectUse> {
        let client = self.connection(Work::Own).await?;
        let statement = client.prepare_cached(BEGIN).await?;
        let (tenant, given) = (cx.tenant.as_str(), self.given());
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&tenant, &key.tool, &key.key, &key.exec.0, &key.arguments.as_slice(), &given];
        let made = client.execute(&statement, &parameters).await.map_err(of_commit)?;
        drop(client);
        if made == 1 {
            return Ok(EffectUse::Free);
        }
        match self.try_effect(cx, key).await? {
            Some(row) => Ok(row.used_by(key)),
            None => Err(Fault::Again(Error::Unavailable("the key was freed at the same moment".into()))),
        }
    }

    async fn try_end_effect(&self, cx: &Context, key: &EffectKey, end: &EffectEnd) -> Done<()> {
        let client = self.connection(Work::Own).await?;
        let (tenant, given) = (cx.tenant.as_str(), self.given());
        match end {
            EffectEnd::Recorded(result) => {
                let statement = client.prepare_cached(RECORD).await?;
                let parameters: [&(dyn ToSql + Sync); 6] =
                    [&tenant, &key.tool, &key.key, &key.exec.0, result, &given];
                client.execute(&statement, &parameters).await.map_err(of_commit)?;
            }
            EffectEnd::NoEffect => {
                let statement = client.prepare_cached(FREE).await?;
                let parameters: [&(dyn ToSql + Sync); 4] = [&tenant, &key.tool, &key.key, &key.exec.0];
                client.execute(&statement, &parameters).await.map_err(of_commit)?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl EffectRecord for PostgresStore {
    async fn begin_effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        self.open()?;
        again!(self, self.try_begin_effect(cx, key))
    }

    async fn effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        self.open()?;
        let found = again!(self, self.try_effect(cx, key))?;
        Ok(found.map_or(EffectUse::Free, |row| row.used_by(key)))
    }

    async fn end_effect(&self, cx: &Context, key: &EffectKey, end: EffectEnd) -> Result<()> {
        self.open()?;
        again!(self, self.try_end_effect(cx, key, &end))
    }
}
