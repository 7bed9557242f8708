//! W5: one server in a process of its own, many streams that each wait for an approval. What does a stream take, and how
//! long is it from a decision to the next event on its stream?

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdpoint_bench_harness::{Arguments, Deviations, Line, usage, work};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader as AsyncReader};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};

use crate::database;

/// Streams that are being opened at a time.
const OPENING: usize = 32;
/// How long all streams wait, with heartbeats, before they are measured.
const IDLE: Duration = Duration::from_secs(12);
/// How long the decisions are spread over, at least this many a second.
const DECIDING: Duration = Duration::from_secs(20);
const DECISIONS_A_SECOND: f64 = 50.0;
/// Bytes of a client's buffer, so that ten thousand fit.
const BUFFER: usize = 2_048;

/// The server, which ends with this.
struct Served {
    child: Child,
    address: String,
    token: String,
}

impl Served {
    fn start(path: &str) -> Self {
        let this = std::env::current_exe().expect("this program");
        let mut child = Command::new(this)
            .args(["SERVE", "--conc", "2", "--path", path])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut line = String::new();
        let out = child.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("its address");
        let (address, token) = line.trim().split_once(' ').expect("its address and token");
        Self { address: address.into(), token: token.into(), child }
    }

    fn head(&self, method: &str, path: &str, body: &str) -> String {
        let (address, token, length) = (&self.address, &self.token, body.len());
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }
}

/// When what was seen on a stream.
#[derive(Default)]
struct Seen {
    decided: Option<Instant>,
    next: Option<Instant>,
    ended: Option<Instant>,
    beats: u64,
}

type All = Arc<Mutex<HashMap<usize, Seen>>>;

/// Opens a run and its stream, tells of its two requests, and reads to its end.
async fn stream(served: Arc<Served>, n: usize, opened: mpsc::Sender<(usize, Vec<Value>)>, all: All) {
    let body = json!({"query": work::PROMPT}).to_string();
    let connection = TcpStream::connect(&served.address).await.expect("a connection");
    let mut lines = AsyncReader::with_capacity(BUFFER, connection);
    lines.write_all(served.head("POST", "/chat/stream", &body).as_bytes()).await.expect("a request");
    let (mut requests, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).await.unwrap_or(0) == 0 {
            return;
        }
        let Some(data) = line.strip_prefix(b"data: ") else { continue };
        let now = Instant::now();
        let event: Value = serde_json::from_slice(data).expect("an event");
        let kind = event["type"].as_str().unwrap_or_default();
        match kind {
            "approval_request" => requests.push(event),
            "suspended" => opened.send((n, std::mem::take(&mut requests))).await.expect("a listener"),
            "heartbeat" => all.lock().expect("no panic").entry(n).or_default().beats += 1,
            _ => {
                let mut all = all.lock().expect("no panic");
                let seen = all.entry(n).or_default();
                if seen.decided.is_some() {
                    seen.next.get_or_insert(now);
                }
                if matches!(kind, "finish" | "error") {
                    seen.ended = (kind == "finish").then_some(now);
                    return;
                }
            }
        }
    }
}

/// Declines the first request and approves the second, each on a connection of its own.
async fn decide(served: Arc<Served>, n: usize, requests: Vec<Value>, all: All) -> Result<(), String> {
    for (request, word) in requests.iter().zip(["decline", "approve"]) {
        let id = request["requestId"].as_str().ok_or("no id")?;
        let body = match word {
            "decline" => json!({"decision": word, "digest": request["digest"], "reason": work::DECLINED}),
            _ => json!({"decision": word, "digest": request["digest"]}),
        };
        let head = served.head("POST", &format!("/v1/interactions/{id}/decision"), &body.to_string());
        let head = head.replacen("host:", "connection: close\r\nhost:", 1);
        all.lock().expect("no panic").entry(n).or_default().decided.get_or_insert_with(Instant::now);
        let mut connection = TcpStream::connect(&served.address).await.map_err(|e| e.to_string())?;
        connection.write_all(head.as_bytes()).await.map_err(|e| e.to_string())?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.map_err(|e| e.to_string())?;
        if !answer.starts_with("HTTP/1.1 200") {
            return Err(answer.chars().take(200).collect());
        }
    }
    Ok(())
}

