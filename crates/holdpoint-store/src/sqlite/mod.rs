//! The embedded durable store: one SQLite file, one process, one writer.
//!
//! Durable means written and synced: the log is written ahead with `synchronous=FULL`, and nothing is answered before the
//! commit. Operations that are queued while a commit is on its way share the next one.

mod checkup;
mod claim;
mod due;
mod effects;
mod error;
mod fact;
mod key;
mod lists;
mod open;
mod read;
mod readers;
mod rows;
mod step;
mod tidy;
mod txn;
mod watch;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use holdpoint_core::decision::CancelKind;
use holdpoint_core::limits::PENDING_PER_TENANT_MAX;
use holdpoint_core::message::Message;
use holdpoint_protocol::{
    ConversationId, InstanceId, Interaction, Page, RequestId, RunId, RunView, TenantId, Timestamp,
};

pub use self::checkup::checkup_sqlite;
use self::readers::{Reader, Readers};
use self::txn::Caches;
use self::writer::Writer;
use crate::clock::Clock;
use crate::prepared::Prepared;
use crate::{
    AuditRow, CancelReply, ChainCheck, Committed, Context, Decide, DecideReply, IdempotencyKey,
    InteractionFilter, KeyUse, Known, Loaded, Noted, NumberedEvents, PageRequest, PresetDue, RequestHead,
    Result, RuleRelease, RunFilter, StartRun, Started, Stats, Step, Store, StoredAnswer, Taken,
};

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    instance: InstanceId,
    incarnation: i64,
    clock: Arc<dyn Clock>,
    readers: Readers,
    writer: Writer,
}

impl SqliteStore {
    /// Opens the file, makes it where there is none, and brings an older one up to date.
    ///
    /// # Errors
    /// [`crate::Error::Locked`] while another process has it, [`crate::Error::Newer`] when a newer version wrote it (it is not
    /// touched then), and what else can go wrong with a file.
    pub fn open(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open_with(path, clock, PENDING_PER_TENANT_MAX)
    }

    /// As [`Self::open`], with fewer pending interactions for a tenant than [`PENDING_PER_TENANT_MAX`].
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with(path: impl AsRef<Path>, clock: Arc<dyn Clock>, pending_max: u64) -> Result<Self> {
        let path = path.as_ref();
        let lock = open::lock(path)?;
        let connection = open::writer(path)?;
        let incarnation = open::incarnation(&connection)?;
        let instance = InstanceId(uuid::Uuid::now_v7());
        let caches = Caches::new(incarnation, pending_max.min(PENDING_PER_TENANT_MAX));
        let readers = Readers::start(path)?;
        let writer = Writer::start(connection, lock, caches, Arc::clone(&clock))?;
        Ok(Self { path: path.to_owned(), instance, incarnation, clock, readers, writer })
    }

