//! Where the errors of the runtime become HTTP, and the only place.
//!
//! What an error says to its reader is written here or in the error itself where it is meant for clients; nothing of a
//! store's or a file's innards goes out.

use holdpoint::store::Error as StoreError;
use holdpoint::{CancelError, DecideError, StartError};
use http::StatusCode;

use crate::refusal::Refusal;

/// Seconds after which a store that was away is worth another try.
const RETRY_AFTER_S: u32 = 1;
/// Seconds after which a server that is stopping may be back.
const RESTART_AFTER_S: u32 = 5;

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Unavailable(_) | StoreError::CommitUnknown(_) | StoreError::Locked { .. } => {
                tracing::warn!(%error, "the store is away");
                let detail = "the store cannot be reached; try the same request again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", detail)
                    .retry_after(RETRY_AFTER_S)
            }
            StoreError::Busy(_) => {
                tracing::warn!(%error, "a request was not begun");
                let detail = "too many requests wait for the store already; this one was not begun. Send the same request again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).retry_after(RETRY_AFTER_S)
            }
            StoreError::Full(_) => {
                tracing::error!(%error, "the store is full");
                let detail = "there is no room left to store this; nothing was changed and nothing ran. Free some space, then try again";
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "store_full", detail)
            }
            StoreError::BadCursor => {
                Self::bad_request("bad_cursor", "not a cursor of this list; start again without one")
            }
            StoreError::Newer { .. } => {
                let detail =
                    "a newer version of Holdpoint has written this run; ask an instance of that version";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "newer_version", detail).retry_after(RETRY_AFTER_S)
            }
            StoreError::Corrupt(_) => Self::with_incident(
                "unreadable",
                "what is stored for this cannot be read, and trying again does not help; nothing was changed. The server's log says \
                 what and where. Run `holdpoint doctor`; what is damaged comes back from a back-up (docs/operations.md)",
                &error,
            ),
            StoreError::Inconsistent(_) => Self::with_incident(
                "inconsistent",
                "this contradicts what is stored, and trying again does not help; nothing was changed. The server's log says what \
                 and why: it is a fault of the server, so please report it",
                &error,
            ),
        }
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Self {
        let said = error.to_string();
        match error {
            StartError::UnknownAgent { .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_agent", said)
            }
            StartError::UnknownModel { .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_model", said)
            }
            StartError::BypassNotGranted => Self::new(StatusCode::FORBIDDEN, "bypass_not_granted", said),
            StartError::RunOpen { run, pending } => {
                Self::new(StatusCode::CONFLICT, "run_open", said).with("runId", run).with("pending", pending)
            }
            StartError::NoSuchConversation => Self::not_found(said),
            StartError::KeyReused => Self::key_reused(),
            StartError::TooManyPending { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_pending", said)
            }
            StartError::Stopping => Self::stopping(),
            StartError::Store(error) => error.into(),
        }
    }
}

impl From<CancelError> for Refusal {
    fn from(error: CancelError) -> Self {
        let said = error.to_string();
        match error {
            CancelError::NotFound => Self::not_found(said),
            CancelError::NotYours => Self::new(StatusCode::FORBIDDEN, "not_yours", said),
            CancelError::Store(error) => error.into(),
        }
    }
}

impl From<DecideError> for Refusal {
    fn from(error: DecideError) -> Self {
        let said = error.to_string();
        match error {
            DecideError::NotFound => Self::not_found(said),
            DecideError::Conflict { status, winner } => {
                let refusal =
                    Self::new(StatusCode::CONFLICT, "already_decided", said).with("requestStatus", status);
                match winner {
                    Some(winner) => refusal
                        .with("decision", &winner.decision)
                        .with("by", &winner.by)
                        .with("at", winner.at),
                    None => refusal,
                }
            }
            DecideError::Stale { digest } => {
                Self::new(StatusCode::CONFLICT, "stale_request", said).with("digest", digest)
            }
            DecideError::Expired => Self::new(StatusCode::GONE, "expired", said),
            DecideError::WrongWord { .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "wrong_decision", said)
            }
            DecideError::Companion(_) => Self::bad_request("wrong_companion", said),
            DecideError::ReasonTooLong(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "reason_too_long", said)
            }
            DecideError::InvalidEdit(invalid) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, invalid.status().as_str(), said)
                    .with("at", invalid.at)
            }
            DecideError::EditRefused { code, .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, said),
            DecideError::Store(error) => error.into(),
        }
    }
}

impl Refusal {
    pub(crate) fn key_reused() -> Self {
        let detail = "this idempotency key came with another request before; use a new key for a new request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)
    }

    pub(crate) fn stopping() -> Self {
        let detail = "the server is stopping; what is stored goes on when it is back";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail).retry_after(RESTART_AFTER_S)
    }

    pub(crate) fn not_writable(trouble: &StoreError) -> Self {
        let why = match trouble {
            StoreError::Full(_) => "there is no room left; free some space",
            _ => "the server's log says why",
        };
        let detail = format!(
            "nothing can be written to the store: {why}. What was acknowledged is stored. It is tried again every second, and this \
             instance is ready when it works"
        );
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_writable", detail).retry_after(RETRY_AFTER_S)
    }

    pub(crate) fn lease_lapsed() -> Self {
        let detail = "this instance could not renew its lease in time and begins nothing until it has; ask another one";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "lease_lapsed", detail).retry_after(RETRY_AFTER_S)
    }

    pub(crate) fn timed_out() -> Self {
        let detail =
            "this took too long; it may still be done. Ask how things stand, or send the same request again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "timed_out", detail).retry_after(RETRY_AFTER_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_internal_goes_out_with_a_store_error() {
        let secret = "/srv/secret/holdpoint.db: near \"SELECT\": syntax error";
        for (error, status) in [
            (StoreError::Unavailable(secret.into()), 503),
            (StoreError::CommitUnknown(secret.into()), 503),
            (StoreError::Busy(secret.into()), 503),
            (StoreError::Locked { path: secret.into() }, 503),
            (StoreError::Full(secret.into()), 507),
            (StoreError::Corrupt(secret.into()), 500),
            (StoreError::Inconsistent(secret.into()), 500),
            (StoreError::Newer { what: secret.into(), found: 2, known: 1 }, 503),
            (StoreError::BadCursor, 400),
        ] {
            // What another process or another instance can do passes for whoever asked.
            let passes =
                error.passes() || matches!(error, StoreError::Locked { .. } | StoreError::Newer { .. });
            let refusal = Refusal::from(error);
            assert_eq!(refusal.status().as_u16(), status);
            // Who is told to try again can hope for something: the answer says when, and no other one does.
            assert_eq!(passes, matches!(status, 503 | 507), "{refusal:?}");
            assert_eq!(status == 503, format!("{refusal:?}").contains("retry-after"), "{refusal:?}");
            let said = format!("{refusal:?}");
            assert!(!said.contains("secret") && !said.contains("SELECT"), "{said}");
        }
    }
}
