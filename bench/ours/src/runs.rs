//! One run of each kind.

use std::sync::Arc;
use std::time::Instant;

use holdpoint::prelude::*;
use holdpoint::protocol::{RequestId, RunId};
use holdpoint::store::{Context, Store};
use holdpoint_bench_harness::{Deviations, work};

use crate::agent::{self, Log};

/// A runtime that does the work.
pub struct Ours {
    pub runtime: Runtime,
    pub log: Arc<Log>,
}

impl Ours {
    /// On this store; in memory without one.
    pub fn new(log: Arc<Log>, store: Option<Arc<dyn Store>>) -> Self {
        Self::with(agent::build(&log), log, store)
    }

    /// The same with another agent.
    pub fn with(agent: Agent, log: Arc<Log>, store: Option<Arc<dyn Store>>) -> Self {
        let builder = Runtime::builder().agent(agent);
        let builder = match store {
            Some(store) => builder.shared_store(store),
            None => builder,
        };
        Self { runtime: builder.build().expect("a valid runtime"), log }
    }

    /// W1: nothing needs a person.
    pub async fn free(&self, found: &mut Deviations) {
        let outcome = self.runtime.run(&local(), Start::text(work::PROMPT)).await.expect("a run");
        let record = self.log.take(outcome.run);
        found.check_tools(outcome.text().unwrap_or("no text"), &record, self.log.expect());
    }

    /// Starts a run that stops at its two gated calls; what is left of it is its id.
    pub async fn suspend(&self, cx: &Context, found: &mut Deviations) -> RunId {
        let outcome = self.runtime.run(cx, Start::text(work::PROMPT)).await.expect("a run");
        found.check_suspended(&self.log.record(outcome.run));
        if outcome.pending().len() != 2 {
            found.note("pending", format!("{:?}", outcome.state));
        }
        outcome.run
    }

    /// Takes a suspended run up by its id: reads what is pending, declines Write, approves Bash, waits for the end.
    /// Returns the milliseconds from the approve to the entry into Bash.
    pub async fn decide(&self, cx: &Context, run: RunId, found: &mut Deviations) -> Option<f64> {
        let view = self.runtime.store().run(cx, run).await.expect("a store").expect("a run");
        let [write, bash] = &view.pending[..] else {
            found.note("pending", format!("{:?}", view.pending));
            return None;
        };
        self.take(cx, write.request_id, DecisionWord::Decline, Some(work::DECLINED)).await;
        let approved = Instant::now();
        self.take(cx, bash.request_id, DecisionWord::Approve, None).await;
        let outcome = self.runtime.wait(cx, run).await.expect("an end");
        let record = self.log.take(run);
        found.check_tools(outcome.text().unwrap_or("no text"), &record, self.log.expect());
        record.bash_at.map(|at| at.saturating_duration_since(approved).as_secs_f64() * 1e3)
    }

    async fn take(&self, cx: &Context, request: RequestId, word: DecisionWord, reason: Option<&str>) {
        let by = By { actor: Some(cx.actor.clone()), via: Via::Human };
        let mut deciding = Deciding::new(request, word, by);
        deciding.reason = reason.map(str::to_owned);
        self.runtime.decide(cx, deciding).await.expect("a decision");
    }

    /// Stops everything and closes the store.
    pub async fn close(self) {
        self.runtime.shutdown(std::time::Duration::from_secs(5)).await;
    }
}
