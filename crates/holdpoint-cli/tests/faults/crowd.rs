//! Much at once, and much in one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::bed::{asked, assert_whole, bash, decide, events, serve, start};
use crate::common::http::Server;
use crate::common::process::Serving;
use crate::common::site::{Database, Site, script};
use crate::common::until;

/// An instance takes 4,096 connections at most; so many watch through each of three.
const WATCHERS_EACH: usize = 3_400;
/// Streams that are being opened at once on each: an instance turns away what it would have to keep waiting for its database.
const OPENING_EACH: usize = 100;
/// Database transactions a second that all instances together may need more while nothing happens, because somebody watches.
const MORE_TRANSACTIONS_MAX: u64 = 60;

/// Ten thousand clients on the stream of one run, through three instances. All see all of it.
pub fn ten_thousand_watch_one_run_and_the_database_is_read_once() {
    let site = bash("echo ran >> log.txt");
    let instances: Vec<Serving> = (0..3).map(|_| serve(&site)).collect();
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
    let (open, whole) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let began = Instant::now();
    for instance in &instances {
        let opening = Arc::new(Semaphore::new(OPENING_EACH));
        for _ in 0..WATCHERS_EACH {
            let counts = (Arc::clone(&open), Arc::clone(&whole));
            threads.spawn(watch(instance.server.clone(), run.clone(), Arc::clone(&opening), counts));
        }
    }
    let all = WATCHERS_EACH * instances.len();
    until("everybody to watch", || (open.load(Ordering::Relaxed) == all).then_some(()));
    println!("{all} streams open after {:?}", began.elapsed());
    // What was read for the openings is counted a moment later.
    std::thread::sleep(Duration::from_secs(2));
    let watched = a_second();
    println!("{alone} transactions a second while nothing happens, {watched} with {all} that watch");
    assert!(watched <= alone + MORE_TRANSACTIONS_MAX, "{watched}, and {alone} without them");
    let decided = Instant::now();
    decide(&instances[1].server, &asked(&instances[1].server, &run, "approval"), "approve");
    until("everybody to have seen the end", || (whole.load(Ordering::Relaxed) == all).then_some(()));
    println!("all saw the end {:?} after the decision", decided.elapsed());
    assert_whole(&instances[2].server, &run);
}

/// Reads the stream to its end, and counts itself if it was whole. An instance that has too much to do says so: then comes again.
async fn watch(
    server: Server,
    run: String,
    opening: Arc<Semaphore>,
    (open, whole): (Arc<AtomicUsize>, Arc<AtomicUsize>),
) {
    loop {
        let turn = Arc::clone(&opening).acquire_owned().await.unwrap();
        if watched(&server, &run, turn, &open, &whole).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Whether the stream was one.
async fn watched(
    server: &Server,
    run: &str,
    turn: OwnedSemaphorePermit,
    open: &AtomicUsize,
    whole: &AtomicUsize,
) -> bool {
    let mut turn = Some(turn);
    let host = server.url.strip_prefix("http://").unwrap();
    let Ok(mut stream) = TcpStream::connect(host).await else { return false };
    let request = format!(
        "GET /v1/runs/{run}/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.token
    );
    if stream.write_all(request.as_bytes()).await.is_err() {
        return false;
    }
    let (mut text, mut buffer, mut counted) = (String::new(), [0; 4096], false);
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if text.starts_with("HTTP/1.1 503") {
            return false;
        }
        if !counted && text.contains("\"type\":\"suspended\"") {
            counted = true;
            turn = None;
            open.fetch_add(1, Ordering::Relaxed);
        }
        if text.contains("\"type\":\"finish\"") {
            let once = |kind: &str| text.matches(&format!("{{\"type\":\"{kind}\"")).count() == 1;
            if ["approval_request", "decision", "tool_result", "finish"].iter().all(|kind| once(kind)) {
                whole.fetch_add(1, Ordering::Relaxed);
            }
            return true;
        }
    }
    drop(turn);
    // One that was open is not to end before its run.
    counted
}

/// As many bytes as a call may have, with everything in them that JSON can hold and databases have choked on.
pub fn large_arguments_and_nul_are_kept_whole_on_both_stores() {
    // Of 256 KiB: what is not the text itself is left room for.
    let text = format!("{}{}", "a\u{0}b\\u0000\u{1}\"\\\u{10ffff}", "ä".repeat(100_000));
    let arguments = json!({ "path": "log.txt", "content": text }).to_string();
    let too_long = format!("{{\"path\":\"log.txt\",\"content\":\"{}\"}}", "x".repeat(256 * 1024));
    for database in [Database::File, Database::postgres()] {
        let site = Site::on(database, &script(&[("Write", Value::String(arguments.clone()))]));
        let mut serving = serve(&site);
        let run = start(&serving.server);
        serving.signal("-TERM");
        serving.wait();
        let mut serving = serve(&site);
        let request = asked(&serving.server, &run, "approval");
        assert_eq!(request["request"]["arguments"], arguments, "it is shown as it is");
        decide(&serving.server, &request, "approve");
        assert_whole(&serving.server, &run);
        assert_eq!(std::fs::read_to_string(site.path("work/log.txt")).unwrap(), text);
        // One that is over the limit is an error of the model's, and runs nothing.
        site.write("script.yaml", &script(&[("Write", Value::String(too_long.clone()))]));
        serving.signal("-TERM");
        serving.wait();
        let serving = serve(&site);
        let (status, answer) = serving.server.chat("go");
        assert_eq!((status, &answer["text"]), (200, &json!("done")), "{answer}");
        let run = answer["runId"].as_str().unwrap();
        let events = events(&serving.server, run);
        let result = events.iter().find(|event| event["type"] == "tool_result").unwrap();
        assert_eq!(result["toolResults"][0]["status"], "arguments_too_large");
        assert_eq!(std::fs::read_to_string(site.path("work/log.txt")).unwrap(), text);
    }
}
