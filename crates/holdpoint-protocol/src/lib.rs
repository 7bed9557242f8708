//! The types that go over the wire, and nothing else.
//!
//! Everything here is data: the events of a run ([`Event`]), the requests a client posts, the answers it
//! gets. There is no logic beyond reading and writing JSON. JSON is camelCase; an absent field is left out
//! and never `null`. A time is an RFC 3339 string in UTC; a duration has its unit in its name.

mod api;
mod event;
mod id;
mod outcome;

pub use api::*;
pub use event::*;
pub use id::*;
pub use outcome::*;

/// JSON kept as the text it came in, so that no number is rounded on its way through.
pub type RawJson = Box<serde_json::value::RawValue>;
pub use jiff::Timestamp;
