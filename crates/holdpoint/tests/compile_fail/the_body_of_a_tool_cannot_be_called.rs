// A tool's body is behind the gate, also for the program that wrote it.
use holdpoint::prelude::*;

/// Deletes everything.
#[tool]
async fn wipe(path: String) -> String {
    path
}

fn main() {
    let _ = wipe("/".to_owned());
    let _ = wipe.call("/".to_owned());
}
