//! Waiting for a connection of the pool: in a line of bounded length. What comes when it is full is refused at once, with
//! nothing done, instead of growing the line: the caller can come again, memory that has gone does not.

use std::sync::atomic::Ordering;
use std::time::Duration;

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

/// How long an operation may take in all. A connection can be open at this end only: what is asked on it is never answered, and
/// nobody is told.
const OPERATION_MAX: Duration = Duration::from_secs(12);

impl PostgresStore {
    /// Does an operation, but does not wait for ever. Whether one that is not answered was done is not known; the connections that
    /// nobody uses now are given up with it, since the others may be as deaf.
    pub(super) async fn in_time<T>(&self, operation: impl Future<Output = Done<T>>) -> Done<T> {
        let answer = tokio::time::timeout(OPERATION_MAX, operation).await;
        answer.unwrap_or_else(|_elapsed| {
            self.pool.retain(|_, _| false);
            Err(Error::CommitUnknown("the database does not answer".into()).into())
        })
    }

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
            return Err(Error::Busy(why).into());
        }
        Ok(self.pool.get().await?)
    }
}
