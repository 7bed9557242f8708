//! Models: one small trait, and what stands behind it.
//!
//! [`Model`] is the trait. [`Scripted`] answers from a script and is always there: tests, demos and benchmarks run
//! on it. What the fragments of a streamed reply mean is decided in one place, [`assemble`].

pub mod assemble;
mod model;
pub mod scripted;
pub mod sse;

pub use model::*;
pub use scripted::Scripted;
