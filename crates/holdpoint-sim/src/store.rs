//! A store that fails, loses its answers, is slow, or has the process die - at the writes the scenario names - as one of
//! several instances sees it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use holdpoint::core::decision::CancelKind;
use holdpoint::core::message::Message;
use holdpoint::core::run::LedgerLine;
use holdpoint::protocol::{
    ConversationId, InstanceId, Interaction, Page, RequestId, RunId, RunView, Timestamp,
};
use holdpoint::store::{
    AuditRow, Bell, CancelReply, ChainCheck, Committed, Context, Decide, DecideReply, EffectEnd, EffectKey,
    EffectRecord, EffectUse, Error, IdempotencyKey, InteractionFilter, KeyUse, Known, Loaded, MemoryStore,
    Next, Noted, PageRequest, PresetDue, RequestHead, Result, RuleRelease, RunFilter, Standing, StartRun,
    Started, Stats, Step, Store, StoredAnswer, Taken, Tidied, Tidy,
};
use tokio::sync::broadcast;

use crate::cluster::Instance;
use crate::scenario::Fault;

/// The store as the process sees it.
pub struct FaultyStore {
    /// What survives.
    pub inner: Arc<MemoryStore>,
    /// The instance that sees it so.
    pub me: Arc<Instance>,
    /// All of them.
    pub all: Vec<Arc<Instance>>,
    /// Counts the writes, over all lives.
    pub writes: Arc<AtomicU64>,
    /// What is still to go wrong.
    pub faults: Arc<Mutex<BTreeMap<u64, Fault>>>,
    /// Called after every write, whatever came of it: what is stored then is looked at.
    pub after_write: Box<dyn Fn() + Send + Sync>,
}

impl FaultyStore {
    async fn write<T>(&self, what: impl AsyncFnOnce(&MemoryStore) -> Result<T>) -> Result<T> {
        self.me.awake().await;
        let n = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = self.faults.lock().unwrap_or_else(PoisonError::into_inner).remove(&n);
        let done = self.write_with(fault, what).await;
        (self.after_write)();
        // It is stored, and may be heard of long after.
        self.me.awake().await;
        done
    }

    /// What time does, asked for again and again. Not counted: it would use up the numbers, and a process that dies right after
    /// it is one that dies at its next write.
    async fn sweep<T>(&self, what: impl AsyncFnOnce(&MemoryStore) -> Result<T>) -> Result<T> {
        self.me.awake().await;
        self.me.held()?;
        let done = what(&self.inner).await;
        (self.after_write)();
        self.me.awake().await;
        done
    }

    /// What others stored of a run is heard of by everybody else.
    fn ring(&self, run: RunId) {
        self.all.iter().filter(|other| other.id != self.me.id).for_each(|other| other.rung(run));
    }

    fn noted(&self, noted: Noted) -> Noted {
        self.ring(noted.run);
        self.me.sees(noted)
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
            Some(Fault::ComesLate(ms)) => {
                if self.me.is_shared() {
                    self.me.stand_still(ms);
                    self.me.awake().await;
                }
                what(&self.inner).await
            }
            Some(Fault::Slow(ms)) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                self.me.awake().await;
                let done = what(&self.inner).await;
                tokio::time::sleep(Duration::from_millis(ms)).await;
                done
            }
        }
    }

    async fn die(&self) -> ! {
        self.me.die();
        std::future::pending().await
    }
}

