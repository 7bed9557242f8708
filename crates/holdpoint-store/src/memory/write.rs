//! Starts, steps and facts.

use std::collections::HashSet;

use holdpoint_core::decision::CancelKind;
use holdpoint_core::run::AuditRecord;
use holdpoint_protocol::{RequestId, RunId, RunStatus, Timestamp};

use super::state::{Conversation, KeyRow, RunRow, StandsFor, State, forget_open};
use crate::facts::{self, CancelNote, Closing, Judgement, Request};
use crate::keys::{self, KEY_RESERVED_MS};
use crate::{
    CancelReply, Committed, Context, Decide, DecideReply, IdempotencyKey, KeyUse, Loaded, Next, Noted, Owner,
    PresetDue, Result, RuleRelease, StartRun, Started, Step, StoredAnswer, Taken,
};

impl State {
    pub(super) fn start(
        &mut self,
        cx: &Context,
        start: StartRun,
        pending_max: u64,
        now: Timestamp,
    ) -> Result<Started> {
        let StartRun { run, writes, key, next } = start;
        if let Some(key) = &key {
            match self.look_up(cx, key, now) {
                KeyUse::Run(run) => return Ok(Started::Existing { run }),
                KeyUse::Reused | KeyUse::Answered(_) | KeyUse::Pending => return Ok(Started::KeyReused),
                KeyUse::New => {}
            }
        }
        let conversation = (cx.tenant.clone(), run.conversation().clone());
        let mut previous = None;
        if let Some(known) = self.conversations.get(&conversation) {
            if known.actor != cx.actor {
                return Ok(Started::NotYours);
            }
            if let Some(open) = known.open {
                let pending = self.runs.get(&open).map(|row| self.pending_of(row)).unwrap_or_default();
                return Ok(Started::Open { run: open, pending });
            }
            previous = known.runs.last().copied();
        }
        let pending = self.pending.get(&cx.tenant).copied().unwrap_or(0);
        if pending >= pending_max {
            return Ok(Started::Full { pending });
        }
        crate::writes::check(&run, &writes, 1)?;
        crate::writes::check_start(cx, &run)?;
        if self.runs.contains_key(&run.id()) {
            return Err(crate::Error::Inconsistent(format!("run {} was started before", run.id())));
        }
        self.check(run.id(), None, &writes, next)?;

        let id = run.id();
        let known = self.conversations.entry(conversation).or_insert_with(|| Conversation {
            actor: cx.actor.clone(),
            runs: Vec::new(),
            open: None,
        });
        known.runs.push(id);
        known.open = Some(id);
        let key_id = key.map(|key| {
            let id = keys::id(cx, &key);
            let row = KeyRow { body_digest: key.body_digest, stands_for: StandsFor::Run(run.id()) };
            self.keys.insert(id.clone(), row);
            id
        });
        let mut row = RunRow {
            run: run.clone(),
            status: RunStatus::Running,
            epoch: 1,
            owned: true,
            crashed: false,
            ready_at: None,
            events: Vec::new(),
            messages: Vec::new(),
            committed_round: 0,
            facts: Vec::new(),
            requests: Vec::new(),
            open: 0,
            started: HashSet::new(),
            audit: Vec::new(),
            tools: std::sync::Arc::from([]),
            cancel: None,
            created_at: now,
            key: key_id,
        };
        self.write(&mut row, run, writes, next, now);
        self.runs.insert(id, row);
        self.forget_finished();
        Ok(Started::Created { at: now, previous })
    }

