//! One suite for every store. Each test is written once and run for each of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::type_complexity)]

mod bed;
mod walk;

mod audit;
mod claims;
mod decisions;
mod file;
mod keys;
mod lists;
mod model;
mod starts;
mod steps;
mod time;
