//! A stop in order, with much going on.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::bed::{asked, body, decide, path, serve, start};
use crate::common::http;
use crate::common::site::{Database, Site, script};
use crate::common::until;

/// Fifty that watch, five that wait for a person, one at work: the watchers are told, what waits stays, nothing new starts.
pub fn fifty_that_watch_are_told_and_nothing_new_starts() {
    for database in [Database::File, Database::postgres()] {
        let calls = [
            ("Bash", json!({ "command": "echo first >> log.txt; sleep 2" })),
            ("Bash", json!({ "command": "echo second >> log.txt" })),
        ];
        let site = Site::on(database, &script(&calls));
        let mut serving = serve(&site);
        let server = serving.server.clone();
        let runs: Vec<String> = (0..5).map(|_| start(&server)).collect();
        let watching: Vec<_> = (0..50)
            .map(|n| {
                let (server, path) = (server.clone(), format!("/v1/runs/{}/events", runs[n % runs.len()]));
                std::thread::spawn(move || http::send(&server.url, Some(&server.token), "GET", &path, None))
            })
            .collect();
        // Both calls of the first run are approved: the second must not start once it was told to stop.
        let pending = server.pending();
        let of_first = |call: &str| {
            pending
                .iter()
                .find(|row| row["runId"] == runs[0].as_str() && row["request"]["toolCallId"] == call)
                .unwrap()
        };
        decide(&server, of_first("c0"), "approve");
        decide(&server, of_first("c1"), "approve");
        until("the first command", || (site.lines("log.txt") == 1).then_some(()));
        std::thread::sleep(Duration::from_millis(300));
        serving.signal("-TERM");
        let told = Instant::now();
        for watcher in watching {
            let (status, stream) = watcher.join().unwrap();
            assert_eq!(status, 200);
            assert!(
                stream.contains("\"type\":\"closing\"") && stream.contains("\"reason\":\"shutdown\""),
                "{stream}"
            );
        }
        println!("fifty streams closed after {:?}", told.elapsed());
        assert!(serving.wait().success());
        assert_eq!(site.log("log.txt"), ["first"], "nothing new started");
        let serving = serve(&site);
        let pending = serving.server.pending();
        assert_eq!(pending.len(), 2 * 4, "what waited waits");
        serving.server.ended(&runs[0]);
        assert_eq!(site.log("log.txt"), ["first", "second"]);
        let request = asked(&serving.server, &runs[1], "approval");
        assert_eq!(serving.server.post(&path(&request), &body(&request, "decline")).0, 200);
    }
}
