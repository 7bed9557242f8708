//! What a group writes: one statement a table, for all its members.

use std::collections::HashSet;

use holdpoint_core::run::{LedgerLine, Opened};
use holdpoint_protocol::{InstanceId, RunId};
use uuid::Uuid;

use super::PostgresStore;
use super::decide::Happened;
use super::group::Outcome;
use super::key::{self, Kept};
use super::lane::{Column, Rows, column};
use super::rows::{Done, Head};
use crate::chain::ms;
use crate::prepared::Prepared;
use crate::version::snapshot_version;
use crate::{Context, Error, Next, ToolSet, codes, compact, facts, stored};

/// A member that is written: its run's numbers after it, and its journal entry.
pub(super) struct Moved<'a> {
    cx: &'a Context,
    new: &'a Prepared,
    pub(super) head: Head,
    first_seq: u64,
    entry: Vec<u8>,
    owner: Option<Uuid>,
    wake_at: Option<i64>,
    begun: Option<Begun<'a>>,
}

/// What a start writes beside.
pub(super) struct Begun<'a> {
    pub(super) previous: Option<RunId>,
    pub(super) key: Option<Kept<'a>>,
}

impl<'a> Moved<'a> {
    pub(super) fn new(
        cx: &'a Context,
        new: &'a Prepared,
        mut head: Head,
        me: InstanceId,
        begun: Option<Begun<'a>>,
    ) -> Self {
        let first_seq = head.next_seq;
        let mut entry = new.content.clone();
        for record in &new.audit {
            entry.audit(new.run, &mut head.chain, ms(head.now), record);
        }
        head.next_seq += new.events.len() as u64;
        head.open = (head.open + new.opened.len() as u32).saturating_sub(new.closed.len() as u32);
        head.committed_round = new.committed_round.unwrap_or(head.committed_round);
        if let Some(tools) = &new.tools {
            head.tool_digest = Some(tools.digest.as_bytes().to_vec());
        }
        let (owner, wake_at) = match new.next {
            Next::Keep => (Some(me.0), None),
            Next::Suspend | Next::End => (None, None),
            Next::Later(after) => (None, Some(ms(crate::clock::after(head.now, after)))),
        };
        Self { cx, new, head, first_seq, entry: entry.finish(), owner, wake_at, begun }
    }

    fn tenant(&self) -> &'a str {
        self.cx.tenant.as_str()
    }

    fn run(&self) -> Uuid {
        self.new.run.0
    }
}

/// What a member writes.
pub(super) enum Write<'a> {
    Moved(Moved<'a>),
    Happened(Happened<'a>),
    /// A decision with the step that follows from it: the run's row says how it is after both.
    Followed(Happened<'a>, Box<Moved<'a>>),
}

/// What the members of a group write, of each run one.
#[derive(Default)]
pub(super) struct Batch<'a> {
    runs: HashSet<Uuid>,
    moved: Vec<Moved<'a>>,
    happened: Vec<Happened<'a>>,
    followed: Vec<(Happened<'a>, Box<Moved<'a>>)>,
}

impl<'a> Batch<'a> {
    /// Adds what a member writes, if it does. When another one was faster with its run, it goes again by itself.
    pub(super) fn add(&mut self, outcome: Outcome, write: Option<Write<'a>>) -> Outcome {
        let Some(write) = write else { return outcome };
        let run = match &write {
            Write::Moved(moved) => moved.run(),
            Write::Happened(happened) | Write::Followed(happened, _) => happened.run.0,
        };
        if !self.runs.insert(run) {
            return Outcome::Held;
        }
        match write {
            Write::Moved(moved) => self.moved.push(moved),
            Write::Happened(happened) => self.happened.push(happened),
            Write::Followed(happened, moved) => self.followed.push((happened, moved)),
        }
        outcome
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// What each is called at its failpoints.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let moved = self.moved.iter().map(|moved| if moved.begun.is_some() { "start" } else { "commit" });
        moved.chain(self.all_happened().map(|_| "decide"))
    }