    /// Reads as a tenant; `nothing` where the tenant has never been seen.
    async fn read<T, F>(&self, tenant: &TenantId, nothing: T, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Reader, i64) -> Result<T> + Send + 'static,
    {
        let tenant = tenant.clone();
        self.readers
            .read(move |reader| match reader.tenant(&tenant)? {
                Some(id) => work(reader, id),
                None => Ok(nothing),
            })
            .await
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn instance(&self) -> InstanceId {
        self.instance
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn probe(&self) -> Result<()> {
        // One after the other: what is deleted in the transaction that wrote it is never written.
        self.writer.write("probe", |txn| txn.probe()).await?;
        self.writer.write("probe", |txn| txn.end_probe()).await
    }

    async fn start(&self, cx: &Context, start: StartRun) -> Result<Started> {
        let cx = cx.clone();
        let (new, key) = Prepared::start(&cx, start)?;
        self.writer.write("start", move |txn| txn.start(&cx, &new, key.as_ref())).await
    }

    async fn commit(&self, cx: &Context, step: &Step<'_>) -> Result<Committed> {
        let cx = cx.clone();
        let (new, epoch, expected_seq) = Prepared::step(step)?;
        self.writer.write("commit", move |txn| txn.commit(&cx, &new, epoch, expected_seq)).await
    }

    async fn load(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        self.read(&cx.tenant, None, move |reader, tenant| reader.load(tenant, run)).await
    }

    async fn take(&self, cx: &Context, run: RunId) -> Result<Option<Loaded>> {
        let context = cx.clone();
        if self.writer.write("take", move |txn| txn.take(&context, run)).await? {
            self.load(cx, run).await
        } else {
            Ok(None)
        }
    }

    async fn recover(&self, limit: usize) -> Result<Vec<Taken>> {
        self.writer.write("recover", move |txn| txn.recover(limit)).await
    }

    async fn owned(&self, limit: usize) -> Result<Vec<Taken>> {
        let incarnation = self.incarnation;
        self.readers.read(move |reader| reader.owned(incarnation, limit)).await
    }

    async fn release(&self, cx: &Context, run: RunId, epoch: u64, after_ms: u64) -> Result<()> {
        let cx = cx.clone();
        self.writer.write("release", move |txn| txn.release(&cx, run, epoch, after_ms)).await
    }

    async fn decide(&self, cx: &Context, decide: Decide) -> Result<DecideReply> {
        let cx = cx.clone();
        let step = decide.step.as_deref().map(Prepared::step).transpose()?.map(|(step, _, _)| step);
        self.writer.write("decide", move |txn| txn.decide(&cx, &decide, step.as_ref())).await
    }

    async fn fail_gate(&self, cx: &Context, requests: &[RequestId]) -> Result<Vec<Noted>> {
        let (cx, requests) = (cx.clone(), requests.to_vec());
        self.writer.write("fail_gate", move |txn| txn.fail_gate(&cx, &requests)).await
    }

    async fn cancel(&self, cx: &Context, run: RunId, kind: CancelKind) -> Result<CancelReply> {
        let cx = cx.clone();
        self.writer.write("cancel", move |txn| txn.cancel(&cx, run, kind)).await
    }

    async fn expire_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.writer.write("expire", move |txn| txn.expire_due(limit)).await
    }

    async fn presets_due(&self, limit: usize) -> Result<Vec<PresetDue>> {
        let now = self.clock.now();
        self.readers.read(move |reader| reader.presets_due(limit, now)).await
    }

    async fn close_due(
        &self,
        cx: &Context,
        request: RequestId,
        release: Option<RuleRelease>,
    ) -> Result<Option<Noted>> {
        let cx = cx.clone();
        self.writer.write("close_due", move |txn| txn.close_due(&cx, request, release.clone())).await
    }

    async fn remind_due(&self, limit: usize) -> Result<Vec<Noted>> {
        self.writer.write("remind", move |txn| txn.remind_due(limit)).await
    }

    async fn next_deadline(&self) -> Result<Option<Timestamp>> {
        self.readers.read(|reader| reader.next_deadline()).await
    }

    async fn history(
        &self,
        cx: &Context,
        conversation: &ConversationId,
        run: RunId,
        after: Option<u32>,
    ) -> Result<Vec<Arc<Message>>> {
        let conversation = conversation.clone();
        let read = move |reader: &mut Reader, tenant| reader.history(tenant, &conversation, run, after);
        self.read(&cx.tenant, Vec::new(), read).await
    }

    async fn events(
        &self,
        cx: &Context,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Option<NumberedEvents>> {
        self.read(&cx.tenant, None, move |reader, tenant| reader.events(tenant, run, after, limit)).await
    }

    async fn request(&self, cx: &Context, request: RequestId) -> Result<Option<RequestHead>> {
        self.read(&cx.tenant, None, move |reader, tenant| reader.head(tenant, request)).await
    }

    async fn moved(&self, known: &[Known]) -> Result<Vec<RunId>> {
        let known = known.to_vec();
        self.readers.read(move |reader| reader.moved(&known)).await
    }

    async fn newest_pending(&self, cx: &Context, limit: usize) -> Result<Vec<(Timestamp, RequestId)>> {
        let read = move |reader: &mut Reader, tenant| reader.newest_pending(tenant, limit);
        self.read(&cx.tenant, Vec::new(), read).await
    }

    async fn interaction(&self, cx: &Context, request: RequestId) -> Result<Option<Interaction>> {
        let read = move |reader: &mut Reader, tenant| {
            let found = reader.request(tenant, request)?;
            found.map(|request| reader.show(tenant, &request)).transpose()
        };
        self.read(&cx.tenant, None, read).await
    }

    async fn interactions(
        &self,
        cx: &Context,
        filter: &InteractionFilter,
        page: &PageRequest,
    ) -> Result<Page<Interaction>> {
        let (name, filter, page) = (cx.tenant.clone(), filter.clone(), page.clone());
        let read = move |reader: &mut Reader, tenant| reader.interactions(&name, tenant, &filter, &page);
        self.read(&cx.tenant, Page { items: Vec::new(), next_cursor: None }, read).await
    }

    async fn run(&self, cx: &Context, run: RunId) -> Result<Option<RunView>> {
        let read = move |reader: &mut Reader, tenant| {
            let row = reader.row(tenant, run)?;
            row.map(|row| reader.view(tenant, &row)).transpose()
        };
        self.read(&cx.tenant, None, read).await
    }

    async fn runs(&self, cx: &Context, filter: &RunFilter, page: &PageRequest) -> Result<Page<RunView>> {
        let (name, filter, page) = (cx.tenant.clone(), filter.clone(), page.clone());
        let read = move |reader: &mut Reader, tenant| reader.runs(&name, tenant, &filter, &page);
        self.read(&cx.tenant, Page { items: Vec::new(), next_cursor: None }, read).await
    }

    async fn started_with(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        let (context, key, now) = (cx.clone(), key.clone(), self.clock.now());
        let read =
            move |reader: &mut Reader, tenant| key::look_up(&reader.connection, tenant, &context, &key, now);
        self.read(&cx.tenant, KeyUse::New, read).await
    }

    async fn remember(&self, cx: &Context, key: &IdempotencyKey) -> Result<KeyUse> {
        let (cx, key) = (cx.clone(), key.clone());
        self.writer.write("remember", move |txn| txn.remember(&cx, &key)).await
    }

    async fn answer(&self, cx: &Context, key: &IdempotencyKey, answer: &StoredAnswer) -> Result<()> {
        let (cx, key, answer) = (cx.clone(), key.clone(), answer.clone());
        self.writer.write("answer", move |txn| txn.answer(&cx, &key, &answer)).await
    }

    async fn audit(&self, cx: &Context, run: RunId, after: u64, limit: usize) -> Result<Vec<AuditRow>> {
        let read = move |reader: &mut Reader, tenant| reader.audit(tenant, run, after, limit);
        self.read(&cx.tenant, Vec::new(), read).await
    }

    async fn verify(&self, cx: &Context, run: RunId) -> Result<Option<ChainCheck>> {
        self.read(&cx.tenant, None, move |reader, tenant| reader.verify(tenant, run)).await
    }

    async fn stats(&self) -> Result<Stats> {
        let incarnation = self.incarnation;
        let now = self.clock.now();
        let mut stats = self.readers.read(move |reader| reader.stats(incarnation, now)).await?;
        stats.commits = self.writer.commits();
        stats.operations = self.writer.operations();
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        stats.wal_bytes = std::fs::metadata(PathBuf::from(log)).ok().map(|file| file.len());
        Ok(stats)
    }

    /// Runs that this process still carries on are found by the next one, as after a crash: what they were doing is in
    /// doubt then.
    async fn close(&self) -> Result<()> {
        self.readers.stop();
        self.writer.stop();
        Ok(())
    }
}
