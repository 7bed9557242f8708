//! Steps that are certain to be written as one group: both writers are kept waiting by a lock of the table until all of
//! them wait.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_core::run::Changes;
use holdpoint_store::{Committed, Next, PostgresStore, Result, Step, Store};
use tokio::task::JoinHandle;

use crate::bed::{Bed, ana};
use crate::cluster::Database;
use crate::walk::Walk;

/// How many groups are written at once.
pub const WRITERS: usize = 2;

pub type Committing = JoinHandle<Result<Committed>>;

/// Waits until it is so.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    for _ in 0..1_000 {
        if is().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it takes too long: {what}");
}

/// How many transactions wait for somebody.
pub async fn held(client: &tokio_postgres::Client) -> usize {
    let sql = "SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid) \
               WHERE NOT granted AND datname = current_database()";
    usize::try_from(client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)).unwrap()
}

pub fn commit(store: &Arc<PostgresStore>, step: &Step<'static>) -> Committing {
    let (store, step) = (Arc::clone(store), step.clone());
    tokio::spawn(async move { store.commit(&ana(), &step).await })
}

/// The steps that keep the writers busy, and those that wait; and, as a word to the lock, go.
pub struct Together {
    pub busy: Vec<Committing>,
    pub tasks: Vec<Committing>,
    go: tokio::sync::oneshot::Sender<()>,
    gone: JoinHandle<()>,
}

impl Together {
    /// Everything waits.
    pub async fn waiting(database: &Database, store: &Arc<PostgresStore>, steps: &[Step<'static>]) -> Self {
        let bed = Bed::of(Arc::clone(store) as Arc<dyn Store>, crate::bed::clock());
        let mut first = Vec::new();
        for _ in 0..WRITERS {
            let name = format!("busy-{}", uuid::Uuid::new_v4());
            first.push(small_step(&Walk::started(&bed, &ana(), &name).await));
        }
        let (go, wait) = tokio::sync::oneshot::channel();
        let (locked, is_locked) = tokio::sync::oneshot::channel();
        let mut client = database.client().await;
        let gone = tokio::spawn(async move {
            let lock = client.transaction().await.unwrap();
            lock.batch_execute("LOCK TABLE run IN EXCLUSIVE MODE").await.unwrap();
            locked.send(()).unwrap();
            let _ = wait.await;
            lock.rollback().await.unwrap();
        });
        is_locked.await.unwrap();
        let looking = database.client().await;
        let mut busy = Vec::new();
        for (n, step) in (1..).zip(&first) {
            busy.push(commit(store, step));
            until("a writer is busy", async || held(&looking).await == n).await;
        }
        let mut tasks = Vec::new();
        for (n, step) in (1..).zip(steps) {
            tasks.push(commit(store, step));
            until("it waits", async || store.standing().unwrap().waiting == n).await;
        }
        Self { busy, tasks, go, gone }
    }

    /// They go, as one group. Gives what came of each.
    pub async fn done(self) -> Vec<Result<Committed>> {
        let tasks = self.go().await;
        let mut done = Vec::new();
        for task in tasks {
            done.push(task.await.unwrap());
        }
        done
    }

    /// They go.
    pub async fn go(self) -> Vec<Committing> {
        self.go.send(()).unwrap();
        self.gone.await.unwrap();
        for busy in self.busy {
            let done = busy.await.unwrap();
            assert!(matches!(done, Ok(Committed::Done { .. })), "{done:?}");
        }
        self.tasks
    }
}

/// A step that says nothing to watchers.
pub fn small_step(walk: &Walk) -> Step<'static> {
    walk.made(Changes::default(), Next::Keep)
}
