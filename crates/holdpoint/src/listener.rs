//! Listeners: they see everything, in order, and change nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdpoint_protocol::Event;
use tokio::sync::mpsc;

/// Events a listener may be behind before it loses some. What it loses is in the log.
pub const LISTENER_BUFFER_EVENTS: usize = 4096;

/// Sees the events of runs, in order, after they are stored. It runs on a task of its own: one that is slow, fails or
/// panics changes nothing about a run; it is counted.
pub trait Listener: Send + Sync + 'static {
    /// One event.
    fn on_event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Listener for F {
    fn on_event(&self, event: &Event) {
        self(event);
    }
}

/// What went wrong with listeners.
#[derive(Debug, Default)]
pub struct ListenerTroubles {
    panicked: AtomicU64,
    missed: AtomicU64,
}

impl ListenerTroubles {
    /// Events on which a listener panicked.
    pub fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Events a listener was too slow for.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// The way to one listener.
pub(crate) struct Feed {
    tx: mpsc::Sender<Arc<Event>>,
    troubles: Arc<ListenerTroubles>,
}

impl Feed {
    pub(crate) fn start(listener: Arc<dyn Listener>, troubles: Arc<ListenerTroubles>) -> Self {
        let (tx, mut rx) = mpsc::channel::<Arc<Event>>(LISTENER_BUFFER_EVENTS);
        let counted = Arc::clone(&troubles);
        tokio::spawn(async move {
            while let Some(event) = rx.recv().await {
                let told = std::panic::AssertUnwindSafe(|| listener.on_event(&event));
                if std::panic::catch_unwind(told).is_err() {
                    counted.panicked.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(event = event.body.kind(), "a listener panicked; the run is unaffected");
                }
            }
        });
        Self { tx, troubles }
    }

    pub(crate) fn tell(&self, event: &Arc<Event>) {
        if self.tx.try_send(Arc::clone(event)).is_err()
            && self.troubles.missed.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!("a listener is too slow and misses events; they are in the log");
        }
    }
}
