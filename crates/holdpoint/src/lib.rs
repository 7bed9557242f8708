//! Holdpoint: the point where an AI agent asks before it acts.
//!
//! A tool-calling runtime. Its loop runs a model and its tools; a side channel shows every call and result while it
//! happens; nothing protected runs without an explicit, durable approve of that very call. Anything else - decline,
//! timeout, crash, doubt - means not executed.
//!
//! ```
//! use holdpoint::prelude::*;
//!
//! /// Writes a file.
//! #[tool]
//! async fn write(path: String, content: String) -> Result<String, ToolError> {
//!     Ok(format!("wrote {} bytes to {path}", content.len()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A script in place of a model, so that this runs without a key.
//! let model = Scripted::sequence("script", [
//!     Answer::call("c1", "write", r#"{"path":"out.txt","content":"hello"}"#),
//!     Answer::text("done"),
//! ]);
//! let agent = Agent::builder("main", model).tool(write).build()?;
//! let runtime = Runtime::builder().agent(agent).build()?;
//!
//! // The call is not listed anywhere, so it asks.
//! let outcome = runtime.run(&local(), Start::text("Write out.txt")).await?;
//! let request = outcome.pending()[0].request_id;
//!
//! // Somebody approves exactly that call, and the run goes on.
//! let by = By { actor: Some(local().actor), via: Via::Human };
//! runtime.decide(&local(), Deciding::new(request, DecisionWord::Approve, by)).await?;
//! let outcome = runtime.wait(&local(), outcome.run).await?;
//! assert_eq!(outcome.text(), Some("done"));
//! # Ok(()) }
//! ```

mod agent;
mod ahead;
mod ask_handler;
mod decide;
mod driver;
mod drivers;
mod ending;
mod hand;
mod handler;
mod handling;
mod hear;
mod histories;
mod hooks;
mod hub;
mod ids;
mod inbox;
mod info;
mod inner;
mod listener;
mod lookout;
mod outcome;
mod patience;
mod permission;
mod presets;
mod ring;
mod room;
mod runtime;
mod shelf;
mod start;
mod sweeper;
pub mod testkit;
mod tidy;
mod toolset;
mod turns;
mod waiters;
mod watch;
mod writing;

pub use agent::{Agent, AgentBuilder, BadAgent, TOOL_TIMEOUT_DEFAULT};
pub use decide::{CancelError, Cancelled, DecideError, Decided, Deciding};
pub use driver::CANCEL_GRACE;
pub use handler::{Answer as HandlerAnswer, ApprovalBatch, ApprovalHandler, ExtensionsDebug, HandlerError};
pub use hooks::{AroundRound, AroundRun, HookError};
pub use inbox::{Inbox, InboxChange};
pub use info::RunInfo;
pub use listener::{LISTENER_BUFFER_EVENTS, Listener, ListenerTroubles};
pub use outcome::{Ended, RunOutcome, RunState};
pub use permission::{Forbidden, PERMISSION_TIMEOUT, Permission};
pub use runtime::{BadRuntime, Runtime, RuntimeBuilder, local};
pub use start::{OnNewMessage, Start, StartError, StartedRun};
pub use toolset::{BadToolset, TOOL_NAME_MAX_BYTES, Toolset};
pub use watch::{Seen, Watch};

pub use holdpoint_core as core;
pub use holdpoint_macros::{tool, tools};
pub use holdpoint_models as models;
pub use holdpoint_protocol as protocol;
pub use holdpoint_store as store;
pub use holdpoint_tools as tools;

#[doc(hidden)]
pub use holdpoint_tools::__private;

/// What most programs need.
pub mod prelude {
    pub use crate::{
        Agent, ApprovalBatch, ApprovalHandler, Deciding, HandlerAnswer, HandlerError, Runtime, Start, local,
        tool,
    };
    pub use holdpoint_core::policy::{Policy, Preset};
    pub use holdpoint_core::terms::{AtDeadline, AtMost, TermsRule};
    pub use holdpoint_models::scripted::{Answer, Scripted, When};
    pub use holdpoint_protocol::{By, DecisionWord, Event, EventBody, Via};
    pub use holdpoint_tools::{FnTool, Invocation, Tool, ToolContext, ToolDefinition, ToolError, ToolOutput};
}
