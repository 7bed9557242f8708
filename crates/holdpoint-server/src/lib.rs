//! The server: the runtime over HTTP and Server-Sent Events, for one operator on this machine.
//!
//! Downstream an event stream, upstream plain POSTs, tied together by request ids. The server decides nothing: it
//! reads what came exactly, says who it came from, and hands it to the runtime; what the runtime answers becomes HTTP
//! in one place. It binds loopback addresses only, and everything but its health needs the
//! operator's token.
//!
//! ```no_run
//! # async fn serve(runtime: holdpoint::Runtime) -> Result<(), Box<dyn std::error::Error>> {
//! use holdpoint_server::{OperatorToken, Server, ServerConfig};
//!
//! let token = OperatorToken::generate()?;
//! println!("token: {}", token.reveal());
//! let server = Server::bind(runtime, ServerConfig::default(), token).await?;
//! println!("listening on {}", server.url());
//! server.serve(async { /* until told to stop */ }).await?;
//! # Ok(()) }
//! ```

mod answer;
mod app;
mod config;
mod connection;
mod edge;
mod endpoint;
mod error;
mod front;
mod handlers;
mod host;
mod idempotency;
mod metrics;
mod openapi;
mod query;
mod refusal;
mod routes;
mod serve;
mod stall;
mod stream;
mod strict_json;
mod token;

pub use config::*;
pub use error::ServerError;
pub use serve::{BoundServer, Server};
pub use token::{OperatorToken, TOKEN_BYTES};
