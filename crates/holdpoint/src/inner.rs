//! What all parts of a runtime share.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use holdpoint_core::run::Run;
use holdpoint_protocol::{AgentName, EventBody, Pending, RunId, Timestamp};
use holdpoint_store::{Context, Loaded, Noted, Owner, Result, Store};
use holdpoint_tools::ToolContext;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::RunInfo;
use crate::agent::Agent;
use crate::driver::{Driver, Inbox, Place, UNAVAILABLE_RETRY_MS};
use crate::drivers::{Drivers, Seat};
use crate::histories::Histories;
use crate::hub::Hub;
use crate::patience::{GivenUp, Until, keep_at};
use crate::turns::Turns;
use crate::waiters::Waiters;
use crate::writing::Writing;

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) agents: HashMap<AgentName, Arc<Agent>>,
    pub(crate) default_agent: AgentName,
    pub(crate) hub: Hub,
    pub(crate) drivers: Arc<Drivers>,
    pub(crate) histories: Histories,
    pub(crate) waiters: Waiters,
    pub(crate) turns: Turns,
    pub(crate) writing: Arc<Writing>,
    pub(crate) ears: crate::hear::Ears,
    pub(crate) handling: crate::handling::Handling,
    pub(crate) deadlines: Notify,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) bypass: Box<dyn Fn(&Context) -> bool + Send + Sync>,
    /// When this process began: what is older was made by another.
    pub(crate) started: Timestamp,
    pub(crate) clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Inner {
    /// The time that events carry. What decides - deadlines, leases - is the store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Whether nothing can be stored or read just now, or nothing may begin here.
    pub(crate) fn is_degraded(&self) -> bool {
        self.writing.trouble().is_some() || self.store.term().is_none()
    }

    /// Does it with the store until it is done: a store that is away is waited for, with nothing run meanwhile. `None`
    /// when the process stops first, or the store says something that no waiting mends.
    pub(crate) async fn persist<T, F, W>(&self, what: F) -> Option<T>
    where
        F: FnMut() -> W,
        W: Future<Output = Result<T>>,
    {
        match keep_at(what, Until::Told(&self.shutdown), "the run waits").await {
            Ok(done) => Some(done),
            Err(GivenUp::Told { .. }) => None,
            Err(GivenUp::Refused(error)) => {
                tracing::error!(%error, "a run cannot go on here; it is left as it is");
                None
            }
        }
    }

    /// A fact is stored: show it, and see that the run is carried on - from what was loaded of it, where that is known. To be
    /// called in one's turn.
    pub(crate) fn noted(self: &Arc<Self>, noted: Noted, agent: &AgentName, loaded: Option<Loaded>) {
        if let EventBody::Decision(decision) = &noted.event.body {
            self.handling.closed(noted.run, decision.request_id);
        }
        match noted.owner {
            Owner::Nobody | Owner::Newer => self.hub.publish_aside(noted.run, agent, &noted.event),
            Owner::Taken => self.hub.publish_fact(noted.run, agent, &noted.event, true),
            Owner::Here | Owner::Elsewhere(_) => {
                self.hub.publish_fact(noted.run, agent, &noted.event, false);
            }
        }
        match (noted.owner, loaded) {
            (Owner::Taken, Some(loaded)) => self.resume_at(noted.cx, loaded),
            (owner, _) => self.carry_on(noted.cx, noted.run, owner),
        }
    }

    /// The same, where the agent has to be looked up.
    pub(crate) async fn noted_by_run(self: &Arc<Self>, noted: Noted) {
        let agent = match self.store.load(&noted.cx, noted.run).await {
            Ok(Some(loaded)) => loaded.run.agent().clone(),
            // Then only its listeners miss this event; the run is carried on all the same.
            Ok(None) | Err(_) => self.default_agent.clone(),
        };
        let _turn = self.turns.at(noted.run).await;
        self.noted(noted, &agent, None);
    }

    /// Carries a run on, or rings whoever does so here.
    pub(crate) fn carry_on(self: &Arc<Self>, cx: Context, run: RunId, owner: Owner) {
        match owner {
            Owner::Taken => self.resume(cx, run),
            Owner::Here => self.drivers.ring(run),
            // The store has rung it; it re-reads its facts at each of its commits as well, and looks.
            Owner::Elsewhere(_) => {}
            Owner::Nobody => {}
            Owner::Newer => {
                tracing::warn!(%run, "a newer version has written this run; it is left to an instance of that version");
            }
        }
    }

    /// Loads a run that this instance owns, and drives it. Whatever was running when it was last stored is not running
    /// here: the run is told so before anything else. For a run that only waited, that changes nothing.
    fn resume(self: &Arc<Self>, cx: Context, run: RunId) {
        let (seat, inbox) = self.drivers.register(&cx.tenant, run);
        let rt = Arc::clone(self);
        self.tasks.spawn(async move {
            match rt.persist(|| rt.store.load(&cx, run)).await {
                Some(Some(loaded)) => rt.drive(cx, loaded, seat, inbox).await,
                Some(None) | None => {
                    drop(seat);
                    rt.hub.rest(run, u64::MAX);
                }
            }
        });
    }

    /// The same of a run that is loaded: it stands as it is given here, and this instance owns it.
    pub(crate) fn resume_at(self: &Arc<Self>, cx: Context, loaded: Loaded) {
        let (seat, inbox) = self.drivers.register(&cx.tenant, loaded.run.id());
        self.tasks.spawn(Arc::clone(self).drive(cx, loaded, seat, inbox));
    }

    async fn drive(self: Arc<Self>, cx: Context, loaded: Loaded, seat: Seat, inbox: mpsc::Receiver<Inbox>) {
        let (rt, run) = (self, loaded.run.id());
        let found = rt.agents.get(loaded.run.agent()).cloned();
        let missing = match &found {
            None => Some(format!("the agent `{}`", loaded.run.agent())),
            Some(agent) if agent.model_named(loaded.run.model()).is_none() => {
                Some(format!("the model `{}`", loaded.run.model().unwrap_or_default()))
            }
            Some(_) => None,
        };
        let Some(agent) = found.or_else(|| rt.stand_in(loaded.run.agent())) else {
            drop(seat);
            let _ = rt.store.release(&cx, run, loaded.epoch, UNAVAILABLE_RETRY_MS).await;
            return rt.hub.rest(run, loaded.next_seq);
        };
        let model = agent.model_named(loaded.run.model()).unwrap_or_else(|| Arc::clone(&agent.model));
        let facts = loaded.facts.clone();
        let remembered = rt.histories.take(&cx.tenant, loaded.run.conversation(), run);
        let place = Place::of(&loaded, remembered, agent.settings.limits.argument_bytes);
        let run = rt.as_granted(&cx, loaded.run);
        let driver = Driver::at(rt, agent, model, cx, run, place, (seat, inbox));
        match missing {
            None => driver.resume(facts).await,
            Some(what) => {
                tracing::error!(run = %driver.run.id(), what, "what the run needs is not loaded here; it waits, or ends if it is to");
                driver.stand_by(facts, what).await;
            }
        }
    }

    /// In place of an agent that is not loaded here: it has no tools, and its model is never asked.
    fn stand_in(&self, name: &AgentName) -> Option<Arc<Agent>> {
        let model = Arc::clone(&self.agents.get(&self.default_agent)?.model);
        Agent::on(name.as_str(), model).build().ok().map(Arc::new)
    }

    /// A loaded run with what its actor is granted now: bypassing prompts can have been taken away since it began.
    pub(crate) fn as_granted(&self, cx: &Context, mut run: Run) -> Run {
        if run.bypass().is_some() && !(self.bypass)(cx) {
            tracing::warn!(run = %run.id(), "bypassing prompts is not granted to its actor any more; it asks from here on");
            run.revoke_bypass();
        }
        run
    }

    /// A run waits for people. Whoever waits for the run is told, unless a handler is still answering.
    pub(crate) fn suspended(&self, run: RunId, pending: Vec<Pending>) {
        if !self.handling.is_active(run) {
            self.waiters.suspended(run, &pending);
        }
    }
}

/// The trusted context of a run's tools.
pub(crate) fn tool_context(agent: &Agent, info: &RunInfo) -> Arc<ToolContext> {
    Arc::new(ToolContext {
        tenant: info.tenant.clone(),
        actor: info.actor.clone(),
        run: info.run,
        conversation: info.conversation.clone(),
        agent: info.agent.clone(),
        extensions: agent.context.as_ref().map(|provider| provider(info)).unwrap_or_default(),
    })
}
