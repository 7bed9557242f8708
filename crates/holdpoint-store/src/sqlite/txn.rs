//! What an operation sees of the transaction it is done in.

use std::collections::HashMap;
use std::sync::Arc;

use holdpoint_core::digest::DefinitionDigest;
use holdpoint_core::run::AuditRecord;
use holdpoint_protocol::{ActorId, Event, EventBody, RequestId, RunId, RunStatus, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::error::Fault;
use super::rows::{self, select_request};
use crate::chain::{self, ms};
use crate::clock::{Clock, from_ms};
use crate::codes;
use crate::compact::{EntryBuilder, FactRef};
use crate::facts::{CancelNote, Request};
use crate::version::snapshot_version;
use crate::{Context, Error, Owner};

pub(super) type Done<T> = std::result::Result<T, Fault>;

/// What the writer remembers from one transaction to the next. Dropped when one is rolled back.
#[derive(Debug)]
pub(super) struct Caches {
    /// Which life of the database this is: the owner that this process writes.
    pub(super) incarnation: i64,
    pub(super) pending_max: u64,
    tenants: HashMap<TenantId, i64>,
    names: HashMap<i64, TenantId>,
    /// Open requests by tenant.
    pending: HashMap<i64, u64>,
    pub(super) tool_sets: HashMap<DefinitionDigest, i64>,
}

impl Caches {
    pub(super) fn new(incarnation: i64, pending_max: u64) -> Self {
        Self {
            incarnation,
            pending_max,
            tenants: HashMap::new(),
            names: HashMap::new(),
            pending: HashMap::new(),
            tool_sets: HashMap::new(),
        }
    }

    pub(super) fn forget(&mut self) {
        self.tenants.clear();
        self.names.clear();
        self.pending.clear();
        self.tool_sets.clear();
    }
}

/// A run's row without its snapshot, as the writer needs it.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) tenant: i64,
    pub(super) id: RunId,
    pub(super) status: RunStatus,
    pub(super) owner: Option<i64>,
    pub(super) epoch: u64,
    pub(super) next_seq: u64,
    pub(super) open: u32,
    pub(super) committed_round: u32,
    pub(super) cancel: Option<CancelNote>,
    pub(super) claims: u32,
    /// Written by a newer version, and not to be taken.
    pub(super) is_newer: bool,
    pub(super) actor: ActorId,
    pub(super) tool_set: Option<i64>,
    pub(super) chain: chain::Head,
}

impl Head {
    /// This process carries it on from now on, at the next epoch. It waits no longer, even though its next step is still
    /// to come.
    pub(super) fn own(&mut self, me: i64) {
        self.owner = Some(me);
        self.epoch += 1;
        if self.status == RunStatus::Suspended {
            self.status = RunStatus::Running;
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        match self.status {
            RunStatus::Finished | RunStatus::Failed => true,
            RunStatus::Running | RunStatus::Suspended | RunStatus::Cancelling | RunStatus::Quarantined => {
                false
            }
        }
    }
}

/// A transaction.
pub(super) struct Txn<'a> {
    connection: &'a Connection,
    pub(super) caches: &'a mut Caches,
    clock: &'a dyn Clock,
}

impl<'a> Txn<'a> {
    pub(super) fn new(connection: &'a Connection, caches: &'a mut Caches, clock: &'a dyn Clock) -> Self {
        Self { connection, caches, clock }
    }

