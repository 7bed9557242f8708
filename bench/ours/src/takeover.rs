//! An instance goes - killed, or stopped in order - while it works on runs: how long until another one works on them?

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdpoint::local;
use holdpoint::models::ModelRequest;
use holdpoint::prelude::*;
use holdpoint_bench_harness::{Arguments, Deviations, Line, work};
use tokio::io::AsyncReadExt;

use crate::database;

/// An answer that never comes while this runs.
const NEVER: Duration = Duration::from_secs(3_600);

/// When the model was asked.
type Asked = Arc<Mutex<Vec<Instant>>>;

/// An instance with an agent whose model answers after this time.
async fn instance(path: &str, after: Duration, asked: &Asked) -> Runtime {
    let noted = Arc::clone(asked);
    let answer = move |_: &ModelRequest, _: u64| {
        noted.lock().expect("no panic").push(Instant::now());
        Answer::text(work::FINAL).after(after)
    };
    let script = Scripted::new("scripted").computed(When::any(), answer).record(false).build();
    let agent = Agent::builder("main", script).stream(false).build().expect("a valid agent");
    let builder = Runtime::builder().agent(agent).shared_store(database::open(path).await);
    builder.build().expect("a valid runtime")
}

async fn wait_for(asked: &Asked, n: usize) {
    let from = Instant::now();
    while asked.lock().expect("no panic").len() < n && from.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The instance that goes: its model is asked for so many runs and does not answer. Says when it is so; stops in order when
/// its input ends.
pub async fn victim(arguments: &Arguments) {
    let asked = Asked::default();
    let runtime = instance(&arguments.path, NEVER, &asked).await;
    for _ in 0..arguments.n {
        runtime.start(&local(), Start::text(work::PROMPT)).await.expect("a run");
    }
    wait_for(&asked, arguments.n).await;
    println!("at work");
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    runtime.shutdown(Duration::from_secs(5)).await;
}

fn start(arguments: &Arguments) -> Child {
    let this = std::env::current_exe().expect("this program");
    let mut child = Command::new(this)
        .args(["VICTIM", "--conc", "2", "--path", &arguments.path, "--n", &arguments.n.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("an instance");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a word");
    child
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
        let mut child = start(arguments);
        // The others are there before it goes, and have proven that they hear.
        let asked = Asked::default();
        let runtime = instance(path, Duration::ZERO, &asked).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let gone = Instant::now();
        if how == "killed" {
            child.kill().expect("a process of ours");
        } else {
            drop(child.stdin.take());
        }
        wait_for(&asked, arguments.n).await;
        let _ = child.wait();
        let asked = asked.lock().expect("no panic").clone();
        if asked.len() != arguments.n {
            found.note("takeover", format!("{} of {} runs were taken over, {how}", asked.len(), arguments.n));
        }
        let since = |at: &Instant| at.saturating_duration_since(gone).as_secs_f64();
        let mut seconds: Vec<f64> = asked.iter().map(since).collect();
        seconds.sort_by(f64::total_cmp);
        line.number(&format!("{how}_first_s"), seconds.first().copied().unwrap_or(-1.0));
        line.number(&format!("{how}_last_s"), seconds.last().copied().unwrap_or(-1.0));
        runtime.shutdown(Duration::ZERO).await;
        database::remove(path).await;
    }
    line.print(&found);
}
