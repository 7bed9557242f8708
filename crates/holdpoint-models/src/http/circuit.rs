//! A provider that keeps failing is left alone for a while, so that runs fail at once and not one by one by timeout.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::Finished;
use crate::{ModelError, ReplyEnd};

/// How many failures in a row open the circuit.
pub const FAILURES_TO_OPEN: u32 = 5;

/// How long it stays open.
pub const OPEN_FOR: Duration = Duration::from_secs(30);

/// Counts failures in a row. Open, it lets nothing through; after [`OPEN_FOR`] one request tries whether it is over.
#[derive(Debug, Default)]
pub struct Circuit {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open_until: Option<Instant>,
    probing: bool,
}

impl Circuit {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment: a poisoned state is a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to be let through.
    pub(super) fn enter(&self, now: Instant) -> Result<Ticket<'_>, ModelError> {
        let mut state = self.state();
        let probe = match state.open_until {
            None => false,
            Some(until) if now < until || state.probing => {
                return Err(ModelError {
                    code: "overloaded",
                    message: format!(
                        "the provider failed {} times in a row; it is left alone for a while",
                        state.failures
                    ),
                    // The run may be tried again later; a repetition right now would end here again.
                    retryable: true,
                    retry_after: Some(until.saturating_duration_since(now)),
                });
            }
            Some(_) => true,
        };
        state.probing = probe;
        Ok(Ticket { circuit: self, probe })
    }
}

/// The right to one attempt. Dropped unsettled (a cancelled run) it counts neither way.
pub(super) struct Ticket<'a> {
    circuit: &'a Circuit,
    probe: bool,
}

impl Ticket<'_> {
    pub(super) fn settle(self, result: &Result<Finished, ModelError>, now: Instant) {
        let failed = match result {
            Ok(finished) => matches!(finished.reply.end, ReplyEnd::Interrupted(_)),
            // What is our own doing or our own rate says nothing of the provider's health.
            Err(error) => matches!(error.code, "provider_error" | "overloaded" | "timeout"),
        };
        let mut state = self.circuit.state();
        if !failed {
            // A refusal because of us is an answer, too: the provider is there.
            state.failures = 0;
            state.open_until = None;
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if self.probe || state.failures >= FAILURES_TO_OPEN {
            state.open_until = Some(now + OPEN_FOR);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.probe {
            self.circuit.state().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::errors::error;

    fn result(code: Option<&'static str>) -> Result<Finished, ModelError> {
        match code {
            Some(code) => Err(error(code, "x", true)),
            None => Ok(Finished {
                reply: crate::Reply {
                    message: Default::default(),
                    end: ReplyEnd::Complete,
                    usage: Default::default(),
                    other_choices: 0,
                    other_choices_had_calls: false,
                },
                paused: false,
            }),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_one_probe_closes_it_again() {
        let circuit = Circuit::default();
        let now = Instant::now();
        for _ in 1..FAILURES_TO_OPEN {
            circuit.enter(now).unwrap().settle(&result(Some("timeout")), now);
        }
        // A success, or a refusal that is our own doing, ends the row.
        circuit.enter(now).unwrap().settle(&result(Some("bad_request")), now);
        for _ in 0..FAILURES_TO_OPEN {
            circuit.enter(now).unwrap().settle(&result(Some("provider_error")), now);
        }
        let refused = circuit.enter(now).err().unwrap();
        assert_eq!((refused.code, refused.retry_after), ("overloaded", Some(OPEN_FOR)));
        assert!(circuit.enter(now + OPEN_FOR - Duration::from_nanos(1)).is_err());

        let later = now + OPEN_FOR;
        let probe = circuit.enter(later).unwrap();
        assert!(circuit.enter(later).is_err(), "one probe at a time");
        drop(probe);
        let probe = circuit.enter(later).unwrap();
        probe.settle(&result(Some("overloaded")), later);
        assert!(circuit.enter(later).is_err(), "a failed probe opens it again at once");
        let much_later = later + OPEN_FOR;
        circuit.enter(much_later).unwrap().settle(&result(None), much_later);
        assert!(circuit.enter(much_later).is_ok());
    }
}