#[async_trait]
impl EffectRecord for FaultyStore {
    async fn begin_effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        self.write(async |store| store.begin_effect(cx, key).await).await
    }
    async fn effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        self.me.awake().await;
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
        self.me.id
    }
    fn is_shared(&self) -> bool {
        self.me.is_shared()
    }
    fn term(&self) -> Option<u64> {
        self.me.term()
    }
    fn standing(&self) -> Option<Standing> {
        self.me.standing()
    }
    fn bells(&self) -> Option<broadcast::Receiver<Bell>> {
        self.me.bells()
    }
    async fn now(&self) -> Result<Timestamp> {
        self.me.awake().await;
        self.inner.now().await
    }
    async fn start(&self, cx: &Context, start: StartRun) -> Result<Started> {
        self.me.awake().await;
        self.me.held()?;
        let (run, next) = (start.run.id(), start.next);
        self.write(async |store| {
            let started = store.start(cx, start).await?;
            if matches!(started, Started::Created { .. }) && next == Next::Keep {
                self.me.owns(run);
            }
            self.ring(run);
            Ok(started)
        })
        .await
    }
    async fn commit(&self, cx: &Context, step: &Step<'_>) -> Result<Committed> {
        self.me.awake().await;
        // What ends may be stored as long as the epoch lets it; what begins needs the lease.
        if step.writes.executions.iter().any(|line| matches!(line, LedgerLine::Started { .. })) {
            self.me.held()?;
        }
        self.write(async |store| {
            let committed = store.commit(cx, step).await?;
            if matches!(committed, Committed::Done { .. }) {
                self.me.wrote(step.run.id(), step.epoch);
                self.me.lets_go(step.run.id()).await;
                self.ring(step.run.id());
            }
            Ok(committed)
        })
        .await
    }
    async fn load(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.me.awake().await;
        let loaded = self.inner.load(cx, run).await;
        self.me.awake().await;
        loaded
    }
    async fn take(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.me.awake().await;
        self.me.held()?;
        self.write(async |store| {
            self.me.bury();
            let loaded = store.take(cx, run).await?;
            if let Some(loaded) = &loaded {
                self.me.took(run, loaded.epoch);
            }
            Ok(loaded)
        })
        .await
    }
    async fn recover(&self, limit: usize) -> Result<Vec<Taken>> {
        self.sweep(async |store| {
            self.me.bury();
            let taken = store.recover(limit).await?;
            for taken in &taken {
                let at = store.load(&taken.cx, taken.run).await?.map_or(0, |loaded| loaded.epoch);
                self.me.took(taken.run, at);
            }
            Ok(taken)
        })
        .await
    }
    async fn set_aside(&self, limit: usize) -> Result<Vec<Noted>> {
        self.sweep(async |store| {
            self.me.bury();
            let noted = store.set_aside(limit).await?;
            Ok(noted.into_iter().map(|noted| self.noted(noted)).collect())
        })
        .await
    }
    async fn owned(&self, limit: usize) -> Result<Vec<Taken>> {
        self.me.awake().await;
        let owned = self.inner.owned(limit).await?;
        Ok(owned.into_iter().filter(|taken| self.me.has(taken.run)).collect())
    }
    async fn release(&self, cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> Result<()> {
        self.write(async |store| {
            store.release(cx, run, epoch, after_ms).await?;
            self.me.lets_go(run).await;
            Ok(())
        })
        .await
    }
    async fn decide(&self, cx: &Context, decide: Decide) -> Result<DecideReply> {
        self.me.awake().await;
        // It may make this instance the owner of the run.
        self.me.held()?;
        self.write(async |store| {
            Ok(match store.decide(cx, decide).await? {
                DecideReply::Taken { decision, noted } => {
                    DecideReply::Taken { decision, noted: self.noted(noted) }
                }
                other => other,
            })
        })
        .await
    }
    async fn fail_gate(&self, cx: &Context, requests: &[RequestId]) -> Result<Vec<Noted>> {
        self.write(async |store| {
            let noted = store.fail_gate(cx, requests).await?;
            Ok(noted.into_iter().map(|noted| self.noted(noted)).collect())
        })
        .await
    }
    async fn cancel(&self, cx: &Context, run: RunId, kind: CancelKind) -> Result<CancelReply> {
        self.me.awake().await;
        self.me.held()?;
        self.write(async |store| {
            Ok(match store.cancel(cx, run, kind).await? {
                CancelReply::Noted(noted) => CancelReply::Noted(self.noted(noted)),
                other => other,
            })
        })
        .await
    }
    async fn expire_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.sweep(async |store| {
            let noted = store.expire_due(limit).await?;
            Ok(noted.into_iter().map(|noted| self.noted(noted)).collect())
        })
        .await
    }
    async fn presets_due(&self, limit: usize) -> Result<Vec<PresetDue>> {
        self.sweep(async |store| store.presets_due(limit).await).await
    }
    async fn close_due(
        &self,
        cx: &Context,
        request: RequestId,
        release: Option<RuleRelease>,
    ) -> Result<Option<Noted>> {
        self.me.awake().await;
        self.me.held()?;
        self.write(async |store| {
            let noted = store.close_due(cx, request, release).await?;
            Ok(noted.map(|noted| self.noted(noted)))
        })
        .await
    }
    async fn remind_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.sweep(async |store| {
            let noted = store.remind_due(limit).await?;
            Ok(noted.into_iter().map(|noted| self.noted(noted)).collect())
        })
        .await
    }
    async fn next_deadline(&self) -> Result<Option<Timestamp>> {
        self.me.awake().await;
        self.inner.next_deadline().await
    }
    async fn history(
        &self,
        cx: &Context,
        conversation: &ConversationId,
        run: RunId,
        after: Option<u32>,
    ) -> Result<Vec<Arc<Message>>> {
        self.me.awake().await;
        self.inner.history(cx, conversation, run, after).await
    }
    async fn events(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<(u64, Arc<str>)>>> {
        self.me.awake().await;
        self.inner.events(cx, run, after, limit).await
    }
    async fn request(&self, cx: &Context, request: RequestId) -> Result<Option<RequestHead>> {
        self.me.awake().await;
        self.inner.request(cx, request).await
    }
    async fn moved(&self, known: &[Known]) -> Result<Vec<RunId>> {
        self.me.awake().await;
        self.inner.moved(known).await
    }
    async fn newest_pending(&self, cx: &Context, limit: usize) -> Result<Vec<(Timestamp, RequestId)>> {
        self.me.awake().await;
        self.inner.newest_pending(cx, limit).await
    }
    async fn interaction(&self, cx: &Context, request: RequestId) -> Result<Option<Interaction>> {
        self.me.awake().await;
        self.inner.interaction(cx, request).await
    }
    async fn interactions(
        &self,
        cx: &Context,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Result<Page<Interaction>> {
        self.me.awake().await;
        self.inner.interactions(cx, filter, page).await
    }
    async fn run(&self, cx: &Context, run: RunId) -> Result<Option<RunView>> {
        self.me.awake().await;
        self.inner.run(cx, run).await
    }
    async fn runs(&self, cx: &Context, filter: &RunFilter, page: &PageRequest) -> Result<Page<RunView>> {
        self.me.awake().await;
        self.inner.runs(cx, filter, page).await
    }
    async fn started_with(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        self.me.awake().await;
        self.inner.started_with(cx, key).await
    }
    async fn remember(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        self.me.awake().await;
        self.inner.remember(cx, key).await
    }
    async fn answer(&self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> Result<()> {
        self.me.awake().await;
        self.inner.answer(cx, key, answer).await
    }
    async fn audit(&self, cx: &Context, run: RunId, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
        self.me.awake().await;
        self.inner.audit(cx, run, after, limit).await
    }
    async fn verify(&self, cx: &Context, run: RunId) -> Result<Option<ChainCheck>> {
        self.me.awake().await;
        self.inner.verify(cx, run).await
    }
    async fn stats(&self) -> Result<Stats> {
        self.me.awake().await;
        self.inner.stats().await
    }
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
