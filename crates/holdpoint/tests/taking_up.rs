//! A start with very many runs to take up: as many as there is room for, in turn, and people are served meanwhile.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::sync::Arc;

use common::*;
use holdpoint::core::message::{Message, UserPart};
use holdpoint::prelude::*;
use tokio::sync::Semaphore;

const RUNS: usize = 400;
/// As many as are taken up at once.
const AT_ONCE: usize = 128;

/// Whoever says `wait` has a tool called that waits at the gate; anybody else is answered.
fn agent(gate: &Arc<Semaphore>) -> Agent {
    let model = Scripted::computed("script", |request, _| {
        let says_wait = |part: &UserPart| matches!(part, UserPart::Text(text) if text.contains("wait"));
        let waits = request
            .messages
            .iter()
            .any(|m| matches!(m.as_ref(), Message::User(said) if said.parts.iter().any(says_wait)));
        let answered = request.messages.iter().any(|m| matches!(m.as_ref(), Message::Tool(_)));
        if waits && !answered { batch(&[("c1", "Wait", "{}")]) } else { Answer::text("done") }
    });
    let gate = Arc::clone(gate);
    let wait = FnTool::new(definition("Wait", &[]), move |_: Invocation| {
        let gate = Arc::clone(&gate);
        async move {
            let _through = gate.acquire().await.unwrap();
            Ok::<_, ToolError>(ToolOutput::text("waited"))
        }
    });
    let wait = wait.effect(holdpoint::core::tool::EffectClass::ReadOnly);
    let all = Policy::builder("all").allow(["*"]).build().unwrap();
    Agent::builder("main", model).tool(wait).policy(all).build().unwrap()
}

on_every_store! {
    fn very_many_runs_are_taken_up_in_turn_and_people_are_served_meanwhile(place) {
        let closed = Arc::new(Semaphore::new(0));
        let process = place.start(agent(&closed));
        let runs: Vec<_> = (0..RUNS).map(|n| process.begin(&format!("wait {n}"))).collect();
        process.rest(50);
        drop(process);
        let gate = Arc::new(Semaphore::new(0));
        let process = place.start(agent(&gate));
        let mut most = 0;
        for _ in 0..20 {
            process.rest(100);
            most = most.max(process.runtime.live_runs());
        }
        assert_eq!(most, AT_ONCE, "as many as there is room for");
        assert_eq!(process.go("hello").text(), Some("done"), "and others beside them");
        gate.add_permits(RUNS);
        for run in runs {
            assert_eq!(process.wait(run).text(), Some("done"));
        }
        process.rest(50);
        assert_eq!(process.runtime.live_runs(), 0);
    }
}
