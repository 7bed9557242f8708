//! How to use a database.

use std::sync::Arc;

use holdpoint_core::limits::PENDING_PER_TENANT_MAX;

use crate::Clock;

/// How to use a database.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Connections of the pool at most. Three more stand beside it: the lease, the listener, and whoever rings.
    pub connections: usize,
    /// Where to listen for the other instances and to renew the lease, if not at the same URL: a direct way to the same database
    /// past a pooler, which does not deliver what is listened for.
    pub listen_url: Option<String>,
    /// Pending interactions a tenant may have, at most [`PENDING_PER_TENANT_MAX`].
    pub pending_max: u64,
    /// The certificates to believe, as a PEM file, instead of those of the machine. (With the feature `postgres-tls`; whether a
    /// connection is encrypted says `sslmode` of the URL, and what is encrypted is always verified.)
    pub ca_file: Option<std::path::PathBuf>,
    /// The time to go by instead of the database's: for tests.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 16,
            listen_url: None,
            pending_max: PENDING_PER_TENANT_MAX,
            ca_file: None,
            clock: None,
        }
    }
}
