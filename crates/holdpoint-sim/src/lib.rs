//! Whole runs, with everything around them going wrong on purpose - and the invariants checked after each.
//!
//! The runtime is the real one. What is simulated is the world: a clock that jumps, a model that makes calls, tools
//! that take their time, fail, panic or hang, people who decide, twice or not at all, a store that fails, loses its
//! answer or is slow, and one to three instances on it that die at any write or at any time, or stand still for longer than
//! their lease lasts and come back. Everything follows from one seed; a failing
//! one is printed, can be lived through again, and is made smaller until nothing can be left out.

mod at_once;
mod cluster;
mod invariants;
mod people;
mod rng;
mod scenario;
mod shown;
mod store;
mod world;

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint::protocol::{RunId, RunStatus};
use holdpoint::store::{ChainCheck, IdempotencyKey, KeyUse, MemoryStore, Store};
use holdpoint::{RunState, Runtime, Start, local};
use tokio::sync::Notify;

pub use scenario::{Call, Ends, Fault, Person, RELEASED, Says, Scenario, Still, TOOLS};

use crate::at_once::at_once;
use crate::cluster::{Cluster, Instance};
use crate::invariants::Evidence;
use crate::people::{Doors, People};
use crate::store::FaultyStore;
use crate::world::{SimClock, World};

/// Lives a process may have before a run that has not ended counts as stuck.
const LIVES_MAX: usize = 40;
/// How long a life may last, in its own time.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// What a simulation came to.
#[derive(Debug)]
pub struct Outcome {
    /// What did not hold; empty when all did.
    pub wrong: Vec<String>,
    /// How many lives the process had.
    pub lives: usize,
    /// How many writes there were.
    pub writes: u64,
    /// How many times a tool ran.
    pub executions: usize,
    /// The stored events, as JSON, for whoever has to find out why.
    pub events: Vec<String>,
}

/// How a life ended.
enum Life {
    Over,
    Died,
    Stuck,
}

/// What stays when a process dies.
struct Rest {
    scenario: Arc<Scenario>,
    store: Arc<MemoryStore>,
    cluster: Arc<Cluster>,
    clock: Arc<SimClock>,
    world: Arc<World>,
    people: Arc<People>,
    writes: Arc<AtomicU64>,
    faults: Arc<Mutex<std::collections::BTreeMap<u64, Fault>>>,
    /// The stored events that were read, taken apart.
    read: Mutex<Vec<(u64, serde_json::Value)>>,
    /// How much there was when it was last looked at: what has not changed need not be looked at again.
    looked_at: Mutex<(usize, usize, usize)>,
}

/// Lives a scenario through, to its end.
pub fn simulate(scenario: &Scenario) -> Outcome {
    let clock = Arc::new(SimClock::new());
    let decides = Arc::clone(&clock) as Arc<dyn holdpoint::store::Clock>;
    let store = Arc::new(MemoryStore::new(Arc::clone(&decides)));
    let rest = Arc::new(Rest {
        scenario: Arc::new(scenario.clone()),
        cluster: Arc::new(Cluster::new(Arc::clone(&store), decides, scenario.bell_ms)),
        store,
        clock,
        world: Arc::default(),
        people: Arc::default(),
        writes: Arc::default(),
        faults: Arc::new(Mutex::new(scenario.faults.clone())),
        read: Mutex::default(),
        looked_at: Mutex::default(),
    });
    let mut wrong = Vec::new();
    let mut lives = 0;
    let mut kills = scenario.kills.clone();
    loop {
        lives += 1;
        let kill = kills.pop();
        let (life, at_the_end) = one_life(&rest, kill, lives);
        wrong.extend(rest.look(at_the_end));
        wrong.extend(rest.world.wrong());
        wrong.extend(rest.cluster.wrong());
        match life {
            Life::Over => break,
            // What several left behind is found when their leases have run out.
            Life::Died if lives < LIVES_MAX && wrong.is_empty() && scenario.instances > 1 => {}
            Life::Died if lives < LIVES_MAX && wrong.is_empty() => rest.cluster.process_died(),
            Life::Died => break,
            Life::Stuck => {
                wrong.push(format!("the run did not come to an end in {LIFE_MAX:?}"));
                break;
            }
        }
    }
    let events = rest.events();
    Outcome {
        wrong,
        lives,
        writes: rest.writes.load(std::sync::atomic::Ordering::Relaxed),
        executions: rest.world.executions().len(),
        events,
    }
}

/// One process, from its start to its death or to the end of the run. Everything in its memory goes with it.
fn one_life(rest: &Arc<Rest>, kill: Option<u64>, lives: usize) -> (Life, bool) {
    let Ok(tokio) = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
    else {
        return (Life::Stuck, false);
    };
    let life = tokio.block_on(async {
        rest.clock.begin();
        let count = rest.scenario.instances.max(1);
        let living = Arc::new((AtomicUsize::new(count), Notify::new()));
        let id = |n: usize| (lives * 10 + n) as u128 + 1;
        let instances: Vec<_> =
            (0..count).map(|n| Instance::new(&rest.cluster, count > 1, id(n), &living)).collect();
        let mut runtimes = Vec::new();
        for instance in &instances {
            instance.renew().await;
            tokio::spawn(Arc::clone(instance).keep_lease());
            let Some(runtime) = runtime(rest, instance, &instances) else { return Life::Stuck };
            runtimes.push(runtime);
        }
        for still in rest.scenario.stills.iter().filter(|_| count > 1).copied() {
            let instance = Arc::clone(&instances[still.instance % count]);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(still.at_ms)).await;
                match still.for_ms {
                    Some(ms) => instance.stand_still(ms),
                    None => instance.die(),
                }
            });
        }
        let doors = Arc::new(Doors::new(Arc::clone(&rest.store), runtimes));
        let killed = async {
            match kill {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
        };
        let life = tokio::select! {
            biased;
            () = living.1.notified() => Life::Died,
            () = killed => Life::Died,
            () = to_the_end(rest, &doors) => Life::Over,
            () = tokio::time::sleep(LIFE_MAX) => Life::Stuck,
        };
        rest.clock.end();
        life
    });
    // Whatever was running is gone with its runtime.
    drop(tokio);
    let at_the_end = matches!(life, Life::Over);
    (life, at_the_end)
}

