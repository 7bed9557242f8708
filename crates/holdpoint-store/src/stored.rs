//! Stored values, read: what the durable stores do alike.

use holdpoint_core::decision::{CancelKind, Fact};
use holdpoint_core::digest::CallDigest;
use holdpoint_core::run::Run;
use holdpoint_core::terms::Terms;
use holdpoint_protocol::{
    ActorId, CallId, InteractionStatus, RequestId, RunId, RunView, TenantId, Timestamp,
};
use sha2::{Digest, Sha256};

use crate::compact::{self, FactRef};
use crate::facts::{Closure, Request};
use crate::version::snapshot_version;
use crate::{Context, Error, Loaded, PresetDue, Result, RunFilter};

/// The control state; one that a newer version wrote is left alone.
pub(crate) fn snapshot(run: RunId, version: u32, bytes: &[u8]) -> Result<Run> {
    check_version(run, version)?;
    compact::read(run, bytes)
}

/// What is needed of a run to decide a request of it; none where a newer version has written it: then only the request is.
pub(crate) fn unless_newer(loaded: Result<Option<Loaded>>) -> Result<Option<Loaded>> {
    match loaded {
        Err(Error::Newer { .. }) => Ok(None),
        loaded => loaded,
    }
}

fn check_version(run: RunId, version: u32) -> Result<()> {
    let known = snapshot_version();
    if version > known {
        return Err(Error::Newer { what: format!("run {run}"), found: version, known });
    }
    Ok(())
}

/// What a request waits under. A plain deadline is kept in its column alone.
pub(crate) fn terms(
    run: RunId,
    bytes: Option<&[u8]>,
    opened_at: Timestamp,
    deadline: Option<Timestamp>,
) -> Result<Terms> {
    match bytes {
        Some(bytes) => compact::read(run, bytes),
        None => Ok(Terms::plain(opened_at, deadline)),
    }
}

/// The same, to be kept.
pub(crate) fn terms_bytes(run: RunId, terms: &Terms) -> Result<Option<Vec<u8>>> {
    if terms.is_plain() { Ok(None) } else { compact::write(run, terms).map(Some) }
}

/// The call a request is about. Rounds are counted from 1: one that is about the run stands under round 0.
pub(crate) fn call(run: RunId, round: u32, index: u32) -> Option<CallId> {
    (round > 0).then_some(CallId { run, round, index })
}

pub(crate) fn digest(bytes: &[u8; 32]) -> Result<CallDigest> {
    let text = format!("sha256:{}", crate::cursor::hex(bytes));
    text.parse().map_err(|_| Error::Corrupt("a digest".into()))
}

/// A request that a preset is to be asked about, in the context to act in.
pub(crate) fn preset_due(
    run: RunId,
    request: RequestId,
    terms: Option<&[u8]>,
    tenant: &str,
    actor: &str,
) -> Result<PresetDue> {
    let corrupt = |what: &str| Error::Corrupt(format!("request {request}: {what}"));
    let terms: Terms = compact::read(run, terms.ok_or_else(|| corrupt("no terms"))?)?;
    let preset = terms.preset().ok_or_else(|| corrupt("no preset"))?.to_owned();
    let tenant = TenantId::new(tenant).map_err(|_| corrupt("a name"))?;
    let actor = ActorId::new(actor).map_err(|_| corrupt("a name"))?;
    Ok(PresetDue { cx: Context { tenant, actor }, run, request, preset })
}

/// What a list or a scan makes of a row: one that cannot be read stands in nobody's way, and is left out. Asked for by itself
/// it is refused with the reason. What a newer version wrote is nothing amiss; anything else is said each time.
pub(crate) fn readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(item) => Ok(Some(item)),
        Err(Error::Newer { .. }) => Ok(None),
        Err(error @ Error::Corrupt(_)) => {
            tracing::error!(%error, "left out; `holdpoint doctor` says what else cannot be read");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A run of a list.
pub(crate) fn listed(filter: &RunFilter, read: Result<RunView>) -> Result<Option<RunView>> {
    match read {
        Err(error @ Error::Corrupt(_)) if filter.whole => Err(error),
        read => readable(read),
    }
}

/// What a probe writes, in the place of a set of tools that no run has: as large as a usual step, and not to be made smaller.
pub(crate) fn ballast() -> Vec<u8> {
    (0..512_u32).flat_map(|n| Sha256::digest(n.to_be_bytes()).to_vec()).collect()
}

/// The digest it stands under: no set of tools has one so short.
pub(crate) const BALLAST_DIGEST: &[u8] = &[0];

/// What a fact says, with the request it is about.
pub(crate) fn fact(
    fact: FactRef,
    request: impl FnOnce(RequestId) -> Result<Option<Request>>,
) -> Result<Fact> {
    Ok(match fact {
        FactRef::Expired(request) => Fact::Expired { request },
        FactRef::GateError(request) => Fact::GateError { request },
        FactRef::SetAside(request) => Fact::SetAside { request },
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
