//! What the tests break: a PostgreSQL cluster that is theirs alone ([`Cluster`]), the way to it ([`Proxy`]),
//! and a pooler before it ([`Pooler`]).
//!
//! A test that wants a database starts a cluster, or takes the one its process shares ([`shared`]). A test that wants the
//! network to misbehave puts a [`Proxy`] before it and switches it while everything runs. Nothing outside of the tests
//! depends on this crate, and nothing of it is published.
#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests fail as tests do

mod cluster;
mod pooler;
mod proxy;

pub use cluster::{Cluster, Disk, Stop, shared};
pub use pooler::Pooler;
pub use proxy::{Link, Proxy, Way};
