//! Storing a step, and what follows from its being stored: the history grows, watchers see it, handlers are asked.

use std::borrow::Cow;
use std::sync::Arc;

use holdpoint_core::message::Message;
use holdpoint_core::run::{Changes, Effect};
use holdpoint_protocol::{ApprovalRequest, Event, EventBody, RunId};
use holdpoint_store::{Committed, Error, IdempotencyKey, Loaded, Next, StartRun, Step, Writes};

use super::Driver;
use crate::histories::Known;
use crate::outcome::Ended;

/// What came of storing a step.
pub(super) enum Stored {
    /// It is durable.
    Done,
    /// A fact came in between; nothing was written.
    Moved,
    /// The run is somebody else's, or the store is closed for good.
    Lost,
}

impl Driver {
    pub(super) async fn commit(&mut self, changes: Changes, next: Next, progress: bool) -> Stored {
        let mut writes = writes(self.run.id(), self.next_seq, changes);
        writes.tools = self.new_tools.clone();
        let run = Cow::Borrowed(&self.run);
        let (epoch, expected_seq) = (self.epoch, self.next_seq);
        let step = Step { run, epoch, expected_seq, writes, next, progress };
        let committed = self.persist(&step).await;
        let Writes { events, messages, opened, committed_round, .. } = step.writes;
        match committed {
            Some(Committed::Done { next_seq }) => self.next_seq = next_seq,
            Some(Committed::Moved) => return Stored::Moved,
            Some(Committed::Fenced) => {
                tracing::warn!(run = %self.run.id(), epoch = self.epoch, "fenced: another instance owns the run; letting go");
                return Stored::Lost;
            }
            None => return Stored::Lost,
        }
        self.new_tools = None;
        holdpoint_store::failpoint("after_step");
        self.history.grow(messages, committed_round);
        self.publish(&events, !opened.is_empty());
        Stored::Done
    }

    /// Commits, and keeps trying while the store is away: what is in memory is not lost, and nothing runs meanwhile.
    async fn persist(&self, step: &Step<'_>) -> Option<Committed> {
        let events = step.writes.events.len() as u64;
        let (epoch, expected) = (step.epoch, step.expected_seq);
        let commit = async || match self.rt.store.commit(&self.cx, step).await {
            // The connection broke while it was being committed: look before doing it again.
            Err(Error::CommitUnknown(why)) => match self.rt.store.load(&self.cx, self.run.id()).await? {
                Some(now) if now.epoch == epoch && now.next_seq >= expected + events && events > 0 => {
                    Ok(Committed::Done { next_seq: expected + events })
                }
                Some(now) if now.epoch > epoch => Ok(Committed::Fenced),
                Some(_) | None => Err(Error::Unavailable(why)),
            },
            other => other,
        };
        self.rt.persist(commit).await
    }

    /// The first step of a new run, in the form the store takes, and what is left to do once it is stored.
    pub(crate) fn first_step(
        &self,
        changes: Changes,
        effects: &[Effect],
        key: Option<IdempotencyKey>,
    ) -> (StartRun, FirstStep) {
        let mut writes = writes(self.run.id(), self.next_seq, changes);
        writes.tools = Some(self.tools.stored().clone());
        let first = FirstStep {
            events: writes.events.clone(),
            messages: writes.messages.clone(),
            committed_round: writes.committed_round,
            opened: !writes.opened.is_empty(),
        };
        (StartRun { run: self.run.clone(), writes, key, next: self.next_of(effects) }, first)
    }

    /// The first step is stored: it is shown before anything else can be stored of the run.
    pub(crate) fn began(&mut self, first: FirstStep, previous: Option<RunId>) {
        self.next_seq += first.events.len() as u64;
        if let Some(previous) = previous {
            self.history = History::after(self.rt.histories.take_whole(
                self.run.tenant(),
                self.run.conversation(),
                previous,
            ));
        }
        self.history.grow(first.messages, first.committed_round);
        self.publish(&first.events, first.opened);
    }

    fn publish(&mut self, events: &[Arc<Event>], opened: bool) {
        let mut requests: Vec<ApprovalRequest> = Vec::new();
        for event in events {
            match &event.body {
                EventBody::Finish(finish) => self.ended = Some(Ended::Finished(finish.clone())),
                EventBody::Error(error) => self.ended = Some(Ended::Failed(error.clone())),
                EventBody::Decision(decision) => {
                    self.rt.handling.closed(self.run.id(), decision.request_id);
                }
                EventBody::ApprovalRequest(request) if opened && self.agent.handler.is_some() => {
                    requests.push(request.clone());
                }
                _ => {}
            }
            self.rt.hub.publish(self.run.id(), self.agent.name(), event);
        }
        if opened {
            self.rt.deadlines.notify_one();
        }
        if !requests.is_empty() {
            self.rt.ask_handler(Arc::clone(&self.agent), self.cx.clone(), self.info.clone(), requests);
        }
    }
}

