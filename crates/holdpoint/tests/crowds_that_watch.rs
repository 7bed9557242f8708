//! Many who watch cost little: one reader for all of them, and nothing at all while nothing happens.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use holdpoint::prelude::*;
use holdpoint::store::{MemoryStore, Store, SystemClock};
use holdpoint::{InboxChange, Seen, Watch};

/// Two processes on one store; the second counts what it reads, and does not carry any run on.
fn two() -> (Runtime, Runtime, Arc<Counting>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let counting = Counting::of(Arc::clone(&store));
    let agent = || build_assistant(&Log::default(), three_calls()).build().unwrap();
    let one = Runtime::builder().agent(agent()).shared_store(store).build().unwrap();
    let other = Runtime::builder().agent(agent()).shared_store(counting.clone()).build().unwrap();
    (one, other, counting)
}

async fn rest(mut watch: Watch) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(event) = within(watch.next()).await.unwrap() {
        match event {
            Seen::Stored { seq, .. } => seen.push(seq),
            Seen::Passing(_) | Seen::Lagged => {}
        }
    }
    seen
}

/// Reads until nothing more is there, and no further.
async fn caught_up(runtime: &Runtime, run: holdpoint::protocol::RunId) -> Watch {
    let mut watch = runtime.watch(&local(), run, 0).await.unwrap().unwrap();
    while !watch.is_live() {
        within(watch.next()).await.unwrap();
    }
    // Waits, and is put to rest: from now on it is shown what comes.
    let waited = tokio::time::timeout(Duration::from_millis(1), watch.next()).await;
    assert!(waited.is_err(), "nothing happens");
    watch
}

/// STORE 41: however many watch a run, its log is read once; STORE 3.5: those who wait ask nothing.
#[tokio::test]
async fn what_another_instance_stores_is_read_once_for_all_who_watch() {
    const WATCHERS: usize = 200;
    let (one, other, store) = two();
    let outcome = run(&one).await;
    let mut watches = Vec::new();
    for _ in 0..WATCHERS {
        watches.push(caught_up(&other, outcome.run).await);
    }
    store.taken();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let idle = store.taken();
    assert_eq!(idle.keys().collect::<Vec<_>>(), [&"moved"], "one question for all of them, and no other");
    assert!(idle["moved"] <= 3, "{idle:?}");

    let ends = watches.into_iter().map(|watch| tokio::spawn(rest(watch)));
    let ends: Vec<_> = ends.collect();
    for request in outcome.pending() {
        decide(&one, request.request_id, DecisionWord::Approve).await.unwrap();
    }
    within(one.wait(&local(), outcome.run)).await.unwrap();
    let all = events(&one, outcome.run).await.len() as u64;
    let mut expected = None;
    for end in ends {
        let seen = end.await.unwrap();
        assert_eq!(seen.last(), Some(&all));
        assert!(seen.windows(2).all(|two| two[1] == two[0] + 1), "in order, none missing: {seen:?}");
        assert_eq!(expected.get_or_insert(seen.clone()), &seen);
    }
    let read = store.taken();
    let logs = read.get("events").copied().unwrap_or(0);
    assert!(logs <= 3, "the log was read {logs} times for {WATCHERS} watchers");
}

/// A tenant's inbox is looked at once a second, not once a second for each who watches it; what opened or closed is read once.
#[tokio::test]
async fn an_inbox_is_looked_at_once_for_all_who_watch() {
    const WATCHERS: usize = 50;
    let (one, other, store) = two();
    let before = run(&one).await;
    let mut inboxes = Vec::new();
    for _ in 0..WATCHERS {
        inboxes.push(other.inbox(&local()).await.unwrap());
    }
    store.taken();
    let outcome = run(&one).await;
    decide(&one, before.pending()[0].request_id, DecisionWord::Decline).await.unwrap();
    let mut expected: Vec<_> = outcome.pending().iter().map(|pending| pending.request_id).collect();
    expected.push(before.pending()[0].request_id);
    expected.sort();
    for inbox in &mut inboxes {
        let mut seen = Vec::new();
        for _ in 0..expected.len() {
            match within(inbox.next()).await {
                InboxChange::Changed(interaction) => seen.push(interaction.request_id),
                InboxChange::Lagged => panic!("nobody was slow"),
            }
        }
        seen.sort();
        assert_eq!(seen, expected, "each once; what waited before is no news");
    }
    let read = store.taken();
    assert_eq!(read.keys().copied().collect::<Vec<_>>(), ["interaction", "newest_pending"]);
    assert_eq!(read["interaction"], expected.len(), "{read:?}");
    assert!(read["newest_pending"] <= 3, "{read:?}");
    drop(inboxes);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    store.taken();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(store.taken(), BTreeMap::new(), "nobody watches: nothing is asked");
}
