//! The side channel: what is stored is shown, in order, to whoever watches - and never before it is stored.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdpoint_protocol::{AgentName, Event, RunId};
use holdpoint_store::{Context, NumberedEvents};
use tokio::sync::Notify;

use crate::inbox::Desks;
use crate::listener::{Feed, Listener, ListenerTroubles};
use crate::ring::Reader;
use crate::room::{Follows, Room, Watched};
use crate::watch::Seen;

/// Where events go after they are stored.
pub(crate) struct Hub {
    runs: Mutex<HashMap<RunId, Live>>,
    feeds: HashMap<AgentName, Vec<Feed>>,
    everywhere: Vec<Feed>,
    troubles: Arc<ListenerTroubles>,
    desks: Desks,
    /// Watched runs of which more is stored than was shown here.
    behind: Mutex<HashSet<RunId>>,
    bell: Notify,
}

/// A run that is being worked on or watched.
struct Live {
    /// The number of the next event to be shown; 0 while nobody here works on the run. Decisions and steps are stored by
    /// different tasks and come here in any order; what is not next is left to the driver, which reads the log.
    next: u64,
    room: Option<Box<Room>>,
}

impl Hub {
    pub(crate) fn new(
        agents: impl Iterator<Item = (AgentName, Vec<Arc<dyn Listener>>)>,
        everywhere: Vec<Arc<dyn Listener>>,
    ) -> Self {
        let troubles = Arc::new(ListenerTroubles::default());
        let feed = |listener| Feed::start(listener, Arc::clone(&troubles));
        let feeds =
            agents.map(|(name, listeners)| (name, listeners.into_iter().map(feed).collect())).collect();
        let everywhere = everywhere.into_iter().map(feed).collect();
        Self {
            runs: Mutex::default(),
            feeds,
            everywhere,
            troubles,
            desks: Desks::default(),
            behind: Mutex::default(),
            bell: Notify::new(),
        }
    }

    /// Where the requests of all runs are seen as they open and close.
    pub(crate) fn desks(&self) -> &Desks {
        &self.desks
    }

