//! The approval handler of a program: its answers are ordinary decisions, the first durable one wins, and a handler that
//! breaks lets nothing run.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use common::*;
use holdpoint::prelude::*;
use holdpoint::protocol::{ApprovalRequest, CallId, FinishStatus, RequestId, Then};
use holdpoint::testkit::ScriptedPerson;
use holdpoint::{DecideError, RunInfo};
use tokio::sync::Notify;

/// A handler that waits until it is let go, and remembers everything.
#[derive(Clone, Default)]
struct Slow {
    go: Arc<Notify>,
    batches: Arc<Mutex<Vec<ApprovalBatch>>>,
    answer: Arc<Mutex<Option<HandlerAnswer>>>,
    not_taken: Arc<Mutex<Vec<(RequestId, String)>>>,
}

impl Slow {
    fn with(answer: HandlerAnswer) -> Self {
        let slow = Self::default();
        *slow.answer.lock().unwrap() = Some(answer);
        slow
    }

    fn batches(&self) -> Vec<ApprovalBatch> {
        self.batches.lock().unwrap().clone()
    }
}

#[async_trait]
impl ApprovalHandler for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    async fn decide(&self, batch: ApprovalBatch) -> Result<HashMap<CallId, HandlerAnswer>, HandlerError> {
        self.batches.lock().unwrap().push(batch.clone());
        self.go.notified().await;
        let answer = self.answer.lock().unwrap().clone();
        Ok(batch.requests.iter().filter_map(|request| Some((request.call_id, answer.clone()?))).collect())
    }

    fn not_taken(&self, request: &ApprovalRequest, why: &DecideError) {
        self.not_taken.lock().unwrap().push((request.request_id, why.to_string()));
    }
}