    pub(super) fn commit(&mut self, cx: &Context, step: &Step<'_>, now: Timestamp) -> Result<Committed> {
        // Nobody takes a run over from a process whose runs end with it: claims without progress are not counted.
        let Step { run, epoch, expected_seq, writes, next, progress: _ } = step;
        let (id, next) = (run.id(), *next);
        let Some(row) = self.runs.get(&id).filter(|row| *row.run.tenant() == cx.tenant) else {
            return Ok(Committed::Fenced);
        };
        if !row.owned || row.epoch != *epoch {
            return Ok(Committed::Fenced);
        }
        if row.next_seq() != *expected_seq {
            return Ok(Committed::Moved);
        }
        crate::writes::check(run, writes, *expected_seq)?;
        self.check(id, Some(row), writes, next)?;
        // Taken out and put back, so that the rest of the state can be written beside it.
        let Some(mut row) = self.runs.remove(&id) else { return Ok(Committed::Fenced) };
        self.write(&mut row, run.clone().into_owned(), writes.clone(), next, now);
        let next_seq = row.next_seq();
        self.runs.insert(id, row);
        if next == Next::End {
            self.forget_finished();
        }
        Ok(Committed::Done { next_seq })
    }

    pub(super) fn take(&mut self, cx: &Context, run: RunId) -> Option<Loaded> {
        let row = self.runs.get_mut(&run).filter(|row| *row.run.tenant() == cx.tenant)?;
        if row.owned || row.has_ended() {
            return None;
        }
        own(&mut self.ready, row);
        self.commits += 1;
        self.load(cx, run)
    }

