//! What the memory store holds.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use holdpoint_core::decision::Fact;
use holdpoint_core::digest::DefinitionDigest;
use holdpoint_core::message::Message;
use holdpoint_core::run::{AuditRecord, LedgerLine, Run};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::{
    ActorId, ConversationId, Event, EventBody, Pending, RequestId, RunId, RunStatus, TenantId, Timestamp,
};

use super::effects::EffectId;
use crate::effects::EffectRow;
use crate::facts::{self, CancelNote, Request};
use crate::{Context, Error, Next, Result, StoredAnswer, Writes};

/// One run. Typed values as they came; JSON is made when somebody reads it.
#[derive(Debug)]
pub(super) struct RunRow {
    pub(super) run: Run,
    pub(super) status: RunStatus,
    pub(super) epoch: u64,
    pub(super) owned: bool,
    /// Its owner is gone, and what it was doing is in doubt.
    pub(super) crashed: bool,
    /// How many times it was taken from an owner that was gone, since it last got on.
    pub(super) claims: u32,
    /// Set where it may be taken from this time on.
    pub(super) ready_at: Option<Timestamp>,
    pub(super) events: Vec<Arc<Event>>,
    pub(super) messages: Vec<(u32, u32, Arc<Message>)>,
    pub(super) committed_round: u32,
    /// What happened since the last step.
    pub(super) facts: Vec<Fact>,
    pub(super) requests: Vec<RequestId>,
    pub(super) open: u32,
    pub(super) started: HashSet<(u32, u32, u32)>,
    pub(super) audit: Vec<(Timestamp, AuditRecord)>,
    pub(super) tools: Arc<[ToolDefinition]>,
    pub(super) cancel: Option<CancelNote>,
    pub(super) created_at: Timestamp,
    /// The key that made it, to be forgotten with it.
    pub(super) key: Option<KeyId>,
}

impl RunRow {
    pub(super) fn next_seq(&self) -> u64 {
        self.events.len() as u64 + 1
    }

    pub(super) fn cx(&self) -> Context {
        Context { tenant: self.run.tenant().clone(), actor: self.run.actor().clone() }
    }

    pub(super) fn has_ended(&self) -> bool {
        match self.status {
            RunStatus::Finished | RunStatus::Failed => true,
            RunStatus::Running | RunStatus::Suspended | RunStatus::Cancelling | RunStatus::Quarantined => {
                false
            }
        }
    }

    /// Appends an event of a fact.
    pub(super) fn append(&mut self, body: EventBody) -> Arc<Event> {
        let event = Event { seq: Some(self.next_seq()), run_id: self.run.id(), child: None, body };
        let event = Arc::new(event);
        self.events.push(Arc::clone(&event));
        event
    }
}

/// A conversation: whose it is, and its runs in the order they were started.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) actor: ActorId,
    pub(super) runs: Vec<RunId>,
    pub(super) open: Option<RunId>,
}

/// Whose key it is, what it is for, and the key.
pub(super) type KeyId = (TenantId, ActorId, String, String);

/// What a key stands for.
#[derive(Debug)]
pub(super) struct KeyRow {
    pub(super) body_digest: String,
    pub(super) stands_for: StandsFor,
}

/// What a key stands for.
#[derive(Debug)]
pub(super) enum StandsFor {
    Reserved { since: Timestamp },
    Run(RunId),
    Answer { since: Timestamp, answer: StoredAnswer },
}

/// Everything.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) closed: bool,
    pub(super) runs: HashMap<RunId, RunRow>,
    pub(super) requests: HashMap<RequestId, Request>,
    /// All requests, oldest first.
    pub(super) by_age: BTreeMap<(Timestamp, RunId, u64), RequestId>,
    /// The deadlines of the open ones.
    pub(super) deadlines: BTreeMap<(Timestamp, RunId, u64), RequestId>,
    /// When people are reminded of the open ones.
    pub(super) reminders: BTreeMap<(Timestamp, RunId, u64), RequestId>,
    pub(super) ready: BTreeSet<(Timestamp, RunId)>,
    pub(super) conversations: HashMap<(TenantId, ConversationId), Conversation>,
    pub(super) pending: HashMap<TenantId, u64>,
    pub(super) tool_sets: HashMap<DefinitionDigest, Arc<[ToolDefinition]>>,
    pub(super) keys: HashMap<KeyId, KeyRow>,
    pub(super) effects: HashMap<EffectId, EffectRow>,
    pub(super) finished: VecDeque<RunId>,
    pub(super) keep_finished: usize,
    pub(super) commits: u64,
}

impl State {
    pub(super) fn tools(&mut self, writes: &Writes) -> Option<Arc<[ToolDefinition]>> {
        let set = writes.tools.as_ref()?;
        Some(Arc::clone(self.tool_sets.entry(set.digest).or_insert_with(|| Arc::clone(&set.tools))))
    }

    /// What the writes of a step say that what is stored contradicts. Looked for before anything is written.
    pub(super) fn check(&self, run: RunId, row: Option<&RunRow>, writes: &Writes, next: Next) -> Result<()> {
        for opened in &writes.opened {
            if self.requests.contains_key(&opened.request) {
                return Err(Error::Inconsistent(format!("request {} was opened before", opened.request)));
            }
        }
        for closed in &writes.closed {
            crate::writes::check_closed(run, closed.request, self.requests.get(&closed.request))?;
        }
        let open = row.map_or(0, |row| row.open as usize) + writes.opened.len();
        crate::writes::check_end(run, next, open, writes.closed.len())?;
        for line in &writes.executions {
            let LedgerLine::Started { call, attempt, digest, request, .. } = line else { continue };
            if row.is_some_and(|row| row.started.contains(&(call.round, call.index, *attempt))) {
                return Err(Error::Inconsistent(format!(
                    "attempt {attempt} of call {call} was started before"
                )));
            }
            if let Some(id) = request
                && !self.requests.get(id).is_some_and(|request| facts::releases(request, *call, digest))
            {
                return Err(Error::Inconsistent(format!(
                    "no stored decision of request {id} releases call {call}"
                )));
            }
        }
        Ok(())
    }

