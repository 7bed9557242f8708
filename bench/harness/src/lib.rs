//! What every benchmarked system shares, so that a figure differs only by the system: the workload's texts, the
//! record a run leaves behind, the checks made on it, the clock, and the one JSON line that is printed.

mod check;
mod cli;
mod line;
pub mod usage;
pub mod work;

pub use check::{Deviations, Expect, Record};
pub use cli::{Arguments, Workload};
pub use line::{Line, Timing, percentile, round};
