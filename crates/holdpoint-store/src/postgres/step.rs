//! Steps: what a run's owner writes. What is there is locked and looked at for all members of a group at once.

use std::collections::{HashMap, HashSet};

use holdpoint_core::run::LedgerLine;
use holdpoint_protocol::{RequestId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::batch::Moved;
use super::decide::Deciding;
use super::group::{Answer, Outcome};
use super::lane::{Rows, column};
use super::rows::{self, Done, Head, head_columns, request_columns};
use crate::prepared::Prepared;
use crate::{Committed, Context, Error, Result, facts, writes};

/// A step of a group, by its number in it.
pub(super) struct Step<'a> {
    pub(super) n: i32,
    pub(super) cx: &'a Context,
    pub(super) new: &'a Prepared,
    pub(super) epoch: u64,
    pub(super) expected_seq: u64,
}

/// Locks, in the order of the ids: what somebody else holds is waited for, or left out.
macro_rules! locking {
    ($wait:expr, $sql:expr) => {
        if $wait { $sql } else { concat!($sql, " SKIP LOCKED") }
    };
}
pub(super) use locking;

/// What to ask: the requests that are to be closed and then the runs, locked in this order, here as everywhere; and the requests
/// that are closed, spent or decided, as they are then.
pub(super) fn asked<'a>(steps: &[Step<'a>], decisions: &[Deciding<'a>], wait: bool) -> [Option<Rows<'a>>; 3] {
    let closed = named(steps, |new| new.closed.iter().map(|closed| closed.request.0).collect());
    let mut read = named(steps, |new| spent(new).map(|id| id.0).collect());
    read.extend(&closed);
    read.extend(decisions.iter().map(|it| (it.n, it.cx.tenant.as_str(), it.decide.request.0)));
    let runs = named(steps, |new| vec![new.run.0]);
    let lock_requests = locking!(
        wait,
        "SELECT k.n, q.request_id FROM unnest($1::integer[], $2::text[], $3::uuid[]) AS k(n, tenant, id) \
         JOIN request q ON q.tenant_id = k.tenant AND q.request_id = k.id ORDER BY q.request_id FOR UPDATE OF q"
    );
    let lock_runs = locking!(
        wait,
        concat!(
            "SELECT ",
            head_columns!(),
            ", k.n FROM unnest($1::integer[], $2::text[], $3::uuid[]) AS k(n, tenant, id) \
             JOIN run r ON r.tenant_id = k.tenant AND r.run_id = k.id ORDER BY r.run_id FOR UPDATE OF r"
        )
    );
    let requests = concat!(
        "SELECT ",
        request_columns!(),
        ", k.n FROM unnest($1::integer[], $2::text[], $3::uuid[]) AS k(n, tenant, id) \
         JOIN request q ON q.tenant_id = k.tenant AND q.request_id = k.id"
    );
    [(lock_requests, closed), (lock_runs, runs), (requests, read)].map(|(sql, named)| {
        let columns = vec![column(&named, |it| it.0), column(&named, |it| it.1), column(&named, |it| it.2)];
        Rows::some(sql, &named, columns)
    })
}

fn named<'a>(steps: &[Step<'a>], ids: fn(&Prepared) -> Vec<Uuid>) -> Vec<(i32, &'a str, Uuid)> {
    let each = |step: &Step<'a>| {
        let (n, tenant) = (step.n, step.cx.tenant.as_str());
        ids(step.new).into_iter().map(move |id| (n, tenant, id)).collect::<Vec<_>>()
    };
    steps.iter().flat_map(each).collect()
}

/// The requests whose decisions are spent.
fn spent(new: &Prepared) -> impl Iterator<Item = RequestId> {
    new.executions.iter().filter_map(|line| match line {
        LedgerLine::Started { request, .. } => *request,
        LedgerLine::Ended { .. } => None,
    })
}

/// What was found, by the number of the member.
pub(super) struct Stored {
    locked: HashSet<(i32, RequestId)>,
    heads: HashMap<i32, Head>,
    requests: Requests,
}

impl Stored {
    pub(super) fn request(&self, n: i32, id: RequestId) -> Option<&facts::Request> {
        self.requests.get(&(n, id))
    }

    fn is_locked(&self, n: i32, id: RequestId) -> bool {
        self.locked.contains(&(n, id))
    }
}

/// Requests, by the number of the member that asked for them.
pub(super) type Requests = HashMap<(i32, RequestId), facts::Request>;

pub(super) fn found([locked, heads, requests]: [Vec<Row>; 3], now: Timestamp) -> Done<Stored> {
    let locked = locked.iter().map(|row| Ok((row.try_get(0)?, RequestId(row.try_get(1)?))));
    let heads = heads.iter().map(|row| Ok((row.try_get(8)?, rows::head(row, now)?)));
    let requests = requests.iter().map(|row| {
        let request = rows::request(row)?;
        Ok(((row.try_get(16)?, request.id), request))
    });
    Ok(Stored {
        locked: locked.collect::<Done<_>>()?,
        heads: heads.collect::<Done<_>>()?,
        requests: requests.collect::<Done<_>>()?,
    })
}

impl PostgresStore {
    /// What becomes of a step; what it writes, if it does.
    pub(super) fn step_of<'a>(
        &self,
        step: &Step<'a>,
        found: &mut Stored,
        wait: bool,
    ) -> (Outcome, Option<Moved<'a>>) {
        let new = step.new;
        let all_locked = new.closed.iter().all(|closed| found.is_locked(step.n, closed.request));
        let Some(head) = found.heads.remove(&step.n).filter(|_| wait || all_locked) else {
            // It is not there, or somebody holds it: that is seen when it is waited for.
            return match wait {
                true => (Outcome::Answered(Answer::Committed(Committed::Fenced)), None),
                false => (Outcome::Held, None),
            };
        };
        if head.owner != Some(self.instance.0) || head.epoch != step.epoch {
            return (Outcome::Answered(Answer::Committed(Committed::Fenced)), None);
        }
        if head.next_seq != step.expected_seq {
            return (Outcome::Answered(Answer::Committed(Committed::Moved)), None);
        }
        if let Err(error) = check(new, head.open, step.n, &found.requests) {
            return (Outcome::Refused(error), None);
        }
        let moved = Moved::new(step.cx, new, head, self.instance, None);
        let next_seq = moved.head.next_seq;
        (Outcome::Answered(Answer::Committed(Committed::Done { next_seq })), Some(moved))
    }
}

/// What a step says that what is stored contradicts. Looked for before anything is written.
pub(super) fn check(new: &Prepared, open: u32, n: i32, requests: &Requests) -> Result<()> {
    for closed in &new.closed {
        writes::check_closed(new.run, closed.request, requests.get(&(n, closed.request)))?;
    }
    writes::check_end(new.run, new.next, open as usize + new.opened.len(), new.closed.len())?;
    for line in &new.executions {
        let LedgerLine::Started { call, attempt, digest, request: Some(id), .. } = line else { continue };
        if !requests.get(&(n, *id)).is_some_and(|request| facts::releases(request, *call, digest)) {
            let what =
                format!("no stored decision of request {id} releases attempt {attempt} of call {call}");
            return Err(Error::Inconsistent(what));
        }
    }
    Ok(())
}
