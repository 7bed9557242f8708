//! Effects under business keys, in SQLite.

use async_trait::async_trait;
use holdpoint_protocol::ExecId;
use rusqlite::{OptionalExtension, Row, params};

use super::SqliteStore;
use super::readers::Reader;
use super::txn::{Done, Txn};
use crate::chain::ms;
use crate::clock::from_ms;
use crate::effects::EffectRow;
use crate::{Context, EffectEnd, EffectKey, EffectRecord, EffectUse, Result};

const SELECT: &str = "SELECT exec, arguments, started_at, ended_at, result FROM effect \
                      WHERE tenant = ?1 AND tool = ?2 AND key = ?3";

fn row(row: &Row<'_>) -> rusqlite::Result<EffectRow> {
    let ended_at: Option<i64> = row.get(3)?;
    let result: Option<String> = row.get(4)?;
    Ok(EffectRow {
        exec: ExecId(uuid::Uuid::from_bytes(row.get(0)?)),
        arguments: row.get(1)?,
        since: from_ms(row.get(2)?),
        recorded: ended_at.map(from_ms).zip(result),
    })
}

impl Txn<'_> {
    fn begin_effect(&mut self, cx: &Context, key: &EffectKey) -> Done<EffectUse> {
        let tenant = self.tenant_or_new(&cx.tenant)?;
        if let Some(found) = self.one(SELECT, params![tenant, key.tool, key.key], row)? {
            return Ok(found.used_by(key));
        }
        let sql = "INSERT INTO effect (tenant, tool, key, exec, arguments, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let now = ms(self.now());
        let exec = key.exec.0.as_bytes();
        self.execute(sql, params![tenant, key.tool, key.key, exec, key.arguments, now])?;
        Ok(EffectUse::Free)
    }

    fn end_effect(&mut self, cx: &Context, key: &EffectKey, end: &EffectEnd) -> Done<()> {
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(()) };
        let exec = key.exec.0.as_bytes();
        match end {
            EffectEnd::Recorded(result) => {
                let sql = "UPDATE effect SET ended_at = ?5, result = ?6 \
                           WHERE tenant = ?1 AND tool = ?2 AND key = ?3 AND exec = ?4 AND ended_at IS NULL";
                let now = ms(self.now());
                self.execute(sql, params![tenant, key.tool, key.key, exec, now, result])?;
            }
            EffectEnd::NoEffect => {
                let sql = "DELETE FROM effect \
                           WHERE tenant = ?1 AND tool = ?2 AND key = ?3 AND exec = ?4 AND ended_at IS NULL";
                self.execute(sql, params![tenant, key.tool, key.key, exec])?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl EffectRecord for SqliteStore {
    async fn begin_effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        let (cx, key) = (cx.clone(), key.clone());
        self.writer.write("begin_effect", move |txn| txn.begin_effect(&cx, &key)).await
    }

    async fn effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        let key = key.clone();
        let read = move |reader: &mut Reader, tenant: i64| {
            let mut statement = reader.connection.prepare_cached(SELECT)?;
            let found = statement.query_row(params![tenant, key.tool, key.key], row).optional()?;
            Ok(found.map_or(EffectUse::Free, |row| row.used_by(&key)))
        };
        self.read(&cx.tenant, EffectUse::Free, read).await
    }

    async fn end_effect(&self, cx: &Context, key: &EffectKey, end: EffectEnd) -> Result<()> {
        let (cx, key) = (cx.clone(), key.clone());
        self.writer.write("end_effect", move |txn| txn.end_effect(&cx, &key, &end)).await
    }
}
