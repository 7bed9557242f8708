//! What a run's tokens cost is counted over its rounds, reported once at its end, and can be bounded.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use async_trait::async_trait;
use common::*;
use holdpoint::core::limits::Limits;
use holdpoint::models::{Model, ModelError, ModelRequest, Pieces, Reply, Usage};
use holdpoint::prelude::*;
use holdpoint::protocol::FinishStatus;

/// A model with a price: two millionths of a dollar for a token in, ten for one out.
struct Priced(Scripted);

#[async_trait]
impl Model for Priced {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn cost_micro_dollars(&self, usage: Usage) -> Option<u64> {
        Some(usage.input_tokens * 2 + usage.output_tokens * 10)
    }
    async fn reply(&self, request: &ModelRequest, pieces: &mut dyn Pieces) -> Result<Reply, ModelError> {
        self.0.reply(request, pieces).await
    }
}

fn two_rounds() -> Scripted {
    let call = Answer::call("c1", "Read", r#"{"path":"a"}"#).usage(100, 10);
    Scripted::sequence("s", [call.clone(), call.clone(), Answer::text("done").usage(200, 20)])
}

async fn finish(limits: Limits, model: impl Model) -> holdpoint::protocol::Finish {
    let log = Log::default();
    let agent = Agent::builder("main", model)
        .tool(read_only(&log, "Read", &["path"], "text"))
        .policy(Policy::builder("p").allow(["Read"]).build().unwrap())
        .limits(limits)
        .build()
        .unwrap();
    let runtime = Runtime::builder().agent(agent).build().unwrap();
    run(&runtime).await.finish().unwrap().clone()
}

#[tokio::test]
async fn the_cost_of_all_rounds_is_in_the_usage_of_the_end() {
    let finish = finish(Limits::default(), Priced(two_rounds())).await;
    assert_eq!(finish.status, FinishStatus::Success);
    assert_eq!(finish.usage.cost_micro_dollars, Some(300 + 300 + 600));
}

#[tokio::test]
async fn a_run_over_its_cost_gets_one_more_round_and_ends() {
    let limits = Limits { cost_micro_dollars: Some(300), ..Limits::default() };
    let finish = finish(limits, Priced(two_rounds())).await;
    assert_eq!(finish.status, FinishStatus::LimitExceeded);
    assert_eq!(finish.usage.rounds, 2);
}

#[tokio::test]
async fn a_model_without_a_price_counts_no_cost() {
    let finish = finish(Limits { cost_micro_dollars: Some(1), ..Limits::default() }, two_rounds()).await;
    assert_eq!((finish.status, finish.usage.cost_micro_dollars), (FinishStatus::Success, None));
}