    pub(crate) fn troubles(&self) -> &ListenerTroubles {
        &self.troubles
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Live>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a run from here on, until [`Self::unwatched`] says that it is over.
    pub(crate) fn watch(&self, run: RunId) -> Reader<Seen> {
        let mut runs = self.lock();
        let live = runs.entry(run).or_insert_with(Live::new);
        live.room.get_or_insert_with(|| Box::new(Room::new())).enter()
    }

    /// A watcher goes: a place that nobody works on or watches is cleared.
    pub(crate) fn unwatched(&self, run: RunId) {
        let mut runs = self.lock();
        if let Some(live) = runs.get_mut(&run) {
            if live.room.as_mut().is_some_and(|room| room.leave()) {
                live.room = None;
            }
            if live.is_over() {
                runs.remove(&run);
            }
        }
    }

    /// A watcher has read the log to its end, and goes on with what is shown.
    pub(crate) fn caught_up(&self, run: RunId, cx: &Context, last: u64) {
        let mut runs = self.lock();
        let room = runs.get_mut(&run).and_then(|live| live.room.as_mut());
        if room.is_some_and(|room| room.caught_up(cx, last) == Follows::No) {
            self.ring(run);
        }
    }

    /// More of a run is stored than was shown here: whoever watches it is to see it.
    pub(crate) fn ring(&self, run: RunId) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).insert(run);
        self.bell.notify_one();
    }

    /// Another instance stored more of a run: that concerns those who watch it, if anybody does.
    pub(crate) fn ring_watched(&self, run: RunId) {
        let watched = self.lock().get(&run).is_some_and(|live| live.room.is_some());
        if watched {
            self.ring(run);
        }
    }

    /// Comes when a run was rung.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// The watched runs of which more is to be read.
    pub(crate) fn behind(&self) -> Vec<Watched> {
        let behind = std::mem::take(&mut *self.behind.lock().unwrap_or_else(PoisonError::into_inner));
        let runs = self.lock();
        behind.into_iter().filter_map(|run| runs.get(&run)?.watched(run)).collect()
    }

    /// All watched runs, and the last event of each that was shown.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        self.lock().iter().filter_map(|(run, live)| live.watched(*run)).collect()
    }

    /// Shows a run's watchers what was read from its log. Gives the number of the last event that was shown; none
    /// when nobody watches any more.
    pub(crate) fn fill(&self, run: RunId, log: NumberedEvents) -> Option<u64> {
        let mut runs = self.lock();
        let room = runs.get_mut(&run)?.room.as_mut()?;
        room.fill(log);
        room.place().map(|(_, last)| last)
    }

    /// Shows an event of a run's driver, in its place. What was shown already is not shown again.
    pub(crate) fn publish(&self, run: RunId, agent: &AgentName, event: &Arc<Event>) {
        let json = self.written(run, event);
        let mut runs = self.lock();
        let live = runs.entry(run).or_insert_with(Live::new);
        self.in_place(run, live, agent, event, json);
    }

    /// Shows what was stored from outside of the driver: at once where its turn has come. Where it has not - an earlier one
    /// is still on its way here - the driver shows it when it hears of it, in order.
    pub(crate) fn publish_fact(&self, run: RunId, agent: &AgentName, event: &Arc<Event>, taken: bool) {
        let json = self.written(run, event);
        let mut runs = self.lock();
        if taken {
            // Nobody had the run: nothing of it is on its way but this.
            runs.entry(run).or_insert_with(Live::new);
        }
        match runs.get_mut(&run) {
            Some(live) if event.seq == Some(live.next) || (taken && live.next == 0) => {
                self.in_place(run, live, agent, event, json);
            }
            // What a watcher is shown is put in order by itself.
            Some(live) => self.seen(run, live, event, json),
            None => self.desks.heard(&event.body),
        }
    }

    /// Shows what was stored of a run that nobody works on and nobody needs to: no driver will come to show it.
    pub(crate) fn publish_aside(&self, run: RunId, agent: &AgentName, event: &Arc<Event>) {
        let json = self.written(run, event);
        let mut runs = self.lock();
        self.tell(agent, event);
        match runs.get_mut(&run) {
            // What a watcher is shown is put in order by itself.
            Some(live) => self.seen(run, live, event, json),
            None => self.desks.heard(&event.body),
        }
    }

    /// The number after which a driver, which has read the run up to `next`, must show what others stored: the run's last
    /// `facts` events and whatever else was not shown here.
    pub(crate) fn missing(&self, run: RunId, next: u64, facts: usize) -> Option<u64> {
        let mut runs = self.lock();
        let live = runs.entry(run).or_insert_with(Live::new);
        if live.next == 0 {
            live.next = next.saturating_sub(facts as u64);
        }
        (live.next < next).then(|| live.next.saturating_sub(1))
    }

    /// The event as watchers get it: written once, and outside of the lock. None where nobody watches.
    fn written(&self, run: RunId, event: &Event) -> Option<Arc<str>> {
        let watched = self.lock().get(&run).is_some_and(|live| live.room.is_some());
        watched.then(|| event.to_json().into())
    }

    fn in_place(
        &self,
        run: RunId,
        live: &mut Live,
        agent: &AgentName,
        event: &Arc<Event>,
        json: Option<Arc<str>>,
    ) {
        let seq = event.seq.unwrap_or(0);
        if seq >= live.next {
            live.next = seq + 1;
            self.tell(agent, event);
            self.seen(run, live, event, json);
        }
    }

    /// Shows what is not stored: a piece of text.
    pub(crate) fn show(&self, run: RunId, agent: &AgentName, event: &Arc<Event>) {
        if let Some(live) = self.lock().get_mut(&run) {
            self.tell(agent, event);
            self.seen(run, live, event, None);
        }
    }

    /// The run is not in the hands of this process any more, having been shown up to `at`: it needs no place here unless
    /// somebody watches. Where more was shown since, it is in other hands here already.
    pub(crate) fn rest(&self, run: RunId, at: u64) {
        let mut runs = self.lock();
        if let Some(live) = runs.get_mut(&run).filter(|live| live.next <= at) {
            live.next = 0;
            if live.is_over() {
                runs.remove(&run);
            }
        }
    }

    /// The run has ended: nothing of it will be shown any more.
    pub(crate) fn end(&self, run: RunId) {
        self.rest(run, u64::MAX);
    }

    fn tell(&self, agent: &AgentName, event: &Arc<Event>) {
        if let Some(feeds) = self.feeds.get(agent) {
            feeds.iter().for_each(|feed| feed.tell(event));
        }
        self.everywhere.iter().for_each(|feed| feed.tell(event));
    }

    fn seen(&self, run: RunId, live: &mut Live, event: &Arc<Event>, json: Option<Arc<str>>) {
        self.desks.heard(&event.body);
        let Some(room) = &mut live.room else { return };
        let json = || json.unwrap_or_else(|| event.to_json().into());
        if room.show(event, json) == Follows::No {
            self.ring(run);
        }
    }
}

impl Live {
    fn new() -> Self {
        Self { next: 0, room: None }
    }

    /// Nobody here works on the run, and nobody watches it.
    fn is_over(&self) -> bool {
        self.next == 0 && self.room.is_none()
    }

    fn watched(&self, run: RunId) -> Option<Watched> {
        let (cx, last) = self.room.as_ref()?.place()?;
        Some(Watched { cx: cx.clone(), run, last })
    }
}
