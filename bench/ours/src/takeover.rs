//! An instance goes - killed, or stopped in order - while it works on runs: how long until another one works on them?

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdpoint::local;
use holdpoint::prelude::*;
use holdpoint::protocol::RunId;
use holdpoint_bench_harness::{Arguments, Deviations, Line, work};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

use crate::database;
use crate::owner::{Entered, agent, request};

/// The instance that goes: works on so many runs, says their ids, and stops in order when its input ends.
pub async fn victim(arguments: &Arguments) {
    let (entered, enough) = (Entered::default(), Arc::new(Notify::new()));
    let builder = Runtime::builder().agent(agent(&entered, &enough));
    let runtime =
        builder.shared_store(database::open(&arguments.path).await).build().expect("a valid runtime");
    for _ in 0..arguments.n {
        let run = runtime.start(&local(), Start::text(work::PROMPT)).await.expect("a run").run;
        entered.wait("Slow", run).await.expect("the free tool runs");
        request(&runtime, run).await;
        println!("{run}");
    }
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    runtime.shutdown(Duration::ZERO).await;
}

fn start(arguments: &Arguments) -> (Child, Vec<RunId>) {
    let this = std::env::current_exe().expect("this program");
    let mut child = Command::new(this)
        .args(["VICTIM", "--conc", "2", "--path", &arguments.path, "--n", &arguments.n.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("an instance");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let runs = lines.take(arguments.n).map(|line| line.expect("a run").parse().expect("a run"));
    let runs = runs.collect();
    (child, runs)
}

/// Measures and prints the line.
pub async fn measure(arguments: &Arguments) {
    let path = arguments.path.as_str();
    assert!(database::is_postgres(path), "TAKEOVER is about PostgreSQL: give its URL with --path");
    database::remove(path).await;
    let mut line = Line::new("holdpoint", arguments.workload.name());
    line.set("runs", arguments.n);
    let mut found = Deviations::default();
    for how in ["killed", "stopped"] {
        let (entered, enough) = (Entered::default(), Arc::new(Notify::new()));
        let builder = Runtime::builder().agent(agent(&entered, &enough));
        let runtime = builder.shared_store(database::open(path).await).build().expect("a valid runtime");
        let (mut child, runs) = start(arguments);
        let gone = Instant::now();
        if how == "killed" {
            child.kill().expect("a process of ours");
        } else {
            drop(child.stdin.take());
        }
        let mut seconds = Vec::new();
        for run in runs {
            match entered.wait("Slow", run).await {
                Some(at) => seconds.push(at.saturating_duration_since(gone).as_secs_f64()),
                None => found.note("takeover", format!("run {run} is not taken over, {how}")),
            }
        }
        let _ = child.wait();
        seconds.sort_by(f64::total_cmp);
        line.number(&format!("{how}_first_s"), seconds.first().copied().unwrap_or(-1.0));
        line.number(&format!("{how}_last_s"), seconds.last().copied().unwrap_or(-1.0));
        runtime.shutdown(Duration::ZERO).await;
        database::remove(path).await;
    }
    line.print(&found);
}
