//! Results that came too late to count.

use holdpoint_protocol::{InteractionKind, RawJson, RequestId, RunId};
use tokio_postgres::types::ToSql;

use super::error::of_commit;
use super::rows::{Done, now};
use super::{PostgresStore, Work};
use crate::{Context, codes};

impl PostgresStore {
    /// Keeps a late result with an open in-doubt question, the first one that comes. Gives the question's run where it did.
    pub(super) async fn try_keep_late(
        &self,
        cx: &Context,
        request: RequestId,
        result: &RawJson,
    ) -> Done<Option<RunId>> {
        let client = self.connection(Work::Own).await?;
        let sql = concat!(
            "INSERT INTO late_result (tenant_id, run_id, request_id, at, result) \
             SELECT tenant_id, run_id, request_id, ",
            now!("1"),
            ", $4 FROM request WHERE tenant_id = $2 AND request_id = $3 AND kind = $5 AND status = 0 \
             ON CONFLICT DO NOTHING RETURNING run_id"
        );
        let statement = client.prepare_cached(sql).await?;
        let kind = codes::request_kind::code(InteractionKind::InDoubt) as i16;
        let parameters: [&(dyn ToSql + Sync); 5] =
            [&self.given(), &cx.tenant.as_str(), &request.0, &result.get(), &kind];
        let row = client.query_opt(&statement, &parameters).await.map_err(of_commit)?;
        row.map(|row| Ok(RunId(row.try_get(0)?))).transpose()
    }
}
