//! A request, as every store keeps it.

use holdpoint_core::digest::CallDigest;
use holdpoint_core::run::Opened;
use holdpoint_core::terms::{Due, Terms};
use holdpoint_protocol::{CallId, InteractionKind, InteractionStatus, Pending, RequestId, RunId, Timestamp};

use crate::facts::Closure;
use crate::{Loaded, RequestHead};

/// A request as every store keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) run: RunId,
    /// The call it is about; none where it is about the run.
    pub(crate) call: Option<CallId>,
    pub(crate) kind: InteractionKind,
    pub(crate) digest: CallDigest,
    /// How long it waits, and what happens then.
    pub(crate) terms: Terms,
    /// When the next reminder is due.
    pub(crate) remind_at: Option<Timestamp>,
    /// How many there were.
    pub(crate) reminders: u32,
    /// When further groups were told.
    pub(crate) escalated_at: Option<Timestamp>,
    /// The number of the event that announced it.
    pub(crate) seq: u64,
    pub(crate) opened_at: Timestamp,
    pub(crate) status: InteractionStatus,
    /// What closed it. Absent while it is open.
    pub(crate) closure: Option<Closure>,
}

impl Request {
    /// A request that opens now.
    pub(crate) fn opened(opened: &Opened, seq: u64, now: Timestamp) -> Self {
        Self {
            id: opened.request,
            run: opened.call.run,
            call: Some(opened.call),
            kind: opened.kind,
            digest: opened.digest,
            remind_at: opened.terms.first_reminder(),
            terms: opened.terms.clone(),
            reminders: 0,
            escalated_at: None,
            seq,
            opened_at: now,
            status: InteractionStatus::Pending,
            closure: None,
        }
    }

    /// The request that an operator decides, of a run that is set aside now.
    pub(crate) fn of_set_aside(
        run: RunId,
        id: RequestId,
        digest: CallDigest,
        seq: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            run,
            call: None,
            kind: InteractionKind::Quarantine,
            digest,
            terms: Terms::plain(now, None),
            remind_at: None,
            reminders: 0,
            escalated_at: None,
            seq,
            opened_at: now,
            status: InteractionStatus::Pending,
            closure: None,
        }
    }

    /// As a run's view and a list name it.
    pub(crate) fn pending(&self) -> Pending {
        Pending { request_id: self.id, call_id: self.call, kind: self.kind }
    }

    /// Whether only a person may decide it: nothing that is configured, and no program.
    pub(crate) fn is_for_people(&self) -> bool {
        match self.kind {
            InteractionKind::Approval | InteractionKind::Question => false,
            InteractionKind::InDoubt | InteractionKind::Quarantine => true,
        }
    }

    /// Whether it is one that a handler is asked, and so is closed when the handler fails.
    pub(crate) fn is_handled(&self) -> bool {
        self.is_open() && !self.is_for_people()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.status == InteractionStatus::Pending
    }

    /// The reminder that is due now, if one is. What is late is over, and reminds nobody.
    pub(crate) fn reminder_due(&self, now: Timestamp) -> Option<Due> {
        let planned = self.remind_at.filter(|at| *at <= now && self.is_open() && !self.is_late(now))?;
        Some(self.terms.due(planned, now))
    }

    /// What somebody must know of it to decide it.
    pub(crate) fn head(&self, loaded: Option<Loaded>) -> RequestHead {
        RequestHead {
            run: self.run,
            kind: self.kind,
            status: self.status,
            opened_at: self.opened_at,
            loaded: loaded.map(Box::new),
        }
    }

    pub(crate) fn is_late(&self, now: Timestamp) -> bool {
        self.terms.expires_at().is_some_and(|deadline| deadline <= now)
    }
}
