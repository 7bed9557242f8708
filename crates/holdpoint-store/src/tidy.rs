//! Making room: what is kept for how long.
//!
//! Whole conversations go, since a later run reads what the earlier ones said, and everything of them goes: runs, messages,
//! events, requests, ledger and audit. What runs or waits is never touched, however old. Business keys stay: to forget one is to
//! carry its request out again.

use std::time::Duration;

use async_trait::async_trait;
use holdpoint_protocol::{RunId, Timestamp};

use crate::Result;
use crate::chain::ms;

/// How long the answers are kept that a repeated request gets.
pub const KEY_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tidied {
    /// Conversations.
    pub conversations: u64,
    /// Their runs.
    pub runs: u64,
    /// Weeks of the journal that went as a whole (PostgreSQL).
    pub weeks: u64,
    /// Whether there is more of the kind: as many conversations were found as were asked for.
    pub more: bool,
}

/// Who makes room.
#[async_trait]
pub trait Tidy: Send + Sync + 'static {
    /// Deletes up to `limit` conversations whose last run has ended and began longer than `keep` ago; none without it. Answers kept
    /// for repeated requests go after [`KEY_KEPT`]. Instances can do this side by side.
    async fn tidy(&self, keep: Option<Duration>, limit: usize) -> Result<Tidied>;
}

/// The first id a run can have that begins so long before now: ids begin with the time.
pub(crate) fn first_kept(now: Timestamp, keep: Duration) -> RunId {
    let kept = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    first_at(ms(now).saturating_sub(kept))
}

/// The first id of a millisecond.
pub(crate) fn first_at(ms: i64) -> RunId {
    let ms = u128::from(ms.max(0).unsigned_abs()) & 0xffff_ffff_ffff;
    RunId(uuid::Uuid::from_u128(ms << 80))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_before_are_smaller_and_ids_made_later_are_not() {
        let now = Timestamp::from_second(1_780_000_000).unwrap();
        let id =
            |seconds: u64| RunId(uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, 0)));
        let first = first_kept(now, Duration::from_secs(100));
        assert!(id(1_779_999_899) < first && id(1_779_999_900) > first);
    }
}
