// What is not a permit lets nothing run.
use std::sync::Arc;

use holdpoint::tools::{Invocation, NoProgress, ToolContext};

fn with_a_word(context: Arc<ToolContext>) -> Invocation {
    Invocation::new("approved", context, Default::default(), Box::new(NoProgress))
}

fn main() {
    let _ = with_a_word;
}
