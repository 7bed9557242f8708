//! Rows, read.

use holdpoint_protocol::{CallId, RequestId, RunId};
use rusqlite::Row;

use super::error::Fault;
use crate::clock::from_ms;
use crate::facts::{Closure, Request};
use crate::places::AgePlace;
use crate::{codes, compact, stored};

/// Selects requests, in the order of columns that [`request`] reads.
macro_rules! select_request {
    ($which:literal) => {
        concat!(
            "SELECT tenant, run, seq, id, round, call, kind, digest, deadline, opened_at, status, closure, terms, \
             escalate_at, escalated_at, reminders FROM request WHERE ",
            $which
        )
    };
}
pub(super) use select_request;

pub(super) fn request(row: &Row<'_>) -> std::result::Result<Request, Fault> {
    let id = RequestId(uuid::Uuid::from_bytes(row.get(3)?));
    request_of(id, row).map_err(|fault| fault.about(format_args!("request {id}")))
}

fn request_of(id: RequestId, row: &Row<'_>) -> std::result::Result<Request, Fault> {
    let run = run_id(row, 1)?;
    let closure: Option<Vec<u8>> = row.get(11)?;
    let opened_at = from_ms(row.get(9)?);
    let deadline = row.get::<_, Option<i64>>(8)?.map(from_ms);
    let terms: Option<Vec<u8>> = row.get(12)?;
    Ok(Request {
        id,
        call: CallId { run, round: row.get(4)?, index: row.get(5)? },
        kind: codes::request_kind::read(row.get(6)?)?,
        digest: stored::digest(&row.get::<_, [u8; 32]>(7)?)?,
        terms: stored::terms(run, terms.as_deref(), opened_at, deadline)?,
        remind_at: row.get::<_, Option<i64>>(13)?.map(from_ms),
        escalated_at: row.get::<_, Option<i64>>(14)?.map(from_ms),
        reminders: row.get(15)?,
        seq: row.get::<_, i64>(2)? as u64,
        opened_at,
        status: codes::request_status::read(row.get(10)?)?,
        closure: closure.map(|bytes| compact::read::<Closure>(run, &bytes)).transpose()?,
    })
}

/// Where a request that [`request`] reads stands in the order of their age, whether it can be read or not.
pub(super) fn age_place(row: &Row<'_>) -> rusqlite::Result<AgePlace> {
    Ok(AgePlace { opened_at_ms: row.get(9)?, run: run_id(row, 1)?, seq: row.get::<_, i64>(2)? as u64 })
}

pub(super) fn run_id(row: &Row<'_>, column: usize) -> rusqlite::Result<RunId> {
    Ok(RunId(uuid::Uuid::from_bytes(row.get(column)?)))
}
