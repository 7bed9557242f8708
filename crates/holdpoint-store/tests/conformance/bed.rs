//! A store to test, with a clock that stands still.

use std::sync::Arc;

use holdpoint_protocol::{ActorId, TenantId, Timestamp};
use holdpoint_store::{Context, ManualClock, MemoryStore, SqliteStore, Store};

/// A store, its clock, and what it stands on.
pub struct Bed {
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    _dir: Option<tempfile::TempDir>,
}

/// How many requests a tenant may have open in a bed that is made for that bound.
pub const FEW: u64 = 4;

pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_millisecond(1_790_000_000_000).unwrap()))
}

impl Bed {
    pub fn memory(pending_max: u64) -> Self {
        let clock = clock();
        let store = Arc::new(MemoryStore::new(clock.clone()).pending_max(pending_max));
        Self { store, clock, _dir: None }
    }

    pub fn of(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        Self { store, clock, _dir: None }
    }

    pub fn sqlite(pending_max: u64) -> Self {
        let clock = clock();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holdpoint.db");
        let store = Arc::new(SqliteStore::open_with(path, clock.clone(), pending_max).unwrap());
        Self { store, clock, _dir: Some(dir) }
    }
}

pub fn cx(tenant: &str, actor: &str) -> Context {
    Context { tenant: TenantId::new(tenant).unwrap(), actor: ActorId::new(actor).unwrap() }
}

/// The context most tests act in.
pub fn ana() -> Context {
    cx("acme", "ana")
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Makes one test of each function for each store.
macro_rules! conformance {
    ($($name:ident),* $(,)?) => { $crate::bed::conformance!(u64::MAX; $($name),*); };
    ($pending_max:expr; $($name:ident),* $(,)?) => {
        mod memory {
            $(#[test] fn $name() {
                $crate::bed::block_on(super::$name($crate::bed::Bed::memory($pending_max)));
            })*
        }
        mod sqlite {
            $(#[test] fn $name() {
                $crate::bed::block_on(super::$name($crate::bed::Bed::sqlite($pending_max)));
            })*
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[test] fn $name() {
                $crate::bed::block_on(async {
                    super::$name($crate::bed::Bed::postgres($pending_max).await).await;
                });
            })*
        }
    };
}
pub(crate) use conformance;
