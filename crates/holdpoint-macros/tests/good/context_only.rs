use holdpoint_macros::tool;
use holdpoint_tools::{Invocation, Tool, ToolContext};

/// Says who is behind the call.
#[tool(crate = "holdpoint_tools::__private")]
async fn whoami(context: &ToolContext, invocation: &Invocation) -> String {
    format!("{} {}", context.actor, invocation.attempt())
}

/// A raw identifier loses its mark.
#[tool(crate = "holdpoint_tools::__private")]
async fn r#move(r#in: Vec<String>, to: Option<(f64, f64)>) {
    drop((r#in, to));
}

fn main() {
    assert_eq!(whoami.definition().name, "whoami");
    assert_eq!(r#move.definition().name, "move");
    assert!(r#move.definition().schema["properties"]["in"].is_object());
}
