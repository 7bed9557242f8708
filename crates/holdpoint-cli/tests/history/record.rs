//! What was asked and what was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// A decision that was posted, and what came of it.
#[derive(Debug, Clone)]
pub struct Posted {
    pub request: String,
    pub word: String,
    /// What makes this decision another one than the others on its request: a reason, or an edited text.
    pub own: Option<String>,
    pub key: Option<String>,
    /// The status and the body; nothing where no answer came.
    pub answer: Option<(u16, Value)>,
}

#[derive(Default)]
pub struct Record {
    pub posted: Mutex<Vec<Posted>>,
    /// By run: its job.
    pub runs: Mutex<BTreeMap<String, u64>>,
    /// Starts that were answered twice with one key, and the runs that were named.
    pub starts: Mutex<BTreeMap<u64, BTreeSet<String>>>,
    /// By run and number: what a stream has shown.
    pub seen: Mutex<BTreeMap<(String, u64), Value>>,
    pub streams: AtomicU64,
    pub unknown: AtomicU64,
    pub refused: AtomicU64,
}

impl Record {
    pub fn post(&self, posted: Posted) {
        match &posted.answer {
            None => drop(self.unknown.fetch_add(1, Ordering::Relaxed)),
            Some((500.., _)) => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
            Some(_) => {}
        }
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).push(posted);
    }

    /// A run was named as the answer to the start of a job.
    pub fn started(&self, job: u64, run: &str) {
        self.runs.lock().unwrap().insert(run.to_owned(), job);
        self.starts.lock().unwrap().entry(job).or_default().insert(run.to_owned());
    }

    /// Everything about one request, to be read by a person.
    pub fn about(&self, request: &str) -> String {
        let posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        let lines =
            posted.iter().filter(|posted| posted.request == request).map(|posted| format!("  {posted:?}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}
