//! A place where runs are kept, and processes that work on it: started, stopped in the middle, started again.

use std::sync::Arc;
use std::time::Duration;

use holdpoint::core::message::Message;
use holdpoint::prelude::*;
use holdpoint::protocol::{Interaction, RequestId, RunId, RunView, Timestamp};
use holdpoint::store::{
    ChainCheck, InteractionFilter, ManualClock, MemoryStore, PageRequest, PostgresOptions, PostgresStore,
    SqliteStore, Store,
};
use holdpoint::{DecideError, Decided, RunOutcome, RuntimeBuilder};
use holdpoint_faults::Cluster;

/// Where runs outlive processes.
pub struct Place {
    kind: Kind,
    clock: Arc<ManualClock>,
}

enum Kind {
    Memory(Arc<MemoryStore>),
    Sqlite(tempfile::TempDir),
    /// A database of its own in the cluster that the tests of a file share.
    Postgres {
        cluster: Arc<Cluster>,
        name: String,
    },
}

impl Place {
    pub fn memory() -> Self {
        let clock = clock();
        Self { kind: Kind::Memory(Arc::new(MemoryStore::new(clock.clone()))), clock }
    }

    pub fn sqlite() -> Self {
        Self { kind: Kind::Sqlite(tempfile::tempdir().unwrap()), clock: clock() }
    }

    pub fn postgres() -> Self {
        let cluster = holdpoint_faults::shared();
        let name = cluster.database_name();
        Self { kind: Kind::Postgres { cluster, name }, clock: clock() }
    }

    /// Moves the clock that decides.
    pub fn later(&self, by: Duration) {
        self.clock.advance_ms(u64::try_from(by.as_millis()).unwrap());
    }

    /// A process with this agent. One that was here before has died: whatever it was doing, it is doing no more.
    pub fn start(&self, agent: Agent) -> Process {
        self.start_with(Runtime::builder().agent(agent))
    }

    pub fn start_with(&self, builder: RuntimeBuilder) -> Process {
        // One thread: nothing of a process goes on behind the back of a test, and dropping it ends it at once.
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store: Arc<dyn Store> = match &self.kind {
            Kind::Memory(store) => {
                store.process_died();
                store.clone()
            }
            Kind::Sqlite(dir) => Arc::new(self.reopen(&dir.path().join("holdpoint.db"))),
            Kind::Postgres { cluster, name } => {
                let options = PostgresOptions {
                    connections: 4,
                    clock: Some(self.clock.clone()),
                    ..PostgresOptions::default()
                };
                let store = tokio.block_on(PostgresStore::connect(&cluster.url(name), options)).unwrap();
                // Nobody else works on it: whoever did is dead, and known to be.
                let me = store.instance();
                cluster.sql(name, &format!("DELETE FROM instance WHERE instance_id <> '{}'", me.0));
                store
            }
        };
        let entered = tokio.enter();
        let runtime = builder.clock(self.clock.clone()).shared_store(store).build().unwrap();
        drop(entered);
        Process { runtime, tokio }
    }

    /// The file is let go of a moment after the process that had it.
    fn reopen(&self, path: &std::path::Path) -> SqliteStore {
        for _ in 0..500 {
            match SqliteStore::open(path, self.clock.clone()) {
                Ok(store) => return store,
                Err(holdpoint::store::Error::Locked { .. }) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the file is still locked");
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_second(1_780_000_000).unwrap()))
}

/// A process at work. Dropped, it dies where it stands.
pub struct Process {
    pub runtime: Runtime,
    tokio: tokio::runtime::Runtime,
}

impl Process {
    pub fn run<T>(&self, work: impl AsyncFnOnce(&Runtime) -> T) -> T {
        self.tokio.block_on(work(&self.runtime))
    }

    /// Starts a run and waits until it ends or needs a person.
    pub fn go(&self, text: &str) -> RunOutcome {
        self.start(Start::text(text))
    }

    pub fn start(&self, start: Start) -> RunOutcome {
        self.run(async |runtime| runtime.run(&local(), start).await.unwrap())
    }

    /// Starts a run and looks away.
    pub fn begin(&self, text: &str) -> RunId {
        self.run(async |runtime| runtime.start(&local(), Start::text(text)).await.unwrap().run)
    }

    pub fn wait(&self, run: RunId) -> RunOutcome {
        self.run(async |runtime| within(runtime.wait(&local(), run)).await.unwrap())
    }

    /// Lets the process work until this event of the run is stored.
    pub fn until(&self, run: RunId, kind: &str) {
        self.run(async |runtime| {
            let seen = async {
                let mut watch = runtime.watch(&local(), run, 0).await.unwrap().unwrap();
                while let Some(seen) = watch.next().await.unwrap() {
                    if seen.kind() == kind {
                        return;
                    }
                }
                panic!("the run ended without `{kind}`");
            };
            within(seen).await;
        });
    }

    /// Lets what is under way get on.
    pub fn rest(&self, ms: u64) {
        self.tokio.block_on(async { tokio::time::sleep(Duration::from_millis(ms)).await });
    }