    pub(super) fn recover(&mut self, limit: usize, now: Timestamp) -> Vec<Taken> {
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some((at, run)) = self.ready.first().copied().filter(|(at, _)| *at <= now) else { break };
            self.ready.remove(&(at, run));
            let Some(row) = self.runs.get_mut(&run) else { continue };
            let crashed = row.crashed;
            own(&mut self.ready, row);
            taken.push(Taken { cx: row.cx(), run, crashed });
        }
        self.commits += u64::from(!taken.is_empty());
        taken
    }

    pub(super) fn release(&mut self, cx: &Context, run: RunId, epoch: u64, at: Timestamp) {
        let Some(row) = self.runs.get_mut(&run).filter(|row| *row.run.tenant() == cx.tenant) else { return };
        if row.owned && row.epoch == epoch {
            row.owned = false;
            row.ready_at = Some(at);
            self.ready.insert((at, run));
            self.commits += 1;
        }
    }

    pub(super) fn decide(&mut self, cx: &Context, mut decide: Decide, now: Timestamp) -> Result<DecideReply> {
        let Some(request) = self.requests.get(&decide.request) else { return Ok(DecideReply::NotFound) };
        let Some(row) = self.runs.get_mut(&request.run()).filter(|row| *row.run.tenant() == cx.tenant) else {
            return Ok(DecideReply::NotFound);
        };
        Ok(match facts::judge(request, row.cancel.as_ref(), &decide, now) {
            Judgement::Take(decision) => {
                let is_free = !row.owned && row.ready_at.is_none();
                let follows = facts::follows(&decide, is_free, row.epoch, row.next_seq());
                let step = decide.step.take().filter(|_| follows);
                if let Some(Step { run, expected_seq, writes, next, .. }) = step.as_deref() {
                    crate::writes::check(run, writes, *expected_seq)?;
                    self.check(run.id(), self.runs.get(&run.id()), writes, *next)?;
                }
                let stored = (*decision).clone();
                match self.close_by_fact(decide.request, Closing::Decided(decision), step, now) {
                    Some(noted) => DecideReply::Taken { decision: stored, noted },
                    None => DecideReply::NotFound,
                }
            }
            Judgement::Refuse(reply, record) => {
                if let Some(record) = record {
                    row.audit.push((now, record));
                    self.commits += 1;
                }
                reply
            }
        })
    }

    pub(super) fn fail_gate(&mut self, cx: &Context, requests: &[RequestId], now: Timestamp) -> Vec<Noted> {
        let mut noted = Vec::new();
        for id in requests {
            let Some(request) = self.requests.get(id).filter(|request| request.is_open()) else { continue };
            if self.runs.get(&request.run()).is_some_and(|row| *row.run.tenant() == cx.tenant) {
                noted.extend(self.close_by_fact(*id, Closing::GateError, None, now));
            }
        }
        noted
    }

    pub(super) fn expire_due(&mut self, limit: usize, now: Timestamp) -> Vec<Noted> {
        let due: Vec<RequestId> = self
            .late(now)
            .filter(|request| request.terms.preset().is_none())
            .take(limit)
            .map(|r| r.id)
            .collect();
        due.into_iter()
            .filter_map(|request| self.close_by_fact(request, Closing::Expired, None, now))
            .collect()
    }

    /// The open requests whose deadline has passed, in its order.
    fn late(&self, now: Timestamp) -> impl Iterator<Item = &Request> {
        let late = self.deadlines.iter().take_while(move |((deadline, _, _), _)| *deadline <= now);
        late.filter_map(|(_, id)| self.requests.get(id))
    }

    pub(super) fn presets_due(&self, limit: usize, now: Timestamp) -> Vec<PresetDue> {
        let due = |request: &Request| {
            let (preset, row) = (request.terms.preset()?, self.runs.get(&request.run())?);
            Some(PresetDue {
                cx: row.cx(),
                run: row.run.id(),
                request: request.id,
                preset: preset.to_owned(),
            })
        };
        self.late(now).filter_map(due).take(limit).collect()
    }

    pub(super) fn close_due(
        &mut self,
        cx: &Context,
        id: RequestId,
        release: Option<RuleRelease>,
        now: Timestamp,
    ) -> Option<Noted> {
        let request = self.requests.get(&id)?;
        let row = self.runs.get(&request.run()).filter(|row| *row.run.tenant() == cx.tenant)?;
        let closing = facts::close_due(request, row.cancel.as_ref(), release, now)?;
        self.close_by_fact(id, closing, None, now)
    }

    pub(super) fn remind_due(&mut self, limit: usize, now: Timestamp) -> Vec<Noted> {
        let planned = self.reminders.iter().take_while(|((at, _, _), _)| *at <= now);
        let due: Vec<RequestId> = planned
            .map(|(_, id)| *id)
            .filter(|id| self.requests.get(id).is_some_and(|request| request.reminder_due(now).is_some()))
            .take(limit)
            .collect();
        due.into_iter().filter_map(|id| self.remind(id, now)).collect()
    }

    fn remind(&mut self, id: RequestId, now: Timestamp) -> Option<Noted> {
        let request = self.requests.get_mut(&id)?;
        let due = request.reminder_due(now)?;
        let row = self.runs.get_mut(&request.run())?;
        let (event, audit) = facts::remind(request, due, now);
        let place = |at| (at, request.run(), request.seq);
        if let Some(at) = request.remind_at {
            self.reminders.remove(&place(at));
        }
        if let Some(at) = due.next {
            self.reminders.insert(place(at), id);
        }
        request.remind_at = due.next;
        request.reminders += 1;
        if due.escalates {
            request.escalated_at = request.escalated_at.or(Some(now));
        }
        let event = row.append(event);
        row.audit.push((now, audit));
        self.commits += 1;
        let owner = if row.owned { Owner::Here } else { Owner::Nobody };
        Some(Noted { cx: row.cx(), run: row.run.id(), event, owner, epoch: row.epoch })
    }

    /// Closes an open request by something that happened from outside. With the step that follows from it, the run waits on;
    /// else it is taken, where nobody has it.
    fn close_by_fact(
        &mut self,
        id: RequestId,
        closing: Closing,
        step: Option<Box<Step<'static>>>,
        now: Timestamp,
    ) -> Option<Noted> {
        let request = self.requests.get_mut(&id)?;
        let row = self.runs.get_mut(&request.run())?;
        let written = facts::close(request, closing, now);
        request.status = written.status;
        request.closure = Some(written.closure);
        forget_open(&mut self.deadlines, &mut self.reminders, &mut self.pending, row, request);
        let event = row.append(written.event);
        row.audit.push((now, written.audit));
        row.facts.push(written.fact);
        let (cx, run) = (row.cx(), row.run.id());
        let Some(step) = step else {
            let owner = own_by_fact(&mut self.ready, row);
            self.commits += 1;
            return Some(Noted { cx, run, event, owner, epoch: row.epoch });
        };
        let mut row = self.runs.remove(&run)?;
        let Step { run: after, writes, next, .. } = *step;
        self.write(&mut row, after.into_owned(), writes, next, now);
        let epoch = row.epoch;
        self.runs.insert(run, row);
        Some(Noted { cx, run, event, owner: Owner::Nobody, epoch })
    }

    pub(super) fn cancel(
        &mut self,
        cx: &Context,
        run: RunId,
        kind: CancelKind,
        now: Timestamp,
    ) -> CancelReply {
        let Some(row) = self.runs.get_mut(&run).filter(|row| *row.run.tenant() == cx.tenant) else {
            return CancelReply::NotFound;
        };
        if row.has_ended() {
            return CancelReply::Ended;
        }
        if !facts::outranks(row.cancel.as_ref(), kind) {
            return CancelReply::Repeated;
        }
        let (event, audit, fact) = facts::cancel(&cx.actor, kind);
        row.cancel = Some(CancelNote { kind, by: cx.actor.clone(), at: now });
        let event = row.append(event);
        row.audit.push((now, audit));
        row.facts.push(fact);
        let owner = own_by_fact(&mut self.ready, row);
        self.commits += 1;
        CancelReply::Noted(Noted { cx: row.cx(), run, event, owner, epoch: row.epoch })
    }

    pub(super) fn look_up(&self, cx: &Context, key: &IdempotencyKey, now: Timestamp) -> KeyUse {
        let Some(row) = self.keys.get(&keys::id(cx, key)) else { return KeyUse::New };
        match &row.stands_for {
            StandsFor::Reserved { since } if crate::clock::after(*since, KEY_RESERVED_MS) <= now => {
                KeyUse::New
            }
            StandsFor::Reserved { .. } | StandsFor::Run(_) | StandsFor::Answer { .. }
                if row.body_digest != key.body_digest =>
            {
                KeyUse::Reused
            }
            StandsFor::Reserved { .. } => KeyUse::Pending,
            StandsFor::Run(run) => KeyUse::Run(*run),
            StandsFor::Answer { answer, .. } => KeyUse::Answered(answer.clone()),
        }
    }

    pub(super) fn remember(&mut self, cx: &Context, key: &IdempotencyKey, now: Timestamp) -> KeyUse {
        let found = self.look_up(cx, key, now);
        if found == KeyUse::New {
            let row = KeyRow {
                body_digest: key.body_digest.clone(),
                stands_for: StandsFor::Reserved { since: now },
            };
            self.keys.insert(keys::id(cx, key), row);
            self.commits += 1;
        }
        found
    }

    pub(super) fn answer(&mut self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) {
        if let Some(row) = self.keys.get_mut(&keys::id(cx, key))
            && row.body_digest == key.body_digest
            && let StandsFor::Reserved { since } = row.stands_for
        {
            row.stands_for = StandsFor::Answer { since, answer: answer.clone() };
            self.commits += 1;
        }
    }
}

