//! Rows, read.

use holdpoint_core::decision::{CancelKind, Fact};
use holdpoint_core::digest::CallDigest;
use holdpoint_core::run::{Run, SNAPSHOT_VERSION};
use holdpoint_protocol::{CallId, InteractionStatus, RequestId, RunId};
use rusqlite::Row;

use super::error::Fault;
use crate::clock::from_ms;
use crate::codes;
use crate::compact::{self, FactRef};
use crate::facts::{Closure, Request};
use crate::{Error, Result};

/// Selects requests, in the order of columns that [`request`] reads.
macro_rules! select_request {
    ($which:literal) => {
        concat!(
            "SELECT tenant, run, seq, id, round, call, kind, digest, deadline, opened_at, status, closure \
             FROM request WHERE ",
            $which
        )
    };
}
pub(super) use select_request;

pub(super) fn request(row: &Row<'_>) -> std::result::Result<Request, Fault> {
    let run = run_id(row, 1)?;
    let closure: Option<Vec<u8>> = row.get(11)?;
    Ok(Request {
        id: RequestId(uuid::Uuid::from_bytes(row.get(3)?)),
        call: CallId { run, round: row.get(4)?, index: row.get(5)? },
        kind: codes::request_kind::read(row.get(6)?)?,
        digest: digest(&row.get::<_, [u8; 32]>(7)?)?,
        deadline: row.get::<_, Option<i64>>(8)?.map(from_ms),
        seq: row.get::<_, i64>(2)? as u64,
        opened_at: from_ms(row.get(9)?),
        status: codes::request_status::read(row.get(10)?)?,
        closure: closure.map(|bytes| compact::read::<Closure>(run, &bytes)).transpose()?,
    })
}

pub(super) fn run_id(row: &Row<'_>, column: usize) -> rusqlite::Result<RunId> {
    Ok(RunId(uuid::Uuid::from_bytes(row.get(column)?)))
}

/// The control state; one that a newer version wrote is left alone.
pub(super) fn snapshot(run: RunId, version: u32, bytes: &[u8]) -> Result<Run> {
    if version > SNAPSHOT_VERSION {
        return Err(Error::Newer { what: format!("run {run}"), found: version, known: SNAPSHOT_VERSION });
    }
    compact::read(run, bytes)
}

pub(super) fn digest(bytes: &[u8; 32]) -> Result<CallDigest> {
    let text = format!("sha256:{}", crate::cursor::hex(bytes));
    text.parse().map_err(|_| Error::Corrupt("a digest".into()))
}

/// What a fact says, with the request it is about.
pub(super) fn fact(
    fact: FactRef,
    request: impl FnOnce(RequestId) -> Result<Option<Request>>,
) -> Result<Fact> {
    Ok(match fact {
        FactRef::Expired(request) => Fact::Expired { request },
        FactRef::GateError(request) => Fact::GateError { request },
        FactRef::Cancelled(by, kind @ (CancelKind::Cancel | CancelKind::Supersede)) => {
            Fact::Cancelled { by, kind }
        }
        FactRef::Decided(id) => match request(id)? {
            Some(Request {
                status: InteractionStatus::Decided,
                closure: Some(Closure::Decided(decision)),
                ..
            }) => Fact::Decided { request: id, decision },
            Some(_) | None => return Err(Error::Corrupt(format!("the decision of request {id} is gone"))),
        },
    })
}