    pub fn open(&self, run: RunId) -> Vec<Interaction> {
        use holdpoint::protocol::InteractionStatus::Pending;
        self.interactions(run).into_iter().filter(|item| item.status == Pending).collect()
    }

    /// All requests of a run, oldest first.
    pub fn interactions(&self, run: RunId) -> Vec<Interaction> {
        let filter = InteractionFilter { run: Some(run), ..Default::default() };
        let page = PageRequest { cursor: None, limit: 200 };
        self.run(async |runtime| runtime.store().interactions(&local(), &filter, &page).await.unwrap().items)
    }

    /// The open request for this tool.
    pub fn request(&self, run: RunId, tool: &str) -> RequestId {
        let open = self.open(run);
        let of_tool = open.iter().find(|item| field(item, "toolName") == tool).map(|item| item.request_id);
        of_tool.unwrap_or_else(|| panic!("nothing is open for {tool}: {open:?}"))
    }

    pub fn decide(&self, deciding: Deciding) -> Result<Decided, DecideError> {
        self.run(async |runtime| runtime.decide(&local(), deciding).await)
    }

    pub fn say(&self, request: RequestId, word: DecisionWord) -> Result<Decided, DecideError> {
        self.decide(Deciding::new(request, word, super::human()))
    }

    /// Approves what is open for this tool and waits.
    pub fn approve(&self, run: RunId, tool: &str) -> RunOutcome {
        let request = self.request(run, tool);
        self.say(request, DecisionWord::Approve).unwrap();
        self.wait(run)
    }

    /// Declines what is open for this tool and waits.
    pub fn decline(&self, run: RunId, tool: &str, reason: &str) -> RunOutcome {
        let request = self.request(run, tool);
        self.decide(Deciding::new(request, DecisionWord::Decline, super::human()).reason(reason)).unwrap();
        self.wait(run)
    }

    pub fn view(&self, run: RunId) -> RunView {
        self.run(async |runtime| runtime.store().run(&local(), run).await.unwrap().unwrap())
    }

    /// The stored events of a run, as JSON.
    pub fn events(&self, run: RunId) -> Vec<serde_json::Value> {
        self.run(async |runtime| super::events(runtime, run).await)
    }

    pub fn kinds(&self, run: RunId) -> Vec<String> {
        super::kinds(&self.events(run)).into_iter().map(str::to_owned).collect()
    }

    /// What is in the history of a run's conversation.
    pub fn history(&self, run: RunId) -> Vec<Arc<Message>> {
        let conversation = self.view(run).conversation_id;
        self.run(async |runtime| runtime.store().history(&local(), &conversation, run, None).await.unwrap())
    }

    /// How the calls in the history ended, in its order.
    pub fn answers(&self, run: RunId) -> Vec<Answered> {
        super::answers(&self.history(run))
    }

    /// What must hold of every run at every moment, and of one that has ended.
    pub fn check(&self, run: RunId) {
        super::check_history(&self.history(run));
        super::check_events(&self.events(run), self.view(run).status);
        let chain = self.run(async |runtime| runtime.store().verify(&local(), run).await.unwrap());
        assert!(matches!(chain, Some(ChainCheck::Whole { .. })), "{chain:?}");
        super::check_closings(&self.interactions(run), &self.events(run), &self.audit(run));
    }

    /// The record of a run, as JSON.
    pub fn audit(&self, run: RunId) -> Vec<serde_json::Value> {
        let rows = self.run(async |runtime| runtime.store().audit(&local(), run, 0, 10_000).await.unwrap());
        rows.iter().map(|row| serde_json::from_str(&row.record).unwrap()).collect()
    }
}

/// No test waits for ever.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("it hangs")
}

/// A field of a request as it was announced.
pub fn field(item: &Interaction, name: &str) -> String {
    let request: serde_json::Value = serde_json::from_str(item.request.get()).unwrap();
    match &request[name] {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// How one call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    pub id: String,
    pub name: String,
    pub status: &'static str,
    pub executed: &'static str,
    pub is_error: bool,
    /// What the model reads, as JSON.
    pub said: serde_json::Value,
}

/// A test for every kind of place: of what a database does by its own clock and statements, on PostgreSQL too.
macro_rules! on_every_store {
    (and on postgres: $($(#[$attr:meta])* fn $name:ident($place:ident) $body:block)*) => {$(
        $(#[$attr])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            fn check($place: &Place) $body
            #[test]
            fn in_memory() { check(&Place::memory()); }
            #[test]
            fn in_sqlite() { check(&Place::sqlite()); }
            #[test]
            fn in_postgres() { check(&Place::postgres()); }
        }
    )*};
    ($($(#[$attr:meta])* fn $name:ident($place:ident) $body:block)*) => {$(
        $(#[$attr])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            fn check($place: &Place) $body
            #[test]
            fn in_memory() { check(&Place::memory()); }
            #[test]
            fn in_sqlite() { check(&Place::sqlite()); }
        }
    )*};
}
pub(crate) use on_every_store;
