//! A store that fails, loses its answers, is slow, or has the process die - at the writes the scenario names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use holdpoint::core::decision::CancelKind;
use holdpoint::core::message::Message;
use holdpoint::protocol::{
    ConversationId, InstanceId, Interaction, Page, RequestId, RunId, RunView, Timestamp,
};
use holdpoint::store::{
    AuditRow, CancelReply, ChainCheck, Committed, Context, Decide, DecideReply, EffectEnd, EffectKey,
    EffectRecord, EffectUse, Error, IdempotencyKey, InteractionFilter, KeyUse, Known, Loaded, MemoryStore,
    Noted, PageRequest, PresetDue, RequestHead, Result, RuleRelease, RunFilter, StartRun, Started, Stats,
    Step, Store, StoredAnswer, Taken, Tidied, Tidy,
};
use tokio::sync::Notify;

use crate::scenario::Fault;

/// The store as the process sees it.
pub struct FaultyStore {
    /// What survives.
    pub inner: Arc<MemoryStore>,
    /// Counts the writes, over all lives.
    pub writes: Arc<AtomicU64>,
    /// What is still to go wrong.
    pub faults: Arc<Mutex<BTreeMap<u64, Fault>>>,
    /// Rung when the process is to die.
    pub death: Arc<Notify>,
    /// Called after every write, whatever came of it: what is stored then is looked at.
    pub after_write: Box<dyn Fn() + Send + Sync>,
}

impl FaultyStore {
    async fn write<T>(&self, what: impl AsyncFnOnce(&MemoryStore) -> Result<T>) -> Result<T> {
        let n = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = self.faults.lock().unwrap_or_else(PoisonError::into_inner).remove(&n);
        let done = self.write_with(fault, what).await;
        (self.after_write)();
        done
    }

    async fn write_with<T>(
        &self,
        fault: Option<Fault>,
        what: impl AsyncFnOnce(&MemoryStore) -> Result<T>,
    ) -> Result<T> {
        match fault {
            None => what(&self.inner).await,
            Some(Fault::Fails) => Err(Error::Unavailable("simulated".into())),
            Some(Fault::AnswerLost) => {
                what(&self.inner).await?;
                Err(Error::CommitUnknown("simulated".into()))
            }
            Some(Fault::DiesBefore) => self.die().await,
            Some(Fault::DiesAfter) => {
                let _ = what(&self.inner).await;
                (self.after_write)();
                self.die().await
            }
            Some(Fault::Slow(ms)) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                let done = what(&self.inner).await;
                tokio::time::sleep(Duration::from_millis(ms)).await;
                done
            }
        }
    }

    async fn die(&self) -> ! {
        self.death.notify_one();
        std::future::pending().await
    }
}

#[async_trait]
impl EffectRecord for FaultyStore {
    async fn begin_effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        self.write(async |store| store.begin_effect(cx, key).await).await
    }
    async fn effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        self.inner.effect(cx, key).await
    }
    async fn end_effect(&self, cx: &Context, key: &EffectKey, end: EffectEnd) -> Result<()> {
        self.write(async |store| store.end_effect(cx, key, end).await).await
    }
}

#[async_trait]
impl Tidy for FaultyStore {
    async fn tidy(&self, keep: Option<Duration>, limit: usize) -> Result<Tidied> {
        self.write(async |store| store.tidy(keep, limit).await).await
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn instance(&self) -> InstanceId {
        self.inner.instance()
    }
    async fn now(&self) -> Result<Timestamp> {
        self.inner.now().await
    }
    async fn start(&self, cx: &Context, start: StartRun) -> Result<Started> {
        self.write(async |store| store.start(cx, start).await).await
    }
    async fn commit(&self, cx: &Context, step: &Step<'_>) -> Result<Committed> {
        self.write(async |store| store.commit(cx, step).await).await
    }
    async fn load(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.inner.load(cx, run).await
    }
    async fn take(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.write(async |store| store.take(cx, run).await).await
    }
    async fn recover(&self, limit: usize) -> Result<Vec<Taken>> {
        // Not counted: it is asked every second, and would use up the numbers. A process that dies right after it is
        // one that dies at its first step.
        self.inner.recover(limit).await
    }
    async fn owned(&self, limit: usize) -> Result<Vec<Taken>> {
        self.inner.owned(limit).await
    }
    async fn release(&self, cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> Result<()> {
        self.write(async |store| store.release(cx, run, epoch, after_ms).await).await
    }
    async fn decide(&self, cx: &Context, decide: Decide) -> Result<DecideReply> {
        self.write(async |store| store.decide(cx, decide).await).await
    }
    async fn fail_gate(&self, cx: &Context, requests: &[RequestId]) -> Result<Vec<Noted>> {
        self.write(async |store| store.fail_gate(cx, requests).await).await
    }
    async fn cancel(&self, cx: &Context, run: RunId, kind: CancelKind) -> Result<CancelReply> {
        self.write(async |store| store.cancel(cx, run, kind).await).await
    }
    async fn expire_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.inner.expire_due(limit).await
    }
    async fn presets_due(&self, limit: usize) -> Result<Vec<PresetDue>> {
        self.inner.presets_due(limit).await
    }
    async fn close_due(
        &self,
        cx: &Context,
        request: RequestId,
        release: Option<RuleRelease>,
    ) -> Result<Option<Noted>> {
        self.write(async |store| store.close_due(cx, request, release).await).await
    }
    async fn remind_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.inner.remind_due(limit).await
    }
    async fn next_deadline(&self) -> Result<Option<Timestamp>> {
        self.inner.next_deadline().await
    }
    async fn history(
        &self,
        cx: &Context,
        conversation: &ConversationId,
        run: RunId,
        after: Option<u32>,
    ) -> Result<Vec<Arc<Message>>> {
        self.inner.history(cx, conversation, run, after).await
    }
    async fn events(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<(u64, Arc<str>)>>> {
        self.inner.events(cx, run, after, limit).await
    }
    async fn request(&self, cx: &Context, request: RequestId) -> Result<Option<RequestHead>> {
        self.inner.request(cx, request).await
    }
    async fn moved(&self, known: &[Known]) -> Result<Vec<RunId>> {
        self.inner.moved(known).await
    }
    async fn newest_pending(&self, cx: &Context, limit: usize) -> Result<Vec<(Timestamp, RequestId)>> {
        self.inner.newest_pending(cx, limit).await
    }
    async fn interaction(&self, cx: &Context, request: RequestId) -> Result<Option<Interaction>> {
        self.inner.interaction(cx, request).await
    }
    async fn interactions(
        &self,
        cx: &Context,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Result<Page<Interaction>> {
        self.inner.interactions(cx, filter, page).await
    }
    async fn run(&self, cx: &Context, run: RunId) -> Result<Option<RunView>> {
        self.inner.run(cx, run).await
    }
    async fn runs(&self, cx: &Context, filter: &RunFilter, page: &PageRequest) -> Result<Page<RunView>> {
        self.inner.runs(cx, filter, page).await
    }
    async fn started_with(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        self.inner.started_with(cx, key).await
    }
    async fn remember(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        self.inner.remember(cx, key).await
    }
    async fn answer(&self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> Result<()> {
        self.inner.answer(cx, key, answer).await
    }
    async fn audit(&self, cx: &Context, run: RunId, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
        self.inner.audit(cx, run, after, limit).await
    }
    async fn verify(&self, cx: &Context, run: RunId) -> Result<Option<ChainCheck>> {
        self.inner.verify(cx, run).await
    }
    async fn stats(&self) -> Result<Stats> {
        self.inner.stats().await
    }
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