    fn all_happened(&self) -> impl Iterator<Item = &Happened<'a>> {
        self.happened.iter().chain(self.followed.iter().map(|(happened, _)| happened))
    }

    /// All statements, in the order in which they are sent.
    pub(super) fn writes(&self, store: &PostgresStore) -> Done<Vec<Rows<'_>>> {
        let (mut steps, starts): (Vec<_>, Vec<_>) =
            self.moved.iter().partition(|moved| moved.begun.is_none());
        // They write their run's row and its journal, and nothing else.
        steps.extend(self.followed.iter().map(|(_, moved)| &**moved));
        let mut writes: Vec<Rows<'_>> = Vec::new();
        writes.extend(self.closed()?);
        writes.extend(self.opened()?);
        writes.extend(self.executions_started());
        writes.extend(self.executions_ended());
        writes.extend(self.tool_sets(store)?);
        writes.extend(conversations(&starts));
        if let Some(first) = starts.first() {
            let keys = starts.iter().filter_map(|moved| moved.begun.as_ref()?.key.as_ref());
            writes.extend(key::store(&keys.collect::<Vec<_>>(), first.head.now));
        }
        writes.extend(runs_begun(&starts));
        writes.extend(runs_moved(&steps));
        writes.extend(runs_happened(&self.happened));
        writes.extend(self.journal());
        Ok(writes)
    }

    /// The tool sets of the members, each with its tenant.
    pub(super) fn tools(&self) -> impl Iterator<Item = (&'a Context, &'a ToolSet)> {
        self.moved.iter().filter_map(|moved| Some((moved.cx, moved.new.tools.as_ref()?)))
    }

    fn closed(&self) -> Done<Option<Rows<'_>>> {
        let mut rows = Vec::new();
        for moved in &self.moved {
            let new = moved.new;
            for closed in &new.closed {
                let (status, closure) =
                    facts::closed_by_run(closed.request, closed.why, &new.events, moved.head.now);
                let status = codes::request_status::code(status) as i16;
                rows.push((moved.tenant(), closed.request.0, status, compact::write(new.run, &closure)?));
            }
        }
        for happened in self.all_happened() {
            if let Some((request, status, closure)) = &happened.closed {
                rows.push((happened.tenant, *request, *status, closure.clone()));
            }
        }
        let sql = "UPDATE request q SET status = k.status, closure = k.closure \
                   FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::bytea[]) AS k(tenant, id, status, closure) \
                   WHERE q.tenant_id = k.tenant AND q.request_id = k.id";
        let columns = vec![
            column(&rows, |row| row.0),
            column(&rows, |row| row.1),
            column(&rows, |row| row.2),
            column(&rows, |row| row.3.clone()),
        ];
        Ok(Rows::some(sql, &rows, columns))
    }

    fn opened(&self) -> Done<Option<Rows<'_>>> {
        let mut rows: Vec<(&Moved<'_>, &Opened, Option<Vec<u8>>)> = Vec::new();
        for moved in &self.moved {
            for opened in &moved.new.opened {
                rows.push((moved, opened, stored::terms_bytes(moved.new.run, &opened.terms)?));
            }
        }
        let sql = "INSERT INTO request (tenant_id, request_id, run_id, seq, round, call, kind, revision, digest, deadline, \
                   opened_at, on_timeout, wait_until, escalate_at, terms, status) \
                   SELECT k.*, 0 FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::integer[], $6::integer[], \
                   $7::smallint[], $8::integer[], $9::bytea[], $10::bigint[], $11::bigint[], $12::smallint[], \
                   $13::bigint[], $14::bigint[], $15::bytea[]) AS k";
        let columns: Vec<Column<'_>> = vec![
            column(&rows, |row| row.0.tenant()),
            column(&rows, |row| row.1.request.0),
            column(&rows, |row| row.0.run()),
            column(&rows, |row| (row.0.first_seq + row.1.event as u64) as i64),
            column(&rows, |row| row.1.call.round as i32),
            column(&rows, |row| row.1.call.index as i32),
            column(&rows, |row| codes::request_kind::code(row.1.kind) as i16),
            column(&rows, |row| row.1.revision as i32),
            column(&rows, |row| row.1.digest.as_bytes().to_vec()),
            column(&rows, |row| row.1.terms.expires_at().map(ms)),
            column(&rows, |row| ms(row.0.head.now)),
            column(&rows, |row| codes::on_timeout(row.1.terms.on_timeout(row.1.kind)) as i16),
            column(&rows, |row| row.1.terms.waits_until().map(ms)),
            column(&rows, |row| row.1.terms.first_reminder().map(ms)),
            column(&rows, |row| row.2.clone()),
        ];
        Ok(Rows::some(sql, &rows, columns))
    }

    fn executions_started(&self) -> Option<Rows<'_>> {
        let lines = self.moved.iter().flat_map(|moved| {
            moved.new.executions.iter().filter_map(move |line| match line {
                LedgerLine::Started { call, attempt, digest, request, .. } => {
                    Some((moved, *call, *attempt, digest.as_bytes().to_vec(), request.map(|id| id.0)))
                }
                LedgerLine::Ended { .. } => None,
            })
        });
        let rows: Vec<_> = lines.collect();
        let sql = "INSERT INTO execution (tenant_id, run_id, round, call, attempt, digest, request_id, started_at) \
                   SELECT * FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::integer[], $5::integer[], $6::bytea[], \
                   $7::uuid[], $8::bigint[])";
        let columns: Vec<Column<'_>> = vec![
            column(&rows, |row| row.0.tenant()),
            column(&rows, |row| row.0.run()),
            column(&rows, |row| row.1.round as i32),
            column(&rows, |row| row.1.index as i32),
            column(&rows, |row| row.2 as i32),
            column(&rows, |row| row.3.clone()),
            column(&rows, |row| row.4),
            column(&rows, |row| ms(row.0.head.now)),
        ];
        Rows::some(sql, &rows, columns)
    }

    fn executions_ended(&self) -> Option<Rows<'_>> {
        let lines = self.moved.iter().flat_map(|moved| {
            moved.new.executions.iter().filter_map(move |line| match line {
                LedgerLine::Ended { call, attempt, status, executed } => {
                    Some((moved, *call, *attempt, status.as_str(), executed.as_str()))
                }
                LedgerLine::Started { .. } => None,
            })
        });
        let rows: Vec<_> = lines.collect();
        let sql = "UPDATE execution x SET ended_at = k.at, status = k.status, executed = k.executed \
                   FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::integer[], $5::integer[], $6::bigint[], $7::text[], \
                   $8::text[]) AS k(tenant, run, round, call, attempt, at, status, executed) \
                   WHERE x.tenant_id = k.tenant AND x.run_id = k.run AND x.round = k.round AND x.call = k.call \
                   AND x.attempt = k.attempt";
        let columns: Vec<Column<'_>> = vec![
            column(&rows, |row| row.0.tenant()),
            column(&rows, |row| row.0.run()),
            column(&rows, |row| row.1.round as i32),
            column(&rows, |row| row.1.index as i32),
            column(&rows, |row| row.2 as i32),
            column(&rows, |row| ms(row.0.head.now)),
            column(&rows, |row| row.3),
            column(&rows, |row| row.4),
        ];
        Rows::some(sql, &rows, columns)
    }

    /// Those that are not known to be stored, each once.
    fn tool_sets(&self, store: &PostgresStore) -> Done<Option<Rows<'_>>> {
        let mut seen = HashSet::new();
        let mut rows = Vec::new();
        for (cx, tools) in self.tools() {
            let digest = tools.digest.as_bytes().to_vec();
            let tenant = cx.tenant.as_str();
            if store.known_tools(&cx.tenant, &digest).is_some() || !seen.insert((tenant, tools.digest)) {
                continue;
            }
            let body =
                serde_json::to_vec(&*tools.tools).map_err(|error| Error::Corrupt(error.to_string()))?;
            rows.push((tenant, digest, compact::press(&body)));
        }
        let sql = "INSERT INTO tool_set (tenant_id, digest, tools) SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[]) \
                   ON CONFLICT DO NOTHING";
        let columns = vec![
            column(&rows, |row| row.0),
            column(&rows, |row| row.1.clone()),
            column(&rows, |row| row.2.clone()),
        ];
        Ok(Rows::some(sql, &rows, columns))
    }

    /// Adds an entry to each run's journal, under the number of its last event. One without events goes to the end of the newest
    /// entry.
    fn journal(&self) -> Option<Rows<'_>> {
        let moved = self.moved.iter().chain(self.followed.iter().map(|(_, moved)| &**moved));
        let moved = moved.map(|moved| (moved.tenant(), moved.run(), &moved.head, &moved.entry));
        let happened = self.all_happened().map(|it| (it.tenant, it.run.0, &it.head, &it.entry));
        let rows: Vec<_> = moved.chain(happened).filter(|(.., entry)| !entry.is_empty()).collect();
        let sql = "INSERT INTO journal AS newest (tenant_id, run_id, seq, body) \
                   SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bytea[]) \
                   ON CONFLICT (tenant_id, run_id, seq) DO UPDATE SET body = newest.body || excluded.body";
        let columns: Vec<Column<'_>> = vec![
            column(&rows, |row| row.0),
            column(&rows, |row| row.1),
            column(&rows, |row| (row.2.next_seq - 1) as i64),
            column(&rows, |row| row.3.as_slice()),
        ];
        Rows::some(sql, &rows, columns)
    }
}

