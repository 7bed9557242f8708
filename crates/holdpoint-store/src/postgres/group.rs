//! Steps, starts and decisions of several runs share a transaction. Whoever writes takes everything that waits at that moment, and never
//! waits for more: one that comes alone goes at once.
//!
//! A member that is refused does not concern the others. One that would have to wait - somebody else holds its row - is left
//! out, and goes again by itself, where it waits for that row and keeps nobody. When a statement fails, all of them go again
//! by themselves: each then stands or falls alone.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::batch::{Batch, Write};
use super::decide::{self, Deciding};
use super::error::Fault;
use super::lane::Lane;
use super::rows::{self, Done};
use super::start::{self, Start};
use super::step::{self, Step};
use super::{PostgresStore, Work};
use crate::failpoint::failpoint;
use crate::prepared::Prepared;
use crate::{Committed, Context, Decide, DecideReply, Error, IdempotencyKey, Started};

/// Members of a group, at most.
const GROUP_MAX: usize = 64;
/// Groups that are written at the same time, at most.
const WRITERS_MAX: usize = 2;

/// What is to be written.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) cx: Context,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Step {
        new: Prepared,
        epoch: u64,
        expected_seq: u64,
    },
    Start {
        new: Prepared,
        key: Option<IdempotencyKey>,
    },
    /// With the step that follows from it, if there is one.
    Decision {
        decide: Decide,
        step: Option<Prepared>,
    },
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Answer {
    Committed(Committed),
    Started(Started),
    Decided(Box<DecideReply>),
}

/// What came of a member in its group.
#[derive(Debug)]
pub(super) enum Outcome {
    Answered(Answer),
    Refused(Error),
    /// Somebody else holds what it needs.
    Held,
}

/// What waits to be written, and how many write.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    entries: VecDeque<Entry>,
    writers: usize,
}

#[derive(Debug)]
struct Entry {
    member: Arc<Member>,
    reply: oneshot::Sender<Done<Answer>>,
}

impl Member {
    /// A result that is to be stored goes in where what begins is turned away.
    fn work(&self) -> Work {
        match self.kind {
            Kind::Step { .. } => Work::Own,
            Kind::Start { .. } | Kind::Decision { .. } => Work::New,
        }
    }

    /// What no other member of its group is about: its run, the conversation of a new one, the request of a decision.
    fn about(&self) -> (&str, &str, Uuid) {
        let tenant = self.cx.tenant.as_str();
        match &self.kind {
            Kind::Step { new, .. } => (tenant, "", new.run.0),
            Kind::Start { new, .. } => (tenant, &new.conversation, Uuid::nil()),
            Kind::Decision { decide, .. } => (tenant, "", decide.request.0),
        }
    }
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The next group. Those whose caller has gone are not begun.
    fn take(&mut self) -> Vec<Entry> {
        let mut group: Vec<Entry> = Vec::new();
        let mut left = VecDeque::new();
        while group.len() < GROUP_MAX
            && let Some(entry) = self.entries.pop_front()
        {
            if entry.reply.is_closed() {
                continue;
            }
            let joins = group.iter().all(|other| other.member.about() != entry.member.about());
            if joins { group.push(entry) } else { left.push_back(entry) }
        }
        left.append(&mut self.entries);
        self.entries = left;
        group
    }
}

/// One who writes, until nothing waits. Whose task ends before that leaves nobody waiting for nobody.
struct Writer {
    store: Arc<PostgresStore>,
    writes: bool,
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.writes {
            let mut waiting = self.store.waiting();
            waiting.writers -= 1;
            if waiting.writers == 0 {
                waiting.entries.clear();
            }
        }
    }
}

impl PostgresStore {
    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it written, with whatever else is to be written now, and returns when it is durable.
    pub(super) async fn write(&self, member: &Arc<Member>) -> Done<Answer> {
        let (reply, answer) = oneshot::channel();
        let one_more = {
            let mut waiting = self.waiting();
            self.refuse_if_full(member.work(), waiting.len())?;
            waiting.entries.push_back(Entry { member: Arc::clone(member), reply });
            let one_more = (waiting.writers < WRITERS_MAX).then(|| self.me.upgrade()).flatten();
            waiting.writers += usize::from(one_more.is_some());
            one_more
        };
        if let Some(store) = one_more {
            tokio::spawn(Writer { store, writes: true }.write_groups());
        }
        let gone = |_| Err(Error::CommitUnknown("the writer is gone".into()).into());
        answer.await.unwrap_or_else(gone)
    }

    async fn write_group(self: &Arc<Self>, lane: Lane, group: Vec<Entry>) {
        let members: Vec<&Member> = group.iter().map(|entry| &*entry.member).collect();
        let written = self.in_time(self.write_in(lane, &members, false)).await;
        match written {
            Ok(outcomes) => {
                for (entry, outcome) in group.into_iter().zip(outcomes) {
                    match outcome {
                        Outcome::Answered(answer) => entry.answer(Ok(answer)),
                        Outcome::Refused(error) => entry.answer(Err(error.into())),
                        Outcome::Held => self.write_alone(entry),
                    }
                }
            }
            Err(fault) if group.len() == 1 || fault.is_unknown() => {
                group.into_iter().for_each(|entry| entry.answer(Err(fault.clone())));
            }
            Err(_) => group.into_iter().for_each(|entry| self.write_alone(entry)),
        }
    }

