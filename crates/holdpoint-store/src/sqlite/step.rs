//! Starts and steps: what a run's owner writes.

use holdpoint_core::digest::CallDigest;
use holdpoint_core::run::{LedgerLine, Opened};
use holdpoint_protocol::{InteractionStatus, Pending, RunId, Timestamp};
use rusqlite::params;

use super::rows;
use super::txn::{Done, Head, Txn};
use crate::chain::{self, ms};
use crate::codes;
use crate::compact;
use crate::facts::{self, Closure};
use crate::prepared::Prepared;
use crate::stored;
use crate::version::snapshot_version;
use crate::{Committed, Context, Error, IdempotencyKey, KeyUse, Next, Started, ToolSet};

impl Txn<'_> {
    pub(super) fn start(
        &mut self,
        cx: &Context,
        new: &Prepared,
        key: Option<&IdempotencyKey>,
    ) -> Done<Started> {
        let now = self.now();
        if let Some(key) = key {
            match self.look_up(cx, key, now)? {
                KeyUse::Run(run) => return Ok(Started::Existing { run }),
                KeyUse::Reused | KeyUse::Answered(_) | KeyUse::Pending => return Ok(Started::KeyReused),
                KeyUse::New => {}
            }
        }
        let tenant = self.tenant(&cx.tenant)?;
        let mut previous = None;
        if let Some(tenant) = tenant {
            let sql = "SELECT actor, last_run FROM conversation WHERE tenant = ?1 AND name = ?2";
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, rows::run_id(row, 1)?));
            if let Some((actor, last)) = self.one(sql, params![tenant, new.conversation], read)? {
                if actor != cx.actor.as_str() {
                    return Ok(Started::NotYours);
                }
                if self.head(tenant, last)?.is_some_and(|head| !head.has_ended()) {
                    return Ok(Started::Open { run: last, pending: self.pending_of(tenant, last)? });
                }
                previous = Some(last);
            }
            let pending = self.pending(tenant)?;
            if pending >= self.caches.pending_max {
                return Ok(Started::Full { pending });
            }
            if self.head(tenant, new.run)?.is_some() {
                return Err(Error::Inconsistent(format!("run {} was started before", new.run)).into());
            }
        }
        let mut head = Head {
            tenant: tenant.unwrap_or(0),
            id: new.run,
            status: new.status,
            owner: None,
            epoch: 1,
            next_seq: 1,
            open: 0,
            committed_round: 0,
            cancel: None,
            claims: 0,
            is_newer: false,
            actor: cx.actor.clone(),
            tool_set: None,
            chain: chain::Head::EMPTY,
        };
        self.check(&head, new)?;

        head.tenant = self.tenant_or_new(&cx.tenant)?;
        self.insert_conversation(&head, new, previous.is_some())?;
        if let Some(key) = key {
            self.insert_key(cx, head.tenant, key, now, Some(new.run))?;
        }
        self.write_rows(&mut head, new, now)?;
        self.insert_run(&head, new, previous, now)?;
        Ok(Started::Created { at: now, previous })
    }

    pub(super) fn commit(
        &mut self,
        cx: &Context,
        new: &Prepared,
        epoch: u64,
        expected_seq: u64,
    ) -> Done<Committed> {
        let now = self.now();
        let Some(tenant) = self.tenant(&cx.tenant)? else { return Ok(Committed::Fenced) };
        let Some(mut head) = self.head(tenant, new.run)? else { return Ok(Committed::Fenced) };
        if head.owner != Some(self.caches.incarnation) || head.epoch != epoch {
            return Ok(Committed::Fenced);
        }
        if head.next_seq != expected_seq {
            return Ok(Committed::Moved);
        }
        self.check(&head, new)?;
        self.write_step(&mut head, new, now)?;
        Ok(Committed::Done { next_seq: head.next_seq })
    }

    /// Writes a step that was checked.
    pub(super) fn write_step(&mut self, head: &mut Head, new: &Prepared, now: Timestamp) -> Done<()> {
        self.write_rows(head, new, now)?;
        self.update_run(head, new, now)
    }

    /// What a step says that what is stored contradicts. Looked for before anything is written.
    pub(super) fn check(&self, head: &Head, new: &Prepared) -> Done<()> {
        for closed in &new.closed {
            let request = self.request(head.tenant, closed.request)?;
            crate::writes::check_closed(new.run, closed.request, request.as_ref())?;
        }
        let open = head.open as usize + new.opened.len();
        crate::writes::check_end(new.run, new.next, open, new.closed.len())?;
        for line in &new.executions {
            let LedgerLine::Started { call, attempt, digest, request: Some(id), .. } = line else { continue };
            let request = self.request(head.tenant, *id)?;
            if !request.is_some_and(|request| facts::releases(&request, *call, digest)) {
                let what =
                    format!("no stored decision of request {id} releases attempt {attempt} of call {call}");
                return Err(Error::Inconsistent(what).into());
            }
        }
        Ok(())
    }

    /// Everything but the run's own row.
    fn write_rows(&mut self, head: &mut Head, new: &Prepared, now: Timestamp) -> Done<()> {
        let first_seq = head.next_seq;
        for closed in &new.closed {
            let (status, closure) = facts::closed_by_run(closed.request, closed.why, &new.events, now);
            let seq = self.request(head.tenant, closed.request)?.map_or(0, |request| request.seq);
            self.close_request(head, seq, status, &closure)?;
        }
        for opened in &new.opened {
            self.insert_request(head, opened, first_seq + opened.event as u64, now)?;
        }
        for line in &new.executions {
            self.write_execution(head, line, now)?;
        }
        head.open = (head.open + new.opened.len() as u32).saturating_sub(new.closed.len() as u32);
        self.pending_changed(head.tenant, new.opened.len(), new.closed.len());
        head.committed_round = new.committed_round.unwrap_or(head.committed_round);
        if let Some(tools) = &new.tools {
            head.tool_set = Some(self.tool_set(tools)?);
        }
        let mut entry = new.content.clone();
        for record in &new.audit {
            entry.audit(head.id, &mut head.chain, ms(now), record);
        }
        self.append(head, entry, new.events.len())
    }

    fn insert_conversation(&self, head: &Head, new: &Prepared, known: bool) -> Done<()> {
        if known {
            let sql = "UPDATE conversation SET last_run = ?3 WHERE tenant = ?1 AND name = ?2";
            self.execute(sql, params![head.tenant, new.conversation, new.run.0.as_bytes()])?;
        } else {
            let sql = "INSERT INTO conversation (tenant, name, actor, last_run) VALUES (?1, ?2, ?3, ?4)";
            let actor = head.actor.as_str();
            self.execute(sql, params![head.tenant, new.conversation, actor, new.run.0.as_bytes()])?;
        }
        Ok(())
    }

    fn insert_run(&self, head: &Head, new: &Prepared, previous: Option<RunId>, now: Timestamp) -> Done<()> {
        let (owner, wake_at) = self.left(new.next, now);
        let sql = "INSERT INTO run (tenant, id, status, owner, wake_at, epoch, next_seq, step_seq, open, \
                   committed_round, claims, created_at, actor, previous, tool_set, audit_records, audit_hash, \
                   snapshot_version, snapshot) \
                   VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6, ?7, ?8, 0, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
        self.execute(
            sql,
            params![
                head.tenant,
                head.id.0.as_bytes(),
                codes::run_status::code(new.status),
                owner,
                wake_at,
                head.next_seq as i64,
                head.open,
                head.committed_round,
                ms(now),
                head.actor.as_str(),
                previous.map(|run| *run.0.as_bytes()),
                head.tool_set,
                head.chain.records as i64,
                head.chain.hash,
                snapshot_version(),
                new.snapshot,
            ],
        )?;
        Ok(())
    }

    /// A step that keeps the run leaves the owner's columns alone, and with them their index.
    fn update_run(&self, head: &Head, new: &Prepared, now: Timestamp) -> Done<()> {
        let keeps = "UPDATE run SET status = ?3, next_seq = ?4, step_seq = ?4, open = ?5, committed_round = ?6, \
                     claims = claims * ?12, tool_set = ?7, audit_records = ?8, audit_hash = ?9, snapshot_version = ?10, \
                     snapshot = ?11 WHERE tenant = ?1 AND id = ?2";
        let leaves = "UPDATE run SET status = ?3, next_seq = ?4, step_seq = ?4, open = ?5, committed_round = ?6, \
                      claims = claims * ?14, tool_set = ?7, audit_records = ?8, audit_hash = ?9, snapshot_version = ?10, \
                      snapshot = ?11, owner = ?12, wake_at = ?13 WHERE tenant = ?1 AND id = ?2";
        let id = head.id.0.as_bytes();
        let claims_stay = i64::from(!new.progress);
        let status = codes::run_status::code(new.status);
        let (next_seq, records) = (head.next_seq as i64, head.chain.records as i64);
        let hash = head.chain.hash;
        let (open, round, tools) = (head.open, head.committed_round, head.tool_set);
        if new.next == Next::Keep {
            self.execute(
                keeps,
                params![
                    head.tenant,
                    id,
                    status,
                    next_seq,
                    open,
                    round,
                    tools,
                    records,
                    hash,
                    snapshot_version(),
                    new.snapshot,
                    claims_stay
                ],
            )?;
        } else {
            let (owner, wake_at) = self.left(new.next, now);
            self.execute(
                leaves,
                params![
                    head.tenant,
                    id,
                    status,
                    next_seq,
                    open,
                    round,
                    tools,
                    records,
                    hash,
                    snapshot_version(),
                    new.snapshot,
                    owner,
                    wake_at,
                    claims_stay
                ],
            )?;
        }
        Ok(())
    }

    fn left(&self, next: Next, now: Timestamp) -> (Option<i64>, Option<i64>) {
        match next {
            Next::Keep => (Some(self.caches.incarnation), None),
            Next::Suspend | Next::End => (None, None),
            Next::Later(after) => (Some(0), Some(ms(crate::clock::after(now, after)))),
        }
    }

    fn insert_request(&self, head: &Head, opened: &Opened, seq: u64, now: Timestamp) -> Done<()> {
        let sql = "INSERT INTO request (tenant, run, seq, id, round, call, kind, revision, digest, deadline, opened_at, \
                   status, on_timeout, wait_until, escalate_at, terms) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 0, ?12, ?13, ?14, ?15)";
        let terms = &opened.terms;
        self.execute(
            sql,
            params![
                head.tenant,
                head.id.0.as_bytes(),
                seq as i64,
                opened.request.0.as_bytes(),
                opened.call.round,
                opened.call.index,
                codes::request_kind::code(opened.kind),
                opened.revision,
                opened.digest.as_bytes(),
                terms.expires_at().map(ms),
                ms(now),
                codes::on_timeout(terms.on_timeout(opened.kind)),
                terms.waits_until().map(ms),
                terms.first_reminder().map(ms),
                stored::terms_bytes(head.id, terms)?,
            ],
        )?;
        Ok(())
    }

    pub(super) fn close_request(
        &self,
        head: &Head,
        seq: u64,
        status: InteractionStatus,
        closure: &Closure,
    ) -> Done<()> {
        let sql = "UPDATE request SET status = ?4, closure = ?5 WHERE tenant = ?1 AND run = ?2 AND seq = ?3";
        let status = codes::request_status::code(status);
        let closure = compact::write(head.id, closure)?;
        self.execute(sql, params![head.tenant, head.id.0.as_bytes(), seq as i64, status, closure])?;
        Ok(())
    }

    fn write_execution(&self, head: &Head, line: &LedgerLine, now: Timestamp) -> Done<()> {
        let run = head.id.0.as_bytes();
        match line {
            LedgerLine::Started { call, attempt, digest, request, .. } => {
                let digest: &CallDigest = digest;
                let sql = "INSERT INTO execution (tenant, run, round, call, attempt, digest, request, started_at) \
                           VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let request = request.map(|id| *id.0.as_bytes());
                let (round, index) = (call.round, call.index);
                let digest = digest.as_bytes();
                self.execute(
                    sql,
                    params![head.tenant, run, round, index, attempt, digest, request, ms(now)],
                )?;
            }
            LedgerLine::Ended { call, attempt, status, executed } => {
                let sql = "UPDATE execution SET ended_at = ?6, status = ?7, executed = ?8 \
                           WHERE tenant = ?1 AND run = ?2 AND round = ?3 AND call = ?4 AND attempt = ?5";
                let (round, index) = (call.round, call.index);
                let (status, executed) = (status.as_str(), executed.as_str());
                self.execute(
                    sql,
                    params![head.tenant, run, round, index, attempt, ms(now), status, executed],
                )?;
            }
        }
        Ok(())
    }

    /// The number of a tool set; a new one is stored.
    fn tool_set(&mut self, tools: &ToolSet) -> Done<i64> {
        if let Some(id) = self.caches.tool_sets.get(&tools.digest) {
            return Ok(*id);
        }
        let digest = tools.digest.as_bytes();
        let found = self.one("SELECT id FROM tool_set WHERE digest = ?1", [digest], |row| row.get(0))?;
        let id = match found {
            Some(id) => id,
            None => {
                let body =
                    serde_json::to_vec(&*tools.tools).map_err(|error| Error::Corrupt(error.to_string()))?;
                let sql = "INSERT INTO tool_set (digest, tools) VALUES (?1, ?2) RETURNING id";
                let id = self.one(sql, params![digest, compact::press(&body)], |row| row.get(0))?;
                id.ok_or_else(|| Error::Corrupt("a tool set without a number".into()))?
            }
        };
        self.caches.tool_sets.insert(tools.digest, id);
        Ok(id)
    }

    pub(super) fn pending_of(&self, tenant: i64, run: RunId) -> Done<Vec<Pending>> {
        let sql = rows::select_request!("tenant = ?1 AND run = ?2 AND status = 0 ORDER BY seq");
        let found = self.many(sql, params![tenant, run.0.as_bytes()], |row| Ok(rows::request(row)))?;
        found
            .into_iter()
            .map(|request| {
                let request = request?;
                Ok(Pending { request_id: request.id, call_id: request.call, kind: request.kind })
            })
            .collect()
    }
}
