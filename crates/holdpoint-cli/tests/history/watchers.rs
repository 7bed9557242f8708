//! Those who only watch: what a stream shows is what is stored, in order and without a gap, also while things break.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use crate::common::http::Server;
use crate::dice::Dice;
use crate::record::Record;
use crate::world::World;

/// Follows the newest runs, and comes back after whatever was seen last when a stream ends.
pub fn watch(world: &World, record: &Record, mut dice: Dice) {
    while !world.is_over.load(Ordering::Relaxed) {
        // One of the newest: most of it is still to come.
        let run = record.runs.lock().unwrap().keys().rev().nth(dice.below(4) as usize).cloned();
        let Some(run) = run else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let mut last = 0;
        for _ in 0..6 {
            let Some(server) = world.server(dice.below(100)) else { continue };
            if world.is_over.load(Ordering::Relaxed) || follow(&server, record, &run, &mut last) == Some(true)
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Whether the run's end was seen.
fn follow(server: &Server, record: &Record, run: &str, last: &mut u64) -> Option<bool> {
    let host = server.url.strip_prefix("http://")?;
    let mut stream = TcpStream::connect(host).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
    let after = if *last > 0 { format!("Last-Event-ID: {last}\r\n") } else { String::new() };
    write!(
        stream,
        "GET /v1/runs/{run}/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n{after}\r\n",
        server.token
    )
    .ok()?;
    record.streams.fetch_add(1, Ordering::Relaxed);
    let mut seq = None;
    for line in BufReader::new(stream).lines() {
        let line = line.ok()?;
        if let Some(id) = line.strip_prefix("id:") {
            seq = id.trim().parse::<u64>().ok();
        } else if let Some(data) = line.strip_prefix("data:")
            && let Some(number) = seq.take()
        {
            let event: Value = serde_json::from_str(data.trim()).ok()?;
            // Only what is seen for the first time counts as what comes next.
            assert!(number == *last + 1, "run {run}: after {last} came {number}: {event}");
            *last = number;
            let end = matches!(event["type"].as_str(), Some("finish" | "error"));
            record.seen.lock().unwrap().insert((run.to_owned(), number), event);
            if end {
                return Some(true);
            }
        }
    }
    Some(false)
}
