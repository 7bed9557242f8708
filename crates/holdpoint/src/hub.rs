//! The side channel: what is stored is shown, in order, to whoever watches - and never before it is stored.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdpoint_core::limits::STREAM_BUFFER_EVENTS;
use holdpoint_protocol::{AgentName, Event, EventBody, RequestId, RunId};
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
    /// The number the next event to be shown has; 0 until the first is seen.
    next: u64,
    /// Events that came before an earlier one: a decision and a step are stored by different tasks.
    held: BTreeMap<u64, (AgentName, Arc<Event>)>,
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

    /// Shows a stored event.
    pub(crate) fn publish(&self, run: RunId, agent: &AgentName, event: &Arc<Event>) {
        let mut runs = self.lock();
        let live = runs.entry(run).or_insert_with(Live::new);
        let seq = event.seq.unwrap_or(0);
        if live.next != 0 && seq > live.next {
            live.held.insert(seq, (agent.clone(), Arc::clone(event)));
            return;
        }
        if seq < live.next {
            // Passed over by a jump, and here after all: late is better than never.
            self.tell(live, agent, event);
            return;
        }
        live.next = seq + 1;
        self.tell(live, agent, event);
        while let Some(held) = live.held.first_entry().filter(|held| *held.key() == live.next) {
            let (agent, event) = held.remove();
            live.next += 1;
            self.tell(live, &agent, &event);
        }
    }

    /// Shows what is not stored: a piece of text.
    pub(crate) fn show(&self, run: RunId, agent: &AgentName, event: &Arc<Event>) {
        if let Some(live) = self.lock().get(&run) {
            self.tell(live, agent, event);
        }
    }

    /// What lies before this number was stored by somebody else, and is not to be waited for.
    pub(crate) fn jump(&self, run: RunId, next: u64) {
        if let Some(live) = self.lock().get_mut(&run) {
            self.flush(live, next);
            live.next = live.next.max(next);
        }
    }

    /// The run waits: it needs no place here unless somebody watches.
    pub(crate) fn rest(&self, run: RunId) {
        let mut runs = self.lock();
        if let Some(live) = runs.get_mut(&run) {
            self.flush(live, u64::MAX);
            live.next = 0;
            if live.watchers.as_ref().is_none_or(|tx| tx.receiver_count() == 0) {
                runs.remove(&run);
            }
        }
    }

    /// The run has ended: its watchers have seen the last event.
    pub(crate) fn end(&self, run: RunId) {
        let mut runs = self.lock();
        if let Some(mut live) = runs.remove(&run) {
            self.flush(&mut live, u64::MAX);
        }
    }

    fn flush(&self, live: &mut Live, below: u64) {
        while let Some(held) = live.held.first_entry().filter(|held| *held.key() < below) {
            let (agent, event) = held.remove();
            self.tell(live, &agent, &event);
        }
    }

    fn tell(&self, live: &Live, agent: &AgentName, event: &Arc<Event>) {
        if let Some(feeds) = self.feeds.get(agent) {
            feeds.iter().for_each(|feed| feed.tell(event));
        }
        self.everywhere.iter().for_each(|feed| feed.tell(event));
        if let Some(request) = request_of(&event.body) {
            // Nobody looking is no error.
            let _ = self.inbox.send(request);
        }
        if let Some(watchers) = &live.watchers {
            // Nobody watching any more is no error.
            let _ = watchers.send(Arc::clone(event));
        }
    }
}

/// The request that an event opens or closes.
fn request_of(body: &EventBody) -> Option<RequestId> {
    match body {
        EventBody::ApprovalRequest(request) => Some(request.request_id),
        EventBody::QuestionRequest(request) => Some(request.request_id),
        EventBody::InDoubtRequest(request) => Some(request.request_id),
        EventBody::Decision(decision) => Some(decision.request_id),
        EventBody::RunStarted(_)
        | EventBody::Token(_)
        | EventBody::Reasoning(_)
        | EventBody::Message(_)
        | EventBody::ToolCall(_)
        | EventBody::Vote(_)
        | EventBody::ToolStarted(_)
        | EventBody::ToolProgress(_)
        | EventBody::ToolResult(_)
        | EventBody::RoundCommitted(_)
        | EventBody::RoundRestarted(_)
        | EventBody::Notice(_)
        | EventBody::Suspended(_)
        | EventBody::Resumed(_)
        | EventBody::Finish(_)
        | EventBody::Closing(_)
        | EventBody::Error(_)
        | EventBody::Heartbeat(_) => None,
    }
}

impl Live {
    fn new() -> Self {
        Self { next: 0, held: BTreeMap::new(), watchers: None }
    }
}
