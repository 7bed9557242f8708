//! The runtime: agents, a store, and everything between a start and an end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdpoint_protocol::{AgentName, RunId, RunStatus, TenantId, Timestamp};
use holdpoint_store::{Clock, Context, MemoryStore, Result, Store, SystemClock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Agent;
use crate::handling::Handling;
use crate::histories::Histories;
use crate::hub::Hub;
use crate::inner::Inner;
use crate::listener::{Listener, ListenerTroubles};
use crate::outcome::{RunOutcome, RunState};
use crate::turns::Turns;
use crate::waiters::Waiters;
use crate::writing::{Minded, Writing};

/// How often whoever waits looks at a store that no other process writes to.
const LOOK_ALONE: Duration = Duration::from_secs(1);

/// Agents, a store, and everything between a start and an end. Clones share it.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
    stopping: Arc<AtomicBool>,
}

/// Says what a runtime is made of.
pub struct RuntimeBuilder {
    store: Option<Arc<dyn Store>>,
    clock: Arc<dyn Clock>,
    agents: Vec<Agent>,
    listeners: Vec<Arc<dyn Listener>>,
    bypass: Box<dyn Fn(&Context) -> bool + Send + Sync>,
    tenants: Vec<TenantId>,
    retention: Option<Duration>,
}

/// A runtime that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BadRuntime {
    /// It has no agent.
    #[error("a runtime needs at least one agent")]
    NoAgent,
    /// Two agents have one name.
    #[error("two agents are named `{0}`; rename one")]
    Twice(AgentName),
}

