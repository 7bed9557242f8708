//! What a server is told, and the bounds of what it takes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How often a quiet stream says that it lives.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// The longest time between two signs of life; proxies cut connections that are quiet for longer.
pub const HEARTBEAT_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// How long the head of a request may take to arrive.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the body of a request may take to arrive.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a client may take nothing of what is written to it.
pub const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a request may take that does not wait for a run.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long open connections get to end when the server stops.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long running tools get to end when the server stops.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// Connections at a time that may ask for something; further ones wait to be accepted.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections at a time beside them that carry one stream to its end, which costs little; each needs a file descriptor of
/// the process. What is above counts as a connection that may ask.
pub const STREAMS_MAX: usize = 32_768;
/// Bytes of a request's head.
pub const HEAD_MAX_BYTES: usize = 64 * 1024;
/// Bytes of an idempotency key.
pub const IDEMPOTENCY_KEY_MAX_BYTES: usize = 255;
/// The port when none is given.
pub const DEFAULT_PORT: u16 = 7411;

/// What a server is told.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen. Loopback only; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How often a quiet stream says that it lives; at most [`HEARTBEAT_INTERVAL_MAX`].
    pub heartbeat: Duration,
    /// Origins, beside the server's own, whose pages may send requests: `https://app.example`, exactly.
    pub allowed_origins: Vec<String>,
    /// How long running tools get to end when the server stops.
    pub shutdown_grace: Duration,
    /// How long the head of a request may take to arrive.
    pub header_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may take nothing of what is written to it.
    pub write_stall_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            heartbeat: HEARTBEAT_INTERVAL,
            allowed_origins: Vec::new(),
            shutdown_grace: SHUTDOWN_GRACE,
            header_timeout: HEADER_TIMEOUT,
            body_timeout: BODY_TIMEOUT,
            write_stall_timeout: WRITE_STALL_TIMEOUT,
        }
    }
}
