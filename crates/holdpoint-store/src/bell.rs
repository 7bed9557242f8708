//! The doorbell between instances, and how an instance stands with the others.
//!
//! Whoever has stored something of a run rings; the others hear, and look. A bell carries no truth - it may be lost, come
//! twice or come late - so whoever relies on it looks from time to time as well: seldom while the bell is proven to be
//! heard, once a second while it is not.

use std::time::Duration;

use holdpoint_protocol::{RequestId, RunId};

/// Bells that wait to be taken up; whoever falls further behind looks at everything.
pub const BELLS_MAX: usize = 1_024;

/// What is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bell {
    /// Another instance stored something of a run.
    Run(Ring),
    /// Something may have been missed: look at everything.
    Everything,
}

/// Another instance stored something of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// The run.
    pub run: RunId,
    /// Its events after this number are new.
    pub after: u64,
    /// The requests that opened or closed with them.
    pub requests: Vec<RequestId>,
}

/// Whether the bells of other instances are heard here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    /// It was proven a moment ago: a bell of our own came back.
    Proven,
    /// Not now: it is being tried.
    Deaf,
    /// Bells can be listened for and never come - a pooler stands between - so the store is looked at instead.
    PollOnly,
}

impl Hearing {
    /// As it is written in logs and figures.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Deaf => "deaf",
            Self::PollOnly => "poll_only",
        }
    }
}

/// How an instance stands with the others that use the same store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether their bells are heard.
    pub hearing: Hearing,
    /// Bells heard, since the store was opened.
    pub heard: u64,
    /// Bells rung.
    pub rung: u64,
    /// Whether the lease is known to hold. Where it is not, others may carry this instance's runs on, and it begins nothing.
    pub lease_held: bool,
    /// For how long the lease is known to hold.
    pub lease_left: Duration,
    /// How often the lease could not be renewed in time.
    pub lease_lapses: u64,
    /// Other instances whose lease held when this one's was last renewed.
    pub others: u64,
    /// Operations that wait for a connection.
    pub waiting: u64,
    /// Operations that were refused because too many waited.
    pub refused: u64,
}
