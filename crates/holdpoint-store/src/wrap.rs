//! A store around another one: it sees every call, and does with it what it likes.
//!
//! This is the only list of what a store can do beside the traits themselves. A test sees to it that it is whole.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdpoint_core::decision::CancelKind;
use holdpoint_core::message::Message;
use holdpoint_protocol::{
    ConversationId, InstanceId, Interaction, Page, RawJson, RequestId, RunId, RunView, Timestamp,
};
use tokio::sync::broadcast;

use crate::*;

/// One call of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The method.
    pub name: &'static str,
    /// Whether it can change what is stored.
    pub writes: bool,
}

/// A call that is under way, or is to be: nothing of it happens before it is first polled, and nothing at all when it is dropped
/// before that.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A store around another one. Everything is passed on that the wrapper does not say otherwise.
pub trait Wrap: Send + Sync + 'static {
    /// The store inside.
    fn inner(&self) -> &dyn Store;

    /// Does a call: before, instead of or after `doing` it, whatever the wrapper is for.
    fn around<'a, T: Send + 'a>(&'a self, _call: Call, doing: Doing<'a, T>) -> Doing<'a, T> {
        doing
    }

    /// Whether others may write to it, too.
    fn shared(&self) -> bool {
        self.inner().is_shared()
    }
}

macro_rules! passed_on {
    ($trait:ident { $($plain:item)* } $($kind:ident $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl<W: Wrap> $trait for W {
            $($plain)*
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out> {
                let call = Call { name: stringify!($name), writes: passed_on!($kind) };
                self.around(call, self.inner().$name($($arg),*)).await
            })*
        }
    };
    (reads) => { false };
    (writes) => { true };
}

passed_on! {
    EffectRecord {}
    writes begin_effect(cx: &Context, key: &EffectKey) -> EffectUse;
    reads effect(cx: &Context, key: &EffectKey) -> EffectUse;
    writes end_effect(cx: &Context, key: &EffectKey, end: EffectEnd) -> ();
}

passed_on! {
    Tidy {}
    writes tidy(keep: Option<Duration>, limit: usize) -> Tidied;
}

passed_on! {
    Store {
        fn instance(&self) -> InstanceId {
            self.inner().instance()
        }

        fn is_shared(&self) -> bool {
            self.shared()
        }

        fn term(&self) -> Option<u64> {
            self.inner().term()
        }

        fn standing(&self) -> Option<Standing> {
            self.inner().standing()
        }

        fn bells(&self) -> Option<broadcast::Receiver<Bell>> {
            self.inner().bells()
        }
    }
    reads now() -> Timestamp;
    writes probe() -> ();
    writes start(cx: &Context, start: StartRun) -> Started;
    writes commit(cx: &Context, step: &Step<'_>) -> Committed;
    reads load(cx: &Context, run: RunId) -> Option<Loaded>;
    writes take(cx: &Context, run: RunId) -> Option<Loaded>;
    writes recover(limit: usize) -> Vec<Taken>;
    reads owned(limit: usize) -> Vec<Taken>;
    writes release(cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> ();
    writes decide(cx: &Context, decide: Decide) -> DecideReply;
    writes keep_late(cx: &Context, request: RequestId, result: &RawJson) -> bool;
    writes fail_gate(cx: &Context, requests: &[RequestId]) -> Vec<Noted>;
    writes cancel(cx: &Context, run: RunId, kind: CancelKind) -> CancelReply;
    writes expire_due(limit: usize) -> Vec<Noted>;
    reads presets_due(limit: usize) -> Vec<PresetDue>;
    writes close_due(cx: &Context, request: RequestId, release: Option<RuleRelease>) -> Option<Noted>;
    writes remind_due(limit: usize) -> Vec<Noted>;
    reads next_deadline() -> Option<Timestamp>;
    reads history(cx: &Context, conversation: &ConversationId, run: RunId, after: Option<u32>) -> Vec<Arc<Message>>;
    reads events(cx: &Context, run: RunId, after: u64, limit: usize) -> Option<NumberedEvents>;
    reads request(cx: &Context, request: RequestId) -> Option<RequestHead>;
    reads moved(known: &[Known]) -> Vec<RunId>;
    reads newest_pending(cx: &Context, limit: usize) -> Vec<(Timestamp, RequestId)>;
    reads interaction(cx: &Context, request: RequestId) -> Option<Interaction>;
    reads interactions(cx: &Context, filter: &InteractionFilter, page: &PageRequest) -> Page<Interaction>;
    reads run(cx: &Context, run: RunId) -> Option<RunView>;
    reads runs(cx: &Context, filter: &RunFilter, page: &PageRequest) -> Page<RunView>;
    reads started_with(cx: &Context, key: &IdempotencyKey) -> KeyUse;
    writes remember(cx: &Context, key: &IdempotencyKey) -> KeyUse;
    writes answer(cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> ();
    reads audit(cx: &Context, run: RunId, after: u64, limit: usize) -> Vec<AuditRow>;
    reads verify(cx: &Context, run: RunId) -> Option<ChainCheck>;
    reads stats() -> Stats;
    reads close() -> ();
}

#[cfg(test)]
mod tests {
    /// A method with a body of its own in the trait would be left out without a word.
    #[test]
    fn every_method_of_a_store_is_passed_on() {
        let here = include_str!("wrap.rs").split("#[cfg(test)]").next().unwrap();
        let mut named = 0;
        for (text, name) in [
            (include_str!("store.rs"), "pub trait Store"),
            (include_str!("effects.rs"), "pub trait EffectRecord"),
            (include_str!("tidy.rs"), "pub trait Tidy"),
        ] {
            let body = text.split_once(name).unwrap().1.split("\n}\n").next().unwrap();
            for line in body.lines().map(str::trim) {
                let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")) else {
                    continue;
                };
                let method = rest.split('(').next().unwrap();
                let listed =
                    ["reads", "writes", "fn"].iter().any(|kind| here.contains(&format!("{kind} {method}(")));
                assert!(listed, "`{method}` of `{name}` is not passed on: add it to `wrap.rs`");
                named += 1;
            }
        }
        assert!(named > 35, "the traits were found");
    }
}