    /// Writes a step into a row. The checks are behind us: nothing here can fail.
    pub(super) fn write(&mut self, row: &mut RunRow, run: Run, writes: Writes, next: Next, now: Timestamp) {
        let first_seq = row.next_seq();
        if let Some(tools) = self.tools(&writes) {
            row.tools = tools;
        }
        for closed in &writes.closed {
            let (status, closure) = facts::closed_by_run(closed.request, closed.why, &writes.events, now);
            if let Some(request) = self.requests.get_mut(&closed.request) {
                request.status = status;
                request.closure = Some(closure);
                forget_open(&mut self.deadlines, &mut self.reminders, &mut self.pending, row, request);
            }
        }
        for opened in writes.opened {
            let seq = first_seq + opened.event as u64;
            let request = Request::opened(&opened, seq, now);
            if let Some(deadline) = request.terms.expires_at() {
                self.deadlines.insert((deadline, row.run.id(), seq), opened.request);
            }
            if let Some(at) = request.remind_at {
                self.reminders.insert((at, row.run.id(), seq), opened.request);
            }
            row.requests.push(opened.request);
            row.open += 1;
            match self.pending.get_mut(row.run.tenant()) {
                Some(pending) => *pending += 1,
                None => drop(self.pending.insert(row.run.tenant().clone(), 1)),
            }
            self.by_age.insert((now, row.run.id(), seq), opened.request);
            self.requests.insert(opened.request, request);
        }
        for line in writes.executions {
            if let LedgerLine::Started { call, attempt, .. } = line {
                row.started.insert((call.round, call.index, attempt));
            }
        }
        row.events.extend(writes.events);
        row.messages.extend(writes.messages);
        row.audit.extend(writes.audit.into_iter().map(|record| (now, record)));
        row.committed_round = writes.committed_round.unwrap_or(row.committed_round);
        row.facts.clear();
        row.status = crate::writes::status_of(&run, next);
        row.run = run;
        self.leave(row, next, now);
        self.commits += 1;
    }

    fn leave(&mut self, row: &mut RunRow, next: Next, now: Timestamp) {
        row.owned = next == Next::Keep;
        match next {
            Next::Keep | Next::Suspend => {}
            Next::Later(ms) => {
                let at = crate::clock::after(now, ms);
                row.ready_at = Some(at);
                self.ready.insert((at, row.run.id()));
            }
            Next::End => {
                let key = (row.run.tenant().clone(), row.run.conversation().clone());
                if let Some(conversation) = self.conversations.get_mut(&key) {
                    conversation.open = None;
                }
                self.finished.push_back(row.run.id());
            }
        }
    }

    pub(super) fn lose_owners(&mut self, now: Timestamp, which: impl Fn(RunId) -> bool) {
        for row in self.runs.values_mut().filter(|row| row.owned && which(row.run.id())) {
            row.owned = false;
            row.crashed = true;
            row.ready_at = Some(now);
            self.ready.insert((now, row.run.id()));
        }
    }

    /// Drops the oldest finished runs, as many as are over the bound.
    pub(super) fn forget_finished(&mut self) {
        while self.finished.len() > self.keep_finished {
            if let Some(run) = self.finished.pop_front() {
                self.forget(run);
            }
        }
    }

    /// A run that has ended, with everything of it.
    pub(super) fn forget(&mut self, run: RunId) {
        let Some(row) = self.runs.remove(&run) else { return };
        for id in &row.requests {
            if let Some(request) = self.requests.remove(id) {
                self.by_age.remove(&(request.opened_at, request.run, request.seq));
            }
        }
        if let Some(key) = &row.key {
            self.keys.remove(key);
        }
        let key = (row.run.tenant().clone(), row.run.conversation().clone());
        if let Some(conversation) = self.conversations.get_mut(&key) {
            conversation.runs.retain(|of_it| *of_it != run);
            if conversation.runs.is_empty() {
                self.conversations.remove(&key);
            }
        }
    }

    /// What a run waits for, as far as it is still open.
    pub(super) fn pending_of(&self, row: &RunRow) -> Vec<Pending> {
        let open = |id| self.requests.get(id).filter(|request: &&Request| request.is_open());
        row.requests.iter().filter_map(open).map(|request| request.pending()).collect()
    }
}

/// A request is open no longer.
pub(super) fn forget_open(
    deadlines: &mut BTreeMap<(Timestamp, RunId, u64), RequestId>,
    reminders: &mut BTreeMap<(Timestamp, RunId, u64), RequestId>,
    pending: &mut HashMap<TenantId, u64>,
    row: &mut RunRow,
    request: &Request,
) {
    if let Some(deadline) = request.terms.expires_at() {
        deadlines.remove(&(deadline, request.run, request.seq));
    }
    if let Some(at) = request.remind_at {
        reminders.remove(&(at, request.run, request.seq));
    }
    row.open = row.open.saturating_sub(1);
    if let Some(pending) = pending.get_mut(row.run.tenant()) {
        *pending = pending.saturating_sub(1);
    }
}
