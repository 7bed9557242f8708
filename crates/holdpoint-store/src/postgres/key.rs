//! Idempotency keys.

use holdpoint_protocol::{RunId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::of_commit;
use super::lane::{Column, Rows, column};
use super::rows::{self, Done};
use super::{PostgresStore, Work};
use crate::chain::ms;
use crate::clock::{after, from_ms};
use crate::keys::KEY_RESERVED_MS;
use crate::{Context, IdempotencyKey, KeyUse, StoredAnswer};

/// What is known of keys, each under a number.
pub(super) const LOOK_UP: &str = "SELECT k.n, i.body_digest, i.at, i.run_id, i.http_status, i.body \
     FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::text[]) AS k(n, tenant, actor, scope, key) \
     JOIN idempotency i ON i.tenant_id = k.tenant AND i.actor = k.actor AND i.scope = k.scope AND i.key = k.key";

/// A key, and who used it.
pub(super) type Used<'a> = (i32, &'a Context, &'a IdempotencyKey);

pub(super) fn columns<'a>(used: &[Used<'a>]) -> Vec<Column<'a>> {
    vec![
        column(used, |(n, _, _)| *n),
        column(used, |(_, cx, _)| cx.tenant.as_str()),
        column(used, |(_, cx, _)| cx.actor.as_str()),
        column(used, |(_, _, key)| key.scope.as_str()),
        column(used, |(_, _, key)| key.key.as_str()),
    ]
}

/// What is known of a key that was found, and when it was reserved if that has run out: then it is as good as new.
pub(super) fn found(row: &Row, key: &IdempotencyKey, now: Timestamp) -> Done<(KeyUse, Option<i64>)> {
    let at: i64 = row.try_get(2)?;
    let run: Option<Uuid> = row.try_get(3)?;
    let status: Option<i32> = row.try_get(4)?;
    if run.is_none() && status.is_none() && after(from_ms(at), KEY_RESERVED_MS) <= now {
        return Ok((KeyUse::New, Some(at)));
    }
    if row.try_get::<_, &str>(1)? != key.body_digest {
        return Ok((KeyUse::Reused, None));
    }
    let known = match (run, status) {
        (Some(run), _) => KeyUse::Run(RunId(run)),
        (None, Some(status)) => KeyUse::Answered(StoredAnswer {
            status: u16::try_from(status).unwrap_or(500),
            body: row.try_get::<_, Option<String>>(5)?.unwrap_or_default(),
        }),
        (None, None) => KeyUse::Pending,
    };
    Ok((known, None))
}

/// A key to be stored: for a run, or reserved; in the place of a reservation of this time.
pub(super) struct Kept<'a> {
    pub(super) cx: &'a Context,
    pub(super) key: &'a IdempotencyKey,
    pub(super) run: Option<RunId>,
    pub(super) replaces: Option<i64>,
}

/// Stores keys. One that somebody else has just stored fails: looked at again, it is found.
pub(super) fn store<'a>(kept: &[&Kept<'a>], now: Timestamp) -> Vec<Rows<'a>> {
    let names = |kept: &[&Kept<'a>]| {
        let columns: Vec<Column<'a>> = vec![
            column(kept, |kept| kept.cx.tenant.as_str()),
            column(kept, |kept| kept.cx.actor.as_str()),
            column(kept, |kept| kept.key.scope.as_str()),
            column(kept, |kept| kept.key.key.as_str()),
        ];
        columns
    };
    let replacing: Vec<&Kept<'a>> = kept.iter().copied().filter(|kept| kept.replaces.is_some()).collect();
    let mut writes = Vec::new();
    if !replacing.is_empty() {
        let sql = "DELETE FROM idempotency i \
                   USING unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[]) AS k(tenant, actor, scope, key, at) \
                   WHERE i.tenant_id = k.tenant AND i.actor = k.actor AND i.scope = k.scope AND i.key = k.key \
                   AND i.at = k.at AND i.run_id IS NULL AND i.http_status IS NULL";
        let mut columns = names(&replacing);
        columns.push(column(&replacing, |kept| kept.replaces));
        writes.push(Rows::new(sql, columns));
    }
    if !kept.is_empty() {
        let sql = "INSERT INTO idempotency (tenant_id, actor, scope, key, body_digest, at, run_id) \
                   SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::uuid[])";
        let mut columns = names(kept);
        columns.push(column(kept, |kept| kept.key.body_digest.as_str()));
        columns.push(column(kept, |_| ms(now)));
        columns.push(column(kept, |kept| kept.run.map(|run| run.0)));
        writes.push(Rows::new(sql, columns));
    }
    writes
}

impl PostgresStore {
    pub(super) async fn try_look_up(
        &self,
        cx: &Context,
        key: &IdempotencyKey,
        reserve: bool,
    ) -> Done<KeyUse> {
        let lane = self.lane(Work::New).await?;
        let used = [(0, cx, key)];
        let asked = [Rows::some(LOOK_UP, &used, columns(&used)), Some(self.asks_time())];
        let [rows, time] = lane.begin(asked).await?;
        let at = rows::time(&time)?;
        let known = rows.first().map(|row| found(row, key, at)).transpose()?;
        let (known, replaces) = known.unwrap_or((KeyUse::New, None));
        if reserve && known == KeyUse::New {
            lane.write(&store(&[&Kept { cx, key, run: None, replaces }], at)).await?;
            lane.end();
        } else {
            lane.roll_back().await;
        }
        Ok(known)
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