/// The conversations of new runs; the names in order, so that two who make the same ones do not wait for each other.
fn conversations<'a>(starts: &[&'a Moved<'_>]) -> Vec<Rows<'a>> {
    let continues = |moved: &&Moved<'_>| moved.begun.as_ref().is_some_and(|begun| begun.previous.is_some());
    let (known, mut new): (Vec<&Moved<'_>>, Vec<&Moved<'_>>) =
        starts.iter().partition(|moved| continues(moved));
    new.sort_by_key(|moved| (moved.tenant(), &moved.new.conversation));
    let columns = |rows: &[&'a Moved<'_>]| {
        let columns: Vec<Column<'a>> = vec![
            column(rows, |moved| moved.cx.tenant.as_str()),
            column(rows, |moved| moved.new.conversation.as_str()),
            column(rows, |moved| moved.cx.actor.as_str()),
            column(rows, |moved| moved.new.run.0),
        ];
        columns
    };
    let update = "UPDATE conversation c SET last_run = k.run \
                  FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) AS k(tenant, name, actor, run) \
                  WHERE c.tenant_id = k.tenant AND c.name = k.name AND c.actor = k.actor";
    let insert = "INSERT INTO conversation (tenant_id, name, actor, last_run) \
                  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[])";
    Rows::some(update, &known, columns(&known))
        .into_iter()
        .chain(Rows::some(insert, &new, columns(&new)))
        .collect()
}

