//! Calls under a business key: the record stands around the tool. It is asked before the tool is, the result is stored before
//! anybody is told of it, and what the record already has is given out as what it is - a result of then, and no execution now.

use std::sync::Arc;

use holdpoint_core::business::NoKey;
use holdpoint_core::message::ResultContent;
use holdpoint_core::run::{Probed, ToolEnd};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::{ExecId, Timestamp};
use holdpoint_store::{Context, EffectEnd, EffectKey, EffectUse, RecordedEffect, Store};
use tokio_util::sync::CancellationToken;

use crate::patience::{GivenUp, Until, keep_at};

/// The record of one execution.
pub(super) struct Record {
    store: Arc<dyn Store>,
    cx: Context,
    key: EffectKey,
}

impl Record {
    /// The record of a call of this tool with these arguments, where the tool has a business key.
    pub(super) fn of(
        store: &Arc<dyn Store>,
        cx: &Context,
        tool: &ToolDefinition,
        exec: ExecId,
        arguments: &str,
    ) -> Result<Option<Self>, NoKey> {
        let Some(found) = tool.business_key(arguments)? else { return Ok(None) };
        let key = EffectKey { tool: tool.name.clone(), key: found.key, exec, arguments: found.arguments };
        Ok(Some(Self { store: Arc::clone(store), cx: cx.clone(), key }))
    }

    /// Reserves the key. `Some` is how the call ends without the tool: what the record has, or that it may not run.
    ///
    /// When the call is cancelled meanwhile, the tool is not called; and a reservation that may have been made all the same is taken
    /// back before that is said, because nothing would ever run under it.
    pub(super) async fn begin(&self, cancel: &CancellationToken) -> Option<ToolEnd> {
        let reserve = || self.store.begin_effect(&self.cx, &self.key);
        let found = match keep_at(
            reserve,
            Until::Told(cancel),
            "a business key is not reserved yet, and its tool waits",
        )
        .await
        {
            Ok(found) => found,
            Err(GivenUp::Refused(error)) => return Some(refused("GATE_ERROR", error.to_string())),
            Err(GivenUp::Told { unknown }) => {
                if unknown {
                    self.store_end(EffectEnd::NoEffect).await;
                }
                return Some(refused("GATE_ERROR", "the run ended before the key was reserved".into()));
            }
        };
        match found {
            EffectUse::Free | EffectUse::Mine => None,
            EffectUse::Recorded(recorded) => Some(self.told(recorded)),
            EffectUse::Unfinished { since, .. } => {
                Some(refused("KEY_UNFINISHED", unfinished(&self.key.key, since)))
            }
            EffectUse::Reused { since, .. } => Some(refused("KEY_REUSED", reused(&self.key.key, since))),
        }
    }

    /// Stores how the tool ended, for as long as it takes: nobody is told of a result before.
    pub(super) async fn end(&self, end: &ToolEnd) {
        let end = match end {
            ToolEnd::Output(content) => match serde_json::to_string(content) {
                Ok(result) => EffectEnd::Recorded(result),
                // Text and JSON always serialise. Without a result the key stays reserved: nothing runs under it.
                Err(error) => return tracing::error!(%error, "a result could not be recorded"),
            },
            ToolEnd::Error { not_executed: true, .. } => EffectEnd::NoEffect,
            // Nobody knows what it did, or it says that it did something and failed: not under this key again.
            ToolEnd::Error { not_executed: false, .. }
            | ToolEnd::Replayed { .. }
            | ToolEnd::Lost { .. }
            | ToolEnd::TimedOut
            | ToolEnd::Cancelled
            | ToolEnd::Panicked => return,
        };
        self.store_end(end).await;
    }

    /// Whatever else ends meanwhile: what is not stored here is known to nobody.
    async fn store_end(&self, end: EffectEnd) {
        let store = || self.store.end_effect(&self.cx, &self.key, end.clone());
        if let Err(given_up) =
            keep_at(store, Until::Done, "how a tool ended is not recorded yet, and held back").await
        {
            tracing::error!(
                ?given_up,
                tool = self.key.tool,
                "how a tool ended could not be recorded; its key stays reserved"
            );
        }
    }

    /// What the record says of an execution that broke off. `None` where it has only the reservation, which tells nothing.
    pub(super) async fn probe(&self) -> Option<Probed> {
        match self.store.effect(&self.cx, &self.key).await {
            Ok(EffectUse::Recorded(recorded)) if recorded.exec == self.key.exec => {
                content_of(&recorded).map(Probed::Done)
            }
            // Reserved before the tool is called: what never reserved it never called the tool.
            Ok(
                EffectUse::Free
                | EffectUse::Recorded(_)
                | EffectUse::Unfinished { .. }
                | EffectUse::Reused { .. },
            ) => Some(Probed::NotDone),
            Ok(EffectUse::Mine) | Err(_) => None,
        }
    }