/// An instance, with everything that runs in it.
fn runtime(rest: &Arc<Rest>, me: &Arc<Instance>, all: &[Arc<Instance>]) -> Option<Runtime> {
    let store = FaultyStore {
        inner: Arc::clone(&rest.store),
        me: Arc::clone(me),
        all: all.to_vec(),
        writes: Arc::clone(&rest.writes),
        faults: Arc::clone(&rest.faults),
        after_write: {
            let rest = Arc::clone(rest);
            Box::new(move || rest.look(false).into_iter().for_each(|wrong| rest.world.note(wrong)))
        },
    };
    let agent = world::agent(&rest.scenario, &rest.world, me).build().ok()?;
    let clock = Arc::clone(&rest.clock) as Arc<dyn holdpoint::store::Clock>;
    let watcher = shown::Watcher { stored: Arc::clone(&rest.store), world: Arc::clone(&rest.world) };
    Runtime::builder().store(store).clock(clock).agent(agent).listener(watcher).build().ok()
}

/// Starts the run, or finds it, and waits until it has ended.
async fn to_the_end(rest: &Rest, doors: &Arc<Doors>) {
    let run = started(rest, doors).await;
    tokio::spawn(Arc::clone(&rest.people).live(Arc::clone(doors), Arc::clone(&rest.scenario), run));
    if let Some(ms) = rest.scenario.cancel_at {
        let doors = Arc::clone(doors);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            let cancel = async |runtime: &Runtime| runtime.cancel(&local(), run).await;
            while !matches!(doors.next(cancel).await, Some(Ok(_))) {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        });
    }
    loop {
        // One of several may be dead, and would be waited for in vain.
        let over = if doors.are_many() {
            let view = rest.store.run(&local(), run).await.ok().flatten();
            view.is_some_and(|view| matches!(view.status, RunStatus::Finished | RunStatus::Failed))
        } else {
            let outcome = doors.first().wait(&local(), run).await;
            outcome.is_ok_and(|outcome| matches!(outcome.state, RunState::Ended(_)))
        };
        if over {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn started(rest: &Rest, doors: &Doors) -> RunId {
    let key = key();
    loop {
        if let Ok(KeyUse::Run(run)) = rest.store.started_with(&local(), &key).await {
            return run;
        }
        let start = Start { key: Some(key.clone()), ..Start::text("go") };
        if !matches!(doors.next(async |runtime| runtime.start(&local(), start).await).await, Some(Ok(_))) {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
}

fn key() -> IdempotencyKey {
    IdempotencyKey { scope: "start".into(), key: "sim".into(), body_digest: "sim".into() }
}

impl Rest {
    /// Looks at what is stored, from outside of any life: gives what does not hold.
    fn look(&self, at_the_end: bool) -> Vec<String> {
        let cx = local();
        let Some(Ok(KeyUse::Run(run))) = at_once(self.store.started_with(&cx, &key())) else {
            return Vec::new();
        };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // What is stored stays as it is, so it is read once. (That it does is looked at where it is shown.)
        let after = read.last().map_or(0, |(seq, _)| *seq);
        let more = at_once(self.store.events(&cx, run, after, usize::MAX));
        for (seq, json) in more.and_then(Result::ok).flatten().unwrap_or_default() {
            read.push((seq, serde_json::from_str(&json).unwrap_or_default()));
        }
        let (executions, acknowledged) = (self.world.executions(), self.people.acknowledged());
        let now = (read.len(), executions.len(), acknowledged.len());
        let before =
            std::mem::replace(&mut *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner), now);
        if before == now && !at_the_end {
            return Vec::new();
        }
        let chain = at_once(self.store.verify(&cx, run));
        invariants::check(&Evidence {
            events: &read,
            executions: &executions,
            acknowledged: &acknowledged,
            chain_is_whole: matches!(chain, Some(Ok(Some(ChainCheck::Whole { .. })))),
            at_the_end,
            at_deadline: &self.scenario.at_deadline,
        })
    }

    /// The stored events, for whoever has to find out why.
    fn events(&self) -> Vec<String> {
        let cx = local();
        let Some(Ok(KeyUse::Run(run))) = at_once(self.store.started_with(&cx, &key())) else {
            return Vec::new();
        };
        let stored = at_once(self.store.events(&cx, run, 0, usize::MAX));
        let stored = stored.and_then(Result::ok).flatten().unwrap_or_default();
        stored.iter().map(|(seq, json)| format!("{seq} {json}")).collect()
    }
}

/// Makes a failing scenario smaller until every part of it is needed.
pub fn shrink(failing: &Scenario) -> Scenario {
    let mut smallest = failing.clone();
    while let Some(smaller) =
        smallest.smaller().into_iter().find(|scenario| !simulate(scenario).wrong.is_empty())
    {
        smallest = smaller;
    }
    smallest
}
