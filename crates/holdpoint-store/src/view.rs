//! What the lists are asked with.

use holdpoint_protocol::{GroupName, InteractionKind, InteractionStatus, RunId, RunStatus, Timestamp};

/// The most rows one page holds, whatever was asked for.
pub const PAGE_MAX: usize = 200;

/// Which interactions to list.
#[derive(Debug, Clone, Default)]
pub struct InteractionFilter {
    /// Only those that stand so.
    pub status: Option<InteractionStatus>,
    /// Only those of this run.
    pub run: Option<RunId>,
    /// Only those of this kind.
    pub kind: Option<InteractionKind>,
    /// Only those that this group is to decide, or has been told of.
    pub group: Option<GroupName>,
}

/// Which runs to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only those that stand so.
    pub status: Option<RunStatus>,
    /// None is left out: one that cannot be read is an error ([`Error::Corrupt`](crate::Error::Corrupt)) in place of the page.
    pub whole: bool,
}

/// Where a list goes on, and how many rows.
#[derive(Debug, Clone)]
pub struct PageRequest {
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
    /// How many rows, at most [`PAGE_MAX`].
    pub limit: usize,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { cursor: None, limit: 50 }
    }
}

/// One record of the audit chain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRow {
    /// The run whose chain it is in.
    pub run_id: RunId,
    /// Its place in the chain, from 1.
    pub n: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The record: JSON text, exactly as it was hashed.
    pub record: String,
    /// `sha256(previous hash, n, at, record)`, lower-case hex.
    pub hash: String,
}

/// What a look at the chain of one run found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainCheck {
    /// Every record follows from the one before, and the head is the run's.
    Whole {
        /// How many records.
        records: u64,
    },
    /// It breaks here.
    Broken {
        /// The record that does not follow.
        n: u64,
    },
}

/// Figures for metrics and `doctor`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Open requests, all tenants.
    pub pending: u64,
    /// When the oldest of them was opened.
    pub oldest_pending: Option<Timestamp>,
    /// Of the open ones, those that stay open and whose deadline has passed.
    pub overdue: u64,
    /// Runs with an owner.
    pub running: u64,
    /// Runs set aside.
    pub quarantined: u64,
    /// Commits (transactions) and the operations in them, since this process opened the store.
    pub commits: u64,
    /// Operations that shared those commits.
    pub operations: u64,
    /// Bytes of the write-ahead log, where there is one.
    pub wal_bytes: Option<u64>,
}
