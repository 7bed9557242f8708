//! Steps that are certain to be written as one group: no connection is free until all of them wait.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_core::run::Changes;
use holdpoint_store::{Committed, IdempotencyKey, Next, PostgresStore, Result, Step, Store};
use tokio::task::JoinHandle;

use crate::bed::ana;
use crate::cluster::Database;
use crate::walk::Walk;

/// How many groups are written at once.
const WRITERS: u64 = 2;
/// Connections of a store whose steps are to go together.
pub const CONNECTIONS: usize = 6;

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

/// Steps that wait; and, as a word to the lock, go.
pub struct Together {
    pub tasks: Vec<Committing>,
    go: tokio::sync::oneshot::Sender<()>,
    gone: JoinHandle<()>,
}

impl Together {
    /// All of them wait for a connection: those there are wait for a lock.
    pub async fn waiting(database: &Database, store: &Arc<PostgresStore>, steps: &[Step<'static>]) -> Self {
        let (go, wait) = tokio::sync::oneshot::channel();
        let (locked, is_locked) = tokio::sync::oneshot::channel();
        let mut client = database.client().await;
        let gone = tokio::spawn(async move {
            let lock = client.transaction().await.unwrap();
            lock.batch_execute("LOCK TABLE idempotency IN ACCESS EXCLUSIVE MODE").await.unwrap();
            locked.send(()).unwrap();
            let _ = wait.await;
            lock.rollback().await.unwrap();
        });
        is_locked.await.unwrap();
        let looking = database.client().await;
        let before = held(&looking).await;
        for _ in 0..CONNECTIONS {
            let store = Arc::clone(store);
            let key = IdempotencyKey { scope: "s".into(), key: "k".into(), body_digest: "d".into() };
            tokio::spawn(async move { store.started_with(&ana(), &key).await });
        }
        until("no connection is free", async || held(&looking).await == before + CONNECTIONS).await;
        let mut tasks = Vec::new();
        for (n, step) in (1..).zip(steps) {
            tasks.push(commit(store, step));
            // A writer waits for a connection, and a step for a writer.
            until("it waits", async || store.standing().unwrap().waiting == n + n.min(WRITERS)).await;
        }
        Self { tasks, go, gone }
    }

    /// They go, as one group.
    pub async fn go(self) -> Vec<Committing> {
        self.go.send(()).unwrap();
        self.gone.await.unwrap();
        self.tasks
    }

    /// They go, as one group. Gives what came of each.
    pub async fn done(self) -> Vec<Result<Committed>> {
        let mut done = Vec::new();
        for task in self.go().await {
            done.push(task.await.unwrap());
        }
        done
    }
}

/// A step that says nothing to watchers.
pub fn small_step(walk: &Walk) -> Step<'static> {
    walk.made(Changes::default(), Next::Keep)
}
