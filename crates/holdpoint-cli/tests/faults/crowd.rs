//! Many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch::{Receiver, Sender};

use crate::bed::{asked, assert_whole, bash, decide, serve, start};
use crate::common::http::Server;
use crate::common::process::Serving;
use crate::common::until;

/// An instance takes 4,096 connections at most; so many watch through each of three.
const WATCHERS_EACH: usize = 3_400;
/// Database transactions a second that all instances together may need more while nothing happens, because somebody watches.
const MORE_TRANSACTIONS_MAX: u64 = 60;

/// Ten thousand clients on the stream of one run, through three instances. All see all of it.
pub fn ten_thousand_watch_one_run_and_come_back_at_once_and_the_database_is_read_once() {
    let site = bash("echo ran >> log.txt");
    let mut instances: Vec<Serving> = (0..3).map(|_| serve(&site)).collect();
    let run = start(&instances[0].server);
    let transactions = || -> u64 {
        let sql =
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        site.sql(sql).parse().unwrap()
    };
    let a_second = || {
        let (before, from) = (transactions(), Instant::now());
        std::thread::sleep(Duration::from_secs(3));
        (transactions() - before) * 1_000 / from.elapsed().as_millis() as u64
    };
    let alone = a_second();
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let seats: Vec<_> = instances.iter().map(|instance| Sender::new(instance.server.clone())).collect();
    let counts = Arc::new(Counts::default());
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let began = Instant::now();
    for seat in &seats {
        for _ in 0..WATCHERS_EACH {
            threads.spawn(watch(seat.subscribe(), run.clone(), Arc::clone(&counts)));
        }
    }
    let all = WATCHERS_EACH * instances.len();
    reached("everybody to watch", &counts.open, all);
    println!(
        "{all} streams open after {:?}, {} of them put off first",
        began.elapsed(),
        count(&counts.put_off)
    );
    // What was read for the openings is counted a moment later.
    std::thread::sleep(Duration::from_secs(2));
    let watched = a_second();
    println!("{alone} transactions a second while nothing happens, {watched} with {all} that watch");
    assert!(watched <= alone + MORE_TRANSACTIONS_MAX, "{watched}, and {alone} without them");
    // One dies, and is there again: all who watched through it come back at the same moment.
    instances.remove(0).kill();
    let again = serve(&site);
    let back = Instant::now();
    seats[0].send_replace(again.server.clone());
    reached("everybody to be back", &counts.open, all + WATCHERS_EACH);
    println!(
        "{WATCHERS_EACH} streams open again after {:?}; {} were put off",
        back.elapsed(),
        count(&counts.put_off)
    );
    let decided = Instant::now();
    decide(&again.server, &asked(&again.server, &run, "approval"), "approve");
    reached("everybody to have seen the end", &counts.whole, all);
    println!("all saw the end {:?} after the decision", decided.elapsed());
    assert_whole(&instances[0].server, &run);
}

/// Waits until so many are counted, for as long as more of them come: on a machine with other work all of them take their time.
fn reached(what: &str, counter: &AtomicUsize, all: usize) {
    let mut before = counter.load(Ordering::Relaxed);
    while before < all {
        before = until(what, || {
            let now = counter.load(Ordering::Relaxed);
            (now > before).then_some(now)
        });
    }
    assert_eq!(counter.load(Ordering::Relaxed), all, "{what}");
}

/// What those who watch have seen.
#[derive(Default)]
struct Counts {
    /// Streams that have shown where the run is.
    open: AtomicUsize,
    /// Streams that only said when to come back.
    put_off: AtomicUsize,
    /// Clients that saw every event once.
    whole: AtomicUsize,
}

/// How one connection ended.
enum Ended {
    Run,
    /// It broke off, as when the instance dies.
    Broken,
    /// The server ended it, and said when to come back.
    Closed(Duration),
}

/// Reads the run to its end, as a browser does: it comes back when a stream ends, and gives up for good where the answer is an error.
async fn watch(mut server: Receiver<Server>, run: String, counts: Arc<Counts>) {
    let mut last = 0;
    loop {
        let now = server.borrow_and_update().clone();
        match follow(&now, &run, &mut last, &counts).await {
            Ok(Ended::Run) => {
                counts.whole.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(Ended::Closed(after)) => {
                counts.put_off.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(after).await;
            }
            Ok(Ended::Broken) | Err(_) => server.changed().await.unwrap(),
        }
    }
}

/// One connection, from after what was seen last.
async fn follow(server: &Server, run: &str, last: &mut u64, counts: &Counts) -> std::io::Result<Ended> {
    let host = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await?;
    let after = if *last > 0 { format!("Last-Event-ID: {last}\r\n") } else { String::new() };
    let request = format!(
        "GET /v1/runs/{run}/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n{after}\r\n",
        server.token
    );
    stream.write_all(request.as_bytes()).await?;
    let mut lines = BufReader::new(stream).lines();
    let (mut is_answer, mut is_open, mut number) = (true, false, None);
    while let Some(line) = lines.next_line().await? {
        if std::mem::take(&mut is_answer) {
            assert_eq!(line, "HTTP/1.1 200 OK", "a browser does not come back");
        } else if let Some(id) = line.strip_prefix("id: ") {
            number = Some(id.parse::<u64>().unwrap());
        } else if let Some(data) = line.strip_prefix("data: ") {
            let of = |kind: &str| data.starts_with(&format!("{{\"type\":\"{kind}\""));
            if let Some(number) = number.take() {
                assert_eq!(number, *last + 1, "{data}");
                *last = number;
            }
            if of("closing") {
                let closing: Value = serde_json::from_str(data).unwrap();
                return Ok(Ended::Closed(Duration::from_millis(closing["retryAfterMs"].as_u64().unwrap())));
            }
            if of("finish") {
                return Ok(Ended::Run);
            }
            // Where the run waits, or what was asked before, shown again.
            if !is_open && (of("suspended") || of("approval_request") && data.ends_with("\"replayed\":true}"))
            {
                is_open = true;
                counts.open.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(Ended::Broken)
}
