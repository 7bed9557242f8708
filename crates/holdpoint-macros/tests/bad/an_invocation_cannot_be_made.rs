// `call` is public, and takes what only the gate's permit can become.
use holdpoint_macros::tool;
use holdpoint_tools::{Invocation, NoProgress, Tool, ToolContext};

/// Deletes everything.
#[tool(crate = "holdpoint_tools::__private")]
async fn wipe(path: String) {
    drop(path);
}

fn forge(context: std::sync::Arc<ToolContext>) -> Invocation {
    let progress = Box::new(NoProgress);
    Invocation { permit: "let me", context, cancel: Default::default(), progress }
}

fn main() {
    let _ = wipe.call(String::new());
    let _ = forge;
}
