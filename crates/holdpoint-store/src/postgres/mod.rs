//! The store of many instances: PostgreSQL.
//!
//! The database's clock decides. A process has one lease, renewed every two seconds; a run has an epoch, and whoever writes
//! for it says at which. A fact is one statement and one commit, a step locks its run's row and nothing else that others
//! wait for. There is no session state: no advisory locks, no LISTEN on these connections; every transaction can be done again.

mod address;
mod checkup;
mod claim;
mod due;
mod error;
mod fact;
mod key;
mod read;
mod rows;
mod step;
mod tls;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use deadpool_postgres::{ManagerConfig, Pool, RecyclingMethod, Runtime};
use holdpoint_core::decision::CancelKind;
use holdpoint_core::limits::PENDING_PER_TENANT_MAX;
use holdpoint_core::message::Message;
use holdpoint_protocol::{
    ConversationId, InstanceId, Interaction, Page, RequestId, RunId, RunView, TenantId, Timestamp,
};

pub use self::address::{BadAddress, PostgresAddress};
pub use self::checkup::checkup_postgres;
use self::error::{Fault, of_commit};
use self::rows::{Done, now};
use crate::clock::{Clock, from_ms};
use crate::prepared::Prepared;
use crate::{
    AuditRow, CancelReply, ChainCheck, Committed, Context, Decide, DecideReply, Error, IdempotencyKey,
    InteractionFilter, KeyUse, Loaded, Noted, NumberedEvents, PageRequest, PresetDue, Result, RuleRelease,
    RunFilter, StartRun, Started, Stats, Step, Store, StoredAnswer, Taken,
};

/// How long an instance is taken to live after it renewed its lease.
const LEASE_MS: i64 = 6_000;
/// How often it renews it.
const RENEW: Duration = Duration::from_secs(2);
/// How long an operation waits for a connection that is free; then the store is said to be away.
const CONNECTION_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often a transaction is done again that another one was in the way of.
const AGAIN_MAX: u32 = 8;
/// How long a count of a tenant's pending requests is believed, and how far from the bound it must be for that: more than all
/// instances together open in that time.
const COUNT_BELIEVED: Duration = Duration::from_secs(1);
const COUNT_MARGIN: u64 = 30_000;

/// The migrations, in order; the schema's version is how many of them it has had.
const MIGRATIONS: [&str; 2] =
    [include_str!("migrations/0001_start.sql"), include_str!("migrations/0002_terms.sql")];

/// Does an operation, and does it again while another transaction is in its way, each time after a wait of another length.
macro_rules! again {
    ($store:expr, $operation:expr) => {{
        let mut tries = 0;
        loop {
            match $operation.await {
                Err(Fault::Again(_)) if tries < AGAIN_MAX => {
                    tries += 1;
                    // No randomness is at hand, and none is needed: the clock's last digits are different enough.
                    let jitter = u64::from(Instant::now().elapsed().subsec_nanos() % 7);
                    tokio::time::sleep(Duration::from_millis(u64::from(tries) * 2 + jitter)).await;
                }
                Ok(done) => {
                    $store.operations.fetch_add(1, Ordering::Relaxed);
                    break Ok::<_, Error>(done);
                }
                Err(fault) => break Err(Error::from(fault)),
            }
        }
    }};
}
/// How to use a database.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Connections at most.
    pub connections: usize,
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
        Self { connections: 16, pending_max: PENDING_PER_TENANT_MAX, ca_file: None, clock: None }
    }
}

/// A store in a PostgreSQL database, which other instances may use at the same time.
#[derive(Debug)]
pub struct PostgresStore {
    instance: InstanceId,
    pool: Pool,
    options: PostgresOptions,
    closed: AtomicBool,
    operations: AtomicU64,
    counts: Mutex<HashMap<TenantId, (Instant, u64)>>,
}

