//! The lease of this process, and how far it is trusted.
//!
//! What others go by is the row in the database and the database's clock. What this process goes by is its own clock: it knows
//! that the lease holds from the moment it asked for it until a second before it runs out, and no longer. Past that it begins
//! nothing, however healthy it feels; the epoch of a run is what keeps it from writing. The lease is renewed on connections that
//! nothing else uses, and a renewal that is slow does not keep the next one from being tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdpoint_protocol::InstanceId;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::bells::Bells;
use super::dial::{ANSWER_MAX, Dialer, answered, said};
use super::rows::{Done, now};
use crate::clock::{Clock, Passed};
use crate::{Error, Result};

/// How long an instance is taken to live after it renewed its lease.
pub(super) const LEASE_MS: i64 = 6_000;
/// How much earlier than its end the lease is not trusted any more: for clocks that do not run alike.
const MARGIN_MS: i64 = 1_000;
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(2);
/// How soon after one that failed.
const RENEW_AGAIN: Duration = Duration::from_millis(500);
/// Renewals that are under way at once: each is worth something until the time it asks for is over.
const ATTEMPTS_MAX: usize = 3;
/// After how long every other instance has renewed its lease, and so knows of this one.
pub(super) const KNOWN_AFTER_MS: i64 = 3_000;

/// Takes the lease or renews it, and counts the others.
const RENEWAL: &str = concat!(
    "WITH mine AS (INSERT INTO instance (instance_id, expires_at) VALUES ($2, $3 + ",
    now!("1"),
    ") ON CONFLICT (instance_id) DO UPDATE SET expires_at = greatest(instance.expires_at, excluded.expires_at)) \
     SELECT count(*) FROM instance WHERE instance_id <> $2 AND expires_at > ",
    now!("1")
);

pub(super) struct Lease {
    instance: InstanceId,
    given: Option<Arc<dyn Clock>>,
    passed: Passed,
    /// Until when it is known to hold, by `passed`.
    until_ms: AtomicI64,
    /// Since when it has held without a break.
    since_ms: AtomicI64,
    /// How often it has been held anew after it was not.
    terms: AtomicU64,
    lapsed: AtomicBool,
    lapses: AtomicU64,
    others: AtomicU64,
}

impl Lease {
    pub(super) fn new(instance: InstanceId, given: Option<Arc<dyn Clock>>) -> Self {
        Self {
            instance,
            given,
            passed: Passed::new(),
            until_ms: AtomicI64::new(0),
            since_ms: AtomicI64::new(0),
            terms: AtomicU64::new(0),
            lapsed: AtomicBool::new(false),
            lapses: AtomicU64::new(0),
            others: AtomicU64::new(0),
        }
    }

    /// For how long it is known to hold.
    pub(super) fn left(&self) -> Duration {
        let left = self.until_ms.load(Ordering::Relaxed) - self.passed.ms();
        Duration::from_millis(left.max(0).unsigned_abs())
    }

    pub(super) fn is_held(&self) -> bool {
        !self.left().is_zero()
    }

    /// Which time it is held without a break, if it is.
    pub(super) fn term(&self) -> Option<u64> {
        self.is_held().then(|| self.terms.load(Ordering::Relaxed))
    }

    /// Refuses what would begin something.
    pub(super) fn held(&self) -> Result<()> {
        if self.is_held() {
            return Ok(());
        }
        Err(Error::Unavailable(
            "this instance could not renew its lease in time; it begins nothing until it has, and others may take its runs over"
                .into(),
        ))
    }

    pub(super) fn lapses(&self) -> u64 {
        self.lapses.load(Ordering::Relaxed)
    }

    /// Others whose lease held when this one's was last renewed.
    pub(super) fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn pretend_others(&self, others: u64) {
        self.others.store(others, Ordering::Relaxed);
    }

    /// How long it takes until every other instance must know of this one.
    pub(super) fn until_known(&self) -> Duration {
        if !self.is_held() {
            return Duration::from_millis(KNOWN_AFTER_MS.unsigned_abs());
        }
        let known = self.since_ms.load(Ordering::Relaxed) + KNOWN_AFTER_MS;
        Duration::from_millis((known - self.passed.ms()).max(0).unsigned_abs())
    }