    fn told(&self, recorded: RecordedEffect) -> ToolEnd {
        match content_of(&recorded) {
            // An earlier attempt of this very call, whose answer was lost on the way.
            Some(content) if recorded.exec == self.key.exec => ToolEnd::Output(content),
            Some(content) => ToolEnd::Replayed { content, recorded_at: recorded.at },
            None => refused("GATE_ERROR", "the recorded result cannot be read".into()),
        }
    }
}

/// A call that may not run because its arguments have no key.
pub(super) fn without_key(why: &NoKey) -> ToolEnd {
    refused("BUSINESS_KEY", why.to_string())
}

fn content_of(recorded: &RecordedEffect) -> Option<ResultContent> {
    serde_json::from_str(&recorded.result).ok()
}

fn refused(code: &str, message: String) -> ToolEnd {
    ToolEnd::Error { code: code.into(), message, not_executed: true }
}

fn unfinished(key: &str, since: Timestamp) -> String {
    format!(
        "An earlier call for the same request ({key}, since {since}) has no recorded result: it is still running, failed, or \
         broke off. This call was not executed. Do not repeat it with another key; a person has to see what became of the \
         earlier one."
    )
}

fn reused(key: &str, since: Timestamp) -> String {
    format!(
        "The request {key} was used before, at {since}, with other arguments. This call was not executed: one request has one \
         set of arguments."
    )
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::time::Duration;

    use holdpoint_store::{Call, Doing, Error, MemoryStore, SystemClock, Wrap};

    use super::*;

    /// What becomes of a write.
    enum Fate {
        /// It is not done.
        Away,
        /// It is done, and its answer is lost.
        Unknown,
    }

    /// A store whose next writes go wrong like this.
    struct Wrong {
        inner: MemoryStore,
        fates: Mutex<VecDeque<Fate>>,
    }

    impl Wrap for Wrong {
        fn inner(&self) -> &dyn Store {
            &self.inner
        }

        fn around<'a, T: Send + 'a>(&'a self, call: Call, doing: Doing<'a, T>) -> Doing<'a, T> {
            let fate = if call.writes { self.fates.lock().unwrap().pop_front() } else { None };
            match fate {
                None => doing,
                Some(Fate::Away) => Box::pin(async { Err(Error::Unavailable("gone".into())) }),
                Some(Fate::Unknown) => Box::pin(async {
                    doing.await?;
                    Err(Error::CommitUnknown("gone".into()))
                }),
            }
        }
    }

    fn record(fates: impl IntoIterator<Item = Fate>) -> (Record, Arc<Wrong>) {
        let inner = MemoryStore::new(Arc::new(SystemClock::new()));
        let wrong = Arc::new(Wrong { inner, fates: Mutex::new(fates.into_iter().collect()) });
        let key = EffectKey {
            tool: "pay".into(),
            key: "order-7".into(),
            exec: ExecId(uuid::Uuid::from_u128(1)),
            arguments: [0; 32],
        };
        let store: Arc<dyn Store> = Arc::clone(&wrong) as _;
        (Record { store, cx: crate::local(), key }, wrong)
    }

    async fn stands(record: &Record) -> EffectUse {
        record.store.effect(&record.cx, &record.key).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_whose_answer_was_lost_is_the_calls_own() {
        let (record, _) = record([Fate::Away, Fate::Unknown]);
        assert!(record.begin(&CancellationToken::new()).await.is_none());
        assert_eq!(stands(&record).await, EffectUse::Mine);
    }

    /// Its tool is not called, so nothing may stay reserved for it.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_cancelled_before_its_key_is_reserved_leaves_no_reservation() {
        for fates in [vec![Fate::Away], vec![Fate::Unknown], vec![Fate::Unknown, Fate::Away, Fate::Away]] {
            let (record, _) = record(fates);
            let cancel = CancellationToken::new();
            cancel.cancel();
            let end = record.begin(&cancel).await;
            assert!(matches!(end, Some(ToolEnd::Error { not_executed: true, .. })), "{end:?}");
            assert_eq!(stands(&record).await, EffectUse::Free);
        }
    }

    /// What the tool brought is said only when it stands in the record: `end` comes back then and not before.
    #[tokio::test(start_paused = true)]
    async fn a_result_is_held_back_for_as_long_as_it_is_not_stored() {
        let (record, wrong) = record([]);
        assert!(record.begin(&CancellationToken::new()).await.is_none());
        wrong.fates.lock().unwrap().extend((0..100).map(|_| Fate::Away));
        let end = ToolEnd::Output(ResultContent::Text("paid".into()));
        let minutes = Duration::from_secs(150);
        assert!(tokio::time::timeout(minutes, record.end(&end)).await.is_err(), "said before it was stored");
        assert_eq!(stands(&record).await, EffectUse::Mine);
        wrong.fates.lock().unwrap().clear();
        record.end(&end).await;
        assert!(matches!(stands(&record).await, EffectUse::Recorded(_)));
    }
}
