//! Models: one small trait, and what stands behind it.
//!
//! [`Model`] is the trait. [`Scripted`] answers from a script and is always there: tests, demos and benchmarks run
//! on it.

mod model;
pub mod scripted;

pub use model::*;
pub use scripted::Scripted;
