//! Opening a stream: in a line, and put off rather than refused.
//!
//! When a server comes back, all who watched come back at once, and each opening reads the database. So only a few read at
//! the same time, the others wait for their turn in the order they came, and what else goes on finds the database free.
//! A browser gives a stream up for good that is answered with an error (`EventSource` does); one that ends it opens again.
//! So a stream that cannot be opened just now is answered by one that only says when to come back.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use tokio::sync::Semaphore;

use super::{frame, headed};
use crate::app::App;
use crate::refusal::Refusal;

/// Streams that are being opened at once: a fraction of what may wait for the database.
const AT_ONCE: usize = 32;
/// How long one waits for its turn and its opening: less than an HTTP client waits for an answer.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// The line of those that are about to open.
pub(crate) struct Openings(Semaphore);

impl Default for Openings {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

/// Opens a stream when it is its turn. `closing` makes the frame that ends one, of a reason.
pub(super) async fn in_line(
    app: &App,
    closing: impl Fn(&str) -> Bytes,
    open: impl Future<Output = Result<Response, Refusal>>,
) -> Result<Response, Refusal> {
    let in_turn = async {
        // It is never closed.
        let _turn = app.openings.0.acquire().await;
        open.await
    };
    let put_off = |reason| Ok(come_back(closing(reason)));
    tokio::select! {
        biased;
        () = app.closing.cancelled() => put_off("shutdown"),
        opened = tokio::time::timeout(WAIT_MAX, in_turn) => match opened {
            Ok(Err(refusal)) if refusal.status() == StatusCode::SERVICE_UNAVAILABLE => put_off("unavailable"),
            Ok(opened) => opened,
            Err(_elapsed) => put_off("unavailable"),
        },
    }
}

/// A stream that ends at once.
fn come_back(closing: Bytes) -> Response {
    headed(Body::from_stream(stream::iter([frame::opening(), closing].map(Ok::<_, Infallible>))))
}
