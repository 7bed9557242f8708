// The errors of types stand on the types.
use holdpoint_macros::tool;
use serde::Deserialize;

#[derive(Deserialize)]
struct NoSchema {
    #[allow(dead_code)]
    path: String,
}

/// A tool.
#[tool(crate = "holdpoint_tools::__private")]
async fn no_schema(args: NoSchema) {
    drop(args);
}

struct NotAResult;

/// A tool.
#[tool(crate = "holdpoint_tools::__private")]
async fn not_a_result() -> NotAResult {
    NotAResult
}

/// A tool.
#[tool(crate = "holdpoint_tools::__private")]
async fn not_an_error() -> Result<String, NotAResult> {
    Err(NotAResult)
}

fn main() {}
