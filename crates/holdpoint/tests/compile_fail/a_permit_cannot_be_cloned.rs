// One permit, one execution: there is no second one, and none from nothing.
use holdpoint::core::permit::Permit;

fn twice(permit: Permit) -> (Permit, Permit) {
    (permit.clone(), permit)
}

fn from_nothing() -> Permit {
    Permit::default()
}

fn main() {
    let _ = (twice, from_nothing);
}
