//! What the tests of the command stand on: a terminal, a server to point it at, and plain HTTP.
#![allow(dead_code)] // each test file uses a part of it
#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests fail as tests do

pub mod house;
pub mod http;
pub mod process;
pub mod site;
pub mod terminal;

use std::time::{Duration, Instant};

/// How long anything is waited for before a test gives up. Machines can be slow; nothing here takes long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The command.
pub const HOLDPOINT: &str = env!("CARGO_BIN_EXE_holdpoint");

/// Waits until `look` finds something.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
