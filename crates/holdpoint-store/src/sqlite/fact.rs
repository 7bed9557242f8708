//! Facts: what happens to a run from outside. One compare-and-set on what it is about, with its event and its record.

use std::sync::Arc;

use holdpoint_core::decision::CancelKind;
use holdpoint_protocol::{Event, RequestId, RunId, Timestamp};
use rusqlite::params;

use super::txn::{Done, Head, Txn};
use crate::chain::ms;
use crate::codes;
use crate::compact::FactRef;
use crate::facts::{self, Closing, Judgement, Request};
use crate::prepared::Prepared;
use crate::{CancelReply, Context, Decide, DecideReply, Error, Noted, Owner};

impl Txn<'_> {
    pub(super) fn decide(
        &mut self,
        cx: &Context,
        decide: &Decide,
        step: Option<&Prepared>,
    ) -> Done<DecideReply> {
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(DecideReply::NotFound) };
        let Some(request) = self.request(tenant, decide.request)? else { return Ok(DecideReply::NotFound) };
        let mut head = self.head_of(tenant, &request)?;
        let now = self.now();
        match facts::judge(&request, head.cancel.as_ref(), decide, now) {
            Judgement::Take(decision) => {
                let stored = (*decision).clone();
                let closing = Closing::Decided(decision);
                let follows = facts::follows(decide, head.owner.is_none(), head.epoch, head.next_seq);
                let noted = match step.filter(|_| follows) {
                    Some(step) => self.close_with_step(&mut head, &request, closing, step, now)?,
                    None => self.close_by_fact(&mut head, &request, closing, now)?,
                };
                Ok(DecideReply::Taken { decision: stored, noted })
            }
            Judgement::Refuse(reply, record) => {
                if let Some(record) = record {
                    self.append_record(&mut head, &record, now)?;
                }
                Ok(reply)
            }
        }
    }

    pub(super) fn fail_gate(&mut self, cx: &Context, requests: &[RequestId]) -> Done<Vec<Noted>> {
        let mut noted = Vec::new();
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(noted) };
        let now = self.now();
        for id in requests {
            if let Some(request) = self.request(tenant, *id)?.filter(Request::is_open) {
                let mut head = self.head_of(tenant, &request)?;
                noted.push(self.close_by_fact(&mut head, &request, Closing::GateError, now)?);
            }
        }
        Ok(noted)
    }

    pub(super) fn head_of(&self, tenant: i64, request: &Request) -> Done<Head> {
        let head = self.head(tenant, request.run())?;
        Ok(head.ok_or_else(|| Error::Corrupt(format!("request {} has no run", request.id)))?)
    }

    /// Closes an open request of this transaction, and takes a run without an owner.
    pub(super) fn close_by_fact(
        &mut self,
        head: &mut Head,
        request: &Request,
        closing: Closing,
        now: Timestamp,
    ) -> Done<Noted> {
        let event = self.close_and_append(head, request, closing, now)?;
        let owner = self.noted(head)?;
        Ok(Noted { cx: self.cx(head)?, run: head.id, event, owner, epoch: head.epoch })
    }

    /// Closes an open request with the step that follows from it. The run waits on, and nobody takes it.
    fn close_with_step(
        &mut self,
        head: &mut Head,
        request: &Request,
        closing: Closing,
        step: &Prepared,
        now: Timestamp,
    ) -> Done<Noted> {
        self.check(head, step)?;
        let event = self.close_and_append(head, request, closing, now)?;
        self.write_step(head, step, now)?;
        let owner = Owner::Nobody;
        Ok(Noted { cx: self.cx(head)?, run: head.id, event, owner, epoch: head.epoch })
    }

    fn close_and_append(
        &mut self,
        head: &mut Head,
        request: &Request,
        closing: Closing,
        now: Timestamp,
    ) -> Done<Arc<Event>> {
        let written = facts::close(request, closing, now);
        let fact = FactRef::from(&written.fact);
        self.close_request(head, request.seq, written.status, &written.closure)?;
        self.pending_changed(head.tenant, 0, 1);
        head.open = head.open.saturating_sub(1);
        self.append_fact(head, written.event, &written.audit, Some(&fact), now)
    }

    pub(super) fn cancel(&mut self, cx: &Context, run: RunId, kind: CancelKind) -> Done<CancelReply> {
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(CancelReply::NotFound) };
        let Some(mut head) = self.head(tenant, run)? else { return Ok(CancelReply::NotFound) };
        if head.has_ended() {
            return Ok(CancelReply::Ended);
        }
        if !facts::outranks(head.cancel.as_ref(), kind) {
            return Ok(CancelReply::Repeated);
        }
        let now = self.now();
        let (event, record, fact) = facts::cancel(&cx.actor, kind);
        let sql = "UPDATE run SET cancel = ?3, cancel_by = ?4, cancel_at = ?5 WHERE tenant = ?1 AND id = ?2";
        let code = codes::cancel::code(kind);
        self.execute(sql, params![tenant, run.0.as_bytes(), code, cx.actor.as_str(), ms(now)])?;
        let event = self.append_fact(&mut head, event, &record, Some(&FactRef::from(&fact)), now)?;
        let owner = self.noted(&mut head)?;
        Ok(CancelReply::Noted(Noted { cx: self.cx(&head)?, run, event, owner, epoch: head.epoch }))
    }
}
