//! A history of real processes, and whether it can be true.
//!
//! Three instances of `holdpoint serve` share one PostgreSQL, each behind a proxy of its own. Clients start runs and decide: against
//! each other, repeatedly, with edits, too late. Meanwhile they are killed, stopped, held still and cut off, the database is
//! restarted in every way, and clocks are wrong. Everything that is answered is written down, every command that runs leaves a
//! line. At the end everything heals, all runs are brought to their end, and then the record is held against what is stored.
//!
//! `HOLDPOINT_HISTORY_SEED` chooses another mix, `HOLDPOINT_HISTORY_SECONDS` how long it lasts. The seed fixes what is done, not
//! when the processes get to it: a failure shows the excerpt of the record that cannot be.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

#[path = "../common/mod.rs"]
mod common;

mod check;
mod clients;
mod dice;
mod jobs;
mod nemesis;
mod orders;
mod record;
mod terms;
mod watchers;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use record::Record;
use world::World;

const SEED: u64 = 2026;
const SECONDS: u64 = 40;
const CLIENTS: u64 = 6;
const WATCHERS: u64 = 3;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect(name))
}

#[test]
fn slow_nothing_is_lost_and_nothing_done_twice_under_any_mix_of_faults() {
    let (seed, seconds) =
        (number("HOLDPOINT_HISTORY_SEED", SEED), number("HOLDPOINT_HISTORY_SECONDS", SECONDS));
    println!("seed {seed}, {seconds} s");
    let world = Arc::new(World::new(jobs::count(seconds)));
    let record = Arc::new(Record::default());
    let spawn = |what: Box<dyn FnOnce() + Send>| std::thread::spawn(what);
    let mut threads = Vec::new();
    for n in 0..CLIENTS {
        let (world, record) = (Arc::clone(&world), Arc::clone(&record));
        threads
            .push(spawn(Box::new(move || clients::decide_jobs(&world, &record, dice::Dice::new(seed, n)))));
    }
    for n in 0..WATCHERS {
        let (world, record) = (Arc::clone(&world), Arc::clone(&record));
        threads
            .push(spawn(Box::new(move || watchers::watch(&world, &record, dice::Dice::new(seed, 100 + n)))));
    }
    {
        let (world, record) = (Arc::clone(&world), Arc::clone(&record));
        threads.push(spawn(Box::new(move || {
            clients::settle_doubts(&world, &record, dice::Dice::new(seed, 200))
        })));
    }
    nemesis::torment(&world, &mut dice::Dice::new(seed, 300), Duration::from_secs(seconds));
    world.is_over.store(true, Ordering::Relaxed);
    world.heal();
    for thread in threads {
        thread.join().expect("a client of the test gave up");
    }
    clients::bring_to_an_end(&world, &record);
    println!("faults: {}", world.faults());
    let wrong = check::check(&world, &record);
    assert!(
        wrong.is_empty(),
        "seed {seed}: {} things cannot be:\n{}",
        wrong.len(),
        wrong.iter().take(5).cloned().collect::<Vec<_>>().join("\n\n")
    );
}
