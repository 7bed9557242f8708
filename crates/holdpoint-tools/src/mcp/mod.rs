//! Tools of MCP servers, over stdio and streamable HTTP.
//!
//! ```no_run
//! # use holdpoint_tools::mcp::{McpServer, McpServerConfig};
//! # use holdpoint_tools::ToolSource;
//! # async fn f(config: McpServerConfig) -> Result<(), Box<dyn std::error::Error>> {
//! let files = McpServer::start("files", config)?;
//! for tool in &files.ready().await.tools {
//!     println!("{}", tool.definition().name); // files__read_text_file
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A server is somebody else's program, and is not believed:
//! * Its identity is the name the operator gave it, never the one it gives itself. Its tools are called
//!   `server__tool`, in an alphabet every provider takes; two that would be called the same are both left out.
//! * What it says of its tools (`annotations`, titles) is kept as a *claim*, to be shown as such. Every tool is
//!   `at_most_once` until the operator's configuration says otherwise.
//! * Each definition is pinned by its digest. When the listing changes, [`ToolSource`](crate::ToolSource) reports
//!   what changed, the gate asks again, and a call released for the old definition does not run.
//! * It answers in its own time or not at all: starting, listing and calling are bounded, and so is what it sends.
//!   A call it took to its grave is `outcome_unknown`.
//! * It asks for nothing: elicitation, sampling and roots are not offered to it. A call is sent once, and never
//!   sent again by itself.
//!
//! Both eras of the protocol are spoken: `server/discover` first (2026-07-28), and the handshake before that.

mod change;
mod config;
mod connection;
mod definition;
mod handler;
mod keeper;
mod listing;
mod result;
mod server;
#[cfg(test)]
mod tests;
mod tool;

pub use config::{ConfigError, McpServerConfig};
pub use listing::{PAGES_MAX, TOOLS_MAX};
pub use server::McpServer;
