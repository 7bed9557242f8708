//! The one writer. It takes everything that is queued, does it in one transaction, commits once, answers all.
//!
//! An operation is refused before it writes anything, so one that is refused does not concern the others of its group.
//! When the database itself fails, the transaction is rolled back and the operations are done one by one: each then
//! stands or falls alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::error::{Fault, error_of, error_of_commit};
use super::open::Lock;
use super::txn::{Caches, Txn};
use crate::clock::Clock;
use crate::failpoint::failpoint;
use crate::{Error, Result};

/// Operations that share a commit, at most.
const GROUP_MAX: usize = 256;
/// Operations that may queue. More wait at the door, so that a slow disk is felt and not remembered.
const QUEUE_MAX: usize = 1_024;

/// What an operation is called at its failpoints: `store.<name>.before_commit`, `store.<name>.after_commit`.
pub(super) type Name = &'static str;

trait Job: Send {
    fn name(&self) -> Name;
    fn run(&mut self, txn: &mut Txn<'_>) -> std::result::Result<(), Fault>;
    fn answer(self: Box<Self>, failed: Option<Error>);
}

struct Typed<T, F> {
    name: Name,
    work: F,
    done: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Typed<T, F>
where
    T: Send,
    F: FnMut(&mut Txn<'_>) -> std::result::Result<T, Fault> + Send,
{
    fn name(&self) -> Name {
        self.name
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> std::result::Result<(), Fault> {
        self.done = Some(match (self.work)(txn) {
            Ok(value) => Ok(value),
            Err(Fault::Refused(error)) => Err(error),
            Err(fault @ Fault::Database(_)) => return Err(fault),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, failed: Option<Error>) {
        let answer = match (failed, self.done) {
            (Some(error), _) => Err(error),
            (None, Some(done)) => done,
            (None, None) => Err(Error::Unavailable("the operation was not done".into())),
        };
        // Nobody may be waiting any more: what is committed stands all the same.
        let _ = self.reply.send(answer);
    }
}

/// The way to the writer.
#[derive(Debug)]
pub(super) struct Writer {
    queue: std::sync::Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
    counts: Arc<Counts>,
}

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Default)]
struct Counts {
    commits: AtomicU64,
    operations: AtomicU64,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        lock: Lock,
        caches: Caches,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let counts = Arc::new(Counts::default());
        let thread = Thread { connection, caches, clock, counts: Arc::clone(&counts), _lock: lock };
        let thread = std::thread::Builder::new()
            .name("holdpoint-sqlite".into())
            .spawn(move || thread.work(jobs))
            .map_err(|error| Error::Unavailable(format!("no thread for the store: {error}")))?;
        Ok(Self { queue: Some(queue).into(), thread: Some(thread).into(), counts })
    }

    /// Has an operation done, and returns when it is durable. It may be done again from the start, when the database
    /// fails under the group it was in.
    pub(super) async fn write<T, F>(&self, name: Name, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Txn<'_>) -> std::result::Result<T, Fault> + Send + 'static,
    {
        let queue = lock(&self.queue).clone().ok_or_else(closed)?;
        let (reply, answer) = oneshot::channel();
        let job = Typed { name, work, done: None, reply };
        queue.send(Box::new(job)).await.map_err(|_| closed())?;
        // The sender is gone without a word only when the writer died: what became of the operation is not known.
        answer.await.map_err(|_| Error::CommitUnknown("the writer is gone".into()))?
    }

    pub(super) fn commits(&self) -> u64 {
        self.counts.commits.load(Ordering::Relaxed)
    }

    pub(super) fn operations(&self) -> u64 {
        self.counts.operations.load(Ordering::Relaxed)
    }

    /// Takes no more, does what is queued, and lets go of the file.
    pub(super) fn stop(&self) {
        drop(lock(&self.queue).take());
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn closed() -> Error {
    Error::Unavailable("the store is closed".into())
}

struct Thread {
    connection: Connection,
    caches: Caches,
    clock: Arc<dyn Clock>,
    counts: Arc<Counts>,
    _lock: Lock,
}

impl Thread {
    fn work(mut self, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
        let mut group = Vec::with_capacity(GROUP_MAX);
        while jobs.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
            self.commit_group(&mut group);
        }
        // Copied back, so that the next start finds a short log; when it fails, the log is as good.
        let _ = self.connection.pragma_update(None, "wal_checkpoint", "TRUNCATE");
    }

    fn commit_group(&mut self, group: &mut Vec<Box<dyn Job>>) {
        match self.attempt(group) {
            Ok(()) => group.drain(..).for_each(|job| job.answer(None)),
            Err(error @ Error::CommitUnknown(_)) => {
                group.drain(..).for_each(|job| job.answer(Some(error.clone())));
            }
            Err(error) if group.len() == 1 => group.drain(..).for_each(|job| job.answer(Some(error.clone()))),
            Err(_) => {
                for job in group.drain(..) {
                    self.commit_group(&mut vec![job]);
                }
            }
        }
    }

    fn attempt(&mut self, group: &mut [Box<dyn Job>]) -> Result<()> {
        let done = self.transact(group);
        if done.is_err() {
            // What was remembered in the transaction is not true any more.
            self.caches.forget();
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("ROLLBACK");
            }
        }
        done
    }

    fn transact(&mut self, group: &mut [Box<dyn Job>]) -> Result<()> {
        self.batch("BEGIN IMMEDIATE").map_err(|error| error_of(&error))?;
        let mut txn = Txn::new(&self.connection, &mut self.caches, &*self.clock);
        for job in &mut *group {
            job.run(&mut txn).map_err(Error::from)?;
        }
        group.iter().for_each(|job| failpoint_of(&**job, "before_commit"));
        self.batch("COMMIT").map_err(|error| error_of_commit(&error))?;
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        self.counts.operations.fetch_add(group.len() as u64, Ordering::Relaxed);
        group.iter().for_each(|job| failpoint_of(&**job, "after_commit"));
        Ok(())
    }

    fn batch(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

/// Named only where they are built in: the name is put together anew each time.
fn failpoint_of(job: &dyn Job, place: &str) {
    if cfg!(feature = "failpoints") {
        failpoint(&format!("store.{}.{place}", job.name()));
    }
}
