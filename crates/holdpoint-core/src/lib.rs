//! The pure part: what a run is, what a gate decides, how a call ends.
//!
//! Nothing here does I/O, reads a clock, draws randomness or spawns anything. Time and ids come in as
//! arguments. So a run can be replayed, simulated and proven.

pub mod arguments;
pub mod business;
pub mod decision;
pub mod digest;
pub mod display;
pub mod exec;
pub mod limits;
pub mod message;
pub mod permit;
pub mod policy;
pub mod render;
pub mod run;
pub mod schema;
pub mod terms;
pub mod tool;
pub mod wording;

mod walk;
