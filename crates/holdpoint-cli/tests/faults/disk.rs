//! The disk that the database lies on is full.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use holdpoint_faults::{Cluster, Disk};
use serde_json::{Value, json};

use crate::bed::{assert_whole, body, path, serve};
use crate::common::site::{Database, Site, script};

/// MiB of the disk: an empty database takes about a third.
const DISK: u32 = 24;

/// What is acknowledged is stored, what is not does not run; once there is room again everything goes on.
pub fn a_full_disk_of_the_database_costs_nothing_that_was_acknowledged() {
    let cluster = Arc::new(Cluster::start(Disk::Small(DISK)));
    let filling = "x".repeat(20_000);
    let command = json!({ "command": format!("echo ran >> log.txt # {filling}") });
    let site = Site::on(Database::in_cluster(&cluster), &script(&[("Bash", command)]));
    let serving = serve(&site);
    let server = &serving.server;
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(crate::bed::start(server));
    }
    let requests = server.pending();
    let ballast = cluster.small_disk().join("ballast");
    fill(&ballast);
    let mut refused = 0;
    // Rows that are there have a little room left; then there is none.
    for _ in 0..2_000 {
        match server.chat("one more") {
            (202, answer) => runs.push(answer["runId"].as_str().unwrap().to_owned()),
            (507, answer) => {
                assert_eq!(answer["code"], "store_full", "{answer}");
                refused += 1;
                break;
            }
            (status, answer) => panic!("{status}: {answer}"),
        }
    }
    assert_eq!(refused, 1, "it is full");
    let mut open: Vec<Value> = Vec::new();
    let mut taken = 0;
    for request in &requests {
        match server.post(&path(request), &body(request, "approve")) {
            (200, _) => taken += 1,
            (507, answer) => {
                assert_eq!(answer["code"], "store_full", "{answer}");
                open.push(request.clone());
            }
            (status, answer) => panic!("{status}: {answer}"),
        }
    }
    println!("{} runs, then full: {taken} decisions found room, {} were refused", runs.len(), open.len());
    assert!(site.lines("log.txt") <= taken, "nothing ran that was not acknowledged");
    std::fs::remove_file(&ballast).unwrap();
    for request in open {
        assert_eq!(server.post(&path(&request), &body(&request, "approve")).0, 200);
    }
    for request in server.get("/v1/interactions?status=pending&limit=200")["items"].as_array().unwrap() {
        let (status, answer) = server.post(&path(request), &body(request, "decline"));
        assert_eq!(status, 200, "{answer}");
    }
    for run in &runs {
        assert_whole(server, run);
    }
    assert_eq!(site.lines("log.txt"), requests.len(), "each once");
}

fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for size in [64 * 1024, 4096, 512, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}