fn runs_begun<'a>(starts: &[&'a Moved<'_>]) -> Option<Rows<'a>> {
    let sql = "INSERT INTO run (tenant_id, run_id, status, owner, wake_at, next_seq, step_seq, open_requests, \
               committed_round, created_at, actor, previous, tool_digest, audit_records, audit_hash, snapshot_version, \
               snapshot, epoch, claims) \
               SELECT k.tenant, k.run, k.status, k.owner, k.wake_at, k.next_seq, k.next_seq, k.open, k.round, k.at, k.actor, \
               k.previous, k.tools, k.records, k.hash, k.version, k.snapshot, 1, 0 \
               FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::bigint[], $5::integer[], $6::integer[], $7::bytea[], \
               $8::bigint[], $9::bytea[], $10::integer[], $11::bytea[], $12::uuid[], $13::bigint[], $14::bigint[], \
               $15::text[], $16::uuid[]) \
               AS k(tenant, run, status, next_seq, open, round, tools, records, hash, version, snapshot, owner, wake_at, at, \
               actor, previous)";
    let mut columns = numbers(starts);
    columns.push(column(starts, |moved| ms(moved.head.now)));
    columns.push(column(starts, |moved| moved.cx.actor.as_str()));
    columns.push(column(starts, |moved| moved.begun.as_ref()?.previous.map(|run| run.0)));
    Rows::some(sql, starts, columns)
}

