//! The store: what a run is when nothing of it is in memory.
//!
//! One trait, [`Store`], and what stands behind it. A *step* is one transaction by the run's owner: the new control
//! state, the messages, events, requests, ledger lines and audit records of one or more inputs, or nothing of them. A
//! *fact* - a decision, an expiry, a cancel - is one compare-and-set on what it is about, with its event and audit
//! record; it never touches the control state. The next step applies all facts since the last one and commits only if
//! none came in between.

mod bell;
mod chain;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod checkup;
mod clock;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod codes;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod compact;
mod cursor;
mod effects;
mod error;
mod facts;
mod failpoint;
mod keys;
mod memory;
mod places;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod prepared;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod stored;
mod tidy;
mod version;
mod view;
mod views;
mod wrap;
mod writes;

pub use bell::{BELLS_MAX, Bell, Hearing, Ring, Standing};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use checkup::{Checkup, CommitFigures, Listening, ReadThrough, StoredFigures};
pub use clock::{Clock, ManualClock, SystemClock};
pub use effects::{EffectEnd, EffectKey, EffectRecord, EffectUse, RecordedEffect};
pub use error::*;
pub use facts::{CLAIMS_ALONE_FROM, CLAIMS_WITHOUT_PROGRESS_MAX};
pub use failpoint::failpoint;
pub use keys::KEY_RESERVED_MS;
pub use memory::{ENDED_KEPT, MemoryStore};
#[cfg(feature = "postgres")]
pub use postgres::{BadAddress, PostgresAddress, PostgresOptions, PostgresStore, checkup_postgres};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteStore, checkup_sqlite};
pub use store::*;
pub use tidy::{KEY_KEPT, Tidied, Tidy};
pub use view::*;
pub use wrap::{Call, Doing, Wrap};