    /// Now. Operations are done one after the other, so nothing is compared with a time before that of the write before.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute(params)
    }

    pub(super) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.connection.prepare_cached(sql)?.query_row(params, read).optional()
    }

    pub(super) fn many<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.connection.prepare_cached(sql)?.query_map(params, read)?.collect()
    }

    /// A tenant's number, if it has been seen before.
    pub(super) fn tenant(&mut self, tenant: &TenantId) -> Done<Option<i64>> {
        if let Some(id) = self.caches.tenants.get(tenant) {
            return Ok(Some(*id));
        }
        let id = self.one("SELECT id FROM tenant WHERE name = ?1", [tenant.as_str()], |row| row.get(0))?;
        if let Some(id) = id {
            self.caches.tenants.insert(tenant.clone(), id);
        }
        Ok(id)
    }

    /// A tenant's number; a new one gets the next.
    pub(super) fn tenant_or_new(&mut self, tenant: &TenantId) -> Done<i64> {
        if let Some(id) = self.tenant(tenant)? {
            return Ok(id);
        }
        let sql = "INSERT INTO tenant (name) VALUES (?1) RETURNING id";
        let id = self.one(sql, [tenant.as_str()], |row| row.get(0))?;
        let id = id.ok_or_else(|| Error::Corrupt("a tenant without a number".into()))?;
        self.caches.tenants.insert(tenant.clone(), id);
        Ok(id)
    }

    fn tenant_name(&mut self, id: i64) -> Done<TenantId> {
        if let Some(name) = self.caches.names.get(&id) {
            return Ok(name.clone());
        }
        let name: Option<String> =
            self.one("SELECT name FROM tenant WHERE id = ?1", [id], |row| row.get(0))?;
        let name = name.and_then(|name| TenantId::new(&name).ok());
        let name = name.ok_or_else(|| Error::Corrupt(format!("there is no tenant {id}")))?;
        self.caches.names.insert(id, name.clone());
        Ok(name)
    }

    /// Open requests of a tenant.
    pub(super) fn pending(&mut self, tenant: i64) -> Done<u64> {
        if let Some(pending) = self.caches.pending.get(&tenant) {
            return Ok(*pending);
        }
        let sql = "SELECT count(*) FROM request WHERE tenant = ?1 AND status = 0";
        let pending: i64 = self.one(sql, [tenant], |row| row.get(0))?.unwrap_or(0);
        let pending = u64::try_from(pending).unwrap_or(0);
        self.caches.pending.insert(tenant, pending);
        Ok(pending)
    }

    /// Notes how many requests of a tenant opened and closed, where they are being counted.
    pub(super) fn pending_changed(&mut self, tenant: i64, opened: usize, closed: usize) {
        if let Some(pending) = self.caches.pending.get_mut(&tenant) {
            *pending = (*pending + opened as u64).saturating_sub(closed as u64);
        }
    }

    pub(super) fn head(&self, tenant: i64, run: RunId) -> Done<Option<Head>> {
        let sql = "SELECT status, owner, epoch, next_seq, open, committed_round, cancel, claims, actor, tool_set, \
                   audit_records, audit_hash, cancel_by, cancel_at, snapshot_version FROM run WHERE tenant = ?1 AND id = ?2";
        let found =
            self.one(sql, params![tenant, run.0.as_bytes()], |row| Ok(read_head(tenant, run, row)))?;
        found.transpose()
    }

    /// A request of a tenant.
    pub(super) fn request(&self, tenant: i64, id: RequestId) -> Done<Option<Request>> {
        let sql = select_request!("id = ?1");
        let found =
            self.one(sql, [id.0.as_bytes()], |row| Ok((row.get::<_, i64>(0)?, rows::request(row))))?;
        match found {
            Some((owner, read)) if owner == tenant => Ok(Some(read?)),
            Some(_) | None => Ok(None),
        }
    }

    /// Adds an entry with this many events to a run's journal, and moves its numbers on.
    pub(super) fn append(&self, head: &mut Head, entry: EntryBuilder, events: usize) -> Done<()> {
        if entry.is_empty() {
            return Ok(());
        }
        let body = entry.finish();
        let run = head.id.0.as_bytes();
        head.next_seq += events as u64;
        let seq = (head.next_seq - 1) as i64;
        if events == 0 {
            // It says nothing to watchers and has no number of its own: it goes to the end of the newest entry.
            let sql = "SELECT body FROM journal WHERE tenant = ?1 AND run = ?2 AND seq = ?3";
            let newest = self.one(sql, params![head.tenant, run, seq], |row| row.get::<_, Vec<u8>>(0))?;
            if let Some(mut joined) = newest {
                joined.extend_from_slice(&body);
                let sql = "UPDATE journal SET body = ?4 WHERE tenant = ?1 AND run = ?2 AND seq = ?3";
                self.execute(sql, params![head.tenant, run, seq, joined])?;
                return Ok(());
            }
        }
        let sql = "INSERT INTO journal (tenant, run, seq, body) VALUES (?1, ?2, ?3, ?4)";
        self.execute(sql, params![head.tenant, run, seq, body])?;
        Ok(())
    }

    /// Appends what happened to a run from outside: its event, its record, and the fact for the run's next step.
    pub(super) fn append_fact(
        &self,
        head: &mut Head,
        body: EventBody,
        record: &AuditRecord,
        fact: Option<&FactRef>,
        now: Timestamp,
    ) -> Done<Arc<Event>> {
        let event = Arc::new(Event { seq: Some(head.next_seq), run_id: head.id, child: None, body });
        let mut entry = EntryBuilder::content(head.id, std::slice::from_ref(&event), &[])?;
        entry.audit(head.id, &mut head.chain, ms(now), &chain::text_of(record)?);
        if let Some(fact) = fact {
            entry.fact(fact);
        }
        self.append(head, entry, 1)?;
        Ok(event)
    }

    /// Appends a record that comes without an event.
    pub(super) fn append_record(&self, head: &mut Head, record: &AuditRecord, now: Timestamp) -> Done<()> {
        let mut entry = EntryBuilder::default();
        entry.audit(head.id, &mut head.chain, ms(now), &chain::text_of(record)?);
        self.append(head, entry, 0)?;
        let sql = "UPDATE run SET audit_records = ?3, audit_hash = ?4 WHERE tenant = ?1 AND id = ?2";
        let (records, hash) = (head.chain.records as i64, head.chain.hash);
        self.execute(sql, params![head.tenant, head.id.0.as_bytes(), records, hash])?;
        Ok(())
    }

    /// Writes a row whose numbers a fact has moved on. A run without an owner that lives is taken in the same statement; one
    /// that this version cannot read is left for whoever can.
    pub(super) fn noted(&self, head: &mut Head) -> Done<Owner> {
        let me = self.caches.incarnation;
        let id = head.id;
        let run = id.0.as_bytes();
        if head.owner == Some(me) {
            self.moved_on(head)?;
            return Ok(Owner::Here);
        }
        if head.is_newer {
            self.moved_on(head)?;
            let sql = "UPDATE run SET owner = 0, wake_at = 0 WHERE tenant = ?1 AND id = ?2 AND owner IS NULL";
            self.execute(sql, params![head.tenant, run])?;
            return Ok(Owner::Newer);
        }
        let (next_seq, records) = (head.next_seq as i64, head.chain.records as i64);
        head.own(me);
        let sql = "UPDATE run SET next_seq = ?3, open = ?4, audit_records = ?5, audit_hash = ?6, \
                   owner = ?7, wake_at = NULL, epoch = ?8, status = ?9 WHERE tenant = ?1 AND id = ?2";
        self.execute(
            sql,
            params![
                head.tenant,
                run,
                next_seq,
                head.open,
                records,
                head.chain.hash,
                me,
                head.epoch as i64,
                codes::run_status::code(head.status),
            ],
        )?;
        Ok(Owner::Taken)
    }

    /// Writes a row whose numbers have moved on, and leaves whoever owns it.
    pub(super) fn moved_on(&self, head: &Head) -> Done<()> {
        let sql = "UPDATE run SET next_seq = ?3, open = ?4, audit_records = ?5, audit_hash = ?6 \
                   WHERE tenant = ?1 AND id = ?2";
        let (next_seq, records) = (head.next_seq as i64, head.chain.records as i64);
        let id = head.id.0.as_bytes();
        self.execute(sql, params![head.tenant, id, next_seq, head.open, records, head.chain.hash])?;
        Ok(())
    }

    pub(super) fn cx(&mut self, head: &Head) -> Done<Context> {
        Ok(Context { tenant: self.tenant_name(head.tenant)?, actor: head.actor.clone() })
    }
}

