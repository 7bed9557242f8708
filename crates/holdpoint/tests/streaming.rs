//! Streams: what a watcher sees, live, late, and after a disconnect.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::time::Duration;

use common::*;
use holdpoint::prelude::*;
use holdpoint::protocol::{Pending, RunId};
use holdpoint::{Seen, Watch};

const ROUND_OF_TWO: [(&str, &str, &str); 2] =
    [("c1", "Read", r#"{"path":"a"}"#), ("c2", "Bash", r#"{"command":"ls"}"#)];

fn talkative() -> Scripted {
    let first = ROUND_OF_TWO.iter().fold(
        Answer::empty().and_reasoning("let me think").and_text("I will look."),
        |reply, (id, name, text)| reply.and_call(*id, *name, *text),
    );
    Scripted::sequence("script", [first.usage(10, 4), Answer::text("all done").usage(20, 6)])
}

async fn watch(runtime: &Runtime, run: RunId, after: u64) -> Watch {
    runtime.watch(&local(), run, after).await.unwrap().unwrap()
}

async fn next(watch: &mut Watch) -> Option<Seen> {
    within(watch.next()).await.unwrap()
}

/// Reads until an event of this kind, and gives all it saw: number and kind.
async fn until(watch: &mut Watch, kind: &str) -> Vec<(Option<u64>, String)> {
    let mut seen = Vec::new();
    while let Some(event) = next(watch).await {
        let seq = if let Seen::Stored { seq, .. } = &event { Some(*seq) } else { None };
        seen.push((seq, event.kind().to_owned()));
        if event.kind() == kind {
            break;
        }
    }
    seen
}

fn without_ids(events: &[serde_json::Value]) -> Vec<String> {
    let strip = |event: &serde_json::Value| {
        let mut event = event.clone();
        for key in ["runId", "callId", "requestId", "digest", "at", "conversationId"] {
            event.as_object_mut().unwrap().remove(key);
        }
        let kind = event["type"].as_str().unwrap().to_owned();
        match kind.as_str() {
            "tool_call" | "tool_result" | "suspended" => kind,
            _ => event.to_string(),
        }
    };
    events.iter().map(strip).collect()
}

on_every_store! {
    /// Calls, results and text are events of their own, each with our call id; text beside a call is kept; rounds have ends.
    /// https://github.com/spring-projects/spring-ai/issues/5167 https://github.com/spring-projects/spring-ai/issues/4126
    fn rule_27_every_event_of_a_call_has_our_id_and_text_beside_calls_is_kept(place) {
        let (log, model) = (Log::default(), talkative());
        let process = place.start(build_assistant(&log, model.clone()).build().unwrap());
        let run = process.go("go").run;
        let outcome = process.approve(run, "Bash");
        assert_eq!(outcome.text(), Some("all done"), "the answer, and no text of an earlier round");
        let events = process.events(run);
        assert_eq!(kinds(&events), [
            "run_started", "message", "tool_call", "approval_request", "tool_started", "tool_result", "suspended", "decision",
            "resumed", "tool_started", "tool_result", "round_committed", "message", "round_committed", "finish",
        ]);
        assert_eq!((&events[1]["text"], &events[1]["reasoning"]), (&"I will look.".into(), &"let me think".into()));
        let calls: Vec<_> = events[2]["toolCalls"].as_array().unwrap().iter().map(|call| call["callId"].clone()).collect();
        for event in &events {
            let id = match event["type"].as_str().unwrap() {
                "tool_result" => &event["toolResults"][0]["callId"],
                "approval_request" | "tool_started" | "decision" => &event["callId"],
                _ => continue,
            };
            assert!(calls.contains(id), "{event}");
        }
        process.check(run);
    }

    /// A streaming run and one that is not are the same run; without a watcher a call waits all the same.
    /// https://github.com/spring-projects/spring-ai/issues/3366
    fn rule_27_streaming_and_not_streaming_are_the_same_run(place) {
        let one = |stream: bool| {
            let (log, model) = (Log::default(), talkative());
            let process = place.start(build_assistant(&log, model).stream(stream).build().unwrap());
            let outcome = process.go("go");
            assert_eq!(outcome.pending().len(), 1, "nobody watches, and it waits");
            assert_eq!(log.names(), ["Read"]);
            process.approve(outcome.run, "Bash");
            without_ids(&process.events(outcome.run))
        };
        assert_eq!(one(true), one(false));
    }

    /// Usage is summed over the rounds and said once, at the end - also over a restart.
    fn rule_28_usage_is_summed_and_said_once(place) {
        let (log, model) = (Log::default(), talkative());
        let agent = || build_assistant(&log, model.clone()).build().unwrap();
        let first = place.start(agent());
        let run = first.go("go").run;
        drop(first);
        let process = place.start(agent());
        let outcome = process.approve(run, "Bash");
        let usage = outcome.finish().unwrap().usage;
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.rounds, usage.tool_calls), (30, 10, 2, 2));
        let events = process.events(run);
        assert_eq!(events.iter().filter(|event| event.to_string().contains("inputTokens")).count(), 1);
        assert_eq!(events.last().unwrap()["usage"]["inputTokens"], 30);
    }

    /// A client that goes is no decision: the run stays as it is, and the client comes back and misses nothing.
    fn rule_29_a_watcher_that_leaves_changes_nothing_and_comes_back_to_everything(place) {
        let (log, model) = (Log::default(), talkative());
        let agent = || build_assistant(&log, model.clone()).build().unwrap();
        let first = place.start(agent());
        let run = first.begin("go");
        let seen = first.run(async |runtime| until(&mut watch(runtime, run, 0).await, "tool_call").await);
        let last = seen.iter().filter_map(|(seq, _)| *seq).max().unwrap();
        first.wait(run);
        assert_eq!(first.open(run).len(), 1);
        drop(first);
        let second = place.start(agent());
        second.rest(20);
        assert_eq!(second.open(run).len(), 1, "still waiting, whoever left");
        let rest = second.run(async |runtime| {
            let mut watch = watch(runtime, run, last).await;
            let seen = until(&mut watch, "suspended").await;
            let request = pending(runtime, run).await[0].request_id;
            decide(runtime, request, DecisionWord::Approve).await.unwrap();
            let more = until(&mut watch, "finish").await;
            assert!(next(&mut watch).await.is_none(), "one last event, and then the end");
            [seen, more].concat()
        });
        let seqs: Vec<u64> = rest.iter().filter_map(|(seq, _)| *seq).collect();
        let all = second.events(run).len() as u64;
        assert_eq!(seqs, (last + 1..=all).collect::<Vec<_>>(), "each once, in order, none missing");
        // From the beginning again, after the end.
        let again = second.run(async |runtime| until(&mut watch(runtime, run, 0).await, "finish").await);
        assert_eq!(again.len() as u64, all);
    }
}

