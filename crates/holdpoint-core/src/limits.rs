//! Everything a model or a client can send has a bound, and every bound has a name.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The shortest time that a configuration or a client can give people. Nothing is decided in less, and 0 could be taken for
/// "for ever".
pub const TIME_MIN: Duration = Duration::from_secs(1);
/// The longest time that anything can be given: ten years of 365 days. Whoever means "for ever" leaves it out.
pub const TIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The same in milliseconds.
pub const TIME_MAX_MS: u64 = TIME_MAX.as_secs() * 1_000;
/// Calls a reply may hold; the rest is answered `limit` and nobody is asked.
pub const CALLS_PER_REPLY_MAX: usize = 64;
/// Tools a request may offer.
pub const TOOLS_PER_REQUEST_MAX: usize = 512;
/// Bytes of a tool's result that are kept as they are.
pub const RESULT_MAX_BYTES: usize = 1024 * 1024;
/// Bytes of a request body.
pub const BODY_MAX_BYTES: usize = 2 * 1024 * 1024;
/// Pending interactions a tenant may have.
pub const PENDING_PER_TENANT_MAX: u64 = 100_000;
/// Events a stream holds for a reader that is behind.
pub const STREAM_BUFFER_EVENTS: usize = 1024;
/// Times a call that was declined may be asked about again in one run.
pub const ASKED_AGAIN_MAX: u8 = 3;
/// Past calls a run remembers, to notice a repeated one.
pub const PAST_CALLS_MAX: usize = 64;

/// What a run may use. Counted as attempts when proposed, so that an approved call is never refused for a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Calls of one tool in a run.
    pub calls_per_tool: u32,
    /// Calls in a run.
    pub calls_total: u32,
    /// Model replies in a run.
    pub rounds: u32,
    /// Tokens in and out, over all rounds.
    pub tokens: Option<u64>,
    /// What the tokens may cost, in millionths of a dollar. Models without a price count nothing.
    pub cost_micro_dollars: Option<u64>,
    /// Milliseconds the run works, waiting for people excluded.
    pub active_ms: Option<u64>,
    /// Bytes of one call's arguments, at most [`crate::arguments::ARGUMENTS_MAX_BYTES`].
    pub argument_bytes: usize,
    /// Calls in one reply, at most [`CALLS_PER_REPLY_MAX`].
    pub calls_per_reply: usize,
    /// Bytes of one result, at most [`RESULT_MAX_BYTES`].
    pub result_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls_per_tool: 40,
            calls_total: 150,
            rounds: 50,
            tokens: None,
            cost_micro_dollars: None,
            active_ms: None,
            argument_bytes: crate::arguments::ARGUMENTS_MAX_BYTES,
            calls_per_reply: CALLS_PER_REPLY_MAX,
            result_bytes: RESULT_MAX_BYTES,
        }
    }
}
