//! What stands beside the pool: the connection of the lease, and the tasks that renew it, ring and listen.

use std::sync::PoisonError;

use super::dial::Dialer;
use super::rows::Done;
use super::{PostgresStore, Work};
use crate::{Error, Result};

impl PostgresStore {
    pub(super) async fn first_lease(&self) -> Done<()> {
        let client = self.connection(Work::Own).await?;
        self.lease.renew(&client).await
    }

    /// The connection that the lease is renewed on. It leads to the same database, or nothing is begun at all.
    pub(super) async fn beside_the_pool(&self, direct: &Dialer) -> Result<tokio_postgres::Client> {
        let client = direct.dial().await?.client;
        if !self.lease.is_seen_by(&client).await? {
            let why = "the URL to listen at leads to another database than the other one: it does not have this instance's lease";
            return Err(Error::Unavailable(why.into()));
        }
        self.lease.renew(&client).await?;
        Ok(client)
    }

    pub(super) async fn give_up(&self) -> Done<()> {
        let client = self.connection(Work::Own).await?;
        self.lease.give_up(&client).await
    }

    pub(super) fn stop_beside(&self) {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        beside.drain(..).for_each(|task| task.abort());
    }
}
