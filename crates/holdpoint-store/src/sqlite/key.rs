//! Idempotency keys.

use holdpoint_protocol::{RunId, Timestamp};
use rusqlite::{OptionalExtension, Row, params};

use super::txn::{Done, Txn};
use crate::chain::ms;
use crate::clock::{after, from_ms};
use crate::keys::KEY_RESERVED_MS;
use crate::{Context, IdempotencyKey, KeyUse, Result, StoredAnswer};

const SELECT: &str = "SELECT body_digest, at, run, http_status, body FROM idempotency \
                      WHERE tenant = ?1 AND actor = ?2 AND scope = ?3 AND key = ?4";

impl Txn<'_> {
    pub(super) fn look_up(&mut self, cx: &Context, key: &IdempotencyKey, now: Timestamp) -> Done<KeyUse> {
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(KeyUse::New) };
        let params = params![tenant, cx.actor.as_str(), key.scope, key.key];
        let found = self.one(SELECT, params, |row| read(row, key, now))?;
        Ok(found.unwrap_or(KeyUse::New))
    }

    pub(super) fn remember(&mut self, cx: &Context, key: &IdempotencyKey) -> Done<KeyUse> {
        let now = self.now();
        let found = self.look_up(cx, key, now)?;
        if found == KeyUse::New {
            let tenant = self.tenant_or_new(&cx.tenant)?;
            self.insert_key(cx, tenant, key, now, None)?;
        }
        Ok(found)
    }

    pub(super) fn answer(&mut self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> Done<()> {
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(()) };
        let sql = "UPDATE idempotency SET http_status = ?6, body = ?7 WHERE tenant = ?1 AND actor = ?2 AND scope = ?3 \
                   AND key = ?4 AND body_digest = ?5 AND run IS NULL AND http_status IS NULL";
        let actor = cx.actor.as_str();
        self.execute(
            sql,
            params![tenant, actor, key.scope, key.key, key.body_digest, answer.status, answer.body],
        )?;
        Ok(())
    }

    /// Stores a key, in the place of a reservation that has run out.
    pub(super) fn insert_key(
        &self,
        cx: &Context,
        tenant: i64,
        key: &IdempotencyKey,
        now: Timestamp,
        run: Option<RunId>,
    ) -> Done<()> {
        let sql = "INSERT OR REPLACE INTO idempotency (tenant, actor, scope, key, body_digest, at, run) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let run = run.map(|run| *run.0.as_bytes());
        let actor = cx.actor.as_str();
        self.execute(sql, params![tenant, actor, key.scope, key.key, key.body_digest, ms(now), run])?;
        Ok(())
    }
}

/// The same look for readers.
pub(super) fn look_up(
    connection: &rusqlite::Connection,
    tenant: i64,
    cx: &Context,
    key: &IdempotencyKey,
    now: Timestamp,
) -> Result<KeyUse> {
    let mut statement = connection.prepare_cached(SELECT)?;
    let params = params![tenant, cx.actor.as_str(), key.scope, key.key];
    Ok(statement.query_row(params, |row| read(row, key, now)).optional()?.unwrap_or(KeyUse::New))
}

fn read(row: &Row<'_>, key: &IdempotencyKey, now: Timestamp) -> rusqlite::Result<KeyUse> {
    let digest: String = row.get(0)?;
    let since = from_ms(row.get(1)?);
    let run: Option<[u8; 16]> = row.get(2)?;
    let status: Option<u16> = row.get(3)?;
    let reserved = run.is_none() && status.is_none();
    if reserved && after(since, KEY_RESERVED_MS) <= now {
        return Ok(KeyUse::New);
    }
    if digest != key.body_digest {
        return Ok(KeyUse::Reused);
    }
    Ok(match (run, status) {
        (Some(run), _) => KeyUse::Run(RunId(uuid::Uuid::from_bytes(run))),
        (None, Some(status)) => KeyUse::Answered(StoredAnswer { status, body: row.get(4)? }),
        (None, None) => KeyUse::Pending,
    })
}
