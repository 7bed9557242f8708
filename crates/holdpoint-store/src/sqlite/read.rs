//! Reads of one run: to carry it on, to show it, to prove it.

use std::sync::Arc;

use holdpoint_core::message::Message;
use holdpoint_core::run::Run;
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::{
    ConversationId, Event, EventBody, Pending, RequestId, RunId, RunStatus, RunView, Timestamp,
};
use rusqlite::{OptionalExtension, Row, params};

use super::readers::{Reader, TOOL_SETS_MAX};
use super::rows::{self, select_request};
use crate::chain::{self, Kept};
use crate::clock::from_ms;
use crate::codes;
use crate::compact::{self, Entry};
use crate::facts::Request;
use crate::{AuditRow, ChainCheck, Error, Loaded, NumberedEvents, RequestHead, Result, stored, views};

/// A run's row, with its snapshot read.
pub(super) struct RunRow {
    pub(super) run: Run,
    pub(super) status: RunStatus,
    epoch: u64,
    next_seq: u64,
    step_seq: u64,
    committed_round: u32,
    pub(super) created_at: Timestamp,
    previous: Option<RunId>,
    tool_set: Option<i64>,
}

pub(super) const RUN_COLUMNS: &str = "id, status, epoch, next_seq, step_seq, committed_round, created_at, previous, \
                                      tool_set, snapshot_version, snapshot";

pub(super) fn run_row(row: &Row<'_>) -> Result<RunRow> {
    let id = rows::run_id(row, 0)?;
    run_row_of(id, row).map_err(|error| error.about(format_args!("run {id}")))
}

fn run_row_of(id: RunId, row: &Row<'_>) -> Result<RunRow> {
    let snapshot: Vec<u8> = row.get(10)?;
    Ok(RunRow {
        run: stored::snapshot(id, row.get(9)?, &snapshot)?,
        status: codes::run_status::read(row.get(1)?)?,
        epoch: row.get::<_, i64>(2)? as u64,
        next_seq: row.get::<_, i64>(3)? as u64,
        step_seq: row.get::<_, i64>(4)? as u64,
        committed_round: row.get(5)?,
        created_at: from_ms(row.get(6)?),
        previous: row.get::<_, Option<[u8; 16]>>(7)?.map(|id| RunId(uuid::Uuid::from_bytes(id))),
        tool_set: row.get(8)?,
    })
}

impl Reader {
    pub(super) fn row(&self, tenant: i64, run: RunId) -> Result<Option<RunRow>> {
        let sql = format!("SELECT {RUN_COLUMNS} FROM run WHERE tenant = ?1 AND id = ?2");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let found = statement.query_row(params![tenant, run.0.as_bytes()], |row| Ok(run_row(row)));
        found.optional()?.transpose()
    }

    pub(super) fn request(&self, tenant: i64, id: RequestId) -> Result<Option<Request>> {
        let mut statement = self.connection.prepare_cached(select_request!("id = ?1"))?;
        let found = statement
            .query_row([id.0.as_bytes()], |row| Ok((row.get::<_, i64>(0)?, rows::request(row))))
            .optional()?;
        match found {
            Some((owner, request)) if owner == tenant => Ok(Some(request?)),
            Some(_) | None => Ok(None),
        }
    }

    pub(super) fn head(&mut self, tenant: i64, id: RequestId) -> Result<Option<RequestHead>> {
        let Some(request) = self.request(tenant, id)? else { return Ok(None) };
        let loaded =
            if request.is_open() { stored::unless_newer(self.load(tenant, request.run()))? } else { None };
        Ok(Some(request.head(loaded)))
    }

