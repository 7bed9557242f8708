//! A process that is killed while it writes a group in PostgreSQL: all of the group is there, or nothing of it.

use std::path::Path;

use holdpoint_protocol::RunId;
use holdpoint_store::{ChainCheck, Next, PostgresOptions, PostgresStore, Store};

use crate::again;
use crate::bed::{Bed, ana, block_on, clock};
use crate::cluster::{Database, database};
use crate::together::{CONNECTIONS, Together};
use crate::walk::Walk;

const MEMBERS: usize = 6;

/// Has a group written, and dies of it.
pub fn writer(name: &Path) {
    let name = name.to_str().unwrap();
    block_on(async {
        let url = std::env::var("HOLDPOINT_TEST_URL").unwrap();
        let database = Database::at(name.to_owned(), url);
        let options = PostgresOptions { connections: CONNECTIONS, ..PostgresOptions::default() };
        let store = PostgresStore::connect(&database.url, options).await.unwrap();
        let bed = Bed::of(store.clone(), clock());
        let mut steps = Vec::new();
        for n in 0..MEMBERS {
            let mut walk = Walk::started(&bed, &ana(), &format!("job-{n}")).await;
            let changes = walk.proposed().await;
            steps.push(walk.made(changes, Next::Suspend));
            println!("{} {}", walk.id(), steps[n].expected_seq + steps[n].writes.events.len() as u64);
        }
        let done = Together::waiting(&database, &store, &steps).await.done().await;
        panic!("it lives: {done:?}");
    });
}

pub fn a_group_is_there_as_a_whole_or_not_at_all() {
    for (point, there) in [("before_commit", false), ("after_commit", true)] {
        block_on(async {
            let database = database().await;
            let mut command = again("as-writer-of-a-group", Path::new(&database.name));
            command.env("HOLDPOINT_TEST_URL", &database.url);
            command.env("HOLDPOINT_FAIL", format!("store.commit.{point}:kill"));
            let output = command.output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(!output.status.success() && said.lines().count() == MEMBERS, "{said}");
            let store = PostgresStore::connect(&database.url, PostgresOptions::default()).await.unwrap();
            for line in said.lines() {
                let (run, after) = line.split_once(' ').unwrap();
                let (run, after): (RunId, u64) = (run.parse().unwrap(), after.parse().unwrap());
                let loaded = store.load(&ana(), run).await.unwrap().unwrap();
                assert_eq!(loaded.next_seq == after, there, "{point}: {} of {after}", loaded.next_seq);
                let chain = store.verify(&ana(), run).await.unwrap();
                assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
            }
            let pending = if there { 2 * MEMBERS as u64 } else { 0 };
            assert_eq!(store.stats().await.unwrap().pending, pending, "{point}");
        });
    }
}