/// This instance owns the run from now on, at the next epoch.
fn own(ready: &mut std::collections::BTreeSet<(Timestamp, RunId)>, row: &mut RunRow) {
    if let Some(at) = row.ready_at.take() {
        ready.remove(&(at, row.run.id()));
    }
    row.owned = true;
    row.crashed = false;
    row.epoch += 1;
    // It waits no longer, even though its next step is still to come.
    if row.status == RunStatus::Suspended {
        row.status = RunStatus::Running;
    }
}

fn own_by_fact(ready: &mut std::collections::BTreeSet<(Timestamp, RunId)>, row: &mut RunRow) -> Owner {
    if row.owned {
        return Owner::Here;
    }
    own(ready, row);
    Owner::Taken
}

/// The records of a chain, hashed when somebody looks: a chain in memory proves nothing that the memory does not.
pub(super) fn chain(
    audit: &[(Timestamp, AuditRecord)],
) -> Result<(Vec<crate::chain::Kept>, crate::chain::Head)> {
    let mut head = crate::chain::Head::EMPTY;
    let mut kept = Vec::with_capacity(audit.len());
    for (at, record) in audit {
        let (at_ms, text) = (crate::chain::ms(*at), crate::chain::text_of(record)?);
        let hash = head.append(at_ms, &text);
        kept.push(crate::chain::Kept { at_ms, text, hash });
    }
    Ok((kept, head))
}
