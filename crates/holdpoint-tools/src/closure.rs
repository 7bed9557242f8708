//! A tool from a closure.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use async_trait::async_trait;
use holdpoint_core::terms::AtMost;
use holdpoint_core::tool::{EffectClass, ToolDefinition};

use crate::{IntoToolResult, Invocation, Tool, ToolError, ToolOutput};

type Running = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send>>;

/// A tool whose body is a closure.
///
/// ```
/// # use holdpoint_tools::{FnTool, Invocation, ToolDefinition, ToolError};
/// # use serde_json::json;
/// let definition = ToolDefinition::new("add", "Adds two numbers.", json!({
///     "type": "object",
///     "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
///     "required": ["a", "b"],
///     "additionalProperties": false,
/// }));
/// let add = FnTool::new(definition, |invocation: Invocation| async move {
///     #[derive(serde::Deserialize)]
///     struct Two { a: i64, b: i64 }
///     let two: Two = invocation.parse()?;
///     Ok::<_, ToolError>((two.a + two.b).to_string())
/// });
/// ```
pub struct FnTool {
    definition: ToolDefinition,
    body: Box<dyn Fn(Invocation) -> Running + Send + Sync>,
}

impl FnTool {
    /// A tool of this definition that runs the closure. The arguments are the closure's to read.
    pub fn new<F, R>(definition: ToolDefinition, body: F) -> Self
    where
        F: Fn(Invocation) -> R + Send + Sync + 'static,
        R: Future<Output: IntoToolResult> + Send + 'static,
    {
        let body = move |invocation| -> Running {
            let running = body(invocation);
            Box::pin(async move { running.await.into_tool_result() })
        };
        Self { definition, body: Box::new(body) }
    }

    /// A tool whose schema comes from the type of its arguments.
    ///
    /// ```
    /// # use holdpoint_tools::{FnTool, Invocation, ToolError};
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// #[serde(deny_unknown_fields)]
    /// struct Two { a: i64, b: i64 }
    ///
    /// let add = FnTool::typed("add", "Adds two numbers.", |two: Two, _: Invocation| async move {
    ///     (two.a + two.b).to_string()
    /// });
    /// ```
    #[cfg(feature = "schemars")]
    pub fn typed<T, F, R>(name: impl Into<String>, description: impl Into<String>, body: F) -> Self
    where
        T: serde::de::DeserializeOwned + schemars::JsonSchema + Send + 'static,
        F: Fn(T, Invocation) -> R + Send + Sync + 'static,
        R: Future<Output: IntoToolResult> + Send + 'static,
    {
        let definition = ToolDefinition::new(name, description, crate::arguments_schema::<T>());
        let body = move |invocation: Invocation| -> Running {
            match invocation.parse() {
                Ok(arguments) => {
                    let running = body(arguments, invocation);
                    Box::pin(async move { running.await.into_tool_result() })
                }
                Err(error) => Box::pin(async move { Err(error) }),
            }
        };
        Self { definition, body: Box::new(body) }
    }

    /// Says what running it does to the world.
    pub fn effect(mut self, effect: EffectClass) -> Self {
        self.definition.effect = effect;
        self
    }

    /// Lets its result be the answer of the run.
    pub fn return_direct(mut self) -> Self {
        self.definition.return_direct = true;
        self
    }

    /// Names the argument that says which request of the world outside it is for: each is carried out once, whichever call asks.
    pub fn business_key(mut self, argument: &str) -> Self {
        self.definition.business_key = Some(argument.into());
        self
    }

    /// Says where it comes from.
    #[cfg(feature = "builtin")]
    pub(crate) fn origin(mut self, origin: &str) -> Self {
        self.definition.origin = origin.into();
        self
    }

    /// Bounds how its approvals wait: what is configured can only become stricter by it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use holdpoint_core::terms::{AtDeadline, AtMost};
    /// use holdpoint_core::tool::ToolDefinition;
    /// use holdpoint_tools::{FnTool, Invocation, Tool, ToolError};
    ///
    /// let definition = ToolDefinition::new("wire", "Wires money.", serde_json::json!({ "type": "object" }));
    /// let wire = FnTool::new(definition, |_: Invocation| async { Ok::<_, ToolError>("wired") })
    ///     // Whatever the agent says: after ten minutes it expires, and does not wait on.
    ///     .approval(AtMost::default().within(Duration::from_secs(600)).then(AtDeadline::Deny));
    /// assert_eq!(wire.definition().approval.timeout_ms, Some(600_000));
    /// ```
    pub fn approval(mut self, at_most: AtMost) -> Self {
        self.definition.approval = at_most;
        self
    }

    /// Bounds how long it may run.
    pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
        self.definition.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }
}

impl fmt::Debug for FnTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("definition", &self.definition).finish_non_exhaustive()
    }
}

#[async_trait]
impl Tool for FnTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, invocation: Invocation) -> Result<ToolOutput, ToolError> {
        (self.body)(invocation).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Note {
        /// What to keep.
        text: String,
    }

    #[test]
    fn a_typed_closure_has_the_schema_of_its_arguments_and_the_careful_defaults() {
        let tool = FnTool::typed("keep", "Keeps a note.", |note: Note, _| async move { note.text });
        let definition = tool.definition();
        assert_eq!((definition.name.as_str(), definition.description.as_str()), ("keep", "Keeps a note."));
        assert_eq!(definition.schema["properties"]["text"]["description"], "What to keep.");
        assert_eq!(definition.schema["additionalProperties"], false);
        assert_eq!(definition.effect, EffectClass::AtMostOnce);
        assert_eq!(definition.origin, "program");
        assert!(!definition.return_direct && definition.timeout_ms.is_none());
    }

    #[test]
    fn what_is_said_of_a_closure_stands_in_its_definition() {
        let tool = FnTool::typed("keep", "Keeps a note.", |_: Note, _| async {})
            .effect(EffectClass::ReadOnly)
            .return_direct()
            .timeout(Duration::from_secs(2));
        let definition = tool.definition();
        assert_eq!(definition.effect, EffectClass::ReadOnly);
        assert_eq!(definition.timeout_ms, Some(2_000));
        assert!(definition.return_direct);
    }
}
