// Using a permit consumes it.
use std::sync::Arc;

use holdpoint::core::permit::Permit;
use holdpoint::tools::{Invocation, NoProgress, ToolContext};

fn twice(permit: Permit, context: Arc<ToolContext>) -> [Invocation; 2] {
    let first = Invocation::new(permit, context.clone(), Default::default(), Box::new(NoProgress));
    let second = Invocation::new(permit, context, Default::default(), Box::new(NoProgress));
    [first, second]
}

fn main() {
    let _ = twice;
}
