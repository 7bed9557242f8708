//! The stream of a run: the log from where the client left off, and then what happens.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdpoint::protocol::{RunId, RunStatus};
use holdpoint::store::{Error as StoreError, Result as StoreResult};
use holdpoint::{Seen, Watch};
use http::StatusCode;

use super::opening::in_line;
use super::view::{Out, Source, View};
use super::{Options, bad_last_event_id, frame, response};
use crate::app::App;
use crate::handlers::pending;
use crate::refusal::Refusal;

/// How long nothing happens until a stream that ends where the run waits looks whether it does: a run can wait again without an
/// event, when what was decided is not its turn yet. Twice as long each time, and again from the first after an event.
const LOOK_FIRST: Duration = Duration::from_millis(250);
const LOOK_MAX: Duration = Duration::from_secs(8);
/// Pause before a store that was away is read again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Opens the stream of a run.
pub(crate) async fn run(app: &Arc<App>, run: RunId, options: Options) -> Result<Response, Refusal> {
    in_line(app, |reason| frame::closing(run, reason), open(app, run, options)).await
}

async fn open(app: &Arc<App>, run: RunId, options: Options) -> Result<Response, Refusal> {
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
    let mut out = Out::default();
    out.send(frame::opening());
    if options.after > 0 {
        // What the client was asked before and may have lost. Later requests come with the log.
        for request in pending(app, run).await?.iter().filter(|request| request.seq <= options.after) {
            out.send(frame::replayed(request.request.get()));
            out.send(frame::heartbeat(run, false));
        }
    }
    let source = RunSource {
        app: Arc::clone(app),
        run,
        watch,
        until_suspended: options.until_suspended,
        look_in: LOOK_FIRST,
        live: false,
        was_live: false,
    };
    if options.until_suspended && source.waits_for_people().await {
        out.end();
    }
    Ok(response(View::new(app, source, out)))
}

/// The event that a client says it has seen last; `None` when this run has no such event.
async fn last_seen(app: &App, run: RunId, seq: u64) -> Result<Option<Arc<str>>, Refusal> {
    let events = app.store().events(&app.cx, run, seq - 1, 1).await?.unwrap_or_default();
    Ok(events.into_iter().next().map(|(_, json)| json))
}

fn is_terminal(json: &Arc<str>) -> bool {
    Seen::Stored { seq: 0, json: Arc::clone(json) }.is_terminal()
}

/// A run, watched.
pub(super) struct RunSource {
    app: Arc<App>,
    run: RunId,
    watch: Watch,
    until_suspended: bool,
    look_in: Duration,
    /// Whether what is waited for comes as it happens, and not from the log.
    live: bool,
    /// The same of what came before it.
    was_live: bool,
}

/// What comes of waiting for something to happen.
pub(super) enum Waited {
    Seen(StoreResult<Option<Seen>>),
    /// Nothing has, for a while.
    Quiet,
}

impl Source for RunSource {
    type Seen = Waited;

    async fn wait(&mut self) -> Waited {
        self.live = self.watch.is_live();
        if !self.until_suspended {
            return Waited::Seen(self.watch.next().await);
        }
        match tokio::time::timeout(self.look_in, self.watch.next()).await {
            Ok(seen) => {
                self.look_in = LOOK_FIRST;
                Waited::Seen(seen)
            }
            Err(_elapsed) => {
                self.look_in = (self.look_in * 2).min(LOOK_MAX);
                Waited::Quiet
            }
        }
    }

    async fn show(&mut self, waited: Waited, out: &mut Out) {
        let seen = match waited {
            Waited::Seen(Ok(seen)) => seen,
            Waited::Seen(Err(error)) => return self.wait_for_store(&error, out).await,
            Waited::Quiet => {
                if self.waits_for_people().await {
                    out.end();
                }
                return;
            }
        };
        // A client that reads a long log loses tokens meanwhile, and nothing else; it is not slow.
        let was_live = std::mem::replace(&mut self.was_live, self.live);
        match seen {
            None => out.end(),
            Some(Seen::Passing(event)) => out.send(frame::event(None, &event.to_json())),
            Some(Seen::Lagged) if was_live => out.cut(),
            Some(Seen::Lagged) => {}
            Some(seen @ Seen::Stored { .. }) => self.show_stored(&seen, out).await,
        }
    }

    fn heartbeat(&self) -> Bytes {
        frame::heartbeat(self.run, self.app.runtime.is_degraded())
    }

    fn closing(&self, reason: &str) -> Bytes {
        frame::closing(self.run, reason)
    }
}

impl RunSource {
    async fn show_stored(&mut self, seen: &Seen, out: &mut Out) {
        let Seen::Stored { seq, json } = seen else { return };
        out.send(frame::event(Some(*seq), json));
        let asks_a_person =
            matches!(seen.kind(), "approval_request" | "question_request" | "in_doubt_request");
        if asks_a_person {
            // What a proxy holds back until more comes, this pushes out.
            out.send(frame::heartbeat(self.run, false));
        }
        if seen.is_terminal()
            || (self.until_suspended && self.watch.is_live() && self.waits_for_people().await)
        {
            out.end();
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
    async fn wait_for_store(&mut self, error: &StoreError, out: &mut Out) {
        if error.passes() {
            tokio::select! {
                () = self.app.closing.cancelled() => {}
                () = tokio::time::sleep(STORE_PAUSE) => {}
            }
        } else {
            tracing::error!(run = %self.run, %error, "a stream ends because the log cannot be read");
            out.end();
        }
    }
}
