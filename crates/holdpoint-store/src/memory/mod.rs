//! The store that holds everything in memory and loses it with the process: for tests, for agents whose runs need
//! not outlive them, and as the model that the durable stores are compared with.

mod effects;
mod read;
mod state;
mod tidy;
mod write;

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use holdpoint_core::decision::CancelKind;
use holdpoint_core::limits::PENDING_PER_TENANT_MAX;
use holdpoint_core::message::Message;
use holdpoint_protocol::{
    ConversationId, InstanceId, Interaction, Page, RequestId, RunId, RunView, Timestamp,
};
use state::State;

use crate::clock::Clock;
use crate::{
    AuditRow, CancelReply, ChainCheck, Committed, Context, Decide, DecideReply, Error, IdempotencyKey,
    InteractionFilter, KeyUse, Known, Loaded, Noted, NumberedEvents, PageRequest, PresetDue, RequestHead,
    Result, RuleRelease, RunFilter, StartRun, Started, Stats, Step, Store, StoredAnswer, Taken,
};

/// Runs that have ended which a store in memory keeps, where nothing else is said.
pub const ENDED_KEPT: usize = 10_000;

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    instance: InstanceId,
    clock: Arc<dyn Clock>,
    pending_max: u64,
    state: Mutex<State>,
}

