//! The store of many instances: PostgreSQL.
//!
//! The database's clock decides. A process has one lease, renewed every two seconds; a run has an epoch, and whoever writes
//! for it says at which. Steps, starts and decisions that come together share a transaction, which waits for no row that somebody
//! else holds; any other fact is one statement and one commit. There is no session state: no advisory locks, no LISTEN on these
//! connections; every transaction can be done again. What is stored is rung to the other instances afterwards, on a
//! connection beside these.

mod address;
mod aside;
mod batch;
mod bells;
mod beside;
mod checkup;
mod claim;
mod connect;
mod decide;
mod dial;
mod due;
mod effects;
mod error;
mod fact;
mod group;
mod key;
mod lane;
mod late;
mod lease;
mod line;
mod listen;
mod load;
mod options;
mod partitions;
mod pooler;
mod read;
mod rows;
mod schema;
mod shown;
mod start;
mod step;
mod tidy;
mod tls;
mod tools;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use deadpool_postgres::Pool;
use holdpoint_core::decision::CancelKind;
use holdpoint_core::message::Message;
use holdpoint_core::run::LedgerLine;
use holdpoint_protocol::{
    ConversationId, InstanceId, Interaction, Page, RawJson, RequestId, RunId, RunView, TenantId, Timestamp,
};
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

pub use self::address::{BadAddress, PostgresAddress};
use self::bells::Bells;
pub use self::checkup::checkup_postgres;
use self::error::Fault;
use self::group::{Answer, Kind, Member, Waiting};
use self::lane::Rows;
use self::lease::Lease;
use self::line::Work;
pub use self::options::PostgresOptions;
use self::rows::{Done, now};
use crate::clock::{Clock, from_ms};
use crate::prepared::Prepared;
use crate::{
    AuditRow, Bell, CancelReply, ChainCheck, Committed, Context, Decide, DecideReply, Error, IdempotencyKey,
    InteractionFilter, KeyUse, Known, Loaded, Noted, NumberedEvents, PageRequest, PresetDue, RequestHead,
    Result, RuleRelease, RunFilter, Standing, StartRun, Started, Stats, Step, Store, StoredAnswer, Taken,
};

/// How often a transaction is done again that another one was in the way of.
const AGAIN_MAX: u32 = 8;
/// The time now.
const TIME: &str = concat!("SELECT ", now!("1"));