on_every_store! {
    /// It gets the whole batch once, after it is stored, with who and what for; it answers per call id.
    fn a_handler_gets_the_whole_batch_once_and_answers_per_call(place) {
        let (log, model) = (Log::default(), three_calls());
        let person = ScriptedPerson::new()
            .answers("Write", HandlerAnswer::decline("not that file"))
            .answers("Bash", HandlerAnswer::ApproveWith { arguments: r#"{"command":"make -n"}"#.into() });
        let process = place.start(build_assistant(&log, model.clone()).approval_handler(person.clone()).build().unwrap());
        let outcome = process.go("go");
        assert_eq!(outcome.text(), Some("done"), "nothing waits for anybody else");
        let tools: Vec<_> = person.seen().iter().map(|request| request.tool_name.clone()).collect();
        assert_eq!(tools, ["Write", "Bash"]);
        assert_eq!(log.calls()[1], ("Bash".to_owned(), r#"{"command":"make -n"}"#.to_owned()));
        let decisions: Vec<_> = process.events(outcome.run).into_iter().filter(|e| e["type"] == "decision").collect();
        for decision in &decisions {
            assert_eq!((&decision["by"]["via"], &decision["by"]["actor"]), (&"handler".into(), &"handler:scripted".into()));
        }
        assert_eq!(told(&model, 2)[1].said["reason"], "not that file");
        assert!(!told(&model, 2)[1].said["message"].as_str().unwrap().contains("A person"), "no person did");
        process.check(outcome.run);
    }

    /// A call it does not answer stays pending, and is decided any other way, now or after a restart.
    fn a_call_the_handler_leaves_out_stays_pending(place) {
        let (log, model) = (Log::default(), three_calls());
        let person = || ScriptedPerson::new().answers("Bash", HandlerAnswer::Approve);
        let process = place.start(build_assistant(&log, model.clone()).approval_handler(person()).build().unwrap());
        let outcome = process.go("go");
        assert_eq!(outcome.pending().len(), 1, "whoever waits is told that it waits");
        assert_eq!(field(&process.open(outcome.run)[0], "toolName"), "Write");
        drop(process);
        let process = place.start(build_assistant(&log, model.clone()).build().unwrap());
        assert_eq!(process.approve(outcome.run, "Write").text(), Some("done"));
        assert_eq!(log.names(), ["Read", "Write", "Bash"]);
        process.check(outcome.run);
    }

    /// An error or a panic closes what is open of the batch as a failure of the gate: not executed, put down to nobody.
    fn a_handler_that_fails_or_panics_lets_nothing_run(place) {
        struct Breaks(bool);
        #[async_trait]
        impl ApprovalHandler for Breaks {
            fn name(&self) -> &str { "breaks" }
            async fn decide(&self, _: ApprovalBatch) -> Result<HashMap<CallId, HandlerAnswer>, HandlerError> {
                if self.0 { panic!("no pager") }
                Err(HandlerError { message: "no pager".into() })
            }
        }
        for panics in [true, false] {
            let (log, model) = (Log::default(), three_calls());
            let process = place.start(build_assistant(&log, model.clone()).approval_handler(Breaks(panics)).build().unwrap());
            let outcome = process.go("go");
            assert_eq!(outcome.text(), Some("done"));
            assert_eq!(log.names(), ["Read"]);
            let ended: Vec<_> = told(&model, 2).iter().map(|a| (a.status, a.is_error)).collect();
            assert_eq!(ended, [("succeeded", false), ("gate_error", false), ("gate_error", false)]);
            let said = told(&model, 2)[1].said["message"].as_str().unwrap().to_owned();
            assert!(said.contains("nobody declined it"), "{said}");
            process.check(outcome.run);
        }
    }

    /// The first durable decision wins, whoever takes it, and the loser is told.
    fn the_first_durable_decision_wins_and_the_loser_is_told(place) {
        // A person is quicker.
        let (log, model) = (Log::default(), calls_then_done(&[
            ("c1", "Write", r#"{"path":"a","content":""}"#), ("c2", "Bash", r#"{"command":"ls"}"#),
        ]));
        let handler = Slow::with(HandlerAnswer::Approve);
        let process = place.start(build_assistant(&log, model.clone()).approval_handler(handler.clone()).build().unwrap());
        let run = process.begin("go");
        process.until(run, "suspended");
        let write = process.request(run, "Write");
        process.say(write, DecisionWord::Decline).unwrap();
        handler.go.notify_one();
        assert_eq!(process.wait(run).text(), Some("done"));
        assert_eq!(log.names(), ["Bash"]);
        assert_eq!(handler.not_taken.lock().unwrap().as_slice(), [(write, "the request is closed already".to_owned())]);
        process.check(run);
        drop(process);

        // The handler is quicker.
        let (log, model) = (Log::default(), calls_then_done(&[("c2", "Bash", r#"{"command":"ls"}"#)]));
        let handler = Slow::with(HandlerAnswer::decline("no"));
        let process = place.start(build_assistant(&log, model).approval_handler(handler.clone()).build().unwrap());
        let run = process.begin("go");
        process.until(run, "suspended");
        let request = process.request(run, "Bash");
        handler.go.notify_one();
        process.wait(run);
        let Err(DecideError::Conflict { winner: Some(winner), .. }) = process.say(request, DecisionWord::Approve) else { panic!() };
        assert_eq!(winner.by.actor.unwrap().as_str(), "handler:slow");
        assert!(log.names().is_empty());
        process.check(run);
    }

    /// An answer that is no decision - an edit that does not fit - is refused, and the request stays open.
    fn an_invalid_edit_of_a_handler_is_refused_and_the_request_stays_open(place) {
        let (log, model) = (Log::default(), calls_then_done(&[("c1", "Bash", r#"{"command":"ls"}"#)]));
        let handler = Slow::with(HandlerAnswer::ApproveWith { arguments: r#"{"command":7}"#.into() });
        handler.go.notify_one();
        let process = place.start(build_assistant(&log, model).approval_handler(handler.clone()).build().unwrap());
        let outcome = process.go("go");
        assert_eq!(outcome.pending().len(), 1);
        assert!(log.names().is_empty());
        assert!(handler.not_taken.lock().unwrap()[0].1.contains("edited arguments"));
        process.approve(outcome.run, "Bash");
        assert_eq!(log.calls()[0].1, r#"{"command":"ls"}"#);
    }

    /// Asked again after a restart, with the same request ids; what it answers then counts, once.
    fn a_handler_is_asked_again_after_a_restart_with_the_same_ids(place) {
        let (log, model) = (Log::default(), three_calls());
        let first_handler = Slow::default();
        let agent = |handler: &Slow| build_assistant(&log, model.clone()).approval_handler(handler.clone()).build().unwrap();
        let first = place.start(agent(&first_handler));
        let run = first.begin("go");
        first.until(run, "suspended");
        let ids = |slow: &Slow| -> Vec<Vec<RequestId>> {
            slow.batches().iter().map(|b| b.requests.iter().map(|r| r.request_id).collect()).collect()
        };
        assert_eq!(ids(&first_handler).len(), 1);
        drop(first);
        let second_handler = Slow::with(HandlerAnswer::Approve);
        let second = place.start(agent(&second_handler));
        // Asked when the process has looked at what is open, which takes it a moment; and once, however long one waits.
        for _ in 0..1_000 {
            if !ids(&second_handler).is_empty() { break }
            second.rest(10);
        }
        second.rest(30);
        assert_eq!(ids(&second_handler), ids(&first_handler), "one batch, the same requests");
        assert_eq!(second_handler.batches()[0].run, first_handler.batches()[0].run);
        second_handler.go.notify_one();
        assert_eq!(second.wait(run).text(), Some("done"));
        assert_eq!(log.names(), ["Read", "Write", "Bash"]);
        second.rest(30);
        assert_eq!(ids(&second_handler).len(), 1, "and never again");
        second.check(run);
    }

    /// A handler that never answers holds nobody up: the deadline passes, a person decides, a cancel ends it; each time it
    /// is told by its token and let go of.
    fn a_handler_that_never_answers_holds_nobody_up(place) {
        for how in ["expiry", "person", "cancel"] {
            let (log, model) = (Log::default(), calls_then_done(&[("c1", "Bash", r#"{"command":"ls"}"#)]));
            let handler = Slow::default();
            let agent = build_assistant(&log, model).approval_handler(handler.clone()).approval_timeout(Duration::from_secs(60));
            let process = place.start(agent.build().unwrap());
            let run = process.begin("go");
            process.until(run, "suspended");
            let batch = handler.batches().remove(0);
            assert!(batch.deadline.is_some() && !batch.cancel.is_cancelled());
            match how {
                "expiry" => place.later(Duration::from_secs(61)),
                "person" => drop(process.say(process.request(run, "Bash"), DecisionWord::Approve).unwrap()),
                _ => drop(process.run(async |runtime| runtime.cancel(&local(), run).await.unwrap())),
            }
            let outcome = process.wait(run);
            let status = if how == "cancel" { FinishStatus::Cancelled } else { FinishStatus::Success };
            assert_eq!(outcome.finish().unwrap().status, status, "{how}");
            assert!(batch.cancel.is_cancelled(), "{how}");
            assert_eq!(log.names().len(), usize::from(how == "person"));
            process.check(run);
        }
    }

    /// A handler that says yes at the moment in which it is told to stop has said nothing.
    /// claude-agent-sdk-typescript 0.3.208: an abort during a pending hook counted as the hook's consent.
    fn a_yes_that_comes_with_the_end_of_a_request_lets_nothing_run(place) {
        #[derive(Clone, Default)]
        struct YesWhenTold(Arc<Mutex<u32>>);
        #[async_trait]
        impl ApprovalHandler for YesWhenTold {
            fn name(&self) -> &str { "yes" }
            async fn decide(&self, batch: ApprovalBatch) -> Result<HashMap<CallId, HandlerAnswer>, HandlerError> {
                batch.cancel.cancelled().await;
                *self.0.lock().unwrap() += 1;
                Ok(batch.requests.iter().map(|request| (request.call_id, HandlerAnswer::Approve)).collect())
            }
        }
        for how in ["expiry", "cancel"] {
            let (log, model) = (Log::default(), three_calls());
            let agent = build_assistant(&log, model).approval_handler(YesWhenTold::default()).approval_timeout(Duration::from_secs(60));
            let process = place.start(agent.build().unwrap());
            let run = process.begin("go");
            process.until(run, "suspended");
            match how {
                "expiry" => place.later(Duration::from_secs(61)),
                _ => drop(process.run(async |runtime| runtime.cancel(&local(), run).await.unwrap())),
            }
            process.until(run, "finish");
            process.rest(20);
            assert_eq!(log.names(), ["Read"], "{how}");
            let ended: Vec<_> = process.answers(run).iter().map(|answer| answer.status).collect();
            let word = if how == "expiry" { "expired" } else { "cancelled" };
            assert_eq!(ended, ["succeeded", word, word]);
            process.check(run);
        }
    }

    /// A decline with `then: stop` ends the run, from a handler as from a person.
    fn a_handler_can_stop_the_run(place) {
        let (log, model) = (Log::default(), three_calls());
        let person = ScriptedPerson::new().answers("Write", HandlerAnswer::Decline { reason: None, then: Then::Stop });
        let process = place.start(build_assistant(&log, model.clone()).approval_handler(person).build().unwrap());
        let outcome = process.go("go");
        assert_eq!(outcome.finish().unwrap().status, FinishStatus::Stopped);
        assert_eq!(log.names(), ["Read"]);
        process.check(outcome.run);
    }
}

/// The handler sees who the run is for, and the values that tools get.
#[tokio::test]
async fn a_handler_gets_the_trusted_context() {
    struct Team(&'static str);
    let seen: Arc<Mutex<Option<(RunInfo, &'static str)>>> = Arc::default();
    struct Asks(Arc<Mutex<Option<(RunInfo, &'static str)>>>);
    #[async_trait]
    impl ApprovalHandler for Asks {
        fn name(&self) -> &str {
            "asks"
        }
        async fn decide(&self, batch: ApprovalBatch) -> Result<HashMap<CallId, HandlerAnswer>, HandlerError> {
            let Team(team) = *batch.context.0.get().unwrap();
            *self.0.lock().unwrap() = Some((batch.run.clone(), team));
            Ok(batch.requests.iter().map(|request| (request.call_id, HandlerAnswer::Approve)).collect())
        }
    }
    let log = Log::default();
    let agent =
        build_assistant(&log, three_calls()).approval_handler(Asks(seen.clone())).tool_context(|_| {
            let mut values = holdpoint::tools::Extensions::default();
            values.insert(Team("blue"));
            values
        });
    let runtime = Runtime::builder().agent(agent.build().unwrap()).build().unwrap();
    let outcome = run(&runtime).await;
    assert_eq!(outcome.text(), Some("done"));
    let (info, team) = seen.lock().unwrap().clone().unwrap();
    assert_eq!(
        (info.run, info.actor, info.agent.as_str(), team),
        (outcome.run, local().actor, "main", "blue")
    );
}
