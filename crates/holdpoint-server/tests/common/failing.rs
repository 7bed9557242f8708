//! A store that can be told to fail.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use holdpoint::core::decision::CancelKind;
use holdpoint::core::message::Message;
use holdpoint::protocol::{
    ConversationId, InstanceId, Interaction, Page, RequestId, RunId, RunView, Timestamp,
};
use holdpoint::store::*;

/// The memory store, and what it is to say instead when something is written or read.
pub struct Failing {
    inner: MemoryStore,
    writes: Mutex<Option<Error>>,
    reads: Mutex<Option<Error>>,
}

impl Failing {
    pub fn new() -> Arc<Self> {
        let inner = MemoryStore::new(Arc::new(SystemClock::new()));
        Arc::new(Self { inner, writes: Mutex::default(), reads: Mutex::default() })
    }

    pub fn fail_writes(&self, error: Option<Error>) {
        *self.writes.lock().unwrap() = error;
    }

    pub fn fail_reads(&self, error: Option<Error>) {
        *self.reads.lock().unwrap() = error;
    }

    fn write(&self) -> Result<()> {
        self.writes.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn read(&self) -> Result<()> {
        self.reads.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl EffectRecord for Failing {
    async fn begin_effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        self.write()?;
        self.inner.begin_effect(cx, key).await
    }
    async fn effect(&self, cx: &Context, key: &EffectKey) -> Result<EffectUse> {
        self.read()?;
        self.inner.effect(cx, key).await
    }
    async fn end_effect(&self, cx: &Context, key: &EffectKey, end: EffectEnd) -> Result<()> {
        self.write()?;
        self.inner.end_effect(cx, key, end).await
    }
}

#[async_trait]
impl Tidy for Failing {
    async fn tidy(&self, keep: Option<std::time::Duration>, limit: usize) -> Result<Tidied> {
        self.write()?;
        self.inner.tidy(keep, limit).await
    }
}

macro_rules! pass {
    ($($kind:ident $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl Store for Failing {
            fn instance(&self) -> InstanceId {
                self.inner.instance()
            }
            async fn close(&self) -> Result<()> {
                self.inner.close().await
            }
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out> {
                self.$kind()?;
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

pass! {
    read now() -> Timestamp;
    write start(cx: &Context, start: StartRun) -> Started;
    write commit(cx: &Context, step: &Step<'_>) -> Committed;
    read load(cx: &Context, run: RunId) -> Option<Loaded>;
    write take(cx: &Context, run: RunId) -> Option<Loaded>;
    write recover(limit: usize) -> Vec<Taken>;
    write set_aside(limit: usize) -> Vec<Noted>;
    read owned(limit: usize) -> Vec<Taken>;
    write release(cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> ();
    write decide(cx: &Context, decide: Decide) -> DecideReply;
    write fail_gate(cx: &Context, requests: &[RequestId]) -> Vec<Noted>;
    write cancel(cx: &Context, run: RunId, kind: CancelKind) -> CancelReply;
    write expire_due(limit: usize) -> Vec<Noted>;
    read presets_due(limit: usize) -> Vec<PresetDue>;
    write close_due(cx: &Context, request: RequestId, release: Option<RuleRelease>) -> Option<Noted>;
    write remind_due(limit: usize) -> Vec<Noted>;
    read next_deadline() -> Option<Timestamp>;
    read history(cx: &Context, conversation: &ConversationId, run: RunId, after: Option<u32>) -> Vec<Arc<Message>>;
    read events(cx: &Context, run: RunId, after: u64, limit: usize) -> Option<Vec<(u64, Arc<str>)>>;
    read request(cx: &Context, request: RequestId) -> Option<RequestHead>;
    read moved(known: &[Known]) -> Vec<RunId>;
    read newest_pending(cx: &Context, limit: usize) -> Vec<(Timestamp, RequestId)>;
    read interaction(cx: &Context, request: RequestId) -> Option<Interaction>;
    read interactions(cx: &Context, filter: &InteractionFilter, page: &PageRequest) -> Page<Interaction>;
    read run(cx: &Context, run: RunId) -> Option<RunView>;
    read runs(cx: &Context, filter: &RunFilter, page: &PageRequest) -> Page<RunView>;
    read started_with(cx: &Context, key: &IdempotencyKey) -> KeyUse;
    write remember(cx: &Context, key: &IdempotencyKey) -> KeyUse;
    write answer(cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> ();
    read audit(cx: &Context, run: RunId, after: u64, limit: usize) -> Vec<AuditRow>;
    read verify(cx: &Context, run: RunId) -> Option<ChainCheck>;
    read stats() -> Stats;
}
