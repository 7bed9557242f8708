//! Growth: runs of 10 to 1,000 rounds on SQLite, each round one free and one gated call. Is the cost linear?

use std::collections::HashMap;

use async_trait::async_trait;
use holdpoint::core::limits::Limits;
use holdpoint::prelude::*;
use holdpoint::protocol::CallId;
use holdpoint_bench_harness::{Arguments, Deviations, Expect, Line, Timing, round, usage, work};
use serde_json::json;

use crate::agent::{self, Log};
use crate::database;
use crate::runs::Ours;

/// The lengths that are measured.
const ROUNDS: [u32; 7] = [10, 30, 100, 200, 300, 600, 1_000];

/// Approves whatever it is asked.
struct Approves;

#[async_trait]
impl ApprovalHandler for Approves {
    fn name(&self) -> &str {
        "bench"
    }

    async fn decide(&self, batch: ApprovalBatch) -> Result<HashMap<CallId, HandlerAnswer>, HandlerError> {
        Ok(batch.requests.into_iter().map(|request| (request.call_id, HandlerAnswer::Approve)).collect())
    }
}

fn model(rounds: u32) -> Scripted {
    let answer = move |_: &holdpoint::models::ModelRequest, nth: u64| {
        if nth > u64::from(rounds) {
            return Answer::text(work::FINAL);
        }
        let [(_, read, path), _, (_, bash, command)] = work::GATED_TURN;
        Answer::call(format!("r{nth}"), read, path).and_call(format!("b{nth}"), bash, command)
    };
    Scripted::new("scripted").computed(When::any(), answer).record(false).build()
}

struct Point {
    rounds: f64,
    wall_ms: f64,
    cpu_ms: f64,
    bytes: f64,
}

async fn run(path: &str, rounds: u32, found: &mut Deviations) -> Point {
    usage::remove_database(path);
    let log = Log::new(Expect::Gated);
    let limits =
        Limits { rounds: rounds + 1, calls_per_tool: rounds, calls_total: 2 * rounds, ..Limits::default() };
    let agent = agent::on(&log, model(rounds)).approval_handler(Approves).limits(limits);
    let ours = Ours::with(agent.build().expect("a valid agent"), log, Some(database::open(path).await));
    let timing = Timing::start();
    let outcome = ours.runtime.run(&local(), Start::text(work::PROMPT)).await.expect("a run");
    let (wall_s, cpu_s) = (timing.wall_s(), timing.cpu_s());
    let record = ours.log.take(outcome.run);
    if outcome.text() != Some(work::FINAL) || record.tools.len() != 2 * rounds as usize {
        found.note("growth", format!("{} of {} calls, {:?}", record.tools.len(), 2 * rounds, outcome.state));
    }
    ours.close().await;
    Point {
        rounds: f64::from(rounds),
        wall_ms: wall_s * 1e3,
        cpu_ms: cpu_s * 1e3,
        bytes: usage::file_bytes(path) as f64,
    }
}

/// Least squares: slope, intercept and the share of the variance that the line explains.
fn fit(points: &[Point], y: fn(&Point) -> f64) -> (f64, f64, f64) {
    let n = points.len() as f64;
    let mean = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (mx, my) = (mean(&|p| p.rounds), mean(&y));
    let xy: f64 = points.iter().map(|p| (p.rounds - mx) * (y(p) - my)).sum();
    let xx: f64 = points.iter().map(|p| (p.rounds - mx).powi(2)).sum();
    let yy: f64 = points.iter().map(|p| (y(p) - my).powi(2)).sum();
    let slope = xy / xx;
    (slope, my - slope * mx, xy * xy / (xx * yy))
}

/// Measures and prints the line.
pub async fn measure(arguments: &Arguments) {
    let mut found = Deviations::default();
    // The first run pays for what is made once: pages of code, the statement cache.
    run(&arguments.path, ROUNDS[0], &mut found).await;
    let mut points = Vec::new();
    for rounds in ROUNDS.into_iter().filter(|rounds| *rounds as usize <= arguments.n) {
        points.push(run(&arguments.path, rounds, &mut found).await);
    }
    usage::remove_database(&arguments.path);
    let mut line = Line::new("holdpoint", arguments.workload.name());
    let point = |p: &Point| json!([p.rounds, round(p.wall_ms), round(p.cpu_ms), p.bytes]);
    line.set("rounds_wall_ms_cpu_ms_bytes", points.iter().map(point).collect::<Vec<_>>());
    type Measure = (&'static str, fn(&Point) -> f64);
    let measures: [Measure; 3] =
        [("wall_ms", |p| p.wall_ms), ("cpu_ms", |p| p.cpu_ms), ("bytes", |p| p.bytes)];
    for (name, y) in measures {
        let (slope, intercept, r2) = fit(&points, y);
        line.set(
            &format!("{name}_fit"),
            json!({"per_round": round(slope), "at_0": round(intercept), "r2": round(r2)}),
        );
    }
    line.print(&found);
}
