//! Decisions, those of a group at once. The request and its run are locked before the clock is looked at: a deadline that has
//! passed by then has passed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdpoint_protocol::{ActorId, Event, InstanceId, RunId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::batch::{Moved, Write};
use super::group::{Answer, Outcome};
use super::lane::{Rows, column};
use super::rows::{self, Done, Head, head_columns, now};
use super::step::{Stored, locking};
use crate::chain::{self, ms};
use crate::compact::{self, EntryBuilder, FactRef};
use crate::facts::{self, CancelNote, Closing, Judgement, Request};
use crate::prepared::Prepared;
use crate::version::snapshot_version;
use crate::{Context, Decide, DecideReply, Noted, Owner, codes};

/// A decision of a group, by its number in it.
pub(super) struct Deciding<'a> {
    pub(super) n: i32,
    pub(super) cx: &'a Context,
    pub(super) decide: &'a Decide,
    pub(super) step: Option<&'a Prepared>,
}

/// What to ask: the requests, locked if they are open and not late - whoever closes what is late is not kept waiting by somebody
/// who came too late - and their runs, locked.
pub(super) fn asked<'a>(decisions: &[Deciding<'a>], given: Option<i64>, wait: bool) -> [Option<Rows<'a>>; 2] {
    let named = || {
        vec![
            column(decisions, |it| it.n),
            column(decisions, |it| it.cx.tenant.as_str()),
            column(decisions, |it| it.decide.request.0),
        ]
    };
    let lock_requests = locking!(
        wait,
        concat!(
            "SELECT k.n FROM unnest($1::integer[], $2::text[], $3::uuid[]) AS k(n, tenant, id) \
             JOIN request q ON q.tenant_id = k.tenant AND q.request_id = k.id \
             WHERE q.status = 0 AND (q.deadline IS NULL OR q.deadline > ",
            now!("4"),
            ") ORDER BY q.request_id FOR UPDATE OF q"
        )
    );
    let lock_runs = locking!(
        wait,
        concat!(
            "SELECT ",
            head_columns!(),
            ", k.n, r.run_id, r.status, r.wake_at, r.actor, r.cancel, r.cancel_by, r.cancel_at, r.snapshot_version \
             FROM unnest($1::integer[], $2::text[], $3::uuid[]) AS k(n, tenant, id) \
             JOIN request q ON q.tenant_id = k.tenant AND q.request_id = k.id \
             JOIN run r ON r.tenant_id = q.tenant_id AND r.run_id = q.run_id ORDER BY r.run_id FOR UPDATE OF r"
        )
    );
    let mut with_time = named();
    with_time.push(Box::new(given));
    [Rows::some(lock_requests, decisions, with_time), Rows::some(lock_runs, decisions, named())]
}

/// A run that something happens to.
struct Faced {
    run: RunId,
    head: Head,
    status: i16,
    wake_at: Option<i64>,
    actor: ActorId,
    cancel: Option<CancelNote>,
    version: u32,
}

/// What was locked, by the number of the member.
pub(super) struct Found {
    requests: HashSet<i32>,
    runs: HashMap<i32, Faced>,
}

pub(super) fn found([requests, runs]: [Vec<Row>; 2], now: Timestamp) -> Done<Found> {
    let runs = runs.iter().map(|row| {
        let faced = Faced {
            run: RunId(row.try_get(9)?),
            head: rows::head(row, now)?,
            status: row.try_get(10)?,
            wake_at: row.try_get(11)?,
            actor: rows::actor(row.try_get(12)?)?,
            cancel: rows::cancel(row.try_get(13)?, row.try_get(14)?, row.try_get(15)?)?,
            version: rows::small(row.try_get(16)?),
        };
        Ok((row.try_get(8)?, faced))
    });
    let requests = requests.iter().map(|row| Ok(row.try_get(0)?));
    Ok(Found { requests: requests.collect::<Done<_>>()?, runs: runs.collect::<Done<_>>()? })
}

/// What happened to a run, and its numbers after it.
pub(super) struct Happened<'a> {
    pub(super) tenant: &'a str,
    pub(super) run: RunId,
    pub(super) head: Head,
    pub(super) status: i16,
    pub(super) wake_at: Option<i64>,
    pub(super) entry: Vec<u8>,
    /// The request that was closed by it: how, and with what.
    pub(super) closed: Option<(Uuid, i16, Vec<u8>)>,
}

