//! What a tool's body may return, and how that becomes a [`ToolOutput`].

use serde::Serialize;

use crate::{ToolError, ToolOutput};

/// What the model reads when a tool that returns nothing has run: a result is never empty on the wire.
const DONE: &str = "done";

/// A value that becomes JSON in the result, as `serde` writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

/// A value that can be the result of a tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    note = "a tool returns text, `Json(value)`, `ToolOutput` or nothing"
)]
pub trait IntoToolOutput {
    /// Turns it into the result; fails only where a value cannot be written as JSON.
    fn into_tool_output(self) -> Result<ToolOutput, ToolError>;
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

impl IntoToolOutput for String {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolOutput for &str {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolOutput for () {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(DONE))
    }
}

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        // The tool has run by now, so this failure must not claim that it had no effect.
        serde_json::value::to_raw_value(&self.0)
            .map(ToolOutput::json)
            .map_err(|error| ToolError::new("RESULT_NOT_JSON", format!("the result is not JSON: {error}")))
    }
}

/// What the body of a tool may return: a result, or a `Result` of one whose error becomes a [`ToolError`].
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    note = "a tool returns text, `Json(value)`, `ToolOutput` or nothing, or a `Result` of one of them whose error \
            is `Into<ToolError>`"
)]
pub trait IntoToolResult {
    /// Turns it into what [`Tool::call`](crate::Tool::call) returns.
    fn into_tool_result(self) -> Result<ToolOutput, ToolError>;
}

impl<T: IntoToolOutput> IntoToolResult for T {
    fn into_tool_result(self) -> Result<ToolOutput, ToolError> {
        self.into_tool_output()
    }
}

impl<T: IntoToolOutput, E: Into<ToolError>> IntoToolResult for Result<T, E> {
    fn into_tool_result(self) -> Result<ToolOutput, ToolError> {
        self.map_err(Into::into).and_then(IntoToolOutput::into_tool_output)
    }
}

#[cfg(test)]
mod tests {
    use holdpoint_core::message::ResultContent;

    use super::*;

    fn read(result: impl IntoToolResult) -> String {
        match result.into_tool_result() {
            Ok(ToolOutput { content: ResultContent::Text(text) }) => format!("text {text}"),
            Ok(ToolOutput { content: ResultContent::Json(json) }) => format!("json {}", json.get()),
            Ok(ToolOutput { content: ResultContent::Parts(parts) }) => format!("parts {parts:?}"),
            Err(error) => format!("error {error}"),
        }
    }

    #[test]
    fn every_kind_of_return_becomes_the_result_it_looks_like() {
        // Text that looks like JSON stays text (SEMANTICS 20).
        assert_eq!(read("3.0"), "text 3.0");
        assert_eq!(read(String::from("a")), "text a");
        assert_eq!(read(()), "text done");
        assert_eq!(read(Json(vec![1, 2])), "json [1,2]");
        assert_eq!(read(Ok::<_, ToolError>(Json("x"))), "json \"x\"");
        assert_eq!(read(Err::<(), _>(ToolError::new("NO", "not that"))), "error not that (NO)");
        assert_eq!(read(Err::<(), _>("no room")), "error no room (FAILED)");
    }

    #[test]
    fn a_value_that_is_not_json_is_an_error_that_does_not_deny_the_effect() {
        let odd = std::collections::HashMap::from([((1, 2), 3)]);
        let error = Json(odd).into_tool_result().unwrap_err();
        assert_eq!(error.code, "RESULT_NOT_JSON");
        assert!(!error.not_executed);
    }
}
