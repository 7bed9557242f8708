//! The stream of a run: the log from where the client left off, and then what happens.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use holdpoint::protocol::{RunId, RunStatus};
use holdpoint::store::Error as StoreError;
use holdpoint::{Seen, Watch};
use http::StatusCode;
use tokio::time::Instant;

use super::{Options, bad_last_event_id, frame, response};
use crate::app::App;
use crate::handlers::pending;
use crate::metrics::OpenStream;
use crate::refusal::Refusal;

/// Pause before a store that was away is read again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Opens the stream of a run.
pub(crate) async fn run(app: &Arc<App>, run: RunId, options: Options) -> Result<Response, Refusal> {
    // Watched before anything else is read, so that nothing falls between.
    let watch = app.runtime.watch(&app.cx, run, options.after).await?;
    let watch = watch.ok_or_else(|| Refusal::not_found("there is no such run"))?;
    if options.after > 0 {
        match last_seen(app, run, options.after).await? {
            None => return Err(bad_last_event_id()),
            // Nothing will ever follow; to a browser this says that it need not come back.
            Some(last) if is_terminal(&last) => return Ok(StatusCode::NO_CONTENT.into_response()),
            Some(_) => {}
        }
    }
    let mut queue = VecDeque::from([frame::opening()]);
    if options.after > 0 {
        // What the client was asked before and may have lost. Later requests come with the log.
        for request in pending(app, run).await?.iter().filter(|request| request.seq <= options.after) {
            queue.push_back(frame::replayed(request.request.get()));
            queue.push_back(frame::heartbeat(run));
        }
    }
    let mut view = View {
        app: Arc::clone(app),
        run,
        watch,
        queue,
        until_suspended: options.until_suspended,
        live: false,
        over: false,
        beat_at: Instant::now() + app.heartbeat,
        _open: OpenStream::new(app),
    };
    if view.until_suspended && view.waits_for_people().await {
        view.over = true;
    }
    Ok(response(stream::unfold(view, |mut view| async move {
        let frame = view.next().await?;
        Some((Ok::<_, Infallible>(frame), view))
    })))
}

/// The event that a client says it has seen last; `None` when this run has no such event.
async fn last_seen(app: &App, run: RunId, seq: u64) -> Result<Option<Arc<str>>, Refusal> {
    let events = app.store().events(&app.cx, run, seq - 1, 1).await?.unwrap_or_default();
    Ok(events.into_iter().next().map(|(_, json)| json))
}

fn is_terminal(json: &Arc<str>) -> bool {
    Seen::Stored { seq: 0, json: Arc::clone(json) }.is_terminal()
}

/// A stream in progress.
struct View {
    app: Arc<App>,
    run: RunId,
    watch: Watch,
    /// Frames that are ready.
    queue: VecDeque<Bytes>,
    until_suspended: bool,
    /// Whether the last event came as it happened, and not from the log.
    live: bool,
    over: bool,
    /// When the next sign of life is due.
    beat_at: Instant,
    _open: OpenStream,
}

impl View {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.queue.pop_front() {
                self.beat_at = Instant::now() + self.app.heartbeat;
                return Some(frame);
            }
            if self.over {
                return None;
            }
            let live = self.watch.is_live();
            let seen = tokio::select! {
                biased;
                () = self.app.closing.cancelled() => {
                    self.close("shutdown");
                    continue;
                }
                seen = tokio::time::timeout_at(self.beat_at, self.watch.next()) => seen,
            };
            match seen {
                Err(_quiet) => self.queue.push_back(frame::heartbeat(self.run)),
                Ok(Ok(seen)) => self.show(seen, live).await,
                Ok(Err(error)) => self.wait_for_store(&error).await,
            }
        }
    }

    async fn show(&mut self, seen: Option<Seen>, live: bool) {
        // A client that reads a long log loses tokens meanwhile, and nothing else; it is not slow.
        let was_live = std::mem::replace(&mut self.live, live);
        match seen {
            None => self.over = true,
            Some(Seen::Passing(event)) => self.queue.push_back(frame::event(None, &event.to_json())),
            Some(Seen::Lagged) if was_live => self.close("slow_reader"),
            Some(Seen::Lagged) => {}
            Some(seen @ Seen::Stored { .. }) => self.show_stored(&seen).await,
        }
    }

    async fn show_stored(&mut self, seen: &Seen) {
        let Seen::Stored { seq, json } = seen else { return };
        self.queue.push_back(frame::event(Some(*seq), json));
        let asks_a_person =
            matches!(seen.kind(), "approval_request" | "question_request" | "in_doubt_request");
        if asks_a_person {
            // What a proxy holds back until more comes, this pushes out.
            self.queue.push_back(frame::heartbeat(self.run));
        }
        self.over = seen.is_terminal();
        if self.until_suspended && !self.over && self.watch.is_live() && self.waits_for_people().await {
            self.over = true;
        }
    }

    /// Whether the run waits, and all that led there has been shown.
    async fn waits_for_people(&self) -> bool {
        let (store, cx) = (self.app.store(), &self.app.cx);
        let waits = match store.run(cx, self.run).await {
            Ok(Some(view)) => matches!(view.status, RunStatus::Suspended | RunStatus::Quarantined),
            Ok(None) | Err(_) => false,
        };
        waits
            && matches!(store.events(cx, self.run, self.watch.last(), 1).await, Ok(Some(more)) if more.is_empty())
    }

    /// A store that is away comes back; the stream lives on until then. One that cannot be read ends it, without an
    /// event that would claim an end of the run.
    async fn wait_for_store(&mut self, error: &StoreError) {
        match error {
            StoreError::Unavailable(_) | StoreError::Full(_) | StoreError::CommitUnknown(_) => {
                let pause = tokio::time::sleep(STORE_PAUSE);
                tokio::select! {
                    () = self.app.closing.cancelled() => {}
                    () = pause => {}
                }
                if Instant::now() >= self.beat_at {
                    self.queue.push_back(frame::heartbeat(self.run));
                }
            }
            StoreError::Locked { .. }
            | StoreError::Newer { .. }
            | StoreError::Corrupt(_)
            | StoreError::Inconsistent(_)
            | StoreError::BadCursor => {
                tracing::error!(run = %self.run, %error, "a stream ends because the log cannot be read");
                self.over = true;
            }
        }
    }

    fn close(&mut self, reason: &'static str) {
        if reason == "slow_reader" {
            self.app.metrics.stream_cut();
        }
        self.queue.push_back(frame::closing(self.run, reason));
        self.over = true;
    }
}
