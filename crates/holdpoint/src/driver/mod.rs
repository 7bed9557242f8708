//! The driver: takes a run from where it stands to where it waits or ends.
//!
//! It is the loop of the whole system, and this is all of it: step, store, publish, perform, and wait for what the
//! effects bring. What an effect does stands in the files beside this one. Nothing is performed before the step that
//! asked for it is durable; a step that another fact overtook is made again; a driver whose run was taken over lets go.

mod ask;
mod commit;
mod executor;
mod late;
mod place;
mod recorded;
mod rule;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdpoint_core::decision::Fact;
use holdpoint_core::run::{Changes, Cx, Effect, Input, OpenRound, Refused, Run, Standing};
use holdpoint_models::Model;
use holdpoint_protocol::Event;
use holdpoint_store::{Context, Loaded, Next, ToolSet};
use holdpoint_tools::ToolContext;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::RunInfo;
use crate::agent::Agent;
use crate::drivers::Seat;
use crate::inner::Inner;
use crate::outcome::Ended;
use crate::toolset::Toolset;

pub(crate) use commit::writes;
pub(crate) use place::{Place, open_round};

/// How long what is being cancelled gets to stop.
pub const CANCEL_GRACE: Duration = Duration::from_secs(10);
/// How long a run whose tool is not loaded here is left alone.
pub(crate) const UNAVAILABLE_RETRY_MS: u64 = 30_000;
/// Messages a driver's inbox holds; a tool's progress beyond it is dropped, nothing else ever is.
pub(crate) const INBOX: usize = 256;

/// What a driver is sent.
#[derive(Debug)]
pub(crate) enum Inbox {
    /// Something was stored that concerns the run.
    Bell,
    /// Something may have been stored that concerns the run.
    Look,
    /// The model replied, or failed.
    Input(Input),
    /// A hook narrowed the tools of the round before the model was asked.
    Offered(Vec<String>),
    /// Start nothing more, and give the run back.
    Shutdown,
}

/// One run in the hands of this process.
pub(crate) struct Driver {
    pub(crate) rt: Arc<Inner>,
    pub(crate) agent: Arc<Agent>,
    pub(crate) cx: Context,
    pub(crate) info: RunInfo,
    pub(crate) run: Run,
    pub(crate) open: OpenRound,
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
    pub(crate) history: commit::History,
    pub(crate) tools: Arc<Toolset>,
    pub(crate) new_tools: Option<ToolSet>,
    pub(crate) offered: Option<Vec<String>>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) context: Arc<ToolContext>,
    pub(crate) inbox: mpsc::Receiver<Inbox>,
    pub(crate) seat: Seat,
    pub(crate) running: HashMap<u32, CancellationToken>,
    pub(crate) asking: Option<CancellationToken>,
    pub(crate) grace: Option<tokio::time::Instant>,
    pub(crate) look_at: tokio::time::Instant,
    /// The term of the lease in which what is now to be performed was stored.
    pub(crate) term: Option<u64>,
    /// What came in and could not be stored, because the run is somebody else's.
    pub(crate) unstored: Vec<Input>,
    pub(crate) working_since: Instant,
    pub(crate) stopping: bool,
    pub(crate) ended: Option<Ended>,
}

/// What a transaction came to.
enum Flow {
    /// The run goes on here.
    On(Vec<Effect>),
    /// The run waits, ended, or was given back.
    Left(Next),
    /// The run is somebody else's, or the process stops. With what was not stored of it.
    Lost(Vec<Input>),
}

impl Driver {
    /// Carries a run on whose first step has just been stored and shown.
    pub(crate) async fn begin(mut self, effects: Vec<Effect>) {
        let next = self.next_of(&effects);
        if next == Next::Keep && !self.knows_history(&effects).await {
            return self.let_go(Vec::new());
        }
        self.perform(effects);
        match next {
            Next::Keep => self.go_on().await,
            Next::Suspend | Next::Later(_) | Next::End => self.leave(next).await,
        }
    }

    /// Carries a loaded run on.
    pub(crate) async fn resume(self, facts: Vec<Fact>) {
        self.take_up(facts.len(), Input::Recovered { facts }).await;
    }

    /// Takes note of what was stored of a loaded run that cannot be carried on here.
    pub(crate) async fn stand_by(self, facts: Vec<Fact>, what: String) {
        self.take_up(facts.len(), Input::Unavailable { facts, what }).await;
    }

