//! A look at a database from outside: what it is, how it is set, how fast it writes. Nothing of ours in it is changed.

use std::time::Duration;

use crate::{Error, Result};

/// How many small commits are measured.
pub(crate) const COMMITS: u32 = 200;
/// The longest a measurement takes; on a slow disk fewer commits have to do.
pub(crate) const MEASURE_MAX: Duration = Duration::from_secs(10);

/// How long what is stored is read through.
pub(crate) const READ_MAX: Duration = Duration::from_secs(10);

/// What a look at a database found.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkup {
    /// Its kind and version: `SQLite 3.50.2`, `PostgreSQL 17.2`.
    pub engine: String,
    /// For PostgreSQL its version as a number: 170002.
    pub engine_number: Option<i64>,
    /// The version of our schema in it; `None` where it has none yet.
    pub schema: Option<u32>,
    /// The newest version of the schema known here.
    pub schema_known: u32,
    /// How long a small commit takes.
    pub commits: CommitFigures,
    /// How far the database's clock is ahead of this machine's, in milliseconds. `None` where it is the same clock.
    pub clock_ahead_ms: Option<i64>,
    /// Whether a pooler shares its connections between transactions. `None` where there can be none.
    pub pooled: Option<bool>,
    /// Whether an instance here would hear the others. `None` where there are none.
    pub listening: Option<Listening>,
    /// Settings, by their names.
    pub settings: Vec<(String, String)>,
    /// The age of the oldest open transaction, where there are others.
    pub oldest_transaction: Option<Duration>,
    /// What is stored; `None` where there is no schema, or a newer one.
    pub stored: Option<StoredFigures>,
    /// Whether it can be read; `None` where the schema is not the one known here.
    pub read: Option<ReadThrough>,
}

/// What came of reading the requests that wait, and the runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadThrough {
    /// How many were read.
    pub looked_at: u64,
    /// Whether those are all; else the time was over.
    pub all: bool,
    /// How many of them cannot be read.
    pub unreadable: u64,
    /// What the first ones are, and why.
    pub first: Vec<String>,
}

/// How many that cannot be read are named.
const NAMED_MAX: usize = 10;

impl ReadThrough {
    pub(crate) fn saw<T>(&mut self, read: Result<T>) {
        self.looked_at += 1;
        match read {
            Ok(_) | Err(Error::Newer { .. }) => {}
            Err(error) => {
                self.unreadable += 1;
                if self.first.len() < NAMED_MAX {
                    self.first.push(error.to_string());
                }
            }
        }
    }
}

/// Whether an instance would hear the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listening {
    /// A bell came back, after this time.
    Heard(Duration),
    /// It was sent, and did not come: a pooler stands between.
    Lost,
    /// The URL to listen at leads to another database.
    Elsewhere,
    /// The URL to listen at cannot be used, and why.
    Deaf(String),
}

/// How long small commits took, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommitFigures {
    /// How many.
    pub count: u32,
    /// Half of them took no longer.
    pub median: Duration,
    /// How many a second.
    pub per_second: f64,
}

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredFigures {
    /// Requests that wait, all tenants.
    pub pending: u64,
    /// How long the oldest of them has waited.
    pub oldest_pending: Option<Duration>,
    /// Of the waiting ones, those that stay open and whose deadline has passed.
    pub overdue: u64,
    /// Runs that were set aside because they ended every process that carried them on.
    pub quarantined: u64,
    /// Instances whose lease holds; `None` where there are no leases.
    pub instances: Option<u64>,
}

impl CommitFigures {
    pub(crate) fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let all: Duration = took.iter().sum();
        let count = u32::try_from(took.len()).unwrap_or(u32::MAX);
        let median = took.get(took.len() / 2).copied().unwrap_or_default();
        let per_second = if all.is_zero() { 0.0 } else { f64::from(count) / all.as_secs_f64() };
        Self { count, median, per_second }
    }
}

impl Checkup {
    /// A setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) fn age(now_ms: i64, since_ms: i64) -> Duration {
    Duration::from_millis(now_ms.saturating_sub(since_ms).max(0).unsigned_abs())
}
