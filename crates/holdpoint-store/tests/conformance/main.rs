//! One suite for every store. Each test is written once and run for each of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::type_complexity)]

mod bed;
#[cfg(feature = "postgres")]
mod cluster;
mod walk;

mod audit;
mod bells;
mod claims;
mod decisions;
mod effects;
mod file;
mod forgetting;
mod keys;
#[cfg(feature = "postgres")]
mod late;
mod lists;
#[cfg(feature = "postgres")]
mod many;
mod model;
#[cfg(feature = "postgres")]
mod partitions;
mod starts;
mod steps;
mod terms;
mod tidy;
mod time;
mod unreadable;
mod watch;
