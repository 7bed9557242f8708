//! Where in a list a cursor stands.

use holdpoint_protocol::{RunId, TenantId};

use crate::facts::Request;
use crate::{InteractionFilter, Result, cursor};

const INTERACTIONS: &str = "interactions";
const RUNS: &str = "runs";

/// A place among the requests, which are listed by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgePlace {
    pub(crate) opened_at_ms: i64,
    pub(crate) run: RunId,
    pub(crate) seq: u64,
}

impl AgePlace {
    pub(crate) fn of(request: &Request) -> Self {
        Self { opened_at_ms: request.opened_at.as_millisecond(), run: request.run, seq: request.seq }
    }

    pub(crate) fn write(self, tenant: &TenantId) -> String {
        let mut place = Vec::with_capacity(32);
        place.extend_from_slice(&self.opened_at_ms.to_be_bytes());
        place.extend_from_slice(self.run.0.as_bytes());
        place.extend_from_slice(&self.seq.to_be_bytes());
        cursor::write(INTERACTIONS, tenant, &place)
    }

    pub(crate) fn read(tenant: &TenantId, text: &str) -> Result<Self> {
        let place: [u8; 32] = cursor::read(INTERACTIONS, tenant, text)?;
        let (mut at, mut run, mut seq) = ([0; 8], [0; 16], [0; 8]);
        at.copy_from_slice(&place[..8]);
        run.copy_from_slice(&place[8..24]);
        seq.copy_from_slice(&place[24..]);
        Ok(Self {
            opened_at_ms: i64::from_be_bytes(at),
            run: RunId(uuid::Uuid::from_bytes(run)),
            seq: u64::from_be_bytes(seq),
        })
    }
}

/// A place among the runs, which are listed newest first: by their ids, which rise with time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunPlace {
    pub(crate) run: RunId,
}

impl RunPlace {
    pub(crate) fn write(self, tenant: &TenantId) -> String {
        cursor::write(RUNS, tenant, self.run.0.as_bytes())
    }

    pub(crate) fn read(tenant: &TenantId, text: &str) -> Result<Self> {
        let place: [u8; 16] = cursor::read(RUNS, tenant, text)?;
        Ok(Self { run: RunId(uuid::Uuid::from_bytes(place)) })
    }
}

impl InteractionFilter {
    pub(crate) fn takes(&self, request: &Request) -> bool {
        self.status.is_none_or(|status| status == request.status)
            && self.kind.is_none_or(|kind| kind == request.kind)
            && self.run.is_none_or(|run| run == request.run)
            && self
                .group
                .as_ref()
                .is_none_or(|group| request.terms.concerns(group, request.escalated_at.is_some()))
    }
}
