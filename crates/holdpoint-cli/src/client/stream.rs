//! Following a run: a stream that comes back by itself where it broke off, and misses nothing.

use std::time::Duration;

use holdpoint_protocol::{Event, EventBody, RunId};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::header::HeaderName;
use tokio::sync::mpsc;

use super::sse::{Frame, Reader};
use super::{Answer, Client};
use crate::fail::{Fail, Result};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const ACCEPT: HeaderName = HeaderName::from_static("accept");

/// How long to wait before the first attempt to come back; each further wait is twice as long.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// The longest of these waits.
const RETRY_LONGEST: Duration = Duration::from_secs(5);
/// How often to try: for about a minute.
const RETRIES_MAX: u32 = 16;

/// Frames held for whoever is slow to look at them.
const FRAMES_MAX: usize = 256;

/// What to follow.
pub(crate) enum Follow {
    /// A run to be started by this body of `POST /chat/stream`.
    Start(String),
    /// A run that exists.
    Run(RunId),
}

/// What comes of it.
pub(crate) enum Item {
    /// An event: as it came, and read where its kind is known here.
    Event(String, Option<Box<Event>>),
    /// The connection was lost and is being made again.
    Lost(String),
    /// It cannot be followed any further.
    Failed(Fail),
}

/// The events of a run, to its end.
pub(crate) struct Events {
    items: mpsc::Receiver<Item>,
}

impl Events {
    /// Starts to follow. The connection lives in a task of its own, so that waiting for an event can be given up and
    /// taken up again.
    pub(crate) fn follow(client: &Client, what: Follow) -> Self {
        let (sender, items) = mpsc::channel(FRAMES_MAX);
        let follower = Follower {
            client: client.clone(),
            what,
            // One key for all attempts: a start that was not answered is not started twice.
            key: uuid::Uuid::new_v4().to_string(),
            last_id: None,
            items: sender,
        };
        tokio::spawn(follower.run());
        Self { items }
    }

    /// The next item; `None` after the event that ends the run.
    pub(crate) async fn next(&mut self) -> Option<Item> {
        self.items.recv().await
    }
}

struct Follower {
    client: Client,
    what: Follow,
    key: String,
    last_id: Option<String>,
    items: mpsc::Sender<Item>,
}

/// How one connection ended.
enum Ended {
    /// The run did.
    Run,
    /// Nobody looks any more.
    Unwatched,
    /// It broke off, or the server closed it and says when to come back.
    Connection { why: String, after: Option<Duration>, had_events: bool },
}

impl Follower {
    async fn run(mut self) {
        let mut tries = 0;
        loop {
            let ended = self.connection().await;
            let (why, after) = match ended {
                Ok(Ended::Run | Ended::Unwatched) => return,
                Ok(Ended::Connection { why, after, had_events }) => {
                    tries = if had_events { 0 } else { tries };
                    (why, after)
                }
                // A server that was never there is not waited for; one that has been there is.
                Err(fail) if fail.is_no_server() && self.last_id.is_some() => {
                    ("no server answers".into(), None)
                }
                Err(fail) => return drop(self.items.send(Item::Failed(fail)).await),
            };
            tries += 1;
            if tries > RETRIES_MAX {
                let fail = Fail::no_server(format!("the server has gone away ({why})"))
                    .hint("the run is kept: once the server is back, `holdpoint runs` and `holdpoint inbox` show it");
                return drop(self.items.send(Item::Failed(fail)).await);
            }
            if tries == 1 && self.items.send(Item::Lost(why)).await.is_err() {
                return;
            }
            let usual = RETRY_FIRST.saturating_mul(1 << (tries - 1).min(10)).min(RETRY_LONGEST);
            tokio::time::sleep(after.unwrap_or(usual)).await;
        }
    }

    async fn connection(&mut self) -> Result<Ended> {
        let mut headers = vec![(ACCEPT, "text/event-stream")];
        if let Some(id) = &self.last_id {
            headers.push((LAST_EVENT_ID, id));
        }
        let response = match &self.what {
            Follow::Start(body) => {
                headers.push((IDEMPOTENCY_KEY, &self.key));
                self.client.send(Method::POST, "/chat/stream", &headers, Some(body.clone())).await?
            }
            Follow::Run(run) => {
                let path = format!("/v1/runs/{run}/events");
                self.client.send(Method::GET, &path, &headers, None).await?
            }
        };
        let status = response.status();
        let mut body = response.into_body();
        if !status.is_success() {
            let text = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            return Err(Answer { status, text }.refusal());
        }
        let (mut reader, mut had_events) = (Reader::default(), false);
        loop {
            let why = match body.frame().await {
                Some(Ok(frame)) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    for frame in reader.push(&bytes)? {
                        had_events = true;
                        if let Some(ended) = self.pass_on(frame).await {
                            return Ok(ended);
                        }
                    }
                    continue;
                }
                Some(Err(error)) => error.to_string(),
                None => "the stream ended before the run did".to_owned(),
            };
            return Ok(Ended::Connection { why, after: None, had_events });
        }
    }

    async fn pass_on(&mut self, frame: Frame) -> Option<Ended> {
        let seq = frame.id.as_deref().and_then(|id| id.parse().ok());
        let event = Event::from_json(seq, &frame.data).ok();
        if let Some(event) = &event {
            // From now on the run is followed by its own name.
            self.what = Follow::Run(event.run_id);
        }
        self.last_id = frame.id.or_else(|| self.last_id.take());
        let after = match &event {
            Some(Event { child: None, body: EventBody::Finish(_) | EventBody::Error(_), .. }) => {
                Some(Ended::Run)
            }
            Some(Event { body: EventBody::Closing(closing), .. }) => Some(Ended::Connection {
                why: format!("the server closed it: {}", crate::text::line(&closing.reason)),
                after: Some(Duration::from_millis(closing.retry_after_ms).min(RETRY_LONGEST)),
                // One that was put off has not begun.
                had_events: closing.reason != "unavailable",
            }),
            Some(_) | None => None,
        };
        match self.items.send(Item::Event(frame.data, event.map(Box::new))).await {
            Ok(()) => after,
            Err(_) => Some(Ended::Unwatched),
        }
    }
}