    /// Entries of a run's journal after an event, in order, until there is enough.
    fn entries(
        &self,
        tenant: i64,
        run: RunId,
        after: u64,
        mut each: impl FnMut(u64, Entry<'_>) -> Result<bool>,
    ) -> Result<()> {
        let sql = "SELECT seq, body FROM journal WHERE tenant = ?1 AND run = ?2 AND seq > ?3 ORDER BY seq";
        let mut statement = self.connection.prepare_cached(sql)?;
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![tenant, run.0.as_bytes(), after])?;
        while let Some(row) = rows.next()? {
            let seq = row.get::<_, i64>(0)? as u64;
            let body = row.get_ref(1)?.as_blob().map_err(|error| Error::Corrupt(error.to_string()));
            let more = body.and_then(|body| each(seq, Entry::of(run, body)));
            if !more.map_err(|error| error.about(format_args!("run {run}, what ends with event {seq}")))? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn load(&mut self, tenant: i64, run: RunId) -> Result<Option<Loaded>> {
        let Some(row) = self.row(tenant, run)? else { return Ok(None) };
        let mut facts = Vec::new();
        self.entries(tenant, run, row.step_seq.saturating_sub(1), |_, entry| {
            facts.extend(entry.facts()?);
            Ok(true)
        })?;
        let facts = facts
            .into_iter()
            .map(|fact| stored::fact(fact, |id| self.request(tenant, id)))
            .collect::<Result<_>>()?;
        Ok(Some(Loaded {
            open: self.open_round(tenant, run, row.run.round())?,
            facts,
            tools: self.tools(row.tool_set)?,
            epoch: row.epoch,
            next_seq: row.next_seq,
            committed_round: row.committed_round,
            created_at: row.created_at,
            run: row.run,
        }))
    }

    /// The messages of the round in progress.
    fn open_round(&self, tenant: i64, run: RunId, round: u32) -> Result<Vec<(u32, Arc<Message>)>> {
        let late = self.messages_from(tenant, run, round)?.into_iter();
        Ok(late.filter(|(at, _, _)| *at == round).map(|(_, slot, message)| (slot, message)).collect())
    }

    /// The messages of a run from a round on, in order. Read backwards until one of a round before it: what is older is
    /// not looked at, however long the run is.
    fn messages_from(&self, tenant: i64, run: RunId, round: u32) -> Result<Vec<(u32, u32, Arc<Message>)>> {
        let sql = "SELECT body FROM journal WHERE tenant = ?1 AND run = ?2 ORDER BY seq DESC";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![tenant, run.0.as_bytes()])?;
        let mut late = Vec::new();
        let mut older = false;
        while let Some(row) = rows.next()?.filter(|_| !older) {
            let body = row.get_ref(0)?.as_blob().map_err(|error| Error::Corrupt(error.to_string()))?;
            let messages = Entry::of(run, body).messages()?;
            older = messages.iter().any(|(at, _, _)| *at < round);
            late.extend(messages.into_iter().filter(|(at, _, _)| *at >= round));
        }
        // The answers of a round are written as they come, and read in the order of the calls.
        late.sort_by_key(|(round, slot, _)| (*round, *slot));
        Ok(late)
    }

    fn tools(&mut self, tool_set: Option<i64>) -> Result<Arc<[ToolDefinition]>> {
        let Some(id) = tool_set else { return Ok(Arc::from([])) };
        if let Some(tools) = self.tool_sets.get(&id) {
            return Ok(Arc::clone(tools));
        }
        let mut statement = self.connection.prepare_cached("SELECT tools FROM tool_set WHERE id = ?1")?;
        let body: Vec<u8> = statement.query_row([id], |row| row.get(0))?;
        let body = compact::unpress(&body)?;
        let tools: Arc<[ToolDefinition]> = serde_json::from_slice(&body)
            .map_err(|error| Error::Corrupt(format!("tool set {id}: {error}")))?;
        if self.tool_sets.len() >= TOOL_SETS_MAX {
            self.tool_sets.clear();
        }
        self.tool_sets.insert(id, Arc::clone(&tools));
        Ok(tools)
    }

    pub(super) fn history(
        &self,
        tenant: i64,
        conversation: &ConversationId,
        run: RunId,
        after: Option<u32>,
    ) -> Result<Vec<Arc<Message>>> {
        let Some(row) = self.row(tenant, run)?.filter(|row| row.run.conversation() == conversation) else {
            return Ok(Vec::new());
        };
        if let Some(round) = after {
            let late = self.messages_from(tenant, run, round.saturating_add(1))?.into_iter();
            let committed = late.filter(|(round, _, _)| *round <= row.committed_round);
            return Ok(committed.map(|(_, _, message)| message).collect());
        }
        // Each run knows the one before it: collected backwards, read forwards.
        let mut chain = vec![(run, row.committed_round)];
        let mut previous = row.previous;
        let sql = "SELECT committed_round, previous FROM run WHERE tenant = ?1 AND id = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        while let Some(id) = previous {
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, Option<[u8; 16]>>(1)?));
            let found = statement.query_row(params![tenant, id.0.as_bytes()], read).optional()?;
            let Some((committed, before)) = found else { break };
            chain.push((id, committed));
            previous = before.map(|id| RunId(uuid::Uuid::from_bytes(id)));
        }
        let mut history = Vec::new();
        for (run, committed) in chain.into_iter().rev() {
            let mut messages = Vec::new();
            self.entries(tenant, run, 0, |_, entry| {
                messages.extend(entry.messages()?.into_iter().filter(|(round, _, _)| *round <= committed));
                Ok(true)
            })?;
            // The answers of a round are written as they come, and read in the order of the calls.
            messages.sort_by_key(|(round, slot, _)| (*round, *slot));
            history.extend(messages.into_iter().map(|(_, _, message)| message));
        }
        Ok(history)
    }

    pub(super) fn events(
        &self,
        tenant: i64,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Option<NumberedEvents>> {
        let mut statement =
            self.connection.prepare_cached("SELECT 1 FROM run WHERE tenant = ?1 AND id = ?2")?;
        if !statement.exists(params![tenant, run.0.as_bytes()])? {
            return Ok(None);
        }
        let mut events = Vec::new();
        self.entries(tenant, run, after, |last, entry| {
            let entry = entry.events()?;
            let first = last + 1 - entry.len() as u64;
            let numbered = (first..).zip(entry).filter(|(seq, _)| *seq > after);
            events.extend(numbered.map(|(seq, json)| (seq, Arc::from(json))));
            Ok(events.len() < limit)
        })?;
        events.truncate(limit);
        Ok(Some(events))
    }

    /// The event with this number.
    pub(super) fn event(&self, tenant: i64, run: RunId, seq: u64) -> Result<String> {
        let mut found = None;
        self.entries(tenant, run, seq.saturating_sub(1), |last, entry| {
            let events = entry.events()?;
            let first = last + 1 - events.len() as u64;
            found = (first..).zip(events).find(|(at, _)| *at == seq).map(|(_, json)| json);
            Ok(false)
        })?;
        found.ok_or_else(|| Error::Corrupt(format!("event {seq} of run {run} is gone")))
    }

    pub(super) fn pending_of(&self, tenant: i64, run: RunId) -> Result<Vec<Pending>> {
        let sql = select_request!("tenant = ?1 AND run = ?2 AND status = 0 ORDER BY seq");
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![tenant, run.0.as_bytes()])?;
        let mut pending = Vec::new();
        while let Some(row) = rows.next()? {
            let Some(request) = stored::readable(rows::request(row).map_err(Error::from))? else { continue };
            pending.push(Pending { request_id: request.id, call_id: request.call, kind: request.kind });
        }
        Ok(pending)
    }

    /// What is shown of a run.
    pub(super) fn view(&self, tenant: i64, row: &RunRow) -> Result<RunView> {
        let id = row.run.id();
        let last = match row.status {
            RunStatus::Finished | RunStatus::Failed => {
                let json = self.event(tenant, id, row.next_seq - 1)?;
                let event = Event::from_json(None, &json);
                Some(
                    event
                        .map_err(|error| Error::Corrupt(format!("the last event of run {id}: {error}")))?
                        .body,
                )
            }
            RunStatus::Running | RunStatus::Suspended | RunStatus::Cancelling | RunStatus::Quarantined => {
                None
            }
        };
        let last = last.filter(|body| matches!(body, EventBody::Finish(_) | EventBody::Error(_)));
        let pending = if last.is_none() { self.pending_of(tenant, id)? } else { Vec::new() };
        views::run(&row.run, row.status, row.created_at, pending, last.as_ref())
    }

    fn records(&self, tenant: i64, run: RunId) -> Result<Vec<Kept>> {
        let mut kept = Vec::new();
        // From before the first event: a journal whose rows were renumbered is still read whole.
        let sql = "SELECT body FROM journal WHERE tenant = ?1 AND run = ?2 ORDER BY seq";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![tenant, run.0.as_bytes()])?;
        while let Some(row) = rows.next()? {
            let body = row.get_ref(0)?.as_blob().map_err(|error| Error::Corrupt(error.to_string()))?;
            kept.extend(Entry::of(run, body).audit()?);
        }
        Ok(kept)
    }

    pub(super) fn audit(&self, tenant: i64, run: RunId, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
        Ok(chain::rows(run, self.records(tenant, run)?, after, limit))
    }

    pub(super) fn verify(&self, tenant: i64, run: RunId) -> Result<Option<ChainCheck>> {
        let sql = "SELECT audit_records, audit_hash FROM run WHERE tenant = ?1 AND id = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let read =
            |row: &Row<'_>| Ok(chain::Head { records: row.get::<_, i64>(0)? as u64, hash: row.get(1)? });
        let head = statement.query_row(params![tenant, run.0.as_bytes()], read).optional()?;
        let Some(head) = head else { return Ok(None) };
        Ok(Some(chain::verify(self.records(tenant, run)?, &head)))
    }
}
