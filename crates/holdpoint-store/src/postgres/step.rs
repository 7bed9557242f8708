//! Starts and steps: what a run's owner writes. Two flights: what is there, locked; then everything at once.

use deadpool_postgres::Transaction;
use futures_util::future::{try_join, try_join_all, try_join4};
use holdpoint_core::run::{Closed, LedgerLine, Opened};
use holdpoint_protocol::{Pending, RequestId, RunId, Timestamp};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::error::of_commit;
use super::rows::{self, Done, Head, due, head_columns, now, select_request};
use super::{PostgresStore, Work, key};
use crate::chain::{self, ms};
use crate::facts;
use crate::failpoint::failpoint;
use crate::prepared::Prepared;
use crate::version::snapshot_version;
use crate::{
    Committed, Context, Error, IdempotencyKey, KeyUse, Next, Started, ToolSet, codes, compact, stored, writes,
};

impl PostgresStore {
    pub(super) async fn try_start(
        &self,
        cx: &Context,
        new: &Prepared,
        key: Option<&IdempotencyKey>,
    ) -> Done<Started> {
        let mut client = self.connection(Work::New).await?;
        let transaction = client.transaction().await?;
        let time = transaction.prepare_cached(concat!("SELECT ", now!("1"))).await?;
        let at: i64 = transaction.query_one(&time, &[&self.given()]).await?.try_get(0)?;
        let at = crate::clock::from_ms(at);
        if let Some(key) = key {
            match key::look_up(&transaction, cx, key, at).await? {
                KeyUse::Run(run) => return Ok(Started::Existing { run }),
                KeyUse::Reused | KeyUse::Answered(_) | KeyUse::Pending => return Ok(Started::KeyReused),
                KeyUse::New => {}
            }
        }
        let tenant = cx.tenant.as_str();
        let sql = "SELECT c.actor, c.last_run, r.status FROM conversation c \
                   LEFT JOIN run r ON r.tenant_id = c.tenant_id AND r.run_id = c.last_run \
                   WHERE c.tenant_id = $1 AND c.name = $2 FOR UPDATE OF c";
        let conversation = transaction.prepare_cached(sql).await?;
        let known = transaction.query_opt(&conversation, &[&tenant, &new.conversation]).await?;
        let mut previous = None;
        if let Some(row) = known {
            if row.try_get::<_, &str>(0)? != cx.actor.as_str() {
                return Ok(Started::NotYours);
            }
            let last = RunId(row.try_get(1)?);
            let ended = matches!(row.try_get::<_, Option<i16>>(2)?, Some(3 | 4) | None);
            if !ended {
                return Ok(Started::Open {
                    run: last,
                    pending: pending_of(&transaction, tenant, last).await?,
                });
            }
            previous = Some(last);
        }
        let pending = self.pending_now(&transaction, cx).await?;
        if pending >= self.options.pending_max {
            return Ok(Started::Full { pending });
        }
        let mut head = Head {
            owner: None,
            epoch: 1,
            next_seq: 1,
            open: 0,
            committed_round: 0,
            tool_digest: None,
            chain: chain::Head::EMPTY,
            now: at,
        };
        check(&transaction, tenant, &head, new).await?;
        let sql = if previous.is_some() {
            "UPDATE conversation SET last_run = $4 WHERE tenant_id = $1 AND name = $2 AND actor = $3"
        } else {
            "INSERT INTO conversation (tenant_id, name, actor, last_run) VALUES ($1, $2, $3, $4)"
        };
        let statement = transaction.prepare_cached(sql).await?;
        transaction
            .execute(&statement, &[&tenant, &new.conversation, &cx.actor.as_str(), &new.run.0])
            .await?;
        if let Some(key) = key {
            key::insert(&transaction, cx, key, at, Some(new.run)).await?;
        }
        let entry = move_on(&mut head, new);
        try_join(
            write_rows(&transaction, tenant, &head, new, 1, entry),
            self.insert_run(&transaction, cx, &head, new, previous),
        )
        .await?;
        failpoint("store.start.before_commit");
        transaction.commit().await.map_err(of_commit)?;
        failpoint("store.start.after_commit");
        Ok(Started::Created { at, previous })
    }

