//! What the stores cost: `cargo run --release -p holdpoint-store --example figures [PART [WAITING]]`, where the part is
//! one of `memory`, `sequential`, `parallel`, `probe`, `waiting`; all of them without one. With the feature `postgres`, the
//! part `postgres` wants the URL of a database in the place of the number.
//!
//! The work is that of a run with three calls, of which two wait for a person: started, suspended, read back by id,
//! decided, carried on, ended. The run machine and this program's own work are in the figures of every line, so the line of
//! the memory store says what is not the database's.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/conformance/bed.rs"]
#[allow(dead_code, unused_macros, unused_imports)]
mod bed;
#[path = "../tests/conformance/walk.rs"]
#[allow(dead_code)]
mod walk;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdpoint_store::{Context, MemoryStore, PageRequest, SqliteStore, SystemClock};

use bed::{Bed, block_on, clock, cx};
use walk::Walk;

fn main() {
    let part = std::env::args().nth(1);
    let waiting = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    block_on(async {
        if wanted("memory") {
            let store = MemoryStore::new(Arc::new(SystemClock::new())).forget_finished(1_000);
            whole_runs("memory", &Bed::of(Arc::new(store), clock()), 1, 20_000).await;
        }
        let dir = tempfile::tempdir().unwrap();
        let sqlite = open(&dir.path().join("runs.db"));
        if wanted("sequential") {
            whole_runs("sqlite", &sqlite, 1, 1_500).await;
        }
        if wanted("parallel") {
            whole_runs("sqlite", &sqlite, 64, 6_400).await;
        }
        if wanted("probe") {
            commit_probe(&dir.path().join("probe.db"));
        }
        #[cfg(feature = "postgres")]
        if let (Some("postgres"), Some(url)) = (part.as_deref(), std::env::args().nth(2)) {
            let options = holdpoint_store::PostgresOptions { connections: 32, ..Default::default() };
            let store = holdpoint_store::PostgresStore::connect(&url, options).await.unwrap();
            let bed = Bed::of(store, clock());
            whole_runs("postgres", &bed, 1, 300).await;
            whole_runs("postgres", &bed, 64, 3_200).await;
        }
        if wanted("waiting") {
            many_waiting(&dir.path().join("waiting.db"), waiting).await;
        }
    });
}

fn open(path: &Path) -> Bed {
    Bed::of(Arc::new(SqliteStore::open(path, Arc::new(SystemClock::new())).unwrap()), clock())
}

/// Tenants share the load: one alone may have 100,000 pending.
fn tenant(n: usize) -> Context {
    cx(&format!("tenant-{}", n / 40_000), "ana")
}

async fn one(bed: &Bed, n: usize) {
    let cx = tenant(n);
    let name = format!("{}", uuid::Uuid::now_v7());
    Walk::suspended(bed, &cx, &name).await.decided_to_the_end().await;
}

async fn whole_runs(name: &str, bed: &Bed, at_a_time: usize, runs: usize) {
    for n in 0..20 {
        one(bed, n).await;
    }
    let before = bed.store.stats().await.unwrap();
    let (began, cpu) = (Instant::now(), cpu_time());
    let mut tasks = Vec::new();
    for lane in 0..at_a_time {
        let bed = Bed::of(Arc::clone(&bed.store), Arc::clone(&bed.clock));
        tasks.push(tokio::spawn(async move {
            for n in 0..runs / at_a_time {
                one(&bed, lane * n).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let (wall, cpu) = (began.elapsed(), cpu_time() - cpu);
    let after = bed.store.stats().await.unwrap();
    let (commits, operations) = (after.commits - before.commits, after.operations - before.operations);
    println!(
        "{name}, {at_a_time} at a time: {:.0} runs/s, {:.3} ms CPU a run, {:.1} commits a run, {:.1} operations a commit",
        runs as f64 / wall.as_secs_f64(),
        cpu.as_secs_f64() * 1e3 / runs as f64,
        commits as f64 / runs as f64,
        operations as f64 / commits as f64,
    );
}

/// What one commit of 3 KB costs here and now.
fn commit_probe(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)").unwrap();
    let body = vec![7u8; 3_000];
    let (began, cpu) = (Instant::now(), cpu_time());
    const COMMITS: u32 = 2_000;
    for _ in 0..COMMITS {
        connection.execute("INSERT INTO t (body) VALUES (?1)", [&body]).unwrap();
    }
    println!(
        "probe: a commit of 3 KB takes {:.3} ms, {:.3} ms CPU",
        (began.elapsed() / COMMITS).as_secs_f64() * 1e3,
        ((cpu_time() - cpu) / COMMITS).as_secs_f64() * 1e3
    );
}

async fn many_waiting(path: &Path, runs: usize) {
    let bed = open(path);
    let mut tasks = Vec::new();
    for lane in 0..64 {
        let bed = Bed::of(Arc::clone(&bed.store), Arc::clone(&bed.clock));
        tasks.push(tokio::spawn(async move {
            for n in (lane..runs).step_by(64) {
                Walk::suspended(&bed, &tenant(n), &format!("{}", uuid::Uuid::now_v7())).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    bed.store.close().await.unwrap();
    let bytes = std::fs::metadata(path).unwrap().len();
    let before = memory_kib();
    let began = Instant::now();
    let bed = open(path);
    assert!(bed.store.recover(100).await.unwrap().is_empty());
    assert!(bed.store.expire_due(500).await.unwrap().is_empty());
    let ready = began.elapsed();
    let cx = tenant(0);
    let mut pages = Vec::new();
    let mut page = PageRequest::default();
    let filter = holdpoint_store::InteractionFilter {
        status: Some(holdpoint_protocol::InteractionStatus::Pending),
        ..Default::default()
    };
    for _ in 0..200 {
        let began = Instant::now();
        let found = bed.store.interactions(&cx, &filter, &page).await.unwrap();
        pages.push(began.elapsed());
        page.cursor = found.next_cursor;
    }
    pages.sort();
    println!(
        "{runs} waiting: {} bytes each, ready after {ready:.1?}, {} KiB more in memory, a page of 50 in {:.1?} (p50) and {:.1?} (p99)",
        bytes / runs as u64,
        memory_kib().saturating_sub(before),
        pages[100],
        pages[198],
    );
}

fn cpu_time() -> Duration {
    // Fields 14 and 15: user and system time in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
