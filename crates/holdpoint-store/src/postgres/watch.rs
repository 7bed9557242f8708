//! What those who watch ask for, many runs at a time.

use holdpoint_protocol::{RequestId, RunId, Timestamp};
use uuid::Uuid;

use super::rows::Done;
use super::{PostgresStore, Work};
use crate::clock::from_ms;
use crate::{Context, Known};

impl PostgresStore {
    pub(super) async fn try_moved(&self, known: &[Known]) -> Done<Vec<RunId>> {
        let tenants: Vec<&str> = known.iter().map(|known| known.tenant.as_str()).collect();
        let runs: Vec<Uuid> = known.iter().map(|known| known.run.0).collect();
        let last: Vec<i64> =
            known.iter().map(|known| i64::try_from(known.last).unwrap_or(i64::MAX)).collect();
        let client = self.connection(Work::New).await?;
        let sql = "SELECT known.run FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS known(tenant, run, last) \
                   JOIN run ON run.tenant_id = known.tenant AND run.run_id = known.run \
                   WHERE run.next_seq - 1 > known.last";
        let statement = client.prepare_cached(sql).await?;
        let rows = client.query(&statement, &[&tenants, &runs, &last]).await?;
        rows.iter().map(|row| Ok(RunId(row.try_get(0)?))).collect()
    }

    pub(super) async fn try_newest_pending(
        &self,
        cx: &Context,
        limit: usize,
    ) -> Done<Vec<(Timestamp, RequestId)>> {
        let client = self.connection(Work::New).await?;
        let sql = "SELECT opened_at, request_id FROM request WHERE tenant_id = $1 AND status = 0 \
                   ORDER BY opened_at DESC, run_id DESC, seq DESC LIMIT $2";
        let statement = client.prepare_cached(sql).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = client.query(&statement, &[&cx.tenant.as_str(), &limit]).await?;
        rows.iter().map(|row| Ok((from_ms(row.try_get(0)?), RequestId(row.try_get(1)?)))).collect()
    }
}
