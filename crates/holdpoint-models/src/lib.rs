//! Models: one small trait, and what stands behind it.
//!
//! [`Model`] is the trait. [`Scripted`] answers from a script and is always there: tests, demos and benchmarks run
//! on it. With the feature `wire` there are three wires of our own: OpenAI Chat Completions and what is compatible
//! with it, Anthropic Messages, OpenAI Responses. Each is a pure reader and writer of bytes (`wire`) under one
//! thin transport. What a reply's fragments mean is decided in one place, [`assemble`].

pub mod assemble;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "wire")]
mod json;
mod model;
#[cfg(feature = "http")]
pub mod routing;
pub mod scripted;
pub mod sse;
#[cfg(feature = "wire")]
pub mod wire;

pub use model::*;
pub use scripted::Scripted;
