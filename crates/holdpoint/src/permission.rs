//! May this caller use this tool on this resource at all?

use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use holdpoint_core::tool::ToolDefinition;

use crate::RunInfo;

/// How long a permission check may take before the call is not executed.
pub const PERMISSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Asked before policy, and again in the step that starts the call. It sees trusted context and the arguments; what
/// the model writes can only be judged by it, never believed.
#[async_trait]
pub trait Permission: Send + Sync + 'static {
    /// `Err` carries a stable reason code: the call is answered `forbidden`.
    async fn check(
        &self,
        run: &RunInfo,
        tool: &ToolDefinition,
        arguments: &serde_json::Value,
    ) -> Result<(), Forbidden>;
}

/// This caller may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forbidden {
    /// The stable reason code, upper snake case.
    pub code: String,
}

/// What a check came to. A check that fails, panics or never returns is not a yes.
pub(crate) enum Permitted {
    Yes,
    No(Forbidden),
    Failed(String),
}

pub(crate) async fn permitted(
    permission: &dyn Permission,
    run: &RunInfo,
    tool: &ToolDefinition,
    arguments: &serde_json::Value,
) -> Permitted {
    let check = std::panic::AssertUnwindSafe(async { permission.check(run, tool, arguments).await });
    let check = check.catch_unwind();
    match tokio::time::timeout(PERMISSION_TIMEOUT, check).await {
        Ok(Ok(Ok(()))) => Permitted::Yes,
        Ok(Ok(Err(forbidden))) => Permitted::No(forbidden),
        Ok(Err(_)) => Permitted::Failed("the permission check broke down".into()),
        Err(_) => Permitted::Failed("the permission check did not return in its time".into()),
    }
}
