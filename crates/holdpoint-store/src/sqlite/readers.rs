//! Readers: a few threads, each with a connection of its own. Reads are short, so that the log can be copied back.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::TenantId;
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::{mpsc, oneshot};

use super::open;
use crate::{Error, Result};

/// Threads that read.
const READERS: usize = 2;
/// Tool sets a reader remembers.
pub(super) const TOOL_SETS_MAX: usize = 256;
/// Reads that may queue.
const QUEUE_MAX: usize = 1_024;

type Job = Box<dyn FnOnce(&mut Reader) + Send>;

/// The way to the readers.
#[derive(Debug)]
pub(super) struct Readers {
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A connection that reads, and what it knows of tenants. Their numbers never change.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) connection: Connection,
    tenants: HashMap<TenantId, i64>,
    /// Tool sets by number, which never change either. There are few; should there be many, it begins again.
    pub(super) tool_sets: HashMap<i64, Arc<[ToolDefinition]>>,
}

impl Readers {
    pub(super) fn start(path: &Path) -> Result<Self> {
        let (queue, jobs) = mpsc::channel::<Job>(QUEUE_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        let mut threads = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let mut reader = Reader {
                connection: open::reader(path)?,
                tenants: HashMap::new(),
                tool_sets: HashMap::new(),
            };
            let jobs = Arc::clone(&jobs);
            let next = move || jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            let thread = std::thread::Builder::new()
                .name("holdpoint-sqlite-read".into())
                .spawn(move || {
                    while let Some(job) = next() {
                        job(&mut reader);
                    }
                })
                .map_err(|error| Error::Unavailable(format!("no thread for the store: {error}")))?;
            threads.push(thread);
        }
        Ok(Self { queue: Some(queue).into(), threads: threads.into() })
    }

    /// Reads, all of it from one state of the database.
    pub(super) async fn read<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Reader) -> Result<T> + Send + 'static,
    {
        let closed = || Error::Unavailable("the store is closed".into());
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)?;
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |reader| drop(reply.send(reader.in_one_state(work))));
        queue.send(job).await.map_err(|_| closed())?;
        answer.await.map_err(|_| Error::Unavailable("a reader is gone".into()))?
    }

    /// Finishes what is queued and lets go of the file.
    pub(super) fn stop(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Reader {
    fn in_one_state<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.connection.prepare_cached("BEGIN")?.execute([])?;
        let done = work(self);
        self.connection.prepare_cached("ROLLBACK")?.execute([])?;
        done
    }

    pub(super) fn tenant(&mut self, tenant: &TenantId) -> Result<Option<i64>> {
        if let Some(id) = self.tenants.get(tenant) {
            return Ok(Some(*id));
        }
        let mut statement = self.connection.prepare_cached("SELECT id FROM tenant WHERE name = ?1")?;
        let id = statement.query_row([tenant.as_str()], |row| row.get(0)).optional()?;
        if let Some(id) = id {
            self.tenants.insert(tenant.clone(), id);
        }
        Ok(id)
    }
}
