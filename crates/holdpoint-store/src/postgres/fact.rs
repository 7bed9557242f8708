//! Facts: what happens to a run from outside. The compare-and-set on the request, the run's numbers, the event and the
//! record are one statement, and so one flight and one commit.

use std::sync::Arc;

use deadpool_postgres::GenericClient;
use holdpoint_core::decision::{CancelKind, Fact};
use holdpoint_core::run::AuditRecord;
use holdpoint_protocol::{Event, EventBody, InstanceId, RequestId, RunId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::error::{Fault, of_commit};
use super::rows::{self, Done, now};
use super::{PostgresStore, Work};
use crate::chain::{self, ms};
use crate::clock::from_ms;
use crate::compact::{EntryBuilder, FactRef};
use crate::facts::{self, Closing, Judgement, Request};
use crate::failpoint::failpoint;
use crate::version::snapshot_version;
use crate::{CancelReply, Context, Decide, DecideReply, Error, Noted, Owner, codes, compact};

/// Numbers a run on by one event and one record; around its hash stand $4, $5 and $6.
pub(super) const NUMBERED: &str = "next_seq = run.next_seq + 1, audit_records = run.audit_records + 1, \
     audit_hash = sha256($4 || run.audit_hash || $5 || int8send(run.audit_records + 1) || $6)";

/// Moves a run on by one event and one record, and takes it where it has no owner. One that a newer version has written is not
/// taken but left for an instance that can read it, to be taken from now on.
fn moved_on() -> String {
    let version = snapshot_version();
    format!(
        "next_seq = run.next_seq + 1, audit_records = run.audit_records + 1, \
         audit_hash = sha256($5 || run.audit_hash || $6 || int8send(run.audit_records + 1) || $7), \
         owner = CASE WHEN run.snapshot_version > {version} THEN run.owner ELSE COALESCE(run.owner, $4) END, \
         wake_at = CASE WHEN run.owner IS NULL AND run.snapshot_version > {version} THEN 0 END, \
         epoch = run.epoch + \
         CASE WHEN run.owner IS NULL AND run.snapshot_version <= {version} THEN 1 ELSE 0 END, \
         status = CASE WHEN run.owner IS NULL AND run.snapshot_version <= {version} AND run.status = 1 THEN 0 \
         ELSE run.status END"
    )
}

/// When a request may be closed, by what closes it.
const ANY_TIME: i16 = 0;
const BEFORE_THE_DEADLINE: i16 = 1;
const AFTER_THE_DEADLINE: i16 = 2;

/// What all facts give back: the event's number, the owner, whether it was taken by this statement, the run's actor. Who
/// owned the run before is read from the locked row: another fact of this process may have taken it a moment ago.
const RETURNING: &str = "RETURNING run.next_seq - 1 AS seq, run.audit_hash, run.owner, old.owner IS NULL AS taken, \
                         run.actor, run.epoch";

impl PostgresStore {
    pub(super) async fn try_decide(&self, cx: &Context, decide: &Decide) -> Done<DecideReply> {
        let client = self.connection(Work::New).await?;
        let Some((request, cancel, at)) = self.request_and_time(&client, cx, decide.request).await? else {
            return Ok(DecideReply::NotFound);
        };
        match facts::judge(&request, cancel.as_ref(), decide, at) {
            Judgement::Take(decision) => {
                let stored = (*decision).clone();
                let closing = Closing::Decided(decision);
                // One statement is one transaction: what died before it sent nothing.
                failpoint("store.decide.before_commit");
                let closed = self.close_by_fact(&client, cx.tenant.as_str(), &request, closing, at).await?;
                failpoint("store.decide.after_commit");
                match closed {
                    Some(noted) => Ok(DecideReply::Taken { decision: stored, noted }),
                    // Somebody, or the deadline, was faster: judged again, it shows.
                    None => Err(Fault::Again(Error::Unavailable("the request is being decided".into()))),
                }
            }
            Judgement::Refuse(reply, record) => {
                if let Some(record) = record {
                    self.append_record(&client, cx.tenant.as_str(), request.run(), &record, at).await?;
                }
                Ok(reply)
            }
        }
    }

    pub(super) async fn request_and_time(
        &self,
        client: &impl GenericClient,
        cx: &Context,
        id: RequestId,
    ) -> Done<Option<(Request, Option<facts::CancelNote>, Timestamp)>> {
        let sql = concat!(
            "SELECT q.tenant_id, q.run_id, q.seq, q.request_id, q.round, q.call, q.kind, q.digest, q.deadline, \
             q.opened_at, q.status, q.closure, q.terms, q.escalate_at, q.escalated_at, q.reminders, r.cancel, \
             r.cancel_by, r.cancel_at, ",
            now!("3"),
            " FROM request q JOIN run r ON r.tenant_id = q.tenant_id AND r.run_id = q.run_id \
             WHERE q.tenant_id = $1 AND q.request_id = $2"
        );
        let statement = client.prepare_cached(sql).await?;
        let row = client.query_opt(&statement, &[&cx.tenant.as_str(), &id.0, &self.given()]).await?;
        let Some(row) = row else { return Ok(None) };
        let cancel = rows::cancel(row.try_get(16)?, row.try_get(17)?, row.try_get(18)?)?;
        Ok(Some((rows::request(&row)?, cancel, from_ms(row.try_get(19)?))))
    }

    /// Closes a request if it is open and - for a decision of somebody's - its deadline has not passed by the time of the write;
    /// for an expiry, and what a rule decides then, if it has. `None` when it is not. The row is locked before the clock is looked
    /// at: a condition that is judged before the wait for a lock is judged again only if the row has changed by then, and a
    /// deadline passes without changing anything.
    pub(super) async fn close_by_fact(
        &self,
        client: &impl GenericClient,
        tenant: &str,
        request: &Request,
        closing: Closing,
        at: Timestamp,
    ) -> Done<Option<Noted>> {
        let when = match &closing {
            Closing::Decided(decision) if decision.rule.is_none() => BEFORE_THE_DEADLINE,
            Closing::Decided(_) | Closing::Expired => AFTER_THE_DEADLINE,
            Closing::GateError => ANY_TIME,
        };
        let written = facts::close(request, closing, at);
        let run = request.run();
        let parts = Parts::of(run, written.event.clone(), &written.audit, Some(&written.fact), at)?;
        let sql = format!(
            "WITH held AS (SELECT request_id, deadline FROM request \
             WHERE tenant_id = $1 AND request_id = $3 AND status = 0 FOR UPDATE), \
             closed AS (UPDATE request q SET status = $10, closure = $11 FROM held \
             WHERE q.tenant_id = $1 AND q.request_id = held.request_id \
             AND ($12::smallint = {ANY_TIME} \
             OR ($12::smallint = {BEFORE_THE_DEADLINE} AND (held.deadline IS NULL OR held.deadline > {now})) \
             OR ($12::smallint = {AFTER_THE_DEADLINE} AND held.deadline <= {now})) RETURNING q.run_id), \
             old AS (SELECT owner FROM run WHERE tenant_id = $1 AND run_id = $2 \
             AND EXISTS (SELECT 1 FROM closed) FOR UPDATE), \
             moved AS (UPDATE run SET open_requests = run.open_requests - 1, {moved_on} FROM old \
             WHERE run.tenant_id = $1 AND run.run_id = $2 {RETURNING}), \
             kept AS (INSERT INTO journal (tenant_id, run_id, seq, body) \
             SELECT $1, $2, seq, $8 || audit_hash || $9 FROM moved) \
             SELECT seq, owner, taken, actor, epoch FROM moved",
            moved_on = moved_on(),
            now = now!("13"),
        );
        let statement = client.prepare_cached(&sql).await?;
        let status = codes::request_status::code(written.status) as i16;
        let closure = compact::write(run, &written.closure)?;
        let parameters: [&(dyn ToSql + Sync); 13] = [
            &tenant,
            &run.0,
            &request.id.0,
            &self.instance.0,
            &parts.around[0],
            &parts.around[1],
            &parts.around[2],
            &parts.before,
            &parts.after,
            &status,
            &closure,
            &when,
            &self.given(),
        ];
        let row = client.query_opt(&statement, &parameters).await.map_err(of_commit)?;
        row.map(|row| self.noted(tenant, run, written.event, &row)).transpose()
    }

    fn noted(&self, tenant: &str, run: RunId, body: EventBody, row: &Row) -> Done<Noted> {
        let seq: i64 = row.try_get(0)?;
        let owner: Option<Uuid> = row.try_get(1)?;
        let taken: bool = row.try_get(2)?;
        let actor: &str = row.try_get(3)?;
        let event = Arc::new(Event { seq: Some(seq as u64), run_id: run, child: None, body });
        let owner = match owner {
            None => Owner::Newer,
            Some(owner) if owner != self.instance.0 => Owner::Elsewhere(InstanceId(owner)),
            Some(_) if taken => Owner::Taken,
            Some(_) => Owner::Here,
        };
        let tenant =
            holdpoint_protocol::TenantId::new(tenant).map_err(|_| Error::Corrupt("a name".into()))?;
        let cx = Context { tenant, actor: rows::actor(actor)? };
        Ok(Noted { cx, run, event, owner, epoch: row.try_get::<_, i64>(4)? as u64 })
    }

    async fn append_record(
        &self,
        client: &impl GenericClient,
        tenant: &str,
        run: RunId,
        record: &AuditRecord,
        at: Timestamp,
    ) -> Done<()> {
        let text = chain::text_of(record)?;
        let around = chain::around(ms(at), &text);
        let mut entry = EntryBuilder::default();
        let after = entry.audit_around_hash(run, ms(at), &text);
        let sql = "WITH moved AS (UPDATE run SET audit_records = run.audit_records + 1, \
                   audit_hash = sha256($3 || run.audit_hash || $4 || int8send(run.audit_records + 1) || $5) \
                   WHERE tenant_id = $1 AND run_id = $2 RETURNING next_seq - 1 AS seq, audit_hash) \
                   INSERT INTO journal AS newest (tenant_id, run_id, seq, body) \
                   SELECT $1, $2, seq, $6 || audit_hash || $7 FROM moved \
                   ON CONFLICT (tenant_id, run_id, seq) DO UPDATE SET body = newest.body || excluded.body";
        // Not an UPDATE: the newest entry may be younger than what this statement sees, by the time the run's row was
        // waited for.
        let statement = client.prepare_cached(sql).await?;
        let before = entry.finish();
        let parameters: [&(dyn ToSql + Sync); 7] =
            [&tenant, &run.0, &around[0], &around[1], &around[2], &before, &after];
        client.execute(&statement, &parameters).await.map_err(of_commit)?;
        Ok(())
    }

    pub(super) async fn try_fail_gate(&self, cx: &Context, requests: &[RequestId]) -> Done<Vec<Noted>> {
        let mut client = self.connection(Work::New).await?;
        let transaction = client.transaction().await?;
        let mut noted = Vec::new();
        for id in requests {
            let Some((request, _, at)) = self.request_and_time(&transaction, cx, *id).await? else {
                continue;
            };
            let tenant = cx.tenant.as_str();
            noted.extend(self.close_by_fact(&transaction, tenant, &request, Closing::GateError, at).await?);
        }
        transaction.commit().await.map_err(of_commit)?;
        Ok(noted)
    }

    pub(super) async fn try_cancel(&self, cx: &Context, run: RunId, kind: CancelKind) -> Done<CancelReply> {
        let client = self.connection(Work::New).await?;
        let sql = concat!(
            "SELECT status, cancel, cancel_by, cancel_at, ",
            now!("3"),
            " FROM run WHERE tenant_id = $1 AND run_id = $2"
        );
        let statement = client.prepare_cached(sql).await?;
        let tenant = cx.tenant.as_str();
        let Some(row) = client.query_opt(&statement, &[&tenant, &run.0, &self.given()]).await? else {
            return Ok(CancelReply::NotFound);
        };
        let noted_before: Option<i16> = row.try_get(1)?;
        if matches!(row.try_get::<_, i16>(0)?, 3 | 4) {
            return Ok(CancelReply::Ended);
        }
        let note = rows::cancel(noted_before, row.try_get(2)?, row.try_get(3)?)?;
        if !facts::outranks(note.as_ref(), kind) {
            return Ok(CancelReply::Repeated);
        }
        let at = from_ms(row.try_get(4)?);
        let (body, record, fact) = facts::cancel(&cx.actor, kind);
        let parts = Parts::of(run, body.clone(), &record, Some(&fact), at)?;
        let sql = format!(
            "WITH old AS (SELECT owner FROM run WHERE tenant_id = $1 AND run_id = $2 AND status NOT IN (3, 4) \
             AND cancel IS NOT DISTINCT FROM $12 FOR UPDATE), \
             moved AS (UPDATE run SET cancel = $3, cancel_by = $10, cancel_at = $11, {moved_on} FROM old \
             WHERE run.tenant_id = $1 AND run.run_id = $2 {RETURNING}), \
             kept AS (INSERT INTO journal (tenant_id, run_id, seq, body) \
             SELECT $1, $2, seq, $8 || audit_hash || $9 FROM moved) \
             SELECT seq, owner, taken, actor, epoch FROM moved",
            moved_on = moved_on(),
        );
        let statement = client.prepare_cached(&sql).await?;
        let parameters: [&(dyn ToSql + Sync); 12] = [
            &tenant,
            &run.0,
            &(codes::cancel::code(kind) as i16),
            &self.instance.0,
            &parts.around[0],
            &parts.around[1],
            &parts.around[2],
            &parts.before,
            &parts.after,
            &cx.actor.as_str(),
            &ms(at),
            &noted_before,
        ];
        failpoint("store.cancel.before_commit");
        let row = client.query_opt(&statement, &parameters).await.map_err(of_commit)?;
        failpoint("store.cancel.after_commit");
        match row {
            Some(row) => Ok(CancelReply::Noted(self.noted(tenant, run, body, &row)?)),
            None => Err(Fault::Again(Error::Unavailable("the run is being cancelled or ending".into()))),
        }
    }
}

/// A fact's journal entry and the text of its record, cut where the database puts in what only it knows.
pub(super) struct Parts {
    pub(super) before: Vec<u8>,
    pub(super) after: Vec<u8>,
    pub(super) around: [Vec<u8>; 3],
}

impl Parts {
    pub(super) fn of(
        run: RunId,
        body: EventBody,
        record: &AuditRecord,
        fact: Option<&Fact>,
        at: Timestamp,
    ) -> Done<Self> {
        // The number is not in the JSON.
        let event = Arc::new(Event { seq: None, run_id: run, child: None, body });
        let mut entry = EntryBuilder::content(run, std::slice::from_ref(&event), &[])?;
        let text = chain::text_of(record)?;
        let mut after = entry.audit_around_hash(run, ms(at), &text);
        if let Some(fact) = fact {
            let mut end = EntryBuilder::default();
            end.fact(&FactRef::from(fact));
            after.extend_from_slice(&end.finish());
        }
        Ok(Self { before: entry.finish(), after, around: chain::around(ms(at), &text) })
    }
}
