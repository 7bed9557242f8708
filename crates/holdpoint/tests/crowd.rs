//! Many runs at once on several threads: every listener sees every run in order, and nobody waits for ever.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::*;
use holdpoint::core::run::Execution;
use holdpoint::prelude::*;
use holdpoint::protocol::RunId;

const RUNS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_runs_at_once_are_each_decided_run_and_seen_in_order() {
    let log = Log::default();
    let model = Scripted::computed("script", |request, _| {
        let answered =
            request.messages.iter().any(|m| matches!(m.as_ref(), holdpoint::core::message::Message::Tool(_)));
        if answered {
            Answer::text("done")
        } else {
            batch(&[
                ("c1", "Write", r#"{"path":"a","content":""}"#),
                ("c2", "Read", r#"{"path":"a"}"#),
                ("c3", "Bash", r#"{"command":"ls"}"#),
            ])
        }
    });
    let seen: Arc<Mutex<HashMap<RunId, Vec<u64>>>> = Arc::default();
    let listener = seen.clone();
    let agent = build_assistant(&log, model).execution(Execution::Parallel).build().unwrap();
    let runtime = Runtime::builder()
        .agent(agent)
        .listener(move |event: &Event| {
            if let Some(seq) = event.seq {
                listener.lock().unwrap().entry(event.run_id).or_default().push(seq);
            }
        })
        .build()
        .unwrap();
    let runs = (0..RUNS).map(|_| {
        let runtime = runtime.clone();
        tokio::spawn(async move {
            let outcome = runtime.run(&local(), Start::text("go")).await.unwrap();
            let run = outcome.run;
            let requests: Vec<_> = outcome.pending().iter().map(|pending| pending.request_id).collect();
            assert_eq!(requests.len(), 2);
            let words = [DecisionWord::Approve, DecisionWord::Decline];
            let decided = requests.into_iter().zip(words).map(|(request, word)| {
                let runtime = runtime.clone();
                tokio::spawn(async move { decide(&runtime, request, word).await.unwrap() })
            });
            for decided in decided.collect::<Vec<_>>() {
                decided.await.unwrap();
            }
            loop {
                let outcome = runtime.wait(&local(), run).await.unwrap();
                if outcome.finish().is_some() {
                    assert_eq!(outcome.text(), Some("done"));
                    return run;
                }
                // Said between the two decisions.
                assert_eq!(outcome.pending().len(), 1);
                tokio::task::yield_now().await;
            }
        })
    });
    let runs: Vec<_> =
        within(futures_util::future::join_all(runs)).await.into_iter().map(Result::unwrap).collect();
    for run in runs {
        let stored = events(&runtime, run).await;
        check_events(&stored, holdpoint::protocol::RunStatus::Finished);
        let expected: Vec<u64> = (1..=stored.len() as u64).collect();
        within(async {
            while seen.lock().unwrap()[&run].len() < expected.len() {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        })
        .await;
        assert_eq!(seen.lock().unwrap()[&run], expected, "in order, each once");
    }
    let count = |name: &str| log.names().iter().filter(|called| *called == name).count();
    assert_eq!((count("Write"), count("Read"), count("Bash")), (RUNS, RUNS, 0));
    assert_eq!(runtime.live_runs(), 0, "nothing is left behind");
}