    async fn take_up(mut self, facts: usize, input: Input) {
        self.catch_up(facts).await;
        match self.transact(vec![input]).await {
            Flow::On(effects) => {
                self.perform(effects);
                self.go_on().await;
            }
            Flow::Left(next) => self.leave(next).await,
            Flow::Lost(inputs) => self.let_go(inputs),
        }
    }

    async fn go_on(mut self) {
        loop {
            let Some(inputs) = self.next_inputs().await else {
                let inputs = std::mem::take(&mut self.unstored);
                return self.let_go(inputs);
            };
            match self.transact(inputs).await {
                Flow::On(effects) => self.perform(effects),
                Flow::Left(next) => return self.leave(next).await,
                Flow::Lost(inputs) => return self.let_go(inputs),
            }
        }
    }

    /// Steps through the inputs and stores what came of it, as one transaction.
    async fn transact(&mut self, mut inputs: Vec<Input>) -> Flow {
        loop {
            let mut changes = Changes::default();
            let mut effects = Vec::new();
            self.count_work();
            self.term = self.rt.store.term();
            for input in &inputs {
                match self.step(input.clone(), &mut changes).await {
                    Ok(more) => effects.extend(more),
                    Err(Refused(why)) => tracing::debug!(run = %self.run.id(), why, "an input came too late"),
                }
            }
            let next = self.next_of(&effects);
            // What only works on where another process left off may end this one, too.
            let taken_up = inputs.iter().any(|input| matches!(input, Input::Recovered { .. }));
            let progress = next != Next::Keep || !taken_up;
            match self.commit(changes, next, progress).await {
                commit::Stored::Done if next == Next::Keep => {
                    if !self.knows_history(&effects).await {
                        return Flow::Lost(inputs);
                    }
                    return Flow::On(effects);
                }
                commit::Stored::Done => {
                    self.perform(effects);
                    return Flow::Left(next);
                }
                commit::Stored::Moved => match self.reload().await {
                    Some(facts) => with_facts(&mut inputs, facts),
                    None => return Flow::Lost(inputs),
                },
                commit::Stored::Lost => return Flow::Lost(inputs),
            }
        }
    }

    /// One input, and what it asks for at once: rulings and checks belong into the same transaction.
    pub(crate) async fn step(&mut self, input: Input, changes: &mut Changes) -> Result<Vec<Effect>, Refused> {
        let mut asked = VecDeque::from(self.raw_step(input, changes)?);
        let mut later = Vec::new();
        while let Some(effect) = asked.pop_front() {
            let answer = match effect {
                Effect::Rule => Some(Input::Ruled(self.rule().await)),
                // A process that stops, or that may have lost its lease, claims nothing more; whoever takes the run over
                // checks again.
                Effect::Check { .. } | Effect::CallModel { .. } if self.stopping || self.term.is_none() => {
                    later.push(Effect::Release);
                    None
                }
                Effect::Check { index } => Some(Input::Checked { index, check: self.check(index).await }),
                Effect::Recheck { index } => self.recheck(index),
                effect @ (Effect::CallModel { .. }
                | Effect::Execute(_)
                | Effect::Probe { .. }
                | Effect::CancelTool { .. }
                | Effect::CancelModel
                | Effect::Release) => {
                    later.push(effect);
                    None
                }
            };
            match answer.map(|answer| self.raw_step(answer, changes)) {
                Some(Ok(more)) => asked.extend(more),
                // Another answer of the same step has settled the call meanwhile.
                Some(Err(Refused(why))) => tracing::debug!(run = %self.run.id(), why, "no longer asked for"),
                None => {}
            }
        }
        Ok(later)
    }

    fn raw_step(&mut self, input: Input, changes: &mut Changes) -> Result<Vec<Effect>, Refused> {
        let mut cx =
            Cx { now: self.rt.now(), settings: &self.agent.settings, fresh: &mut crate::ids::request_id };
        self.run.step(&mut self.open, input, &mut cx, changes)
    }

