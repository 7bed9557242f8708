//! Databases of the cluster that the tests of this process share.

#[cfg(feature = "postgres-tls")]
use std::path::PathBuf;
use std::sync::Arc;

use holdpoint_store::{ManualClock, PostgresOptions, PostgresStore};

use crate::bed::{Bed, clock};

/// A database of the cluster.
pub struct Database {
    pub name: String,
    pub url: String,
    /// The same over TCP, encrypted.
    #[cfg(feature = "postgres-tls")]
    pub encrypted: String,
    /// The certificate to believe for that.
    #[cfg(feature = "postgres-tls")]
    pub certificate: PathBuf,
}

impl Database {
    /// One that is there already, for a process that is to die.
    #[allow(dead_code)] // not every test program starts another
    pub fn at(name: String, url: String) -> Self {
        Self {
            name,
            url,
            #[cfg(feature = "postgres-tls")]
            encrypted: String::new(),
            #[cfg(feature = "postgres-tls")]
            certificate: PathBuf::new(),
        }
    }

    pub async fn store(&self, pending_max: u64, clock: Arc<ManualClock>) -> Arc<PostgresStore> {
        let options =
            PostgresOptions { connections: 4, pending_max, clock: Some(clock), ..PostgresOptions::default() };
        PostgresStore::connect(&self.url, options).await.unwrap()
    }

    /// Looks into the database, or changes it behind the store's back.
    pub async fn client(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Bed {
    pub async fn postgres(pending_max: u64) -> Self {
        let clock = clock();
        let store = database().await.store(pending_max, clock.clone()).await;
        Self::of(store, clock)
    }
}

/// A database that nobody else uses.
pub async fn database() -> Database {
    let cluster = holdpoint_faults::shared();
    let name = cluster.database_name();
    Database {
        url: cluster.url(&name),
        #[cfg(feature = "postgres-tls")]
        encrypted: cluster.url_encrypted(&name),
        #[cfg(feature = "postgres-tls")]
        certificate: cluster.certificate(),
        name,
    }
}