/// Measures and prints the line.
pub async fn measure(arguments: &Arguments) {
    let (n, path) = (arguments.n, arguments.path.as_str());
    let files = usage::raise_open_files();
    let mut found = Deviations::default();
    if files < n as u64 + 64 {
        found.note("open_files", format!("{files} may be open: raise the hard limit"));
    }
    database::remove(path).await;
    let served = Arc::new(Served::start(path));
    let pid = served.child.id();
    let all = All::default();
    // The first pay for what is made once.
    run_some(&served, OPENING, &all, Duration::ZERO, &mut found).await;
    all.lock().expect("no panic").clear();
    tokio::time::sleep(Duration::from_secs(1)).await;

    let idle_kb = usage::rss_kb(pid);
    let (cpu, opened_at) = (usage::tree_cpu_s(pid), Instant::now());
    let (requests, tasks) = open(&served, n, &all).await;
    let open_s = opened_at.elapsed().as_secs_f64();
    let open_cpu = usage::tree_cpu_s(pid) - cpu;
    let (beats, cpu) = (beats(&all), usage::tree_cpu_s(pid));
    tokio::time::sleep(IDLE).await;
    let (streams_kb, idle_cpu) = (usage::rss_kb(pid), usage::tree_cpu_s(pid) - cpu);
    let idle_beats = self::beats(&all) - beats;
    let cpu = usage::tree_cpu_s(pid);
    decide_all(&served, requests, &all, DECIDING, &mut found).await;
    join(tasks, &mut found).await;
    let decide_cpu = usage::tree_cpu_s(pid) - cpu;

    let mut line = Line::new("holdpoint", arguments.workload.name());
    line.set("streams", n);
    line.set("store", database::kind(path));
    line.number("rss_idle_server_mb", idle_kb as f64 / 1024.0);
    line.number("rss_with_streams_mb", streams_kb as f64 / 1024.0);
    line.number("rss_per_stream_kb", (streams_kb as f64 - idle_kb as f64) / n as f64);
    line.number("opened_per_s", n as f64 / open_s);
    line.number("open_and_suspend_cpu_ms", 1e3 * open_cpu / n as f64);
    line.number("idle_cpu_pct", 100.0 * idle_cpu / IDLE.as_secs_f64());
    line.set("heartbeats_seen", idle_beats);
    line.number("decide_cpu_ms", 1e3 * decide_cpu / n as f64);
    latencies(&all, n, &mut line, &mut found);
    line.print(&found);
    stop(served);
    database::remove(path).await;
}

/// From the decision to the next event, and to the end, of each stream.
fn latencies(all: &All, n: usize, line: &mut Line, found: &mut Deviations) {
    let seen = all.lock().expect("no panic");
    let since = |at: fn(&Seen) -> Option<Instant>| {
        let ms = |seen: &Seen| Some(at(seen)?.duration_since(seen.decided?).as_secs_f64() * 1e3);
        seen.values().filter_map(ms).collect::<Vec<f64>>()
    };
    let (next, ended) = (since(|seen| seen.next), since(|seen| seen.ended));
    if (next.len(), ended.len()) != (n, n) {
        found.note("streams", format!("{} went on, {} ended well, of {n}", next.len(), ended.len()));
    }
    line.latency("next_event", next);
    line.latency("final", ended);
}

fn beats(all: &All) -> u64 {
    all.lock().expect("no panic").values().map(|seen| seen.beats).sum()
}

type Opened = (Vec<(usize, Vec<Value>)>, Vec<tokio::task::JoinHandle<()>>);

/// Opens so many streams, a few at a time, until each waits.
async fn open(served: &Arc<Served>, n: usize, all: &All) -> Opened {
    let (tell, mut told) = mpsc::channel(OPENING);
    let opening = Arc::new(Semaphore::new(OPENING));
    let (mut tasks, mut requests) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for one in 0..n {
        opening.acquire().await.expect("a semaphore").forget();
        tasks.push(tokio::spawn(stream(Arc::clone(served), one, tell.clone(), Arc::clone(all))));
        while let Ok(waits) = told.try_recv() {
            requests.push(waits);
            opening.add_permits(1);
        }
        while opening.available_permits() == 0 {
            requests.push(told.recv().await.expect("a stream"));
            opening.add_permits(1);
        }
    }
    while requests.len() < n {
        requests.push(told.recv().await.expect("a stream"));
    }
    (requests, tasks)
}

/// Decides all of them, one after the other at a steady rate.
async fn decide_all(
    served: &Arc<Served>,
    requests: Vec<(usize, Vec<Value>)>,
    all: &All,
    within: Duration,
    found: &mut Deviations,
) {
    let rate = (requests.len() as f64 / within.as_secs_f64().max(0.1)).max(DECISIONS_A_SECOND);
    let from = Instant::now();
    let mut decisions = Vec::with_capacity(requests.len());
    for (at, (one, requests)) in requests.into_iter().enumerate() {
        let due = Duration::from_secs_f64(at as f64 / rate);
        tokio::time::sleep(due.saturating_sub(from.elapsed())).await;
        decisions.push(tokio::spawn(decide(Arc::clone(served), one, requests, Arc::clone(all))));
    }
    for decision in decisions {
        if let Err(error) = decision.await.expect("no panic") {
            found.note("decision", error);
        }
    }
}

async fn join(tasks: Vec<tokio::task::JoinHandle<()>>, found: &mut Deviations) {
    for task in tasks {
        match tokio::time::timeout(Duration::from_secs(60), task).await {
            Ok(done) => done.expect("no panic"),
            Err(_) => found.note("stream", "it did not end within a minute"),
        }
    }
}

async fn run_some(served: &Arc<Served>, n: usize, all: &All, within: Duration, found: &mut Deviations) {
    let (requests, tasks) = open(served, n, all).await;
    decide_all(served, requests, all, within, found).await;
    join(tasks, found).await;
}

/// Ends the server and waits for it.
fn stop(served: Arc<Served>) {
    if let Ok(mut served) = Arc::try_unwrap(served) {
        drop(served.child.stdin.take());
        let _ = served.child.wait();
    }
}
