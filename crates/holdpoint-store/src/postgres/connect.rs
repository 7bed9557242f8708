//! Opening a database.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use deadpool_postgres::{ManagerConfig, Pool, RecyclingMethod, Runtime};
use holdpoint_core::limits::PENDING_PER_TENANT_MAX;
use holdpoint_protocol::InstanceId;

use super::bells::{self, Bells};
use super::dial::Dialer;
use super::error::Fault;
use super::lease::{self, Lease};
use super::{AGAIN_MAX, PostgresOptions, PostgresStore, again, listen, pooler};
use crate::{Error, Result};

/// How long an operation waits for a connection that is free; then the store is said to be away.
const CONNECTION_WAIT_MAX: Duration = Duration::from_secs(10);
impl PostgresStore {
    /// Connects, brings the schema up to date, and takes a lease. Runs inside of a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Newer`] when a newer version made the schema (it is not touched then), [`Error::Unavailable`] when the database
    /// cannot be reached, or only through a pooler that loses prepared statements.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Arc<Self>> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let dialer = Dialer::new(url, options.ca_file.as_deref())?;
        let direct = match &options.listen_url {
            Some(url) => Dialer::new(url, options.ca_file.as_deref())?,
            None => dialer.clone(),
        };
        pooler::keeps_statements(&dialer).await?;
        let pool = Pool::builder(dialer.manager(recycling))
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECTION_WAIT_MAX))
            .build()
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let options =
            PostgresOptions { pending_max: options.pending_max.min(PENDING_PER_TENANT_MAX), ..options };
        let instance = InstanceId(uuid::Uuid::now_v7());
        let lease = Arc::new(Lease::new(instance, options.clock.clone()));
        let store = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            instance,
            pool,
            bells: Arc::new(Bells::new(instance, Arc::clone(&lease))),
            lease,
            beside: Mutex::default(),
            refused: AtomicU64::new(0),
            options,
            closed: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            waiting: Mutex::default(),
            tool_sets: Mutex::default(),
            counts: Mutex::default(),
        });
        // As long as it takes: a large database may have to be rewritten.
        again!(however long store, store.migrate())?;
        again!(store, store.first_lease())?;
        let first = store.beside_the_pool(&direct).await?;
        let (lease, bells) = (Arc::clone(&store.lease), Arc::clone(&store.bells));
        let beside = [
            tokio::spawn(lease::keep(lease, direct.clone(), first, Arc::clone(&bells))).abort_handle(),
            tokio::spawn(bells::send(Arc::clone(&bells), dialer)).abort_handle(),
            tokio::spawn(listen::listen(bells, direct)).abort_handle(),
        ];
        store.beside.lock().unwrap_or_else(PoisonError::into_inner).extend(beside);
        Ok(store)
    }
}
