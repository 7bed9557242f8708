//! W1 to W3: as many runs as the seconds take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdpoint::local;
use holdpoint::store::Store;
use holdpoint_bench_harness::{Arguments, Deviations, Expect, Line, Timing, Workload};

use crate::agent::Log;
use crate::runs::Ours;
use crate::{database, probe};

/// Runs before the clock starts.
const WARM_UP: u64 = 20;

/// Measures and prints the line.
pub async fn measure(arguments: &Arguments) {
    let (workload, path) = (arguments.workload, arguments.path.as_str());
    let durable = workload == Workload::W3;
    let store = match durable {
        true => Some(open(arguments).await),
        false => None,
    };
    let expect = if workload == Workload::W1 { Expect::Free } else { Expect::Gated };
    let ours = Arc::new(Ours::new(Log::new(expect), store));
    let mut found = Deviations::default();
    for _ in 0..WARM_UP {
        one(&ours, workload, &mut found).await;
    }
    let before = ours.runtime.store().stats().await.expect("a store");
    let server_cpu_s = database::server_cpu_s();
    let mut timed = lanes(&ours, arguments).await;
    let server_cpu_s = database::server_cpu_s() - server_cpu_s;
    let after = ours.runtime.store().stats().await.expect("a store");

    found.merge(std::mem::take(&mut timed.found));
    ours.log.close(timed.runs + WARM_UP, &mut found);
    let mut line = Line::new("holdpoint", workload.name());
    line.set("conc", arguments.conc);
    line.set("store", if !durable { "memory" } else { database::kind(path) });
    line.measured(timed.runs, timed.wall_s, timed.cpu_s);
    line.latency("decide_to_tool", timed.latency.clone());
    if durable {
        let (commits, operations) = (after.commits - before.commits, after.operations - before.operations);
        line.number("commits_per_run", commits as f64 / timed.runs as f64);
        line.number("operations_per_run", operations as f64 / timed.runs as f64);
        line.number("operations_per_commit", operations as f64 / commits as f64);
        Arc::into_inner(ours).expect("all lanes ended").close().await;
        if database::is_postgres(path) {
            line.number("server_cpu_ms_per_run", 1e3 * server_cpu_s / timed.runs as f64);
        }
        if !arguments.keep {
            beside(arguments, &timed, (after.commits, after.operations), &mut line).await;
        }
    }
    line.print(&found);
}

async fn open(arguments: &Arguments) -> Arc<dyn Store> {
    if !arguments.keep {
        database::remove(&arguments.path).await;
    }
    database::open(&arguments.path).await
}

/// What the same machine takes for the same at the same time, with none of our code around it.
async fn beside(arguments: &Arguments, timed: &Timed, total: (u64, u64), line: &mut Line) {
    let path = arguments.path.as_str();
    line.set("bytes_per_run", database::bytes(path).await / (timed.runs + WARM_UP));
    if database::is_postgres(path) {
        let (commit_ms, commit_cpu_ms) = probe::postgres_commits(path).await;
        line.latency("commit_3kb", commit_ms);
        line.number("commit_3kb_cpu_ms", commit_cpu_ms);
        return;
    }
    let (commit_ms, commit_cpu_ms) = probe::commits(path);
    line.latency("commit_3kb", commit_ms);
    line.number("commit_3kb_cpu_ms", commit_cpu_ms);
    if arguments.conc > 1 {
        let again = probe::same_rows(path, timed.runs + WARM_UP, total);
        line.number("same_rows_runs_per_s", again);
        line.number("of_same_rows", timed.runs as f64 / timed.wall_s / again);
    }
}

struct Timed {
    runs: u64,
    wall_s: f64,
    cpu_s: f64,
    latency: Vec<f64>,
    found: Deviations,
}

/// So many at a time, each lane one run after the other.
async fn lanes(ours: &Arc<Ours>, arguments: &Arguments) -> Timed {
    let (workload, secs) = (arguments.workload, arguments.secs);
    let count = Arc::new(AtomicU64::new(0));
    let timing = Timing::start();
    let lanes = (0..arguments.conc).map(|_| {
        let (ours, count) = (Arc::clone(ours), Arc::clone(&count));
        tokio::spawn(async move {
            let (mut found, mut latency) = (Deviations::default(), Vec::new());
            while timing.wall_s() < secs {
                count.fetch_add(1, Ordering::Relaxed);
                latency.extend(one(&ours, workload, &mut found).await);
            }
            (found, latency)
        })
    });
    let (mut found, mut latency) = (Deviations::default(), Vec::new());
    for lane in lanes.collect::<Vec<_>>() {
        let (more, ms) = lane.await.expect("no lane panicked");
        found.merge(more);
        latency.extend(ms);
    }
    let (wall_s, cpu_s) = (timing.wall_s(), timing.cpu_s());
    Timed { runs: count.load(Ordering::Relaxed), wall_s, cpu_s, latency, found }
}

async fn one(ours: &Ours, workload: Workload, found: &mut Deviations) -> Option<f64> {
    if workload == Workload::W1 {
        ours.free(found).await;
        return None;
    }
    let cx = local();
    // What is left of the run is its id; its driver and all it held are gone.
    let run = ours.suspend(&cx, found).await;
    ours.decide(&cx, run, found).await
}