    async fn insert_run(
        &self,
        transaction: &Transaction<'_>,
        cx: &Context,
        head: &Head,
        new: &Prepared,
        previous: Option<RunId>,
    ) -> Done<()> {
        let (owner, wake_at) = self.left(new.next, head.now);
        let sql = "INSERT INTO run (tenant_id, run_id, status, owner, wake_at, epoch, next_seq, step_seq, \
                   open_requests, committed_round, claims, created_at, actor, previous, tool_digest, audit_records, \
                   audit_hash, snapshot_version, snapshot) \
                   VALUES ($1, $2, $3, $4, $5, 1, $6, $6, $7, $8, 0, $9, $10, $11, $12, $13, $14, $15, $16) \
                   ON CONFLICT (tenant_id, run_id) DO NOTHING";
        let statement = transaction.prepare_cached(sql).await?;
        let parameters: [&(dyn ToSql + Sync); 16] = [
            &cx.tenant.as_str(),
            &new.run.0,
            &(codes::run_status::code(new.status) as i16),
            &owner,
            &wake_at,
            &(head.next_seq as i64),
            &(head.open as i32),
            &(head.committed_round as i32),
            &ms(head.now),
            &cx.actor.as_str(),
            &previous.map(|run| run.0),
            &head.tool_digest,
            &(head.chain.records as i64),
            &head.chain.hash.as_slice(),
            &(snapshot_version() as i32),
            &new.snapshot,
        ];
        if transaction.execute(&statement, &parameters).await? == 0 {
            return Err(Error::Inconsistent(format!("run {} was started before", new.run)).into());
        }
        Ok(())
    }

    pub(super) async fn try_commit(
        &self,
        cx: &Context,
        new: &Prepared,
        epoch: u64,
        expected_seq: u64,
    ) -> Done<Committed> {
        let mut client = self.connection(Work::Own).await?;
        let transaction = client.transaction().await?;
        let tenant = cx.tenant.as_str();
        if !new.closed.is_empty() {
            // Requests are locked before their run, here as everywhere.
            let closed: Vec<Uuid> = new.closed.iter().map(|closed| closed.request.0).collect();
            let sql = "SELECT 1 FROM request WHERE tenant_id = $1 AND request_id = ANY($2) ORDER BY request_id FOR UPDATE";
            let statement = transaction.prepare_cached(sql).await?;
            transaction.query(&statement, &[&tenant, &closed]).await?;
        }
        let sql = concat!(
            "SELECT ",
            head_columns!("3"),
            " FROM run WHERE tenant_id = $1 AND run_id = $2 FOR UPDATE"
        );
        let statement = transaction.prepare_cached(sql).await?;
        let row = transaction.query_opt(&statement, &[&tenant, &new.run.0, &self.given()]).await?;
        let Some(mut head) = row.as_ref().map(rows::head).transpose()? else { return Ok(Committed::Fenced) };
        if head.owner != Some(self.instance.0) || head.epoch != epoch {
            return Ok(Committed::Fenced);
        }
        if head.next_seq != expected_seq {
            return Ok(Committed::Moved);
        }
        check(&transaction, tenant, &head, new).await?;
        let entry = move_on(&mut head, new);
        try_join(
            write_rows(&transaction, tenant, &head, new, expected_seq, entry),
            self.update_run(&transaction, tenant, &head, new),
        )
        .await?;
        failpoint("store.commit.before_commit");
        transaction.commit().await.map_err(of_commit)?;
        failpoint("store.commit.after_commit");
        Ok(Committed::Done { next_seq: head.next_seq })
    }

    async fn update_run(
        &self,
        transaction: &Transaction<'_>,
        tenant: &str,
        head: &Head,
        new: &Prepared,
    ) -> Done<()> {
        let (owner, wake_at) = self.left(new.next, head.now);
        let sql = "UPDATE run SET status = $3, next_seq = $4, step_seq = $4, open_requests = $5, \
                   committed_round = $6, claims = CASE WHEN $14 THEN 0 ELSE claims END, tool_digest = $7, audit_records = $8, audit_hash = $9, \
                   snapshot_version = $10, snapshot = $11, owner = $12, wake_at = $13 \
                   WHERE tenant_id = $1 AND run_id = $2";
        let statement = transaction.prepare_cached(sql).await?;
        let parameters: [&(dyn ToSql + Sync); 14] = [
            &tenant,
            &new.run.0,
            &(codes::run_status::code(new.status) as i16),
            &(head.next_seq as i64),
            &(head.open as i32),
            &(head.committed_round as i32),
            &head.tool_digest,
            &(head.chain.records as i64),
            &head.chain.hash.as_slice(),
            &(snapshot_version() as i32),
            &new.snapshot,
            &owner,
            &wake_at,
            &new.progress,
        ];
        transaction.execute(&statement, &parameters).await?;
        Ok(())
    }

    fn left(&self, next: Next, now: Timestamp) -> (Option<Uuid>, Option<i64>) {
        match next {
            Next::Keep => (Some(self.instance.0), None),
            Next::Suspend | Next::End => (None, None),
            Next::Later(after) => (None, Some(ms(crate::clock::after(now, after)))),
        }
    }

