//! Rows, read; and the time as the database has it.

use holdpoint_core::run::Run;
use holdpoint_protocol::{ActorId, RequestId, RunId, RunStatus, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Fault;
use crate::chain::{self, Hash};
use crate::clock::from_ms;
use crate::facts::{CancelNote, Closure, Request};
use crate::places::AgePlace;
use crate::{Error, codes, compact, stored};

pub(super) type Done<T> = std::result::Result<T, Fault>;

/// The time now, looked at anew each time it is asked for: for a compare-and-set. The parameter is a time that is given, in
/// tests; NULL means the database's.
macro_rules! now {
    ($given:literal) => {
        concat!("COALESCE($", $given, "::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)")
    };
}
pub(super) use now;

/// The time now, for scans: the same for the whole statement, so that an index can be used. (With the other one, which is
/// volatile, each row would be looked at.)
macro_rules! due {
    ($given:literal) => {
        concat!("COALESCE($", $given, "::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)")
    };
}
pub(super) use due;

/// Columns of `q` that [`request`] reads.
macro_rules! request_columns {
    () => {
        "q.tenant_id, q.run_id, q.seq, q.request_id, q.round, q.call, q.kind, q.digest, q.deadline, q.opened_at, q.status, \
         q.closure, q.terms, q.escalate_at, q.escalated_at, q.reminders"
    };
}
pub(super) use request_columns;

/// Selects requests, as [`request`] reads them.
macro_rules! select_request {
    ($which:expr) => {
        concat!("SELECT ", $crate::postgres::rows::request_columns!(), " FROM request q WHERE ", $which)
    };
}
pub(super) use select_request;

pub(super) fn request(row: &Row) -> Done<Request> {
    let id = RequestId(row.try_get(3)?);
    request_of(id, row).map_err(|fault| fault.about(format_args!("request {id}")))
}

fn request_of(id: RequestId, row: &Row) -> Done<Request> {
    let run = RunId(row.try_get(1)?);
    let closure: Option<Vec<u8>> = row.try_get(11)?;
    let opened_at = from_ms(row.try_get(9)?);
    let deadline = row.try_get::<_, Option<i64>>(8)?.map(from_ms);
    Ok(Request {
        id,
        run,
        call: stored::call(run, small(row.try_get(4)?), small(row.try_get(5)?)),
        kind: codes::request_kind::read(row.try_get::<_, i16>(6)?.into())?,
        digest: stored::digest(&bytes(row.try_get(7)?)?)?,
        terms: stored::terms(run, row.try_get(12)?, opened_at, deadline)?,
        remind_at: row.try_get::<_, Option<i64>>(13)?.map(from_ms),
        escalated_at: row.try_get::<_, Option<i64>>(14)?.map(from_ms),
        reminders: small(row.try_get(15)?),
        seq: row.try_get::<_, i64>(2)? as u64,
        opened_at,
        status: codes::request_status::read(row.try_get::<_, i16>(10)?.into())?,
        closure: closure.map(|bytes| compact::read::<Closure>(run, &bytes)).transpose()?,
    })
}

/// Where a request that [`request`] reads stands in the order of their age, whether it can be read or not.
pub(super) fn age_place(row: &Row) -> Done<AgePlace> {
    Ok(AgePlace {
        opened_at_ms: row.try_get(9)?,
        run: RunId(row.try_get(1)?),
        seq: row.try_get::<_, i64>(2)? as u64,
    })
}

/// A run's row without its snapshot, locked.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) owner: Option<Uuid>,
    pub(super) epoch: u64,
    pub(super) next_seq: u64,
    pub(super) open: u32,
    pub(super) committed_round: u32,
    pub(super) tool_digest: Option<Vec<u8>>,
    pub(super) chain: chain::Head,
    pub(super) now: Timestamp,
}

/// Columns of `r` that [`head`] reads.
macro_rules! head_columns {
    () => {
        "r.owner, r.epoch, r.next_seq, r.open_requests, r.committed_round, r.tool_digest, r.audit_records, r.audit_hash"
    };
}
pub(super) use head_columns;

pub(super) fn head(row: &Row, now: Timestamp) -> Done<Head> {
    Ok(Head {
        owner: row.try_get(0)?,
        epoch: row.try_get::<_, i64>(1)? as u64,
        next_seq: row.try_get::<_, i64>(2)? as u64,
        open: small(row.try_get(3)?),
        committed_round: small(row.try_get(4)?),
        tool_digest: row.try_get(5)?,
        chain: chain::Head { records: row.try_get::<_, i64>(6)? as u64, hash: bytes(row.try_get(7)?)? },
        now,
    })
}

pub(super) fn cancel(kind: Option<i16>, by: Option<String>, at: Option<i64>) -> Done<Option<CancelNote>> {
    let (Some(kind), Some(by), Some(at)) = (kind, by, at) else { return Ok(None) };
    Ok(Some(CancelNote { kind: codes::cancel::read(kind.into())?, by: actor(&by)?, at: from_ms(at) }))
}

/// A run's row, with its snapshot read.
pub(super) struct RunRow {
    pub(super) run: Run,
    pub(super) status: RunStatus,
    pub(super) epoch: u64,
    pub(super) next_seq: u64,
    pub(super) step_seq: u64,
    pub(super) committed_round: u32,
    pub(super) created_at: Timestamp,
    pub(super) previous: Option<RunId>,
    pub(super) tool_digest: Option<Vec<u8>>,
}

pub(super) const RUN_COLUMNS: &str = "run_id, status, epoch, next_seq, step_seq, committed_round, created_at, previous, \
                                      tool_digest, snapshot_version, snapshot";

pub(super) fn run_row(row: &Row) -> Done<RunRow> {
    let id = RunId(row.try_get(0)?);
    run_row_of(id, row).map_err(|fault| fault.about(format_args!("run {id}")))
}

fn run_row_of(id: RunId, row: &Row) -> Done<RunRow> {
    let snapshot: &[u8] = row.try_get(10)?;
    Ok(RunRow {
        run: stored::snapshot(id, small(row.try_get(9)?), snapshot)?,
        status: codes::run_status::read(row.try_get::<_, i16>(1)?.into())?,
        epoch: row.try_get::<_, i64>(2)? as u64,
        next_seq: row.try_get::<_, i64>(3)? as u64,
        step_seq: row.try_get::<_, i64>(4)? as u64,
        committed_round: small(row.try_get(5)?),
        created_at: from_ms(row.try_get(6)?),
        previous: row.try_get::<_, Option<Uuid>>(7)?.map(RunId),
        tool_digest: row.try_get(8)?,
    })
}

/// The time that a statement gave.
pub(super) fn time(rows: &[Row]) -> Done<Timestamp> {
    let row =
        rows.first().ok_or_else(|| Error::Corrupt("a statement that always answers gave no row".into()))?;
    Ok(from_ms(row.try_get(0)?))
}

pub(super) fn actor(name: &str) -> Done<ActorId> {
    Ok(ActorId::new(name).map_err(|_| Error::Corrupt("a name".into()))?)
}

/// Counts are never negative, and never near the bound of the type.
pub(super) fn small(number: i32) -> u32 {
    number.max(0) as u32
}

pub(super) fn bytes(found: &[u8]) -> Done<Hash> {
    Ok(found.try_into().map_err(|_| Error::Corrupt("a digest of another length".into()))?)
}
