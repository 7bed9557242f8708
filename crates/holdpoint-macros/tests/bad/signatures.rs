use holdpoint_macros::tool;

/// A tool.
#[tool]
fn not_async() {}

#[tool]
async fn no_description() {}

/// A tool.
#[tool]
async fn generic<T>(value: T) {}

/// A tool.
#[tool]
async unsafe fn is_unsafe() {}

/// A tool.
#[tool]
async fn borrowed(path: &str) {}

/// A tool.
#[tool]
async fn owned_context(context: ToolContext) {}

/// A tool.
#[tool]
async fn changes_context(context: &mut ToolContext) {}

/// A tool.
#[tool]
async fn two_invocations(a: &Invocation, b: &Invocation) {}

/// A tool.
#[tool]
async fn both_forms(args: String, path: String) {}

/// A tool.
#[tool]
async fn unused_name(_path: String) {}

/// A tool.
#[tool]
async fn opaque(path: impl Into<String>) {}

/// A tool.
#[tool]
async fn documented_context(
    /// Who it is for.
    context: &ToolContext,
) {
}

/// A tool.
#[tool]
async fn odd_attribute(#[allow(unused)] path: String) {}

/// A tool.
#[tool]
struct NotAFunction;

/// A tool.
#[tool]
async fn ünïcode() {}

fn main() {}
