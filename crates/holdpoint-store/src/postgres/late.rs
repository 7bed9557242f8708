//! Results that came too late to count.

use holdpoint_protocol::{InteractionKind, RawJson, RequestId, RunId};
use tokio_postgres::types::ToSql;

use super::error::of_commit;
use super::rows::Done;
use super::{PostgresStore, Work};
use crate::chain::{self, ms};
use crate::compact::EntryBuilder;
use crate::{Context, codes, facts};

impl PostgresStore {
    /// Keeps a late result with an open in-doubt question, the first one that comes, and puts it on record. Gives the question's
    /// run where it did.
    pub(super) async fn try_keep_late(
        &self,
        cx: &Context,
        request: RequestId,
        result: &RawJson,
    ) -> Done<Option<RunId>> {
        let client = self.connection(Work::Own).await?;
        let Some((asked, _, at)) = self.request_and_time(&client, cx, request).await? else {
            return Ok(None);
        };
        let text = chain::text_of(&facts::late_result(&asked, result.get()))?;
        let around = chain::around(ms(at), &text);
        let mut entry = EntryBuilder::default();
        let after = entry.audit_around_hash(asked.run, ms(at), &text);
        // The request is locked before its run, here as everywhere; a record without an event goes to the newest entry.
        let sql = "WITH held AS (SELECT request_id FROM request WHERE tenant_id = $1 AND request_id = $3 AND kind = $4 \
                   AND status = 0 FOR UPDATE), \
                   kept AS (INSERT INTO late_result (tenant_id, run_id, request_id, at, result) \
                   SELECT $1, $2, request_id, $5, $6 FROM held ON CONFLICT DO NOTHING RETURNING run_id), \
                   moved AS (UPDATE run SET audit_records = run.audit_records + 1, \
                   audit_hash = sha256($7 || run.audit_hash || $8 || int8send(run.audit_records + 1) || $9) FROM kept \
                   WHERE run.tenant_id = $1 AND run.run_id = kept.run_id \
                   RETURNING run.next_seq - 1 AS seq, run.audit_hash), \
                   recorded AS (INSERT INTO journal AS newest (tenant_id, run_id, seq, body) \
                   SELECT $1, $2, seq, $10 || audit_hash || $11 FROM moved \
                   ON CONFLICT (tenant_id, run_id, seq) DO UPDATE SET body = newest.body || excluded.body) \
                   SELECT 1 FROM kept";
        let statement = client.prepare_cached(sql).await?;
        let kind = codes::request_kind::code(InteractionKind::InDoubt) as i16;
        let before = entry.finish();
        let parameters: [&(dyn ToSql + Sync); 11] = [
            &cx.tenant.as_str(),
            &asked.run.0,
            &request.0,
            &kind,
            &ms(at),
            &result.get(),
            &around[0],
            &around[1],
            &around[2],
            &before,
            &after,
        ];
        let row = client.query_opt(&statement, &parameters).await.map_err(of_commit)?;
        Ok(row.map(|_| asked.run))
    }
}
