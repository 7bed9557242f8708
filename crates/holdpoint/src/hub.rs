//! The side channel: what is stored is shown, in order, to whoever watches - and never before it is stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdpoint_core::limits::STREAM_BUFFER_EVENTS;
use holdpoint_protocol::{AgentName, Event, RequestId, RunId};
use tokio::sync::broadcast;

use crate::listener::{Feed, Listener, ListenerTroubles};

/// Where events go after they are stored.
pub(crate) struct Hub {
    runs: Mutex<HashMap<RunId, Live>>,
    feeds: HashMap<AgentName, Vec<Feed>>,
    everywhere: Vec<Feed>,
    troubles: Arc<ListenerTroubles>,
    inbox: broadcast::Sender<RequestId>,
}

/// A run that is being worked on or watched.
struct Live {
    /// The number of the next event to be shown; 0 while nobody here works on the run. Decisions and steps are stored by
    /// different tasks and come here in any order; what is not next is left to the driver, which reads the log.
    next: u64,
    watchers: Option<broadcast::Sender<Arc<Event>>>,
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
        let inbox = broadcast::channel(STREAM_BUFFER_EVENTS).0;
        Self { runs: Mutex::default(), feeds, everywhere, troubles, inbox }
    }

    /// The requests of all runs, as they open and close from here on.
    pub(crate) fn inbox(&self) -> broadcast::Receiver<RequestId> {
        self.inbox.subscribe()
    }

    pub(crate) fn troubles(&self) -> &ListenerTroubles {
        &self.troubles
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Live>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a run from here on.
    pub(crate) fn watch(&self, run: RunId) -> broadcast::Receiver<Arc<Event>> {
        let mut runs = self.lock();
        let live = runs.entry(run).or_insert_with(Live::new);
        live.watchers.get_or_insert_with(|| broadcast::channel(STREAM_BUFFER_EVENTS).0).subscribe()
    }

    /// A watcher goes: a place that nobody works on or watches is cleared.
    pub(crate) fn unwatched(&self, run: RunId) {
        let mut runs = self.lock();
        if let Some(live) = runs.get(&run)
            && live.next == 0
            && live.watchers.as_ref().is_none_or(|tx| tx.receiver_count() <= 1)
        {
            runs.remove(&run);
        }
    }

    /// Shows an event of a run's driver, in its place. What was shown already is not shown again.
    pub(crate) fn publish(&self, run: RunId, agent: &AgentName, event: &Arc<Event>) {
        let mut runs = self.lock();
        let live = runs.entry(run).or_insert_with(Live::new);
        self.in_place(live, agent, event);
    }

    /// Shows what was stored from outside of the driver: at once where its turn has come. Where it has not - an earlier one
    /// is still on its way here - the driver shows it when it hears of it, in order.
    pub(crate) fn publish_fact(&self, run: RunId, agent: &AgentName, event: &Arc<Event>, taken: bool) {
        let mut runs = self.lock();
        if taken {
            // Nobody had the run: nothing of it is on its way but this.
            runs.entry(run).or_insert_with(Live::new);
        }
        match runs.get_mut(&run) {
            Some(live) if event.seq == Some(live.next) || (taken && live.next == 0) => {
                self.in_place(live, agent, event);
            }
            // A watcher puts things in order for itself.
            Some(live) => self.watched(live, event),
            None => self.heard(event),
        }
    }

    /// Shows what was stored of a run that nobody works on and nobody needs to: no driver will come to show it.
    pub(crate) fn publish_aside(&self, run: RunId, agent: &AgentName, event: &Arc<Event>) {
        let runs = self.lock();
        self.listened(agent, event);
        match runs.get(&run) {
            // A watcher puts things in order for itself.
            Some(live) => self.watched(live, event),
            None => self.heard(event),
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

    fn in_place(&self, live: &mut Live, agent: &AgentName, event: &Arc<Event>) {
        let seq = event.seq.unwrap_or(0);
        if seq >= live.next {
            live.next = seq + 1;
            self.tell(live, agent, event);
        }
    }

    /// Shows what is not stored: a piece of text.
    pub(crate) fn show(&self, run: RunId, agent: &AgentName, event: &Arc<Event>) {
        if let Some(live) = self.lock().get(&run) {
            self.tell(live, agent, event);
        }
    }

    /// The run is not in the hands of this process any more, having been shown up to `at`: it needs no place here unless
    /// somebody watches. Where more was shown since, it is in other hands here already.
    pub(crate) fn rest(&self, run: RunId, at: u64) {
        let mut runs = self.lock();
        if let Some(live) = runs.get_mut(&run).filter(|live| live.next <= at) {
            live.next = 0;
            if live.watchers.as_ref().is_none_or(|tx| tx.receiver_count() == 0) {
                runs.remove(&run);
            }
        }
    }

    /// The run has ended: its watchers have seen the last event.
    pub(crate) fn end(&self, run: RunId) {
        self.lock().remove(&run);
    }

    fn tell(&self, live: &Live, agent: &AgentName, event: &Arc<Event>) {
        self.listened(agent, event);
        self.watched(live, event);
    }

    fn listened(&self, agent: &AgentName, event: &Arc<Event>) {
        if let Some(feeds) = self.feeds.get(agent) {
            feeds.iter().for_each(|feed| feed.tell(event));
        }
        self.everywhere.iter().for_each(|feed| feed.tell(event));
    }

    fn watched(&self, live: &Live, event: &Arc<Event>) {
        self.heard(event);
        if let Some(watchers) = &live.watchers {
            // Nobody watching any more is no error.
            let _ = watchers.send(Arc::clone(event));
        }
    }

    fn heard(&self, event: &Event) {
        if let Some(request) = event.body.request() {
            // Nobody looking is no error.
            let _ = self.inbox.send(request);
        }
    }
}

impl Live {
    fn new() -> Self {
        Self { next: 0, watchers: None }
    }
}