impl PostgresStore {
    /// Connects, brings the schema up to date, and takes a lease. Runs inside of a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Newer`] when a newer version made the schema (it is not touched then), [`Error::Unavailable`] when the database
    /// cannot be reached.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Arc<Self>> {
        let address = PostgresAddress::parse(url).map_err(|error| Error::Unavailable(error.to_string()))?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = tls::manager(address.config(), recycling, options.ca_file.as_deref())?;
        let pool = Pool::builder(manager)
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECTION_WAIT_MAX))
            .build()
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let options =
            PostgresOptions { pending_max: options.pending_max.min(PENDING_PER_TENANT_MAX), ..options };
        let store = Arc::new(Self {
            instance: InstanceId(uuid::Uuid::now_v7()),
            pool,
            options,
            closed: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            counts: Mutex::default(),
        });
        again!(store, store.migrate())?;
        again!(store, store.renew())?;
        tokio::spawn(claim::keep_lease(Arc::downgrade(&store), RENEW));
        Ok(store)
    }

    /// The time that was given instead of the database's.
    fn given(&self) -> Option<i64> {
        self.options.clock.as_ref().map(|clock| clock.now().as_millisecond())
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn open(&self) -> Result<()> {
        if self.is_closed() { Err(Error::Unavailable("the store is closed".into())) } else { Ok(()) }
    }

    /// Instances that start together do this one after the other: the row they lock is there from the first on.
    async fn migrate(&self) -> Done<()> {
        let mut client = self.pool.get().await?;
        client
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS holdpoint_schema (one boolean PRIMARY KEY CHECK (one), version integer NOT NULL); \
                 INSERT INTO holdpoint_schema VALUES (true, 0) ON CONFLICT DO NOTHING",
            )
            .await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_one("SELECT version FROM holdpoint_schema FOR UPDATE", &[]).await?;
        let found = rows::small(row.try_get(0)?);
        let known = MIGRATIONS.len() as u32;
        if found > known {
            return Err(Error::Newer { what: "the database".into(), found, known }.into());
        }
        for sql in MIGRATIONS.iter().skip(found as usize) {
            transaction.batch_execute(sql).await?;
        }
        transaction.execute("UPDATE holdpoint_schema SET version = $1", &[&(known as i32)]).await?;
        transaction.commit().await.map_err(of_commit)
    }

    fn counted(&self, tenant: &TenantId) -> Option<u64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, count) = counts.get(tenant)?;
        (at.elapsed() < COUNT_BELIEVED && count + COUNT_MARGIN < self.options.pending_max).then_some(*count)
    }

    fn count(&self, tenant: &TenantId, count: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.insert(tenant.clone(), (Instant::now(), count));
    }

    async fn try_now(&self) -> Done<Timestamp> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(concat!("SELECT ", now!("1"))).await?;
        Ok(from_ms(client.query_one(&statement, &[&self.given()]).await?.try_get(0)?))
    }

    async fn try_look_up(&self, cx: &Context, key: &IdempotencyKey, reserve: bool) -> Done<KeyUse> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let statement = transaction.prepare_cached(concat!("SELECT ", now!("1"))).await?;
        let at = from_ms(transaction.query_one(&statement, &[&self.given()]).await?.try_get(0)?);
        let found = key::look_up(&transaction, cx, key, at).await?;
        if reserve && found == KeyUse::New {
            key::insert(&transaction, cx, key, at, None).await?;
        }
        transaction.commit().await.map_err(of_commit)?;
        Ok(found)
    }

    async fn try_answer(&self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> Done<()> {
        let client = self.pool.get().await?;
        let sql = "UPDATE idempotency SET http_status = $6, body = $7 WHERE tenant_id = $1 AND actor = $2 AND scope = $3 \
                   AND key = $4 AND body_digest = $5 AND run_id IS NULL AND http_status IS NULL";
        let statement = client.prepare_cached(sql).await?;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
            &cx.tenant.as_str(),
            &cx.actor.as_str(),
            &key.scope,
            &key.key,
            &key.body_digest,
            &i32::from(answer.status),
            &answer.body,
        ];
        client.execute(&statement, &parameters).await.map_err(of_commit)?;
        Ok(())
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn instance(&self) -> InstanceId {
        self.instance
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn now(&self) -> Result<Timestamp> {
        again!(self, self.try_now())
    }

    async fn start(&self, cx: &Context, start: StartRun) -> Result<Started> {
        self.open()?;
        let (new, key) = Prepared::start(cx, start)?;
        again!(self, self.try_start(cx, &new, key.as_ref()))
    }

    async fn commit(&self, cx: &Context, step: Step) -> Result<Committed> {
        self.open()?;
        let (new, epoch, expected_seq) = Prepared::step(step)?;
        again!(self, self.try_commit(cx, &new, epoch, expected_seq))
    }

    async fn load(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.open()?;
        again!(self, self.try_load(cx, run))
    }

    async fn take(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.open()?;
        if again!(self, self.try_take(cx, run))? { self.load(cx, run).await } else { Ok(None) }
    }

    async fn recover(&self, limit: usize) -> Result<Vec<Taken>> {
        self.open()?;
        again!(self, self.try_recover(limit))
    }

    async fn owned(&self, limit: usize) -> Result<Vec<Taken>> {
        self.open()?;
        again!(self, self.try_owned(limit))
    }

    async fn release(&self, cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> Result<()> {
        self.open()?;
        again!(self, self.try_release(cx, run, epoch, after_ms))
    }

    async fn decide(&self, cx: &Context, decide: Decide) -> Result<DecideReply> {
        self.open()?;
        again!(self, self.try_decide(cx, &decide))
    }

    async fn fail_gate(&self, cx: &Context, requests: &[RequestId]) -> Result<Vec<Noted>> {
        self.open()?;
        again!(self, self.try_fail_gate(cx, requests))
    }

    async fn cancel(&self, cx: &Context, run: RunId, kind: CancelKind) -> Result<CancelReply> {
        self.open()?;
        again!(self, self.try_cancel(cx, run, kind))
    }

    async fn expire_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.open()?;
        again!(self, self.try_expire_due(limit))
    }

    async fn presets_due(&self, limit: usize) -> Result<Vec<PresetDue>> {
        self.open()?;
        again!(self, self.try_presets_due(limit))
    }

    async fn close_due(
        &self,
        cx: &Context,
        request: RequestId,
        release: Option<RuleRelease>,
    ) -> Result<Option<Noted>> {
        self.open()?;
        again!(self, self.try_close_due(cx, request, release.clone()))
    }

    async fn remind_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.open()?;
        again!(self, self.try_remind_due(limit))
    }

    async fn next_deadline(&self) -> Result<Option<Timestamp>> {
        self.open()?;
        again!(self, self.try_next_deadline())
    }

    async fn history(
        &self,
        cx: &Context,
        conversation: &ConversationId,
        run: RunId,
    ) -> Result<Vec<Arc<Message>>> {
        self.open()?;
        again!(self, self.try_history(cx, conversation, run))
    }

    async fn events(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Option<NumberedEvents>> {
        self.open()?;
        again!(self, self.try_events(cx, run, after, limit))
    }

    async fn interaction(&self, cx: &Context, request: RequestId) -> Result<Option<Interaction>> {
        self.open()?;
        again!(self, self.try_interaction(cx, request))
    }

    async fn interactions(
        &self,
        cx: &Context,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Result<Page<Interaction>> {
        self.open()?;
        again!(self, self.try_interactions(cx, filter, page))
    }

    async fn run(&self, cx: &Context, run: RunId) -> Result<Option<RunView>> {
        self.open()?;
        again!(self, self.try_run(cx, run))
    }

    async fn runs(&self, cx: &Context, filter: &RunFilter, page: &PageRequest) -> Result<Page<RunView>> {
        self.open()?;
        again!(self, self.try_runs(cx, filter, page))
    }

    async fn started_with(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        self.open()?;
        again!(self, self.try_look_up(cx, key, false))
    }

    async fn remember(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        self.open()?;
        again!(self, self.try_look_up(cx, key, true))
    }

    async fn answer(&self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> Result<()> {
        self.open()?;
        again!(self, self.try_answer(cx, key, answer))
    }

    async fn audit(&self, cx: &Context, run: RunId, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
        self.open()?;
        again!(self, self.try_audit(cx, run, after, limit))
    }

    async fn verify(&self, cx: &Context, run: RunId) -> Result<Option<ChainCheck>> {
        self.open()?;
        again!(self, self.try_verify(cx, run))
    }

    async fn stats(&self) -> Result<Stats> {
        self.open()?;
        let stats = again!(self, self.try_stats())?;
        let operations = self.operations.load(Ordering::Relaxed);
        Ok(Stats { commits: operations, operations, ..stats })
    }

    /// Lets go of the lease: another instance takes this one's runs over at once.
    async fn close(&self) -> Result<()> {
        if !self.closed.swap(true, Ordering::Relaxed) {
            let given_up = self.give_up_lease().await;
            self.pool.close();
            given_up?;
        }
        Ok(())
    }
}