impl Runtime {
    /// A runtime; without a store it keeps everything in memory, and of the runs that have ended the newest
    /// [`ENDED_KEPT`](holdpoint_store::ENDED_KEPT).
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder {
            store: None,
            clock: Arc::new(SystemClock::new()),
            agents: Vec::new(),
            listeners: Vec::new(),
            bypass: Box::new(|_| false),
            tenants: Vec::new(),
            retention: None,
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// An agent, or the default one.
    pub fn agent(&self, name: Option<&AgentName>) -> Option<Arc<Agent>> {
        self.inner.agent(name).ok()
    }

    /// All agents, by name.
    pub fn agents(&self) -> Vec<Arc<Agent>> {
        let mut agents: Vec<_> = self.inner.agents.values().cloned().collect();
        agents.sort_by(|a, b| a.name().cmp(b.name()));
        agents
    }

    /// What went wrong with listeners.
    pub fn listener_troubles(&self) -> &ListenerTroubles {
        self.inner.hub.troubles()
    }

    /// Whether nothing can be stored or read just now, or this instance may have lost its lease: what is in progress waits and is
    /// not lost, and nothing new begins.
    pub fn is_degraded(&self) -> bool {
        self.inner.is_degraded()
    }

    /// Why nothing can be written just now, as the writes that failed said it. It is tried again every second, and is `None` once
    /// it can be.
    pub fn write_trouble(&self) -> Option<holdpoint_store::Error> {
        self.inner.writing.trouble()
    }

    /// Runs in the hands of this process.
    pub fn live_runs(&self) -> usize {
        self.inner.drivers.len()
    }

    /// Waits until a run ends or needs a person.
    ///
    /// # Errors
    /// When the store cannot be read, or there is no such run.
    pub async fn wait(&self, cx: &Context, run: RunId) -> Result<RunOutcome> {
        loop {
            // Registered before the store is read, so that an end between the two is not missed.
            let told = self.inner.waiters.wait(run);
            // A run that is worked on here says itself when it ends or waits: the store need not be asked for that.
            if !self.inner.drivers.has_of(&cx.tenant, run)
                && let Some(state) = self.state_now(cx, run).await?
            {
                return Ok(RunOutcome { run, state });
            }
            // Another process may carry the run on: then its bell, or the time, has the store looked at again.
            let look = self.inner.look_every().unwrap_or(LOOK_ALONE);
            if let Ok(Ok(state)) = tokio::time::timeout(look, told).await {
                return Ok(RunOutcome { run, state });
            }
        }
    }

    async fn state_now(&self, cx: &Context, run: RunId) -> Result<Option<RunState>> {
        // Looked at before the view, which is old by the time it is here, and in the order in which a run goes from its driver
        // to a handler: a run that is in their hands does not wait, whatever the view says.
        let in_hand = self.inner.drivers.has(run) || self.inner.handling.is_active(run);
        let Some(view) = self.inner.store.run(cx, run).await? else {
            return Err(holdpoint_store::Error::Corrupt(format!("there is no run {run}")));
        };
        Ok(match view.status {
            RunStatus::Running | RunStatus::Cancelling => None,
            RunStatus::Suspended if in_hand => None,
            RunStatus::Suspended | RunStatus::Quarantined => {
                Some(RunState::Suspended { pending: view.pending })
            }
            RunStatus::Finished | RunStatus::Failed => crate::ending::of_view(&view).map(RunState::Ended),
        })
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Stops: nothing new is started or claimed, idle runs are given back at once, running tools get `grace` to end.
    pub async fn shutdown(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        let deadline = tokio::time::Instant::now() + grace;
        while self.inner.drivers.shut_down() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.inner.shutdown.cancel();
        self.inner.tasks.close();
        // What has not ended by now is cut off; what was running is in doubt, and is said to be.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.inner.tasks.wait()).await;
        if let Err(error) = self.inner.store.close().await {
            tracing::warn!(%error, "the store was not closed cleanly; nothing that was acknowledged is lost");
        }
    }
}

impl RuntimeBuilder {
    /// Where everything is kept.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// The same, shared.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The clock that events are stamped with, and that the memory store decides by.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// An agent. The first one is the default.
    #[must_use]
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Sees the events of all agents.
    #[must_use]
    pub fn listener(mut self, listener: impl Listener) -> Self {
        self.listeners.push(Arc::new(listener));
        self
    }

    /// Who may start a run without prompts. By default nobody.
    #[must_use]
    pub fn allow_bypass(mut self, who: impl Fn(&Context) -> bool + Send + Sync + 'static) -> Self {
        self.bypass = Box::new(who);
        self
    }

    /// The tenants whose open requests are put to the approval handlers again after a start. By default `local`.
    #[must_use]
    pub fn tenants(mut self, tenants: impl IntoIterator<Item = TenantId>) -> Self {
        self.tenants.extend(tenants);
        self
    }

    /// How long conversations are kept after the start of their last run; for ever without it. Only what has ended goes, whole
    /// conversations at a time, with their audit.
    #[must_use]
    pub fn retention(mut self, keep: Duration) -> Self {
        self.retention = Some(keep);
        self
    }

    /// Starts it. Runs that an earlier process left unfinished are taken up. Needs a Tokio runtime around it.
    ///
    /// # Errors
    /// [`BadRuntime`] says what and where.
    pub fn build(self) -> std::result::Result<Runtime, BadRuntime> {
        let default_agent = self.agents.first().ok_or(BadRuntime::NoAgent)?.name().clone();
        let mut agents = HashMap::new();
        for agent in self.agents {
            let name = agent.name().clone();
            if agents.insert(name.clone(), Arc::new(agent)).is_some() {
                return Err(BadRuntime::Twice(name));
            }
        }
        let listeners = agents.values().map(|agent| (agent.name().clone(), agent.listeners.clone()));
        let hub = Hub::new(listeners, self.listeners);
        let clock = Arc::clone(&self.clock);
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new(Arc::clone(&self.clock))));
        let writing = Arc::<Writing>::default();
        let store: Arc<dyn Store> = Arc::new(Minded { store, writing: Arc::clone(&writing) });
        let runtime = Runtime {
            inner: Arc::new(Inner {
                store,
                agents,
                default_agent,
                hub,
                drivers: Arc::default(),
                histories: Histories::default(),
                waiters: Waiters::default(),
                turns: Turns::default(),
                writing,
                ears: crate::hear::Ears::default(),
                handling: Handling::default(),
                deadlines: Notify::new(),
                shutdown: CancellationToken::new(),
                tasks: TaskTracker::new(),
                bypass: self.bypass,
                started: self.clock.now(),
                clock: Box::new(move || -> Timestamp { clock.now() }),
            }),
            stopping: Arc::new(AtomicBool::new(false)),
        };
        let mut tenants = self.tenants;
        if tenants.is_empty() {
            tenants.push(local().tenant);
        }
        let rt = &runtime.inner;
        rt.tasks.spawn(crate::hear::hear(Arc::clone(rt)));
        rt.tasks.spawn(crate::writing::mind(Arc::clone(rt)));
        rt.tasks.spawn(crate::sweeper::sweep(runtime.clone(), tenants));
        rt.tasks.spawn(crate::lookout::look_out(Arc::clone(rt)));
        rt.tasks.spawn(crate::inbox::mind_desks(Arc::clone(rt)));
        rt.tasks.spawn(crate::tidy::keep_tidy(Arc::clone(rt), self.retention));
        Ok(runtime)
    }
}

/// The context of a program that has one user: tenant and actor `local`.
pub fn local() -> Context {
    let name = |text| holdpoint_protocol::TenantId::new(text);
    match (name("local"), holdpoint_protocol::ActorId::new("local")) {
        (Ok(tenant), Ok(actor)) => Context { tenant, actor },
        _ => unreachable!("`local` is a valid name"),
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("agents", &self.inner.agents.keys()).finish_non_exhaustive()
    }
}
