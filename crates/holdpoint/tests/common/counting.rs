//! A store that counts what is read of it, and says that others write to it too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use holdpoint::core::decision::CancelKind;
use holdpoint::core::message::Message;
use holdpoint::protocol::{
    ConversationId, InstanceId, Interaction, Page, RequestId, RunId, RunView, Timestamp,
};
use holdpoint::store::*;

/// Another way to a store that somebody else uses as well.
pub struct Counting {
    inner: Arc<dyn Store>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
}

impl Counting {
    pub fn of(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, calls: Mutex::default() })
    }

    /// How often each was called since it was last asked, but for what is asked of a store regularly, whoever watches.
    pub fn taken(&self) -> BTreeMap<&'static str, usize> {
        let mut calls = std::mem::take(&mut *self.calls.lock().unwrap());
        let regularly =
            ["now", "next_deadline", "expire_due", "presets_due", "remind_due", "recover", "owned", "tidy"];
        calls.retain(|name, _| !regularly.contains(name));
        calls
    }
}

macro_rules! counted {
    (impl $trait:ident { $($plain:item)* } $($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl $trait for Counting {
            $($plain)*
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out> {
                *self.calls.lock().unwrap().entry(stringify!($name)).or_default() += 1;
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

counted! {
    impl EffectRecord {}
    begin_effect(cx: &Context, key: &EffectKey) -> EffectUse;
    effect(cx: &Context, key: &EffectKey) -> EffectUse;
    end_effect(cx: &Context, key: &EffectKey, end: EffectEnd) -> ();
}

counted! {
    impl Tidy {}
    tidy(keep: Option<Duration>, limit: usize) -> Tidied;
}

counted! {
    impl Store {
        fn instance(&self) -> InstanceId {
            self.inner.instance()
        }
        fn is_shared(&self) -> bool {
            true
        }
    }
    now() -> Timestamp;
    start(cx: &Context, start: StartRun) -> Started;
    commit(cx: &Context, step: &Step<'_>) -> Committed;
    load(cx: &Context, run: RunId) -> Option<Loaded>;
    take(cx: &Context, run: RunId) -> Option<Loaded>;
    recover(limit: usize) -> Vec<Taken>;
    set_aside(limit: usize) -> Vec<Noted>;
    owned(limit: usize) -> Vec<Taken>;
    release(cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> ();
    decide(cx: &Context, decide: Decide) -> DecideReply;
    fail_gate(cx: &Context, requests: &[RequestId]) -> Vec<Noted>;
    cancel(cx: &Context, run: RunId, kind: CancelKind) -> CancelReply;
    expire_due(limit: usize) -> Vec<Noted>;
    presets_due(limit: usize) -> Vec<PresetDue>;
    close_due(cx: &Context, request: RequestId, release: Option<RuleRelease>) -> Option<Noted>;
    remind_due(limit: usize) -> Vec<Noted>;
    next_deadline() -> Option<Timestamp>;
    history(cx: &Context, conversation: &ConversationId, run: RunId, after: Option<u32>) -> Vec<Arc<Message>>;
    events(cx: &Context, run: RunId, after: u64, limit: usize) -> Option<NumberedEvents>;
    request(cx: &Context, request: RequestId) -> Option<RequestHead>;
    moved(known: &[Known]) -> Vec<RunId>;
    newest_pending(cx: &Context, limit: usize) -> Vec<(Timestamp, RequestId)>;
    interaction(cx: &Context, request: RequestId) -> Option<Interaction>;
    interactions(cx: &Context, filter: &InteractionFilter, page: &PageRequest) -> Page<Interaction>;
    run(cx: &Context, run: RunId) -> Option<RunView>;
    runs(cx: &Context, filter: &RunFilter, page: &PageRequest) -> Page<RunView>;
    started_with(cx: &Context, key: &IdempotencyKey) -> KeyUse;
    remember(cx: &Context, key: &IdempotencyKey) -> KeyUse;
    answer(cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> ();
    audit(cx: &Context, run: RunId, after: u64, limit: usize) -> Vec<AuditRow>;
    verify(cx: &Context, run: RunId) -> Option<ChainCheck>;
    stats() -> Stats;
    close() -> ();
}
