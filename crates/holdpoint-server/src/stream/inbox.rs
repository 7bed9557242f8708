//! The inbox as a stream: what is open, and then every request of every run as it opens and closes.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use holdpoint::protocol::{Interaction, InteractionStatus};
use holdpoint::store::{InteractionFilter, PAGE_MAX, PageRequest};
use holdpoint::{Inbox, InboxChange};
use serde::Serialize;

use super::opening::in_line;
use super::view::{Out, Source, View};
use super::{frame, response};
use crate::app::App;
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
    Heartbeat {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        degraded: bool,
    },
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
    in_line(app, closing, open(app)).await
}

async fn open(app: &Arc<App>) -> Result<Response, Refusal> {
    // Watched before the list is read, so that nothing falls between.
    let inbox = app.runtime.inbox(&app.cx).await?;
    let filter = InteractionFilter { status: Some(InteractionStatus::Pending), ..Default::default() };
    let page = PageRequest { limit: PAGE_MAX, ..PageRequest::default() };
    let pending = app.store().interactions(&app.cx, &filter, &page).await?;
    let snapshot =
        InboxEvent::Snapshot { items: &pending.items, next_cursor: pending.next_cursor.as_deref() };
    let mut out = Out::default();
    out.send(frame::opening());
    out.send(snapshot.frame());
    Ok(response(View::new(app, InboxSource(inbox), out)))
}

/// The inbox, watched.
pub(super) struct InboxSource(Inbox);

impl Source for InboxSource {
    type Seen = InboxChange;

    async fn wait(&mut self) -> InboxChange {
        self.0.next().await
    }

    async fn show(&mut self, change: InboxChange, out: &mut Out) {
        match change {
            InboxChange::Changed(interaction) => {
                out.send(InboxEvent::Interaction { interaction: &interaction }.frame());
                if interaction.status == InteractionStatus::Pending {
                    // What a proxy holds back until more comes, this pushes out.
                    out.send(self.heartbeat());
                }
            }
            InboxChange::Lagged => out.cut(),
        }
    }

    fn heartbeat(&self) -> Bytes {
        InboxEvent::Heartbeat { degraded: self.0.is_degraded() }.frame()
    }

    fn closing(&self, reason: &str) -> Bytes {
        closing(reason)
    }
}

fn closing(reason: &str) -> Bytes {
    InboxEvent::Closing { reason, retry_after_ms: frame::retry_ms() }.frame()
}
