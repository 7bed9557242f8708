//! What all streams do alike: frames go out in order, a quiet stream says that it lives, and one that is to end says so.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;

use super::inbox::InboxSource;
use super::run::RunSource;
use crate::app::App;
use crate::metrics::OpenStream;

/// What a stream is a view of.
pub(super) trait Source: Send {
    /// Something that happened.
    type Seen: Send;

    /// Waits for the next thing. May be dropped while it waits.
    fn wait(&mut self) -> impl Future<Output = Self::Seen> + Send;

    /// Makes frames of it. Is not dropped before it is done.
    fn show(&mut self, seen: Self::Seen, out: &mut Out) -> impl Future<Output = ()> + Send;

    /// The frame that says that the stream lives.
    fn heartbeat(&self) -> Bytes;

    /// The frame that says that this connection ends, and why.
    fn closing(&self, reason: &str) -> Bytes;
}

/// What is about to go out.
#[derive(Default)]
pub(super) struct Out {
    queue: VecDeque<Bytes>,
    over: Over,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Over {
    #[default]
    No,
    Yes,
    SlowReader,
}

impl Out {
    pub(super) fn send(&mut self, frame: Bytes) {
        self.queue.push_back(frame);
    }

    /// What was sent is all.
    pub(super) fn end(&mut self) {
        self.over = Over::Yes;
    }

    /// The reader has missed something; it is told to come back.
    pub(super) fn cut(&mut self) {
        self.over = Over::SlowReader;
    }
}

/// A stream in progress.
pub(super) struct View<S> {
    app: Arc<App>,
    source: S,
    out: Out,
    /// The turn of the wheel at which the next sign of life is due.
    due: u64,
    _open: OpenStream,
}

impl<S: Source> View<S> {
    pub(super) fn new(app: &Arc<App>, source: S, out: Out) -> Self {
        let due = app.wheel.due();
        Self { app: Arc::clone(app), source, out, due, _open: OpenStream::new(app) }
    }

    /// A frame that waits for nothing.
    fn ready(&mut self) -> Option<Bytes> {
        let frame = self.out.queue.pop_front()?;
        if self.out.queue.is_empty() {
            // An idle stream keeps no room for a busy hour.
            self.out.queue = VecDeque::new();
        }
        self.due = self.app.wheel.due();
        Some(frame)
    }

    /// The next frame; `None` when the stream is at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready() {
                return Some(frame);
            }
            match self.out.over {
                Over::No => {}
                Over::Yes => return None,
                Over::SlowReader => {
                    self.app.metrics.stream_cut();
                    self.close("slow_reader");
                    continue;
                }
            }
            let seen = tokio::select! {
                biased;
                () = self.app.closing.cancelled() => {
                    self.close("shutdown");
                    continue;
                }
                () = self.app.wheel.turned_to(self.due) => {
                    self.out.send(self.source.heartbeat());
                    continue;
                }
                seen = self.source.wait() => seen,
            };
            self.source.show(seen, &mut self.out).await;
        }
    }

    fn close(&mut self, reason: &str) {
        self.out.send(self.source.closing(reason));
        self.out.end();
    }
}

/// A stream on its way to the connection that carries it.
pub(crate) struct Frames(Kind);

enum Kind {
    Run(View<RunSource>),
    Inbox(View<InboxSource>),
}

impl From<View<RunSource>> for Frames {
    fn from(view: View<RunSource>) -> Self {
        Self(Kind::Run(view))
    }
}

impl From<View<InboxSource>> for Frames {
    fn from(view: View<InboxSource>) -> Self {
        Self(Kind::Inbox(view))
    }
}

impl Frames {
    /// The next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Kind::Run(view) => view.next().await,
            Kind::Inbox(view) => view.next().await,
        }
    }

    /// A frame that waits for nothing.
    pub(crate) fn ready(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Kind::Run(view) => view.ready(),
            Kind::Inbox(view) => view.ready(),
        }
    }

    /// As the body of an answer.
    pub(crate) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut frames| async move {
            let frame = frames.next().await?;
            Some((Ok::<_, Infallible>(frame), frames))
        }))
    }
}
