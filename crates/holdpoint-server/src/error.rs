//! Why a server does not start, or stops.

use std::net::SocketAddr;
use std::time::Duration;

use crate::HEARTBEAT_INTERVAL_MAX;

/// Why a server does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is not of this machine alone.
    #[error(
        "{0} is not a loopback address; there are no identities yet, so the server listens on 127.0.0.1 or [::1] only"
    )]
    NotLoopback(SocketAddr),
    /// Something else listens there.
    #[error(
        "{0} is taken: something else listens there; stop it, or choose another port (0 takes a free one)"
    )]
    Taken(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The heartbeat is outside of what keeps a connection open.
    #[error("a heartbeat every {0:?} does not do; it is more than 0 and at most {HEARTBEAT_INTERVAL_MAX:?}")]
    Heartbeat(Duration),
    /// An origin is not one.
    #[error("allowed origin {0:?}: write scheme, host and port only, as in `https://app.example`")]
    Origin(String),
    /// The system has no randomness to give.
    #[error("the operating system gave no random bytes for the operator's token: {0}")]
    Random(String),
    /// Connections can no longer be accepted.
    #[error("connections can no longer be accepted: {0}")]
    Accept(std::io::Error),
}
