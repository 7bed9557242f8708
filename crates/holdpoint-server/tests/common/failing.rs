//! A store that can be told to fail.

use std::sync::{Arc, Mutex};

use holdpoint::store::*;

/// The memory store, and what it is to say instead when something is written or read.
pub struct Failing {
    inner: MemoryStore,
    writes: Mutex<Option<Error>>,
    reads: Mutex<Option<Error>>,
    probes: Mutex<usize>,
}

impl Failing {
    pub fn new() -> Arc<Self> {
        let inner = MemoryStore::new(Arc::new(SystemClock::new()));
        Arc::new(Self { inner, writes: Mutex::default(), reads: Mutex::default(), probes: Mutex::default() })
    }

    pub fn fail_writes(&self, error: Option<Error>) {
        *self.writes.lock().unwrap() = error;
    }

    pub fn fail_reads(&self, error: Option<Error>) {
        *self.reads.lock().unwrap() = error;
    }

    /// How often it was written to only to see whether that works.
    pub fn probes(&self) -> usize {
        *self.probes.lock().unwrap()
    }
}

impl Wrap for Failing {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn around<'a, T: Send + 'a>(&'a self, call: Call, doing: Doing<'a, T>) -> Doing<'a, T> {
        if call.name == "probe" {
            *self.probes.lock().unwrap() += 1;
        }
        let fails = if call.writes { &self.writes } else { &self.reads };
        match fails.lock().unwrap().clone().filter(|_| call.name != "close") {
            Some(error) => Box::pin(async { Err(error) }),
            None => doing,
        }
    }
}
