// The fields of an invocation are its own.
use holdpoint_tools::Invocation;

fn forge(real: Invocation) -> Invocation {
    Invocation { permit: real.permit, ..real }
}

fn main() {
    let _ = forge;
}