    /// A group of one, which waits for the rows it needs.
    fn write_alone(self: &Arc<Self>, entry: Entry) {
        let store = Arc::clone(self);
        tokio::spawn(async move {
            let alone = async {
                let lane = store.lane(entry.member.work()).await?;
                store.write_in(lane, &[&*entry.member], true).await
            };
            let answer = match store.in_time(alone).await.map(|mut outcomes| outcomes.pop()) {
                Ok(Some(Outcome::Answered(answer))) => Ok(answer),
                Ok(Some(Outcome::Refused(error))) => Err(error.into()),
                Ok(Some(Outcome::Held) | None) => {
                    Err(Fault::Again(Error::Unavailable("another transaction is in the way".into())))
                }
                Err(fault) => Err(fault),
            };
            entry.answer(answer);
        });
    }

    /// One transaction for all of them.
    async fn write_in(&self, lane: Lane, members: &[&Member], wait: bool) -> Done<Vec<Outcome>> {
        let (outcomes, batch) = match self.look(&lane, members, wait).await {
            Ok((outcomes, batch)) if batch.is_empty() => {
                lane.roll_back().await;
                return Ok(outcomes);
            }
            Ok(looked) => looked,
            Err(fault) => {
                lane.roll_back().await;
                return Err(fault);
            }
        };
        let writes = batch.writes(self)?;
        pass(&batch, "before_commit");
        if let Err(fault) = lane.write(&writes).await {
            lane.roll_back().await;
            return Err(fault);
        }
        lane.end();
        pass(&batch, "after_commit");
        for (cx, tools) in batch.tools() {
            self.know_tools(&cx.tenant, tools.digest.as_bytes(), &tools.tools);
        }
        self.shared.fetch_add(batch.len() as u64 - 1, Ordering::Relaxed);
        Ok(outcomes)
    }

    /// Locks and reads what the members need, all of it in one flight; what becomes of each, and what is to be written.
    async fn look<'a>(
        &self,
        lane: &Lane,
        members: &[&'a Member],
        wait: bool,
    ) -> Done<(Vec<Outcome>, Batch<'a>)> {
        let (mut steps, mut starts, mut decisions) = (Vec::new(), Vec::new(), Vec::new());
        for (n, member) in (0..).zip(members) {
            let cx = &member.cx;
            match &member.kind {
                Kind::Step { new, epoch, expected_seq } => {
                    steps.push(Step { n, cx, new, epoch: *epoch, expected_seq: *expected_seq });
                }
                Kind::Start { new, key } => starts.push(Start { n, cx, new, key: key.as_ref() }),
                Kind::Decision { decide, step } => {
                    decisions.push(Deciding { n, cx, decide, step: step.as_ref() });
                }
            }
        }
        let [requests, runs, read] = step::asked(&steps, &decisions, wait);
        let [open, decided] = decide::asked(&decisions, self.given(), wait);
        let [conversations, stand, there, keys] = start::asked(&starts, wait);
        let asked =
            [requests, open, runs, decided, read, conversations, stand, there, keys, Some(self.asks_time())];
        let [requests, open, runs, decided, read, conversations, stand, there, keys, now] =
            lane.begin(asked).await?;
        let now = rows::time(&now)?;
        let mut stored = step::found([requests, runs, read], now)?;
        let mut faced = decide::found([open, decided], now)?;
        let mut known = start::found(&starts, [conversations, stand, there, keys], now)?;

        let (mut outcomes, mut batch) = (Vec::new(), Batch::default());
        let (mut steps, mut starts, mut decisions) = (steps.iter(), starts.iter(), decisions.iter());
        for member in members {
            // As many of each kind as there are members of it.
            let outcome = match &member.kind {
                Kind::Step { .. } => steps.next().map(|step| {
                    let (outcome, moved) = self.step_of(step, &mut stored, wait);
                    batch.add(outcome, moved.map(Write::Moved))
                }),
                Kind::Start { .. } => match starts.next() {
                    Some(start) => {
                        let (outcome, moved) = self.start_of(lane.client()?, start, &mut known).await?;
                        Some(batch.add(outcome, moved.map(Write::Moved)))
                    }
                    None => None,
                },
                Kind::Decision { .. } => match decisions.next() {
                    Some(deciding) => {
                        let (outcome, write) = self.decision_of(deciding, &stored, &mut faced)?;
                        Some(batch.add(outcome, write))
                    }
                    None => None,
                },
            };
            outcomes.extend(outcome);
        }
        Ok((outcomes, batch))
    }
}

impl Writer {
    async fn write_groups(mut self) {
        while self.is_wanted() {
            // Whoever comes while it waits for a connection is in the group.
            let lane = self.store.lane(Work::Own).await;
            let group = self.store.waiting().take();
            match lane {
                Ok(lane) if group.is_empty() => lane.end(),
                Ok(lane) => self.store.write_group(lane, group).await,
                // Nothing was asked, and would not be if each tried by itself.
                Err(fault) => group.into_iter().for_each(|entry| entry.answer(Err(fault.clone()))),
            }
        }
    }

    /// Whether anything waits. If not, whoever comes next finds one writer less.
    fn is_wanted(&mut self) -> bool {
        let mut waiting = self.store.waiting();
        self.writes = !waiting.entries.is_empty();
        waiting.writers -= usize::from(!self.writes);
        self.writes
    }
}

impl Entry {
    fn answer(self, answer: Done<Answer>) {
        // Nobody may be waiting any more: what is committed stands all the same.
        let _ = self.reply.send(answer);
    }
}

/// Named only where they are built in: the name is put together anew each time.
fn pass(batch: &Batch<'_>, place: &str) {
    if cfg!(feature = "failpoints") {
        batch.names().for_each(|name| failpoint(&format!("store.{name}.{place}")));
    }
}
