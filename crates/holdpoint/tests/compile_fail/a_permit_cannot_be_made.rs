// Only the gate makes permits: a program has no way to, not even out of another one.
use holdpoint::core::permit::Permit;
use holdpoint::protocol::{CallId, ExecId};

fn forge(call: CallId, exec: ExecId) -> Permit {
    Permit { call, exec, attempt: 1, tool: "wipe".into(), arguments: "{}".into(), digest: String::new() }
}

fn out_of_another(permit: Permit) -> Permit {
    Permit { tool: "wipe".into(), ..permit }
}

fn main() {
    let _ = (forge, out_of_another);
}