    /// Renews it on this connection, in one flight and without a statement that would have to be kept.
    pub(super) async fn renew(&self, client: &Client) -> Done<()> {
        let asked = self.passed.ms();
        let given = self.given.as_ref().map(|clock| clock.now().as_millisecond());
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&given, Type::INT8), (&self.instance.0, Type::UUID), (&LEASE_MS, Type::INT8)];
        let rows = answered(client.query_typed(RENEWAL, &parameters), ANSWER_MAX).await?;
        let others: i64 = rows.first().ok_or_else(nothing)?.try_get(0)?;
        self.others.store(others.max(0).unsigned_abs(), Ordering::Relaxed);
        if !self.is_held() {
            self.terms.fetch_add(1, Ordering::Relaxed);
            self.since_ms.store(self.passed.ms(), Ordering::Relaxed);
        }
        self.until_ms.fetch_max(asked + LEASE_MS - MARGIN_MS, Ordering::Relaxed);
        Ok(())
    }

    /// Whether this connection sees the lease that was taken through another one: else it leads somewhere else.
    pub(super) async fn is_seen_by(&self, client: &Client) -> Done<bool> {
        let sql = "SELECT count(*) FROM instance WHERE instance_id = $1";
        let rows = answered(client.query_typed(sql, &[(&self.instance.0, Type::UUID)]), ANSWER_MAX).await?;
        Ok(rows.first().ok_or_else(nothing)?.try_get::<_, i64>(0)? == 1)
    }

    /// Lets go of it: whoever looks next takes this process's runs over, without waiting for it to run out.
    pub(super) async fn give_up(&self, client: &Client) -> Done<()> {
        self.until_ms.store(0, Ordering::Relaxed);
        let sql = "DELETE FROM instance WHERE instance_id = $1";
        answered(client.query_typed(sql, &[(&self.instance.0, Type::UUID)]), ANSWER_MAX).await?;
        Ok(())
    }
}

fn nothing() -> Error {
    Error::Corrupt("a statement that always answers gave no row".into())
}

/// Renews the lease until it is stopped. Where it cannot be renewed in time it says so, once, and again when it is.
pub(super) async fn keep(lease: Arc<Lease>, dialer: Dialer, first: Client, bells: Arc<Bells>) {
    let mut idle = vec![first];
    let mut attempts = FuturesUnordered::new();
    let mut next = tokio::time::Instant::now() + RENEW;
    loop {
        let lapses_at = tokio::time::Instant::now() + lease.left();
        tokio::select! {
            () = tokio::time::sleep_until(next) => {
                next = tokio::time::Instant::now() + RENEW;
                if attempts.len() < ATTEMPTS_MAX {
                    attempts.push(attempt(&lease, &dialer, idle.pop()));
                }
            }
            Some(done) = attempts.next(), if !attempts.is_empty() => match done {
                Ok(client) => {
                    idle.push(client);
                    idle.truncate(1);
                    if lease.lapsed.swap(false, Ordering::Relaxed) {
                        tracing::info!("the lease is renewed; runs that others took meanwhile are theirs");
                        bells.missed();
                    }
                }
                Err(fault) => {
                    tracing::debug!(error = said(fault), "the lease was not renewed; trying again");
                    next = next.min(tokio::time::Instant::now() + RENEW_AGAIN);
                }
            },
            () = tokio::time::sleep_until(lapses_at), if !lease.lapsed.load(Ordering::Relaxed) => {
                if !lease.is_held() {
                    lease.lapsed.store(true, Ordering::Relaxed);
                    lease.lapses.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(
                        "the lease could not be renewed in time: no tool, no model call and no run is begun here until it is, \
                         and other instances may take this one's runs over; see that the database can be reached"
                    );
                    // Who takes it for gone does not ring it.
                    bells.missed();
                }
            }
        }
    }
}

async fn attempt(lease: &Lease, dialer: &Dialer, idle: Option<Client>) -> Done<Client> {
    let idle = idle.filter(|client| !client.is_closed());
    let client = match idle {
        Some(client) => client,
        None => {
            let dialled = tokio::time::timeout(ANSWER_MAX, dialer.dial()).await;
            dialled
                .map_err(|_elapsed| Error::Unavailable("the database cannot be connected to".into()))??
                .client
        }
    };
    lease.renew(&client).await?;
    Ok(client)
}
