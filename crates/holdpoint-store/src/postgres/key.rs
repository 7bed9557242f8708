//! Idempotency keys.

use deadpool_postgres::Transaction;
use holdpoint_protocol::{RunId, Timestamp};
use uuid::Uuid;

use super::error::of_commit;
use super::rows::{Done, now};
use super::{PostgresStore, Work};
use crate::chain::ms;
use crate::clock::{after, from_ms};
use crate::keys::KEY_RESERVED_MS;
use crate::{Context, IdempotencyKey, KeyUse, StoredAnswer};

pub(super) async fn look_up(
    transaction: &Transaction<'_>,
    cx: &Context,
    key: &IdempotencyKey,
    now: Timestamp,
) -> Done<KeyUse> {
    let sql = "SELECT body_digest, at, run_id, http_status, body FROM idempotency \
               WHERE tenant_id = $1 AND actor = $2 AND scope = $3 AND key = $4";
    let statement = transaction.prepare_cached(sql).await?;
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&cx.tenant.as_str(), &cx.actor.as_str(), &key.scope, &key.key];
    let Some(row) = transaction.query_opt(&statement, &parameters).await? else { return Ok(KeyUse::New) };
    let run: Option<Uuid> = row.try_get(2)?;
    let status: Option<i32> = row.try_get(3)?;
    let reserved = run.is_none() && status.is_none();
    if reserved && after(from_ms(row.try_get(1)?), KEY_RESERVED_MS) <= now {
        return Ok(KeyUse::New);
    }
    if row.try_get::<_, &str>(0)? != key.body_digest {
        return Ok(KeyUse::Reused);
    }
    Ok(match (run, status) {
        (Some(run), _) => KeyUse::Run(RunId(run)),
        (None, Some(status)) => KeyUse::Answered(StoredAnswer {
            status: u16::try_from(status).unwrap_or(500),
            body: row.try_get::<_, Option<String>>(4)?.unwrap_or_default(),
        }),
        (None, None) => KeyUse::Pending,
    })
}

/// Stores a key, in the place of a reservation that has run out. One that somebody else has just stored is not replaced:
/// the statement then changes nothing, and what they stored is looked at again.
pub(super) async fn insert(
    transaction: &Transaction<'_>,
    cx: &Context,
    key: &IdempotencyKey,
    now: Timestamp,
    run: Option<RunId>,
) -> Done<()> {
    let sql = "INSERT INTO idempotency AS old (tenant_id, actor, scope, key, body_digest, at, run_id) \
               VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant_id, actor, scope, key) DO UPDATE \
               SET body_digest = excluded.body_digest, at = excluded.at, run_id = excluded.run_id \
               WHERE old.run_id IS NULL AND old.http_status IS NULL AND old.at <= $8";
    let statement = transaction.prepare_cached(sql).await?;
    let run = run.map(|run| run.0);
    let reserved_before = ms(now) - i64::try_from(KEY_RESERVED_MS).unwrap_or(i64::MAX);
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [
        &cx.tenant.as_str(),
        &cx.actor.as_str(),
        &key.scope,
        &key.key,
        &key.body_digest,
        &ms(now),
        &run,
        &reserved_before,
    ];
    if transaction.execute(&statement, &parameters).await? == 0 {
        let taken = crate::Error::Inconsistent("the key was used at the same moment".into());
        return Err(super::error::Fault::Again(taken));
    }
    Ok(())
}

impl PostgresStore {
    pub(super) async fn try_look_up(
        &self,
        cx: &Context,
        key: &IdempotencyKey,
        reserve: bool,
    ) -> Done<KeyUse> {
        let mut client = self.connection(Work::New).await?;
        let transaction = client.transaction().await?;
        let statement = transaction.prepare_cached(concat!("SELECT ", now!("1"))).await?;
        let at = from_ms(transaction.query_one(&statement, &[&self.given()]).await?.try_get(0)?);
        let found = look_up(&transaction, cx, key, at).await?;
        if reserve && found == KeyUse::New {
            insert(&transaction, cx, key, at, None).await?;
        }
        transaction.commit().await.map_err(of_commit)?;
        Ok(found)
    }

    pub(super) async fn try_answer(
        &self,
        cx: &Context,
        key: &IdempotencyKey,
        answer: &StoredAnswer,
    ) -> Done<()> {
        // What is answered has happened.
        let client = self.connection(Work::Own).await?;
        let sql = "UPDATE idempotency SET http_status = $6, body = $7 WHERE tenant_id = $1 AND actor = $2 AND scope = $3 \
                   AND key = $4 AND body_digest = $5 AND run_id IS NULL AND http_status IS NULL";
        let statement = client.prepare_cached(sql).await?;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
            &cx.tenant.as_str(),
            &cx.actor.as_str(),
            &key.scope,
            &key.key,
            &key.body_digest,
            &i32::from(answer.status),
            &answer.body,
        ];
        client.execute(&statement, &parameters).await.map_err(of_commit)?;
        Ok(())
    }
}
