//! Whether a request is repeated, and after how long.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::wire::Finished;
use crate::{ModelError, ReplyEnd};

/// The first pause; each further one is twice as long.
const BACKOFF: Duration = Duration::from_millis(500);

/// The longest pause of our own.
const BACKOFF_MAX: Duration = Duration::from_secs(16);

/// The longest pause a provider can ask for and get. If it asks for more, the run hears of it instead.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How long to wait before the request is sent again; `None` when it is not.
pub(super) fn wait(
    result: &Result<Finished, ModelError>,
    done: u32,
    allowed: u32,
    shown: bool,
) -> Option<Duration> {
    if shown || done >= allowed {
        return None;
    }
    match result {
        Ok(finished) => match finished.reply.end {
            // It broke off before anybody saw anything of it.
            ReplyEnd::Interrupted(_) => Some(backoff(done, jitter())),
            ReplyEnd::Complete | ReplyEnd::Length | ReplyEnd::Filtered => None,
        },
        Err(error) if !error.retryable => None,
        Err(error) => match error.retry_after {
            Some(asked) => (asked <= RETRY_AFTER_MAX).then_some(asked),
            None => Some(backoff(done, jitter())),
        },
    }
}

/// Between half and the whole of the pause, so that runs that failed together do not come back together.
fn backoff(done: u32, jitter: f64) -> Duration {
    let whole = BACKOFF.saturating_mul(2_u32.saturating_pow(done)).min(BACKOFF_MAX);
    whole.mul_f64(0.5 + jitter / 2.0)
}

/// A number from 0 to 1. Each hasher has keys of its own, which is all the randomness a pause needs.
fn jitter() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::errors::error;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread() {
        for (done, jitter, ms) in [
            (0, 1.0, 500),
            (1, 1.0, 1_000),
            (2, 1.0, 2_000),
            (5, 1.0, 16_000),
            (40, 1.0, 16_000),
            (0, 0.0, 250),
        ] {
            assert_eq!(backoff(done, jitter).as_millis(), ms, "{done} {jitter}");
        }
        assert!((0..100).map(|_| jitter()).all(|j| (0.0..=1.0).contains(&j)));
    }

    #[test]
    fn only_what_was_not_shown_and_may_help_is_repeated() {
        let failed = |retryable, after: Option<u64>| {
            Err(ModelError {
                retry_after: after.map(Duration::from_secs),
                ..error("overloaded", "x", retryable)
            })
        };
        for (title, result, done, shown, repeated) in [
            ("retryable", failed(true, None), 0, false, true),
            ("shown", failed(true, None), 0, true, false),
            ("not retryable", failed(false, None), 0, false, false),
            ("often enough", failed(true, None), 2, false, false),
            ("a pause that was asked for", failed(true, Some(60)), 0, false, true),
            ("a pause too long", failed(true, Some(61)), 0, false, false),
        ] {
            assert_eq!(wait(&result, done, 2, shown).is_some(), repeated, "{title}");
        }
        assert_eq!(wait(&failed(true, Some(7)), 0, 2, false), Some(Duration::from_secs(7)));
    }
}