impl<'a> Deciding<'a> {
    /// The step that is written with it: where it follows from what is stored, and writes nothing but its run.
    fn step_after(&self, faced: &Faced) -> Option<&'a Prepared> {
        let head = &faced.head;
        let is_free = head.owner.is_none() && faced.wake_at.is_none() && faced.status != 5;
        let follows = facts::follows(self.decide, is_free, head.epoch, head.next_seq);
        self.step.filter(|step| {
            let writes_its_run_alone =
                step.opened.is_empty() && step.closed.is_empty() && step.executions.is_empty();
            // One that says nothing would go into the entry of the decision.
            follows && head.open > 1 && writes_its_run_alone && !step.events.is_empty()
        })
    }
}

impl PostgresStore {
    /// What becomes of a decision; what it writes, if it does.
    pub(super) fn decision_of<'a>(
        &self,
        deciding: &Deciding<'a>,
        stored: &Stored,
        found: &mut Found,
    ) -> Done<(Outcome, Option<Write<'a>>)> {
        let answered = |reply| Outcome::Answered(Answer::Decided(Box::new(reply)));
        let Deciding { n, cx, decide, .. } = deciding;
        let Some(request) = stored.request(*n, decide.request) else {
            return Ok((answered(DecideReply::NotFound), None));
        };
        let Some(faced) = found.runs.remove(n) else { return Ok((Outcome::Held, None)) };
        let now = faced.head.now;
        match facts::judge(request, faced.cancel.as_ref(), decide, now) {
            // Somebody else holds it, and may be closing it.
            Judgement::Take(_) if !found.requests.contains(n) => Ok((Outcome::Held, None)),
            Judgement::Take(decision) => {
                let stored = (*decision).clone();
                let step = deciding.step_after(&faced);
                let (noted, happened) =
                    taken(cx, request, Closing::Decided(decision), faced, self.instance, step.is_none())?;
                let write = match step {
                    None => Write::Happened(happened),
                    Some(step) => {
                        let moved = Moved::new(cx, step, happened.head.clone(), self.instance, None);
                        Write::Followed(happened, Box::new(moved))
                    }
                };
                Ok((answered(DecideReply::Taken { decision: stored, noted }), Some(write)))
            }
            Judgement::Refuse(reply, None) => Ok((answered(reply), None)),
            Judgement::Refuse(reply, Some(record)) => {
                let Faced { run, mut head, status, wake_at, .. } = faced;
                let mut entry = EntryBuilder::default();
                entry.audit(run, &mut head.chain, ms(now), &chain::text_of(&record)?);
                let (tenant, entry) = (cx.tenant.as_str(), entry.finish());
                let happened = Happened { tenant, run, head, status, wake_at, entry, closed: None };
                Ok((answered(reply), Some(Write::Happened(happened))))
            }
        }
    }
}

/// The request is closed, and its run moved on by one event and one record; it is taken where it has no owner, unless a step follows
/// by which it waits on.
fn taken<'a>(
    cx: &'a Context,
    request: &Request,
    closing: Closing,
    faced: Faced,
    me: InstanceId,
    takes: bool,
) -> Done<(Noted, Happened<'a>)> {
    let Faced { run, mut head, mut status, actor, version, .. } = faced;
    let mut wake_at = None;
    let written = facts::close(request, closing, head.now);
    // The number is not in the JSON.
    let event = Arc::new(Event { seq: None, run_id: run, child: None, body: written.event });
    let mut entry = EntryBuilder::content(run, std::slice::from_ref(&event), &[])?;
    entry.audit(run, &mut head.chain, ms(head.now), &chain::text_of(&written.audit)?);
    entry.fact(&FactRef::from(&written.fact));
    // One that is set aside (5) stays so until an operator lets it go on.
    let stays = status == 5 && !written.frees;
    if status == 5 && !stays {
        status = 0;
    }
    let owner = match head.owner {
        None if stays || !takes => Owner::Nobody,
        // Left for an instance that can read it, to be taken from now on.
        None if version > snapshot_version() => {
            wake_at = Some(0);
            Owner::Newer
        }
        None => {
            head.owner = Some(me.0);
            head.epoch += 1;
            status = if status == 1 { 0 } else { status };
            Owner::Taken
        }
        Some(owner) if owner == me.0 => Owner::Here,
        Some(owner) => Owner::Elsewhere(InstanceId(owner)),
    };
    let event = Arc::new(Event { seq: Some(head.next_seq), ..(*event).clone() });
    head.next_seq += 1;
    head.open = head.open.saturating_sub(1);
    let closure = compact::write(run, &written.closure)?;
    let closed = Some((request.id.0, codes::request_status::code(written.status) as i16, closure));
    let cx_of_run = Context { tenant: cx.tenant.clone(), actor };
    let noted = Noted { cx: cx_of_run, run, event, owner, epoch: head.epoch };
    let (tenant, entry) = (cx.tenant.as_str(), entry.finish());
    Ok((noted, Happened { tenant, run, head, status, wake_at, entry, closed }))
}
