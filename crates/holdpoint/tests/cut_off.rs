//! Callers that go away in the middle of what they asked for: what was stored of it is carried on all the same.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::protocol::{RunId, RunStatus};
use holdpoint::store::{Call, Doing, MemoryStore, Store, SystemClock, Wrap};

/// A store whose next call of this name is done, and never answered.
struct Silent {
    inner: MemoryStore,
    next: Mutex<Option<&'static str>>,
}

impl Silent {
    fn new() -> Arc<Self> {
        let inner = MemoryStore::new(Arc::new(SystemClock::new()));
        Arc::new(Self { inner, next: Mutex::default() })
    }

    fn at(&self, name: &'static str) {
        *self.next.lock().unwrap() = Some(name);
    }
}

impl Wrap for Silent {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn around<'a, T: Send + 'a>(&'a self, call: Call, doing: Doing<'a, T>) -> Doing<'a, T> {
        let is_it = self.next.lock().unwrap().take_if(|name| *name == call.name).is_some();
        Box::pin(async move {
            let done = doing.await;
            if is_it {
                std::future::pending::<()>().await;
            }
            done
        })
    }
}

fn runtime(store: &Arc<Silent>, agent: Agent) -> Runtime {
    Runtime::builder().agent(agent).shared_store(store.clone()).build().unwrap()
}

/// Asks, and goes away before there is an answer.
async fn cut_off<T>(asking: impl Future<Output = T>) {
    assert!(tokio::time::timeout(Duration::from_millis(100), asking).await.is_err());
}

async fn only_run(store: &Silent) -> RunId {
    let runs = store.runs(&local(), &Default::default(), &Default::default()).await.unwrap();
    assert_eq!(runs.items.len(), 1);
    runs.items[0].run_id
}

/// Waits in the clock of the test, which does not wait for anything but what is asked of it.
async fn until_it_is(store: &Silent, run: RunId, status: RunStatus) {
    for _ in 0..60 {
        if store.run(&local(), run).await.unwrap().unwrap().status == status {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{:?}", store.run(&local(), run).await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_cut_off_after_it_was_stored_is_carried_on() {
    let store = Silent::new();
    let runtime = runtime(&store, build_assistant(&Log::default(), three_calls()).build().unwrap());
    store.at("start");
    cut_off(runtime.start(&local(), Start::text("go"))).await;
    assert_eq!(runtime.live_runs(), 0, "nobody drives it yet");
    until_it_is(&store, only_run(&store).await, RunStatus::Suspended).await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_is_cut_off_after_it_was_stored_is_carried_on() {
    let (store, log) = (Silent::new(), Log::default());
    let model = calls_then_done(&[("c1", "Bash", r#"{"command":"make"}"#)]);
    let runtime = runtime(&store, build_assistant(&log, model).build().unwrap());
    let waiting = run(&runtime).await;
    store.at("decide");
    cut_off(decide(&runtime, waiting.pending()[0].request_id, DecisionWord::Approve)).await;
    until_it_is(&store, waiting.run, RunStatus::Finished).await;
    assert_eq!(log.names(), ["Bash"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_cut_off_after_it_was_stored_is_carried_on() {
    let store = Silent::new();
    let runtime = runtime(&store, build_assistant(&Log::default(), three_calls()).build().unwrap());
    let waiting = run(&runtime).await;
    store.at("cancel");
    cut_off(runtime.cancel(&local(), waiting.run)).await;
    until_it_is(&store, waiting.run, RunStatus::Finished).await;
}

/// What runs is told to stop, though whoever asked for that does not hear of it: it might run for ever.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_cut_off_stops_what_is_running() {
    for call in ["cancel", "load"] {
        let (store, log) = (Silent::new(), Log::default());
        let hangs = hanging(&log, "Hang", EffectClass::ReadOnly);
        let all = Policy::builder("all").allow(["*"]).build().unwrap();
        let model = calls_then_done(&[("c1", "Hang", "{}")]);
        let agent = Agent::builder("main", model).tool(hangs).policy(all).build().unwrap();
        let runtime = runtime(&store, agent);
        let run = runtime.start(&local(), Start::text("go")).await.unwrap().run;
        while log.names().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        store.at(call);
        cut_off(runtime.cancel(&local(), run)).await;
        until_it_is(&store, run, RunStatus::Finished).await;
    }
}