/// What follows from the first step of a run once it is stored.
pub(crate) struct FirstStep {
    events: Vec<Arc<Event>>,
    messages: Vec<(u32, u32, Arc<Message>)>,
    committed_round: Option<u32>,
    opened: bool,
}

/// The changes of one or more steps in the form the store takes.
pub(crate) fn writes(run: RunId, first_seq: u64, changes: Changes) -> Writes {
    let mut committed_round = None;
    let events = (first_seq..)
        .zip(changes.events)
        .map(|(seq, body)| {
            if let EventBody::RoundCommitted(round) = &body {
                committed_round = Some(round.round);
            }
            Arc::new(Event { seq: Some(seq), run_id: run, child: None, body })
        })
        .collect();
    Writes {
        events,
        messages: changes
            .messages
            .into_iter()
            .map(|(round, slot, message)| (round, slot, Arc::new(message)))
            .collect(),
        opened: changes.opened,
        closed: changes.closed,
        executions: changes.executions,
        audit: changes.audit,
        committed_round,
        tools: None,
    }
}

/// What the model is told: the committed rounds, and what the open one holds so far.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// What is remembered or was read; the rest is read when the model is to be asked.
    known: Option<Known>,
    /// The highest committed round of the run: up to it all has to be known.
    round: u32,
    open: Vec<(u32, Arc<Message>)>,
}

impl History {
    /// Of a new conversation: nothing needs to be read.
    pub(crate) fn fresh() -> Self {
        Self { known: Some(Known::default()), ..Self::default() }
    }

    /// Of a new run in a conversation of which this is known.
    fn after(known: Option<Known>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Of a loaded run, with what is remembered of it. That may end before what is stored, when another instance carried
    /// the run on meanwhile.
    pub(crate) fn of(loaded: &Loaded, remembered: Option<Known>) -> Self {
        let round = loaded.committed_round;
        let known = remembered.filter(|known| known.round <= round);
        Self { known, round, open: loaded.open.clone() }
    }

    pub(super) fn reopen(&mut self, loaded: &Loaded) {
        self.open = loaded.open.clone();
    }

    fn is_whole(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.round == self.round)
    }

    fn grow(&mut self, messages: Vec<(u32, u32, Arc<Message>)>, committed_round: Option<u32>) {
        // What does not follow on what is known is read with the rest.
        let is_whole = self.is_whole();
        let mut known = self.known.as_mut().filter(|_| is_whole);
        for (round, slot, message) in messages {
            match &mut known {
                Some(known) if round == 0 => known.extend([message]),
                None if round == 0 => {}
                Some(_) | None => self.open.push((slot, message)),
            }
        }
        if let Some(round) = committed_round {
            self.round = round;
            self.open.sort_by_key(|(slot, _)| *slot);
            let messages = std::mem::take(&mut self.open).into_iter().map(|(_, message)| message);
            if let Some(known) = known {
                known.extend(messages);
                known.round = round;
            }
        }
    }

    fn messages(&self) -> Vec<Arc<Message>> {
        self.known.as_ref().map(|known| known.messages.clone()).unwrap_or_default()
    }
}

impl Driver {
    /// What the model is told in the next round.
    pub(super) fn told(&self) -> Vec<Arc<Message>> {
        self.history.messages()
    }

    /// The conversation is read when the model is to be asked, and not before; and of it only what this process does not
    /// remember.
    pub(super) async fn knows_history(&mut self, effects: &[Effect]) -> bool {
        let asks = effects.iter().any(|effect| matches!(effect, Effect::CallModel { .. }));
        if !asks || self.history.is_whole() {
            return true;
        }
        let (store, cx, run) = (&self.rt.store, &self.cx, &self.run);
        let after = self.history.known.as_ref().map(|known| known.round);
        let read = || store.history(cx, run.conversation(), run.id(), after);
        let Some(rest) = self.rt.persist(read).await else { return false };
        let known = self.history.known.get_or_insert_default();
        known.extend(rest);
        known.round = self.history.round;
        true
    }

    /// What is known of the conversation is remembered for whoever takes it up next.
    pub(super) fn remember_history(&mut self, next: Next) {
        if let Some(known) = self.history.known.take() {
            let ended = next == Next::End;
            let (tenant, conversation) = (self.run.tenant(), self.run.conversation());
            self.rt.histories.put(tenant, conversation, self.run.id(), known, ended);
        }
    }
}