/// Does an operation, and does it again while another transaction is in its way, each time after a wait of another length.
macro_rules! again {
    ($store:expr, $operation:expr) => {
        again!(however long $store, $store.in_time($operation))
    };
    (however long $store:expr, $operation:expr) => {{
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
use again;

/// A store in a PostgreSQL database, which other instances may use at the same time.
pub struct PostgresStore {
    instance: InstanceId,
    pool: Pool,
    lease: Arc<Lease>,
    bells: Arc<Bells>,
    /// What goes on beside the operations: the lease, ringing, listening.
    beside: Mutex<Vec<AbortHandle>>,
    refused: AtomicU64,
    options: PostgresOptions,
    closed: AtomicBool,
    operations: AtomicU64,
    /// Operations that another one's commit did for.
    shared: AtomicU64,
    waiting: Mutex<Waiting>,
    tool_sets: tools::Shared,
    /// Itself, for whoever writes for others.
    me: Weak<Self>,
    counts: Mutex<HashMap<TenantId, (Instant, u64)>>,
}

impl PostgresStore {
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

    /// The store is open, and this instance's lease holds: something may begin.
    fn begin(&self) -> Result<()> {
        self.open()?;
        self.lease.held()
    }

    /// What was stored from outside of a run is shown to the other instances.
    fn ring_noted(&self, noted: &Noted) {
        let after = noted.event.seq.unwrap_or(0).saturating_sub(1);
        self.bells.ring(noted.run, after, noted.event.body.request());
    }

    /// What asks for the time.
    fn asks_time(&self) -> Rows<'static> {
        Rows::new(TIME, vec![Box::new(self.given())])
    }

    async fn try_now(&self) -> Done<Timestamp> {
        let client = self.connection(Work::New).await?;
        let statement = client.prepare_cached(TIME).await?;
        Ok(from_ms(client.query_one(&statement, &[&self.given()]).await?.try_get(0)?))
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

    fn term(&self) -> Option<u64> {
        self.lease.term()
    }

    fn standing(&self) -> Option<Standing> {
        let (heard, rung) = self.bells.counts();
        let left = self.lease.left();
        Some(Standing {
            hearing: self.bells.hearing(),
            heard,
            rung,
            lease_held: !left.is_zero(),
            lease_left: left,
            lease_lapses: self.lease.lapses(),
            others: self.lease.others(),
            waiting: (self.pool.status().waiting + self.waiting().len()) as u64,
            refused: self.refused.load(Ordering::Relaxed),
        })
    }

    fn bells(&self) -> Option<broadcast::Receiver<Bell>> {
        Some(self.bells.listen())
    }

    async fn now(&self) -> Result<Timestamp> {
        again!(self, self.try_now())
    }

    async fn probe(&self) -> Result<()> {
        self.open()?;
        again!(self, self.try_probe())
    }

    async fn start(&self, cx: &Context, start: StartRun) -> Result<Started> {
        self.begin()?;
        let (new, key) = Prepared::start(cx, start)?;
        let run = new.run;
        let opened: Vec<RequestId> = new.opened.iter().map(|opened| opened.request).collect();
        let member = member(cx, Kind::Start { new, key });
        let Answer::Started(started) = again!(self, self.write(&member))? else { return Err(mistaken()) };
        if matches!(started, Started::Created { .. }) {
            self.bells.ring(run, 0, opened);
        }
        Ok(started)
    }

    async fn commit(&self, cx: &Context, step: &Step<'_>) -> Result<Committed> {
        self.open()?;
        let (new, epoch, expected_seq) = Prepared::step(step)?;
        // What ends may be stored as long as the epoch lets it; what begins needs the lease.
        if new.executions.iter().any(|line| matches!(line, LedgerLine::Started { .. })) {
            self.lease.held()?;
        }
        let (run, quiet) = (new.run, new.events.is_empty());
        let opened = new.opened.iter().map(|opened| opened.request);
        let changed: Vec<_> = opened.chain(new.closed.iter().map(|closed| closed.request)).collect();
        let member = member(cx, Kind::Step { new, epoch, expected_seq });
        let Answer::Committed(committed) = again!(self, self.write(&member))? else { return Err(mistaken()) };
        if matches!(committed, Committed::Done { .. }) && !quiet {
            self.bells.ring(run, expected_seq.saturating_sub(1), changed);
        }
        Ok(committed)
    }

    async fn load(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.open()?;
        again!(self, self.try_load(cx, run))
    }

    async fn take(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.begin()?;
        if again!(self, self.try_take(cx, run))? { self.load(cx, run).await } else { Ok(None) }
    }

    async fn recover(&self, limit: usize) -> Result<Vec<Taken>> {
        self.begin()?;
        again!(self, self.try_recover(limit))
    }

    async fn set_aside(&self, limit: usize) -> Result<Vec<Noted>> {
        self.begin()?;
        let noted = again!(self, self.try_set_aside(limit))?;
        noted.iter().for_each(|noted| self.ring_noted(noted));
        Ok(noted)
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
        // It may make this instance the owner of the run.
        self.begin()?;
        let step = decide.step.as_deref().map(Prepared::step).transpose()?.map(|(step, ..)| step);
        let member = member(cx, Kind::Decision { decide, step });
        let Answer::Decided(reply) = again!(self, self.write(&member))? else { return Err(mistaken()) };
        if let DecideReply::Taken { noted, .. } = &*reply {
            self.ring_noted(noted);
        }
        Ok(*reply)
    }

    async fn keep_late(&self, cx: &Context, request: RequestId, result: &RawJson) -> Result<bool> {
        self.open()?;
        let run = again!(self, self.try_keep_late(cx, request, result))?;
        if let Some(run) = run {
            self.bells.ring(run, u64::MAX, [request]);
        }
        Ok(run.is_some())
    }

    async fn fail_gate(&self, cx: &Context, requests: &[RequestId]) -> Result<Vec<Noted>> {
        self.begin()?;
        let noted = again!(self, self.try_fail_gate(cx, requests))?;
        noted.iter().for_each(|noted| self.ring_noted(noted));
        Ok(noted)
    }

    async fn cancel(&self, cx: &Context, run: RunId, kind: CancelKind) -> Result<CancelReply> {
        self.begin()?;
        let reply = again!(self, self.try_cancel(cx, run, kind))?;
        if let CancelReply::Noted(noted) = &reply {
            self.ring_noted(noted);
        }
        Ok(reply)
    }

    async fn expire_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.begin()?;
        let noted = again!(self, self.try_expire_due(limit))?;
        noted.iter().for_each(|noted| self.ring_noted(noted));
        Ok(noted)
    }

    async fn presets_due(&self, limit: usize) -> Result<Vec<PresetDue>> {
        self.begin()?;
        again!(self, self.try_presets_due(limit))
    }

    async fn close_due(
        &self,
        cx: &Context,
        request: RequestId,
        release: Option<RuleRelease>,
    ) -> Result<Option<Noted>> {
        self.begin()?;
        let noted = again!(self, self.try_close_due(cx, request, release.clone()))?;
        noted.iter().for_each(|noted| self.ring_noted(noted));
        Ok(noted)
    }

    async fn remind_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.begin()?;
        let noted = again!(self, self.try_remind_due(limit))?;
        noted.iter().for_each(|noted| self.ring_noted(noted));
        Ok(noted)
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
        after: Option<u32>,
    ) -> Result<Vec<Arc<Message>>> {
        self.open()?;
        again!(self, self.try_history(cx, conversation, run, after))
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

    async fn request(&self, cx: &Context, request: RequestId) -> Result<Option<RequestHead>> {
        self.open()?;
        again!(self, self.try_request(cx, request))
    }

    async fn moved(&self, known: &[Known]) -> Result<Vec<RunId>> {
        self.open()?;
        again!(self, self.try_moved(known))
    }

    async fn newest_pending(&self, cx: &Context, limit: usize) -> Result<Vec<(Timestamp, RequestId)>> {
        self.open()?;
        again!(self, self.try_newest_pending(cx, limit))
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
        let commits = operations.saturating_sub(self.shared.load(Ordering::Relaxed));
        Ok(Stats { commits, operations, ..stats })
    }

    /// Lets go of the lease: another instance takes this one's runs over at once.
    async fn close(&self) -> Result<()> {
        if !self.closed.swap(true, Ordering::Relaxed) {
            // First of all no renewal may follow.
            self.stop_beside();
            let given_up = self.give_up().await;
            self.pool.close();
            given_up?;
        }
        Ok(())
    }
}

fn member(cx: &Context, kind: Kind) -> Arc<Member> {
    Arc::new(Member { cx: cx.clone(), kind })
}

fn mistaken() -> Error {
    Error::CommitUnknown("the writer answered something else".into())
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.stop_beside();
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("instance", &self.instance).finish_non_exhaustive()
    }
}