    /// How the run is left after a step.
    fn next_of(&self, effects: &[Effect]) -> Next {
        let released = effects.iter().any(|effect| matches!(effect, Effect::Release));
        let begins = effects.iter().any(|effect| matches!(effect, Effect::Execute(_) | Effect::Probe { .. }));
        match self.run.standing() {
            Standing::Finished | Standing::Failed => Next::End,
            Standing::Suspended | Standing::SetAside => Next::Suspend,
            // What runs here ends here: a run is given back between its calls.
            Standing::Working | Standing::Cancelling if released && !begins && self.running.is_empty() => {
                Next::Later(if self.stopping || self.term.is_none() { 0 } else { UNAVAILABLE_RETRY_MS })
            }
            Standing::Working | Standing::Cancelling => Next::Keep,
        }
    }

    /// Starts what the step asked for. What it brings comes back through the inbox.
    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::CallModel { round } => self.ask_model(round),
                Effect::Execute(permit) => self.execute(permit),
                Effect::Probe { index, exec } => self.probe(index, exec),
                Effect::CancelTool { index } => {
                    self.grace = Some(tokio::time::Instant::now() + CANCEL_GRACE);
                    if let Some(cancel) = self.running.get(&index) {
                        cancel.cancel();
                    }
                }
                Effect::CancelModel => {
                    if let Some(asking) = self.asking.take() {
                        asking.cancel();
                    }
                }
                // Performed within the step, or a matter of how the run is left.
                Effect::Rule | Effect::Check { .. } | Effect::Recheck { .. } | Effect::Release => {}
            }
        }
    }

    /// Waits for what comes next: one input, and whatever else has arrived by then.
    async fn next_inputs(&mut self) -> Option<Vec<Input>> {
        loop {
            let first = tokio::select! {
                message = self.inbox.recv() => message?,
                () = at(self.grace) => {
                    self.grace = None;
                    return Some(vec![Input::GraceOver]);
                }
                () = tokio::time::sleep_until(self.look_at) => match self.overtaken().await {
                    true => Inbox::Bell,
                    false => continue,
                },
            };
            let mut inputs = Vec::new();
            let mut rung = self.receive(first, &mut inputs);
            while let Ok(message) = self.inbox.try_recv() {
                rung |= self.receive(message, &mut inputs);
            }
            if rung {
                let Some(facts) = self.new_facts().await else {
                    self.unstored = inputs;
                    return None;
                };
                with_facts(&mut inputs, facts);
            }
            if self.stopping && self.running.is_empty() && inputs.is_empty() {
                self.give_back().await;
                return None;
            }
            if !inputs.is_empty() {
                return Some(inputs);
            }
        }
    }

    /// Whether something was stored of the run that was not heard of: by another instance, or here by a call that was cut off. The
    /// bell is quicker; this look is what is relied on.
    async fn overtaken(&mut self) -> bool {
        self.look_at = self.rt.next_look_at_a_run();
        let after = self.next_seq.saturating_sub(1);
        match self.rt.store.events(&self.cx, self.run.id(), after, 1).await {
            Ok(events) => events.is_none_or(|events| !events.is_empty()),
            // The next look, or the next step, sees to it.
            Err(_) => false,
        }
    }

    fn receive(&mut self, message: Inbox, inputs: &mut Vec<Input>) -> bool {
        match message {
            Inbox::Bell => return true,
            Inbox::Look => self.look_at = self.look_at.min(self.rt.ears.soon()),
            Inbox::Offered(names) => self.offered = Some(names),
            Inbox::Shutdown => {
                self.stopping = true;
                if let Some(asking) = self.asking.take() {
                    asking.cancel();
                }
            }
            Inbox::Input(input) => {
                match &input {
                    Input::Finished { index, .. } | Input::Probed { index, .. } => {
                        self.running.remove(index);
                    }
                    Input::Replied { .. } | Input::ModelFailed { .. } => {
                        self.asking = None;
                        // A model that was cancelled because the process stops did not fail: the next process asks it again.
                        if self.stopping {
                            return false;
                        }
                    }
                    Input::Start { .. }
                    | Input::Invoke { .. }
                    | Input::Ruled(_)
                    | Input::Changed { .. }
                    | Input::Facts(_)
                    | Input::Checked { .. }
                    | Input::Progress { .. }
                    | Input::Recovered { .. }
                    | Input::Unavailable { .. }
                    | Input::GraceOver => {}
                }
                inputs.push(input);
            }
        }
        false
    }

    async fn new_facts(&mut self) -> Option<Vec<Fact>> {
        let loaded = self.load().await?;
        self.is_still_ours(&loaded)?;
        self.next_seq = loaded.next_seq;
        self.catch_up(loaded.facts.len()).await;
        Some(loaded.facts)
    }

    fn is_still_ours(&self, loaded: &Loaded) -> Option<()> {
        if loaded.epoch == self.epoch {
            return Some(());
        }
        let run = self.run.id();
        tracing::warn!(%run, epoch = self.epoch, now = loaded.epoch, "fenced: another instance owns the run; letting go");
        None
    }

    /// Throws away what is in memory and reads the run again; gives back the facts to be applied.
    async fn reload(&mut self) -> Option<Vec<Fact>> {
        let loaded = self.load().await?;
        self.is_still_ours(&loaded)?;
        self.next_seq = loaded.next_seq;
        self.catch_up(loaded.facts.len()).await;
        let facts = loaded.facts.clone();
        self.open = place::open_round(&loaded, self.agent.settings.limits.argument_bytes);
        self.history.reopen(&loaded);
        self.run = self.rt.as_granted(&self.cx, loaded.run);
        Some(facts)
    }

    /// Shows what others stored of the run and this process has not shown yet, so that everything is seen in order.
    async fn catch_up(&self, facts: usize) {
        let run = self.run.id();
        let Some(after) = self.rt.hub.missing(run, self.next_seq, facts) else { return };
        let count = usize::try_from(self.next_seq - 1 - after).unwrap_or(usize::MAX);
        let read = self.rt.persist(|| self.rt.store.events(&self.cx, run, after, count)).await;
        for (seq, json) in read.flatten().unwrap_or_default() {
            match Event::from_json(Some(seq), &json) {
                Ok(event) => self.rt.hub.publish(run, self.agent.name(), &Arc::new(event)),
                Err(error) => {
                    tracing::error!(%run, seq, %error, "a stored event cannot be read; it is not shown")
                }
            }
        }
    }

    async fn load(&self) -> Option<Loaded> {
        self.rt.persist(|| self.rt.store.load(&self.cx, self.run.id())).await.flatten()
    }

    fn count_work(&mut self) {
        let worked = self.working_since.elapsed();
        self.working_since = Instant::now();
        self.run.add_active_ms(u64::try_from(worked.as_millis()).unwrap_or(u64::MAX));
    }

    async fn leave(mut self, next: Next) {
        if let Some(asking) = self.asking.take() {
            asking.cancel();
        }
        self.remember_history(next);
        let run = self.run.id();
        match (next, self.ended.take()) {
            (Next::End, Some(ended)) => {
                drop(self.seat);
                self.rt.hub.end(run);
                self.rt.handling.cancel(run);
                for hook in &self.agent.around_run {
                    crate::hooks::told(hook.as_ref(), &self.info, &ended).await;
                }
                self.rt.waiters.ended(run, &ended);
            }
            // Somebody may have decided since this was stored: then the run is in other hands here, and does not wait any more.
            (Next::End, None) | (Next::Suspend | Next::Later(_) | Next::Keep, _) => {
                self.rt.hub.rest(run, self.next_seq);
                self.seat.rest(|| self.rt.suspended(run, self.run.pending()));
            }
        }
    }

    fn let_go(self, inputs: Vec<Input>) {
        let run = self.run.id();
        drop(self.seat);
        self.rt.hub.rest(run, self.next_seq);
        for cancel in self.running.values() {
            cancel.cancel();
        }
        if self.rt.store.is_shared() {
            let (rt, round) = (Arc::clone(&self.rt), self.run.round());
            let running = self.running.into_keys().collect();
            self.rt.tasks.spawn(late::keep(rt, self.cx, run, round, inputs, running, self.inbox));
        }
    }

    async fn give_back(&self) {
        if let Err(error) = self.rt.store.release(&self.cx, self.run.id(), self.epoch, 0).await {
            tracing::warn!(run = %self.run.id(), %error, "a run could not be given back; its lease will run out");
        }
    }
}

/// Comes at this time; never where there is none.
pub(crate) async fn at(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Puts what happened since the last step before everything else, in place of what was known of it.
fn with_facts(inputs: &mut Vec<Input>, now: Vec<Fact>) {
    for input in inputs.iter_mut() {
        if let Input::Recovered { facts } | Input::Unavailable { facts, .. } = input {
            *facts = now;
            return;
        }
    }
    inputs.retain(|input| !matches!(input, Input::Facts(_)));
    if !now.is_empty() {
        inputs.insert(0, Input::Facts(now));
    }
}
