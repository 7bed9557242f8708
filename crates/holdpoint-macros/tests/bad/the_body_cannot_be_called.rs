// The raw body would be a door around the gate.
use holdpoint_macros::{tool, tools};
use std::sync::Arc;

/// Deletes everything.
#[tool(crate = "holdpoint_tools::__private")]
async fn wipe(path: String) {
    drop(path);
}

struct Files;

#[tools(crate = "holdpoint_tools::__private")]
impl Files {
    /// Deletes everything.
    #[tool]
    async fn wipe(&self, path: String) {
        drop(path);
    }
}

fn main() {
    let _ = wipe(String::new());
    let files = Arc::new(Files);
    let _ = files.wipe(String::new());
    let _ = files.__holdpoint_body(String::new());
    let _ = __holdpoint_body(String::new());
    let _ = <Files as __HoldpointBody_wipe>::__holdpoint_body(&files);
    let _ = __HoldpointTool_wipe { of: files };
}