    /// Open requests of a tenant. Far from the bound, what was counted a moment ago is near enough.
    async fn pending_now(&self, transaction: &Transaction<'_>, cx: &Context) -> Done<u64> {
        if let Some(counted) = self.counted(&cx.tenant) {
            return Ok(counted);
        }
        let sql = "SELECT count(*) FROM (SELECT 1 FROM request WHERE tenant_id = $1 AND status = 0 LIMIT $2) AS open";
        let statement = transaction.prepare_cached(sql).await?;
        let limit = i64::try_from(self.options.pending_max).unwrap_or(i64::MAX);
        let counted: i64 =
            transaction.query_one(&statement, &[&cx.tenant.as_str(), &limit]).await?.try_get(0)?;
        let counted = u64::try_from(counted).unwrap_or(0);
        self.count(&cx.tenant, counted);
        Ok(counted)
    }
}

/// What a step says that what is stored contradicts. Looked for before anything is written.
async fn check(transaction: &Transaction<'_>, tenant: &str, head: &Head, new: &Prepared) -> Done<()> {
    for closed in &new.closed {
        let request = find(transaction, tenant, closed.request).await?;
        writes::check_closed(new.run, closed.request, request.as_ref())?;
    }
    let open = head.open as usize + new.opened.len();
    writes::check_end(new.run, new.next, open, new.closed.len())?;
    for line in &new.executions {
        let LedgerLine::Started { call, attempt, digest, request: Some(id), .. } = line else { continue };
        let request = find(transaction, tenant, *id).await?;
        if !request.is_some_and(|request| facts::releases(&request, *call, digest)) {
            let what =
                format!("no stored decision of request {id} releases attempt {attempt} of call {call}");
            return Err(Error::Inconsistent(what).into());
        }
    }
    Ok(())
}

async fn find(transaction: &Transaction<'_>, tenant: &str, id: RequestId) -> Done<Option<facts::Request>> {
    let sql = select_request!("tenant_id = $1 AND request_id = $2");
    let statement = transaction.prepare_cached(sql).await?;
    transaction.query_opt(&statement, &[&tenant, &id.0]).await?.as_ref().map(rows::request).transpose()
}

/// The run's numbers after the step, and its journal entry.
fn move_on(head: &mut Head, new: &Prepared) -> Vec<u8> {
    let mut entry = new.content.clone();
    for record in &new.audit {
        entry.audit(new.run, &mut head.chain, ms(head.now), record);
    }
    head.next_seq += new.events.len() as u64;
    head.open = (head.open + new.opened.len() as u32).saturating_sub(new.closed.len() as u32);
    head.committed_round = new.committed_round.unwrap_or(head.committed_round);
    if let Some(tools) = &new.tools {
        head.tool_digest = Some(tools.digest.as_bytes().to_vec());
    }
    entry.finish()
}

/// Everything but the run's own row. The statements go out one behind the other, without waiting for answers.
async fn write_rows(
    transaction: &Transaction<'_>,
    tenant: &str,
    head: &Head,
    new: &Prepared,
    first_seq: u64,
    entry: Vec<u8>,
) -> Done<()> {
    let now = head.now;
    let closed = new.closed.iter().map(|closed| close_request(transaction, tenant, new, closed, now));
    let opened =
        new.opened.iter().map(|opened| insert_request(transaction, tenant, new.run, opened, first_seq, now));
    let lines = new.executions.iter().map(|line| write_execution(transaction, tenant, new.run, line, now));
    let tools = new.tools.iter().map(|tools| insert_tools(transaction, tenant, tools));
    try_join4(
        try_join_all(closed),
        try_join_all(opened),
        try_join_all(lines),
        try_join(try_join_all(tools), append(transaction, tenant, new.run, head.next_seq, entry)),
    )
    .await?;
    Ok(())
}

async fn close_request(
    transaction: &Transaction<'_>,
    tenant: &str,
    new: &Prepared,
    closed: &Closed,
    now: Timestamp,
) -> Done<()> {
    let (status, closure) = facts::closed_by_run(closed.request, closed.why, &new.events, now);
    let sql = "UPDATE request SET status = $3, closure = $4 WHERE tenant_id = $1 AND request_id = $2";
    let statement = transaction.prepare_cached(sql).await?;
    let status = codes::request_status::code(status) as i16;
    let closure = compact::write(new.run, &closure)?;
    transaction.execute(&statement, &[&tenant, &closed.request.0, &status, &closure]).await?;
    Ok(())
}

async fn insert_tools(transaction: &Transaction<'_>, tenant: &str, tools: &ToolSet) -> Done<()> {
    let body = serde_json::to_vec(&*tools.tools).map_err(|error| Error::Corrupt(error.to_string()))?;
    let sql = "INSERT INTO tool_set (tenant_id, digest, tools) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    let statement = transaction.prepare_cached(sql).await?;
    let digest = tools.digest.as_bytes().as_slice();
    transaction.execute(&statement, &[&tenant, &digest, &compact::press(&body)]).await?;
    Ok(())
}

