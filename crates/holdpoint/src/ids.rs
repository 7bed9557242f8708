//! Fresh ids. Randomness enters the system here and nowhere else.

use holdpoint_protocol::{ConversationId, RequestId, RunId, Timestamp};
use uuid::Uuid;

/// 122 random bits from the operating system.
pub(crate) fn request_id() -> RequestId {
    RequestId(Uuid::new_v4())
}

/// Sorted by the time it was made; the rest is random.
pub(crate) fn run_id(now: Timestamp) -> RunId {
    let ms = now.as_millisecond().max(0).unsigned_abs();
    let time = uuid::Timestamp::from_unix(
        uuid::NoContext,
        ms / 1000,
        u32::try_from(ms % 1000).unwrap_or(0) * 1_000_000,
    );
    RunId(Uuid::new_v7(time))
}

/// A conversation nobody named.
pub(crate) fn conversation() -> ConversationId {
    let id = Uuid::new_v4().to_string();
    // Thirty-six characters of the alphabet of names.
    ConversationId::new(&id).unwrap_or_else(|_| unreachable!("a UUID is a valid name"))
}
