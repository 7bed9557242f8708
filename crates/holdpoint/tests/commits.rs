//! What a run costs its store: how often it is written and read. Every write is a commit, and a commit is a flush of the disk.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use holdpoint::prelude::*;
use holdpoint::protocol::RunStatus;
use holdpoint::store::{MemoryStore, SqliteStore, Store, SystemClock};

fn times(calls: &[(&'static str, usize)]) -> BTreeMap<&'static str, usize> {
    calls.iter().copied().collect()
}

#[tokio::test]
async fn the_main_job_takes_eight_commits() {
    the_main_job(Arc::new(MemoryStore::new(Arc::new(SystemClock::new())))).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("holdpoint.db");
    the_main_job(Arc::new(SqliteStore::open(file, Arc::new(SystemClock::new())).unwrap())).await;
}

/// One free and two gated calls in a turn; one is declined, then the other approved.
async fn the_main_job(store: Arc<dyn Store>) {
    let store = Counting::of(store);
    let (log, model) = (Log::default(), three_calls());
    let agent = build_assistant(&log, model).build().unwrap();
    let runtime = Runtime::builder().agent(agent).shared_store(store.clone()).build().unwrap();

    let outcome = run(&runtime).await;
    // The start; the reply, what is asked and the claim of the free call; its result.
    assert_eq!(store.taken(), times(&[("start", 1), ("commit", 2)]));

    // What starts nothing is stored with what follows from it, and nobody takes the run up.
    let [write, bash] = [outcome.pending()[0].request_id, outcome.pending()[1].request_id];
    decide(&runtime, write, DecisionWord::Decline).await.unwrap();
    assert_eq!(store.taken(), times(&[("request", 1), ("decide", 1)]));
    let waiting = runtime.wait(&local(), outcome.run).await.unwrap();
    assert_eq!(waiting.pending().iter().map(|p| p.request_id).collect::<Vec<_>>(), [bash]);
    let view = store.run(&local(), outcome.run).await.unwrap().unwrap();
    assert_eq!(view.status, RunStatus::Suspended);
    store.taken();

    decide(&runtime, bash, DecisionWord::Approve).await.unwrap();
    let end = runtime.wait(&local(), outcome.run).await.unwrap();
    assert_eq!(end.text(), Some("done"));
    // The claim; the result with the end of the round; the end.
    assert_eq!(store.taken(), times(&[("request", 1), ("decide", 1), ("commit", 3)]));
}
