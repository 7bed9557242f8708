//! What a long run costs grows with its rounds and not with their square: of the conversation only what is new is read.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::Arc;

use common::*;
use holdpoint::models::ModelRequest;
use holdpoint::prelude::*;
use holdpoint::store::{MemoryStore, Store, SystemClock};

/// A gated call in every round, and the end after so many.
fn rounds(n: u64) -> Scripted {
    let answer = move |_: &ModelRequest, nth: u64| {
        if nth > n {
            Answer::text("done")
        } else {
            Answer::call(format!("c{nth}"), "Bash", r#"{"command":"x"}"#)
        }
    };
    Scripted::new("rounds").computed(When::any(), answer).build()
}

async fn approve(runtime: &Runtime, outcome: &holdpoint::RunOutcome) -> holdpoint::RunOutcome {
    decide(runtime, outcome.pending()[0].request_id, DecisionWord::Approve).await.unwrap();
    runtime.wait(&local(), outcome.run).await.unwrap()
}

#[tokio::test]
async fn a_run_that_waits_in_every_round_does_not_read_its_conversation_again() {
    const ROUNDS: u64 = 12;
    let store = Counting::of(Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))));
    let (log, model) = (Log::default(), rounds(ROUNDS));
    let agent = build_assistant(&log, model.clone()).build().unwrap();
    let runtime = Runtime::builder().agent(agent).shared_store(store.clone()).build().unwrap();
    let mut outcome = run(&runtime).await;
    for _ in 0..ROUNDS {
        outcome = approve(&runtime, &outcome).await;
    }
    assert_eq!(outcome.text(), Some("done"));
    assert_eq!(store.taken().get("history"), None, "what this process wrote itself is not read");
    // User, and a reply and an answer a round.
    for (round, request) in (0..).zip(model.requests()) {
        assert_eq!(request.messages.len(), 1 + 2 * round);
        check_history(&request.messages);
    }

    // The next run of the conversation goes on from there.
    let view = runtime.store().run(&local(), outcome.run).await.unwrap().unwrap();
    let conversation = view.conversation_id;
    let next = runtime.run(&local(), Start::text("and now?").conversation(conversation)).await.unwrap();
    assert_eq!(next.text(), Some("done"));
    assert_eq!(store.taken().get("history"), None);
    let told = model.requests().pop().unwrap().messages.clone();
    assert_eq!(told.len(), 1 + 2 * ROUNDS as usize + 2);
    check_history(&told);
}

/// Two instances take turns: each reads what the other did, and not what it did itself.
#[tokio::test]
async fn an_instance_reads_only_the_rounds_that_another_one_went() {
    const ROUNDS: u64 = 9;
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let (log, model) = (Log::default(), rounds(ROUNDS));
    let instance = || {
        let store = Counting::of(Arc::clone(&inner));
        let agent = build_assistant(&log, model.clone()).build().unwrap();
        (Runtime::builder().agent(agent).shared_store(store.clone()).build().unwrap(), store)
    };
    let (one, reads_of_one) = instance();
    let (two, reads_of_two) = instance();
    let mut outcome = run(&one).await;
    for round in 0..ROUNDS {
        outcome = approve(if round % 3 == 0 { &two } else { &one }, &outcome).await;
    }
    assert_eq!(outcome.text(), Some("done"));
    for (round, request) in (0..).zip(model.requests()) {
        assert_eq!(request.messages.len(), 1 + 2 * round, "nothing is missing, nothing is there twice");
        check_history(&request.messages);
    }
    for reads in [reads_of_one, reads_of_two] {
        let reads = reads.taken()["history"];
        assert!(reads <= 3, "each time the other one had it, and no other: {reads}");
    }
}