/// Text comes in pieces while it is made, and whole once it is stored; every piece precedes it.
#[tokio::test]
async fn rule_27_tokens_are_shown_live_and_replaced_by_the_message() {
    let (log, model) = (
        Log::default(),
        Scripted::sequence("script", [Answer::text("one two three").pace(Duration::from_millis(5))]),
    );
    let runtime = Runtime::builder().agent(build_assistant(&log, model).build().unwrap()).build().unwrap();
    let run = runtime.start(&local(), Start::text("go")).await.unwrap().run;
    let mut watch = watch(&runtime, run, 0).await;
    let mut pieces = String::new();
    while let Some(seen) = next(&mut watch).await {
        match &seen {
            Seen::Passing(event) => {
                let EventBody::Token(piece) = &event.body else { panic!("{event:?}") };
                assert_eq!(event.seq, None, "what passes has no number");
                pieces.push_str(&piece.data);
            }
            Seen::Stored { .. } if seen.kind() == "message" => assert_eq!(pieces, "one two three"),
            Seen::Stored { .. } => {}
            Seen::Lagged => panic!("nothing was lost"),
        }
    }
    assert_eq!(pieces, "one two three");
}

/// A watcher that is too slow is told, and reads what is stored from the log: the request is not missed.
/// https://github.com/tinyhumansai/opencompany/issues/1011
#[tokio::test]
async fn rule_29_a_slow_watcher_is_told_and_misses_nothing_that_is_stored() {
    let text = "word ".repeat(5_000);
    let log = Log::default();
    let model = Scripted::sequence(
        "script",
        [Answer::text(text).and_call("c1", "Bash", r#"{"command":"ls"}"#), Answer::text("done")],
    );
    let runtime = Runtime::builder().agent(build_assistant(&log, model).build().unwrap()).build().unwrap();
    let started = runtime.start(&local(), Start::text("go")).await.unwrap();
    let mut watch = watch(&runtime, started.run, 0).await;
    within(runtime.wait(&local(), started.run)).await.unwrap();
    let seen = until(&mut watch, "suspended").await;
    assert!(seen.iter().any(|(_, kind)| kind == "lagged"));
    let stored: Vec<_> =
        seen.iter().filter(|(seq, _)| seq.is_some()).map(|(_, kind)| kind.as_str()).collect();
    assert_eq!(stored, ["run_started", "message", "tool_call", "approval_request", "suspended"]);
}

/// The list of what waits is what the suspended run says, and the same whoever asks.
/// https://github.com/humanlayer/humanlayer/issues/835 https://github.com/pydantic/pydantic-ai/issues/4830
#[tokio::test]
async fn what_waits_is_the_same_in_the_outcome_the_stream_the_view_and_the_inbox() {
    let (log, model) = (Log::default(), talkative());
    let runtime = Runtime::builder().agent(build_assistant(&log, model).build().unwrap()).build().unwrap();
    let outcome = run(&runtime).await;
    let ids = |pending: &[Pending]| pending.iter().map(|item| item.request_id).collect::<Vec<_>>();
    let expected = ids(outcome.pending());
    let view = runtime.store().run(&local(), outcome.run).await.unwrap().unwrap();
    assert_eq!(ids(&view.pending), expected);
    let inbox: Vec<_> =
        pending(&runtime, outcome.run).await.iter().map(|request| request.request_id).collect();
    assert_eq!(inbox, expected);
    let events = events(&runtime, outcome.run).await;
    assert_eq!(events.last().unwrap()["interactions"][0]["requestId"], expected[0].to_string());
}

/// Nobody of another tenant can watch, and a run that does not exist looks the same.
#[tokio::test]
async fn a_run_of_another_tenant_cannot_be_watched_or_cancelled() {
    let (log, model) = (Log::default(), talkative());
    let runtime = Runtime::builder().agent(build_assistant(&log, model).build().unwrap()).build().unwrap();
    let outcome = run(&runtime).await;
    let mut theirs = local();
    theirs.tenant = holdpoint::protocol::TenantId::new("other").unwrap();
    assert!(runtime.watch(&theirs, outcome.run, 0).await.unwrap().is_none());
    assert!(matches!(runtime.cancel(&theirs, outcome.run).await, Err(holdpoint::CancelError::NotFound)));
    assert_eq!(pending(&runtime, outcome.run).await.len(), 1);
}
