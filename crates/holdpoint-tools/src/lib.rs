//! Tools: the trait they stand behind, and those that come with Holdpoint.
//!
//! A tool is anything that is a [`Tool`]: a type that implements the trait, a closure ([`FnTool`]), or an
//! `async fn` under the `#[tool]` attribute. Whatever it is, its body is reached through an [`Invocation`], an
//! invocation through a permit, and a permit through the gate alone.

#[cfg(all(unix, feature = "builtin"))]
pub mod builtin;
mod closure;
#[cfg(all(unix, feature = "mcp"))]
pub mod mcp;
mod output;
#[doc(hidden)]
pub mod private;
#[cfg(all(unix, any(feature = "builtin", feature = "mcp")))]
mod process;
#[cfg(feature = "schemars")]
mod schema;
mod source;
mod tool;

pub use closure::FnTool;
pub use output::{IntoToolOutput, IntoToolResult, Json};
#[cfg(feature = "schemars")]
pub use schema::arguments_schema;
pub use source::{ChangeKind, Snapshot, SourceStatus, ToolChange, ToolSource, Unusable};
pub use tool::*;

#[doc(hidden)]
pub use private as __private;