fn runs_moved<'a>(steps: &[&'a Moved<'_>]) -> Option<Rows<'a>> {
    let sql = "UPDATE run r SET status = k.status, next_seq = k.next_seq, step_seq = k.next_seq, open_requests = k.open, \
               committed_round = k.round, tool_digest = k.tools, audit_records = k.records, audit_hash = k.hash, \
               snapshot_version = k.version, snapshot = k.snapshot, owner = k.owner, wake_at = k.wake_at, \
               claims = CASE WHEN k.progress THEN 0 ELSE r.claims END \
               FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::bigint[], $5::integer[], $6::integer[], $7::bytea[], \
               $8::bigint[], $9::bytea[], $10::integer[], $11::bytea[], $12::uuid[], $13::bigint[], $14::boolean[]) \
               AS k(tenant, run, status, next_seq, open, round, tools, records, hash, version, snapshot, owner, wake_at, \
               progress) \
               WHERE r.tenant_id = k.tenant AND r.run_id = k.run";
    let mut columns = numbers(steps);
    columns.push(column(steps, |moved| moved.new.progress));
    Rows::some(sql, steps, columns)
}

fn runs_happened<'a>(rows: &'a [Happened<'_>]) -> Option<Rows<'a>> {
    let sql = "UPDATE run r SET status = k.status, next_seq = k.next_seq, open_requests = k.open, audit_records = k.records, \
               audit_hash = k.hash, owner = k.owner, wake_at = k.wake_at, epoch = k.epoch, \
               claims = CASE WHEN r.status = 5 AND k.status <> 5 THEN 0 ELSE r.claims END \
               FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::bigint[], $5::integer[], $6::bigint[], $7::bytea[], \
               $8::uuid[], $9::bigint[], $10::bigint[]) \
               AS k(tenant, run, status, next_seq, open, records, hash, owner, wake_at, epoch) \
               WHERE r.tenant_id = k.tenant AND r.run_id = k.run";
    let columns: Vec<Column<'a>> = vec![
        column(rows, |it| it.tenant.to_owned()),
        column(rows, |it| it.run.0),
        column(rows, |it| it.status),
        column(rows, |it| it.head.next_seq as i64),
        column(rows, |it| it.head.open as i32),
        column(rows, |it| it.head.chain.records as i64),
        column(rows, |it| it.head.chain.hash.to_vec()),
        column(rows, |it| it.head.owner),
        column(rows, |it| it.wake_at),
        column(rows, |it| it.head.epoch as i64),
    ];
    Rows::some(sql, rows, columns)
}

/// What the row of a run says after a step, the first one or any.
fn numbers<'a>(rows: &[&'a Moved<'_>]) -> Vec<Column<'a>> {
    vec![
        column(rows, |moved| moved.cx.tenant.as_str()),
        column(rows, |moved| moved.new.run.0),
        column(rows, |moved| codes::run_status::code(moved.new.status) as i16),
        column(rows, |moved| moved.head.next_seq as i64),
        column(rows, |moved| moved.head.open as i32),
        column(rows, |moved| moved.head.committed_round as i32),
        column(rows, |moved| moved.head.tool_digest.as_deref()),
        column(rows, |moved| moved.head.chain.records as i64),
        column(rows, |moved| moved.head.chain.hash.to_vec()),
        column(rows, |_| snapshot_version() as i32),
        column(rows, |moved| moved.new.snapshot.as_slice()),
        column(rows, |moved| moved.owner),
        column(rows, |moved| moved.wake_at),
    ]
}
