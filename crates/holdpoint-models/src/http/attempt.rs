//! One request and its reply.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout_at};

use super::errors::{self, Redact, error};
use super::{Patience, Watch};
use crate::ModelError;
use crate::sse::Step;
use crate::wire::{BodyKind, Finished, StreamReading, Wire, body_kind};

/// The longest whole body, in bytes.
pub const DOCUMENT_MAX_BYTES: usize = 32 * 1024 * 1024;

/// The most that is read of a refusal, in bytes.
const REFUSAL_MAX_BYTES: usize = 64 * 1024;

/// How long the rest of a body is waited for after its end mark, so that the connection can be used again.
const DRAIN_FOR: Duration = Duration::from_millis(250);

pub(super) struct Attempt<'a> {
    pub(super) client: &'a Client,
    pub(super) wire: &'a dyn Wire,
    pub(super) url: &'a Url,
    pub(super) headers: &'a HeaderMap,
    pub(super) patience: Patience,
    pub(super) stream: bool,
    pub(super) redact: &'a Redact,
}

/// What came of waiting for bytes.
enum Next {
    Bytes(Bytes),
    End,
    Lost(String),
}

impl Attempt<'_> {
    pub(super) async fn run(&self, body: Bytes, watch: &mut Watch<'_>) -> Result<Finished, ModelError> {
        self.exchange(body, watch).await.map_err(|error| self.redact.error(error)).map(|mut finished| {
            if let crate::ReplyEnd::Interrupted(why) = &mut finished.reply.end {
                *why = self.redact.text(why);
            }
            finished
        })
    }

    async fn exchange(&self, body: Bytes, watch: &mut Watch<'_>) -> Result<Finished, ModelError> {
        let begun = Instant::now();
        let end = begun + self.patience.total;
        // A reply that is not streamed has its first byte when the model has said everything.
        let first = if self.stream { end.min(begun + self.patience.first_byte) } else { end };
        let accept = if self.stream { "text/event-stream" } else { "application/json" };
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static(accept))
            .headers(self.headers.clone())
            .body(body);
        let mut response = match timeout_at(first, request.send()).await {
            Err(_) => return Err(error("timeout", "the provider did not answer in time", true)),
            Ok(Err(failed)) => return Err(unsent(&failed)),
            Ok(Ok(response)) => response,
        };
        if !response.status().is_success() {
            return Err(self.refusal(response, end).await);
        }
        // Nothing was offered; whatever it is, it is not expanded.
        if let Some(coding) = response.headers().get(CONTENT_ENCODING)
            && coding != "identity"
        {
            return Err(error(
                "provider_error",
                "the provider compressed its reply, which was not asked for",
                false,
            ));
        }
        let bytes = match self.next(&mut response, first).await {
            Next::Bytes(bytes) => bytes,
            Next::End => return Err(error("provider_error", "the provider sent an empty body", true)),
            Next::Lost(how) => return Err(lost(how)),
        };
        let declared =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
        match body_kind(declared.as_deref(), &bytes) {
            BodyKind::Stream => self.streamed(response, bytes, end, watch).await,
            BodyKind::Document => self.document(response, bytes, end, watch).await,
            BodyKind::Other => {
                let kind: String =
                    declared.unwrap_or_else(|| "an unknown type".into()).chars().take(64).collect();
                Err(error(
                    "provider_error",
                    format!("the provider answered with {kind}, which is no reply"),
                    false,
                ))
            }
        }
    }

    async fn next(&self, response: &mut Response, by: Instant) -> Next {
        match timeout_at(by, response.chunk()).await {
            Err(_) => Next::Lost("nothing more came in time".into()),
            Ok(Ok(Some(bytes))) => Next::Bytes(bytes),
            Ok(Ok(None)) => Next::End,
            Ok(Err(failed)) => {
                Next::Lost(format!("the connection was lost: {}", errors::root_cause(&failed)))
            }
        }
    }

    fn by(&self, end: Instant) -> Instant {
        end.min(Instant::now() + self.patience.stall)
    }

    async fn streamed(
        &self,
        mut response: Response,
        first: Bytes,
        end: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<Finished, ModelError> {
        let mut reading = StreamReading::new(self.wire);
        let mut bytes = first;
        loop {
            if reading.push(&bytes, watch) == Step::Done {
                drain(response);
                return reading.finish(None, watch);
            }
            bytes = match self.next(&mut response, self.by(end)).await {
                Next::Bytes(bytes) => bytes,
                Next::End => return reading.finish(None, watch),
                Next::Lost(how) => return reading.finish(Some(&how), watch),
            };
        }
    }

    async fn document(
        &self,
        mut response: Response,
        first: Bytes,
        end: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<Finished, ModelError> {
        let mut body = first.to_vec();
        loop {
            if body.len() > DOCUMENT_MAX_BYTES {
                let message = format!("the provider sent a body over {DOCUMENT_MAX_BYTES} bytes");
                return Err(error("provider_error", message, false));
            }
            match self.next(&mut response, self.by(end)).await {
                Next::Bytes(bytes) => body.extend_from_slice(&bytes),
                Next::End => break,
                Next::Lost(how) => return Err(lost(how)),
            }
        }
        match std::str::from_utf8(&body) {
            Ok(body) => self.wire.whole(body.trim_start_matches('\u{FEFF}'), watch),
            Err(_) => Err(error("provider_error", "the provider sent a body that is not UTF-8", true)),
        }
    }

    async fn refusal(&self, mut response: Response, end: Instant) -> ModelError {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while body.len() < REFUSAL_MAX_BYTES {
            match self.next(&mut response, self.by(end)).await {
                Next::Bytes(bytes) => body.extend_from_slice(&bytes),
                Next::End | Next::Lost(_) => break,
            }
        }
        errors::of_status(status, &headers, &body)
    }
}

fn lost(how: String) -> ModelError {
    error("provider_error", format!("no reply came: {how}"), true)
}

fn unsent(failed: &reqwest::Error) -> ModelError {
    let why = errors::root_cause(failed);
    if failed.is_connect() && failed.is_timeout() {
        return error("timeout", "the provider could not be reached in time", true);
    }
    let doing =
        if failed.is_connect() { "the provider cannot be reached" } else { "the request was not answered" };
    error("provider_error", format!("{doing}: {why}"), true)
}

/// Reads what is left after the end mark, aside, so that the connection goes back to the pool and the reply does not
/// wait for it.
fn drain(mut response: Response) {
    let rest = async move { while let Ok(Some(_)) = response.chunk().await {} };
    tokio::spawn(tokio::time::timeout(DRAIN_FOR, rest));
}