impl MemoryStore {
    /// An empty store, which keeps the newest [`ENDED_KEPT`] of the runs that have ended.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            instance: InstanceId(uuid::Uuid::now_v7()),
            clock,
            pending_max: PENDING_PER_TENANT_MAX,
            state: Mutex::new(State { keep_finished: ENDED_KEPT, ..State::default() }),
        }
    }

    /// Keeps this many of the runs that have ended. Older ones are forgotten with their messages: their
    /// conversations go on without them.
    #[must_use]
    pub fn forget_finished(self, keep: usize) -> Self {
        self.lock().keep_finished = keep;
        self
    }

    /// Lets a tenant have fewer pending interactions than [`PENDING_PER_TENANT_MAX`].
    #[must_use]
    pub fn pending_max(mut self, max: u64) -> Self {
        self.pending_max = max.min(PENDING_PER_TENANT_MAX);
        self
    }

    /// What the death of this process would leave: every run it owned has no owner, and what it was doing is in doubt. For
    /// simulations, where a process dies and its memory does not.
    pub fn process_died(&self) {
        self.lock().lose_owners(self.clock.now());
    }

    /// A panic elsewhere while the lock was held cannot have left half a write: all checks come first, and what
    /// follows them does not fail.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.closed { Err(Error::Unavailable("the store is closed".into())) } else { Ok(state) }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn instance(&self) -> InstanceId {
        self.instance
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn start(&self, cx: &Context, start: StartRun) -> Result<Started> {
        let now = self.clock.now();
        self.open()?.start(cx, start, self.pending_max, now)
    }

    async fn commit(&self, cx: &Context, step: &Step<'_>) -> Result<Committed> {
        let now = self.clock.now();
        self.open()?.commit(cx, step, now)
    }

    async fn load(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        Ok(self.open()?.load(cx, run))
    }

    async fn take(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        Ok(self.open()?.take(cx, run))
    }

    async fn recover(&self, limit: usize) -> Result<Vec<Taken>> {
        let now = self.clock.now();
        Ok(self.open()?.recover(limit, now))
    }

    async fn owned(&self, limit: usize) -> Result<Vec<Taken>> {
        Ok(self.open()?.owned(limit))
    }

    async fn release(&self, cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> Result<()> {
        let now = self.clock.now();
        self.open()?.release(cx, run, epoch, crate::clock::after(now, after_ms));
        Ok(())
    }

    async fn decide(&self, cx: &Context, decide: Decide) -> Result<DecideReply> {
        let mut state = self.open()?;
        // Read under the lock: the deadline is compared with a time no earlier than that of the write before.
        let now = self.clock.now();
        state.decide(cx, decide, now)
    }

    async fn fail_gate(&self, cx: &Context, requests: &[RequestId]) -> Result<Vec<Noted>> {
        let now = self.clock.now();
        Ok(self.open()?.fail_gate(cx, requests, now))
    }

    async fn cancel(&self, cx: &Context, run: RunId, kind: CancelKind) -> Result<CancelReply> {
        let now = self.clock.now();
        Ok(self.open()?.cancel(cx, run, kind, now))
    }

    async fn expire_due(&self, limit: usize) -> Result<Vec<Noted>> {
        let mut state = self.open()?;
        let now = self.clock.now();
        Ok(state.expire_due(limit, now))
    }

    async fn presets_due(&self, limit: usize) -> Result<Vec<PresetDue>> {
        let state = self.open()?;
        Ok(state.presets_due(limit, self.clock.now()))
    }

    async fn close_due(
        &self,
        cx: &Context,
        request: RequestId,
        release: Option<RuleRelease>,
    ) -> Result<Option<Noted>> {
        let mut state = self.open()?;
        let now = self.clock.now();
        Ok(state.close_due(cx, request, release, now))
    }

    async fn remind_due(&self, limit: usize) -> Result<Vec<Noted>> {
        let mut state = self.open()?;
        let now = self.clock.now();
        Ok(state.remind_due(limit, now))
    }

    async fn next_deadline(&self) -> Result<Option<Timestamp>> {
        let state = self.open()?;
        let firsts = [state.deadlines.keys().next(), state.reminders.keys().next()];
        Ok(firsts.into_iter().flatten().map(|(at, _, _)| *at).min())
    }

    async fn history(
        &self,
        cx: &Context,
        conversation: &ConversationId,
        run: RunId,
        after: Option<u32>,
    ) -> Result<Vec<Arc<Message>>> {
        Ok(self.open()?.history(cx, conversation, run, after))
    }

    async fn events(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Option<NumberedEvents>> {
        Ok(self.open()?.events(cx, run, after, limit))
    }

    async fn request(&self, cx: &Context, request: RequestId) -> Result<Option<RequestHead>> {
        Ok(self.open()?.request(cx, request))
    }

    async fn moved(&self, known: &[Known]) -> Result<Vec<RunId>> {
        Ok(self.open()?.moved(known))
    }

    async fn newest_pending(&self, cx: &Context, limit: usize) -> Result<Vec<(Timestamp, RequestId)>> {
        Ok(self.open()?.newest_pending(cx, limit))
    }

    async fn interaction(&self, cx: &Context, request: RequestId) -> Result<Option<Interaction>> {
        self.open()?.interaction(cx, request)
    }

    async fn interactions(
        &self,
        cx: &Context,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Result<Page<Interaction>> {
        self.open()?.interactions(cx, filter, page)
    }

    async fn run(&self, cx: &Context, run: RunId) -> Result<Option<RunView>> {
        self.open()?.run(cx, run)
    }

    async fn runs(&self, cx: &Context, filter: &RunFilter, page: &PageRequest) -> Result<Page<RunView>> {
        self.open()?.runs(cx, filter, page)
    }

    async fn started_with(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        let now = self.clock.now();
        Ok(self.open()?.look_up(cx, key, now))
    }

    async fn remember(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        let now = self.clock.now();
        Ok(self.open()?.remember(cx, key, now))
    }

    async fn answer(&self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> Result<()> {
        self.open()?.answer(cx, key, answer);
        Ok(())
    }

    async fn audit(&self, cx: &Context, run: RunId, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
        self.open()?.audit(cx, run, after, limit)
    }

    async fn verify(&self, cx: &Context, run: RunId) -> Result<Option<ChainCheck>> {
        self.open()?.verify(cx, run)
    }

    async fn stats(&self) -> Result<Stats> {
        let state = self.open()?;
        Ok(state.stats(self.clock.now()))
    }

    async fn close(&self) -> Result<()> {
        self.lock().closed = true;
        Ok(())
    }
}
