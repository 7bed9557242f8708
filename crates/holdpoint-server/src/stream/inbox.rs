//! The inbox as a stream: what is open, and then every request of every run as it opens and closes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use holdpoint::protocol::{Interaction, InteractionStatus};
use holdpoint::store::{InteractionFilter, PAGE_MAX, PageRequest};
use holdpoint::{Inbox, InboxChange};
use serde::Serialize;
use tokio::time::Instant;

use super::{frame, response};
use crate::app::App;
use crate::metrics::OpenStream;
use crate::refusal::Refusal;

/// An event of the inbox. It belongs to no one run and is not in any log; whoever comes back gets a new snapshot.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum InboxEvent<'a> {
    /// The oldest pending requests, one page of them; the list has the rest.
    Snapshot {
        items: &'a [Interaction],
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// A request as it stands now.
    Interaction {
        interaction: &'a Interaction,
    },
    Heartbeat,
    Closing {
        reason: &'a str,
        retry_after_ms: u64,
    },
}

impl InboxEvent<'_> {
    fn frame(&self) -> Bytes {
        // Our own structs of strings, numbers and JSON: writing them to memory has no way to fail.
        frame::event(None, &serde_json::to_string(self).unwrap_or_default())
    }
}

/// Opens the stream of the inbox.
pub(crate) async fn inbox(app: &Arc<App>) -> Result<Response, Refusal> {
    // Watched before the list is read, so that nothing falls between.
    let inbox = app.runtime.inbox(&app.cx).await?;
    let filter = InteractionFilter { status: Some(InteractionStatus::Pending), ..Default::default() };
    let page = PageRequest { limit: PAGE_MAX, ..PageRequest::default() };
    let pending = app.store().interactions(&app.cx, &filter, &page).await?;
    let snapshot =
        InboxEvent::Snapshot { items: &pending.items, next_cursor: pending.next_cursor.as_deref() };
    let view = View {
        app: Arc::clone(app),
        inbox,
        queue: VecDeque::from([frame::opening(), snapshot.frame()]),
        over: false,
        beat_at: Instant::now() + app.heartbeat,
        _open: OpenStream::new(app),
    };
    Ok(response(stream::unfold(view, |mut view| async move {
        let frame = view.next().await?;
        Some((Ok::<_, Infallible>(frame), view))
    })))
}

struct View {
    app: Arc<App>,
    inbox: Inbox,
    queue: VecDeque<Bytes>,
    over: bool,
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
            let change = tokio::select! {
                biased;
                () = self.app.closing.cancelled() => {
                    self.close("shutdown");
                    continue;
                }
                change = tokio::time::timeout_at(self.beat_at, self.inbox.next()) => change,
            };
            match change {
                Err(_quiet) => self.queue.push_back(InboxEvent::Heartbeat.frame()),
                Ok(InboxChange::Changed(interaction)) => self.show(&interaction),
                Ok(InboxChange::Lagged) => {
                    self.app.metrics.stream_cut();
                    self.close("slow_reader");
                }
            }
        }
    }

    fn show(&mut self, interaction: &Interaction) {
        self.queue.push_back(InboxEvent::Interaction { interaction }.frame());
        if interaction.status == InteractionStatus::Pending {
            self.queue.push_back(InboxEvent::Heartbeat.frame());
        }
    }

    fn close(&mut self, reason: &str) {
        self.queue.push_back(InboxEvent::Closing { reason, retry_after_ms: frame::retry_ms() }.frame());
        self.over = true;
    }
}