/// Adds an entry to a run's journal, under the number of its last event. One without events goes to the end of the newest
/// entry.
async fn append(
    transaction: &Transaction<'_>,
    tenant: &str,
    run: RunId,
    next_seq: u64,
    body: Vec<u8>,
) -> Done<()> {
    if body.is_empty() {
        return Ok(());
    }
    let seq = (next_seq - 1) as i64;
    let sql = "INSERT INTO journal AS newest (tenant_id, run_id, seq, body) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (tenant_id, run_id, seq) DO UPDATE SET body = newest.body || excluded.body";
    let statement = transaction.prepare_cached(sql).await?;
    transaction.execute(&statement, &[&tenant, &run.0, &seq, &body]).await?;
    Ok(())
}

async fn insert_request(
    transaction: &Transaction<'_>,
    tenant: &str,
    run: RunId,
    opened: &Opened,
    first_seq: u64,
    now: Timestamp,
) -> Done<()> {
    let sql = "INSERT INTO request (tenant_id, request_id, run_id, seq, round, call, kind, revision, digest, deadline, \
               opened_at, status, on_timeout, wait_until, escalate_at, terms) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, $12, $13, $14, $15)";
    let statement = transaction.prepare_cached(sql).await?;
    let terms = &opened.terms;
    let parameters: [&(dyn ToSql + Sync); 15] = [
        &tenant,
        &opened.request.0,
        &run.0,
        &((first_seq + opened.event as u64) as i64),
        &(opened.call.round as i32),
        &(opened.call.index as i32),
        &(codes::request_kind::code(opened.kind) as i16),
        &(opened.revision as i32),
        &opened.digest.as_bytes().as_slice(),
        &terms.expires_at().map(ms),
        &ms(now),
        &(codes::on_timeout(terms.on_timeout(opened.kind)) as i16),
        &terms.waits_until().map(ms),
        &terms.first_reminder().map(ms),
        &stored::terms_bytes(run, terms)?,
    ];
    transaction.execute(&statement, &parameters).await?;
    Ok(())
}

async fn write_execution(
    transaction: &Transaction<'_>,
    tenant: &str,
    run: RunId,
    line: &LedgerLine,
    now: Timestamp,
) -> Done<()> {
    match line {
        LedgerLine::Started { call, attempt, digest, request, .. } => {
            let sql = "INSERT INTO execution (tenant_id, run_id, round, call, attempt, digest, request_id, started_at) \
                       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
            let statement = transaction.prepare_cached(sql).await?;
            let parameters: [&(dyn ToSql + Sync); 8] = [
                &tenant,
                &run.0,
                &(call.round as i32),
                &(call.index as i32),
                &(*attempt as i32),
                &digest.as_bytes().as_slice(),
                &request.map(|request| request.0),
                &ms(now),
            ];
            transaction.execute(&statement, &parameters).await?;
        }
        LedgerLine::Ended { call, attempt, status, executed } => {
            let sql = "UPDATE execution SET ended_at = $6, status = $7, executed = $8 \
                       WHERE tenant_id = $1 AND run_id = $2 AND round = $3 AND call = $4 AND attempt = $5";
            let statement = transaction.prepare_cached(sql).await?;
            let parameters: [&(dyn ToSql + Sync); 8] = [
                &tenant,
                &run.0,
                &(call.round as i32),
                &(call.index as i32),
                &(*attempt as i32),
                &ms(now),
                &status.as_str(),
                &executed.as_str(),
            ];
            transaction.execute(&statement, &parameters).await?;
        }
    }
    Ok(())
}

async fn pending_of(transaction: &Transaction<'_>, tenant: &str, run: RunId) -> Done<Vec<Pending>> {
    let sql = select_request!("tenant_id = $1 AND run_id = $2 AND status = 0 ORDER BY seq");
    let statement = transaction.prepare_cached(sql).await?;
    let found = transaction.query(&statement, &[&tenant, &run.0]).await?;
    found
        .iter()
        .map(|row| {
            let request = rows::request(row)?;
            Ok(Pending { request_id: request.id, call_id: request.call, kind: request.kind })
        })
        .collect()
}

/// Runs that may be taken over: without an owner and due, or of an instance whose lease has run out.
pub(super) const TAKE: &str = concat!(
    "UPDATE run SET owner = $2, wake_at = NULL, epoch = run.epoch + 1, \
     status = CASE WHEN run.status = 1 THEN 0 ELSE run.status END, \
     claims = run.claims + CASE WHEN run.owner IS NULL THEN 0 ELSE 1 END \
     WHERE tenant_id = $3 AND run_id = $4 AND status NOT IN (3, 4) AND (owner IS NULL OR (owner <> $2 AND NOT EXISTS \
     (SELECT 1 FROM instance WHERE instance_id = run.owner AND expires_at > ",
    due!("1"),
    "))) AND snapshot_version <= $5 RETURNING epoch"
);
