//! Requests that the run itself no longer wants an answer to.

use holdpoint_protocol::{By, CallId, DecisionEvent, EventBody, Executed, InteractionKind, RequestId, Via};

use super::state::Ending as RunEnding;
use super::step::Stepper;
use super::{AuditRecord, Closed, ClosedBy};
use crate::digest::CallDigest;
use crate::wording::Ending;

impl Stepper<'_> {
    /// Closes what a call waits for, because the run ends.
    pub(super) fn withdraw(&mut self, index: u32) {
        let Some((request, kind)) = self.call(index).request() else { return };
        let by = self.why_withdrawn();
        self.close(index, request, by);
        match (kind, by) {
            (InteractionKind::InDoubt, _) => self.settle_as(index, &Ending::OutcomeUnknown),
            (
                InteractionKind::Approval | InteractionKind::Question | InteractionKind::Quarantine,
                ClosedBy::Cancel,
            ) => {
                self.settle_as(index, &Ending::Cancelled { executed: Executed::No });
            }
            (
                InteractionKind::Approval | InteractionKind::Question | InteractionKind::Quarantine,
                ClosedBy::Superseded,
            ) => {
                self.settle_as(index, &Ending::Superseded);
            }
        }
    }

    /// Why what is open is closed when the run ends.
    pub(super) fn why_withdrawn(&self) -> ClosedBy {
        match &self.run.ending {
            Some(RunEnding::Supersede { .. }) => ClosedBy::Superseded,
            Some(
                RunEnding::Cancel { .. }
                | RunEnding::Stop
                | RunEnding::GivenUp { .. }
                | RunEnding::Invalid { .. },
            )
            | None => ClosedBy::Cancel,
        }
    }

    /// Closes what a call waits for.
    pub(super) fn close(&mut self, index: u32, request: RequestId, why: ClosedBy) {
        let (call, digest) = (self.run.call_id(index), self.call(index).digest);
        self.close_request(Some(call), digest, request, why);
    }

    /// Closes a request that the run itself no longer wants an answer to.
    pub(super) fn close_request(
        &mut self,
        call_id: Option<CallId>,
        digest: Option<CallDigest>,
        request: RequestId,
        why: ClosedBy,
    ) {
        let (decision, via) = match why {
            ClosedBy::Cancel => ("cancelled", Via::Cancel),
            ClosedBy::Superseded => ("superseded", Via::Superseded),
        };
        let actor = match &self.run.ending {
            Some(RunEnding::Cancel { by } | RunEnding::Supersede { by }) => Some(by.clone()),
            Some(RunEnding::GivenUp { by }) => by.actor.clone(),
            Some(RunEnding::Stop | RunEnding::Invalid { .. }) | None => None,
        };
        self.changes.closed.push(Closed { request, why });
        self.event(EventBody::Decision(DecisionEvent {
            request_id: request,
            call_id,
            decision: decision.into(),
            by: By { actor: actor.clone(), via },
            rule: None,
            reason: None,
            arguments: None,
            at: self.now,
        }));
        self.audit(AuditRecord {
            kind: "request_closed".into(),
            actor,
            call: call_id,
            request: Some(request),
            digest,
            what: decision.into(),
        });
    }
}
