//! Models: one small trait, and what stands behind it.

mod model;

pub use model::*;
