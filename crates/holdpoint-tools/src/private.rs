//! What the code that `#[tool]` writes refers to. No part of the interface.

pub use crate as holdpoint_tools;
pub use async_trait::async_trait;
pub use holdpoint_core::tool::{EffectClass, ToolDefinition};
pub use holdpoint_protocol::ExecId;
#[cfg(feature = "schemars")]
pub use schemars;
pub use serde;
pub use serde_json;
