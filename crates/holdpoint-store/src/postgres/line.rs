//! Waiting for a connection of the pool: in a line of bounded length. What comes when it is full is refused at once, with
//! nothing done, instead of growing the line: the caller can come again, memory that has gone does not.

use std::sync::atomic::Ordering;

use super::PostgresStore;
use super::rows::Done;
use crate::Error;

/// How many operations that begin something, or only look, may wait for a connection.
const WAITING_MAX: usize = 256;
/// How many may wait in all: what carries on what is there - a result that is to be stored - goes in where the others are
/// turned away.
const WAITING_OWN_MAX: usize = 1_024;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A request from outside.
    New,
    /// A run of this instance.
    Own,
}

impl PostgresStore {
    /// A connection of the pool, when one is free.
    pub(super) async fn connection(&self, work: Work) -> Done<deadpool_postgres::Object> {
        let max = match work {
            Work::New => WAITING_MAX,
            Work::Own => WAITING_OWN_MAX,
        };
        let waiting = self.pool.status().waiting;
        if waiting >= max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let why = format!("{waiting} operations wait for a connection already; come again");
            return Err(Error::Unavailable(why).into());
        }
        Ok(self.pool.get().await?)
    }
}
