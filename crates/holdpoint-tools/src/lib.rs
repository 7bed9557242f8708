//! Tools: the trait they stand behind, and those that come with Holdpoint.

mod tool;

pub use tool::*;