fn read_head(tenant: i64, id: RunId, row: &Row<'_>) -> Done<Head> {
    let actor: String = row.get(8)?;
    Ok(Head {
        tenant,
        id,
        status: codes::run_status::read(row.get(0)?)?,
        owner: row.get(1)?,
        epoch: row.get::<_, i64>(2)? as u64,
        next_seq: row.get::<_, i64>(3)? as u64,
        open: row.get(4)?,
        committed_round: row.get(5)?,
        cancel: read_cancel(row)?,
        claims: row.get(7)?,
        is_newer: row.get::<_, u32>(14)? > snapshot_version(),
        actor: ActorId::new(&actor).map_err(|_| Error::Corrupt(format!("run {id} has no actor")))?,
        tool_set: row.get(9)?,
        chain: chain::Head { records: row.get::<_, i64>(10)? as u64, hash: row.get(11)? },
    })
}

fn read_cancel(row: &Row<'_>) -> Done<Option<CancelNote>> {
    let (kind, by, at): (Option<i64>, Option<String>, Option<i64>) =
        (row.get(6)?, row.get(12)?, row.get(13)?);
    let (Some(kind), Some(by), Some(at)) = (kind, by, at) else { return Ok(None) };
    let by = ActorId::new(&by).map_err(|_| Error::Corrupt("a name".into()))?;
    Ok(Some(CancelNote { kind: codes::cancel::read(kind)?, by, at: from_ms(at) }))
}
