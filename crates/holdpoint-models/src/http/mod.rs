//! The transport under the wires: one request out, bytes back in, and the patience in between.
//!
//! - A request is repeated only while nothing of its reply was shown: after that a repetition would say things twice.
//! - Connecting, the first byte, each further byte and the whole have a time of their own.
//! - A provider that keeps failing is left alone for a while ([`Circuit`]).
//! - What goes into an error is bounded, and keys are taken out of it.

mod attempt;
mod circuit;
mod errors;
mod retry;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdpoint_core::message::AssistantMessage;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

pub use attempt::DOCUMENT_MAX_BYTES;
pub use circuit::{Circuit, FAILURES_TO_OPEN, OPEN_FOR};

use crate::wire::{Finished, Wire};
use crate::{Model, ModelError, ModelRequest, Pieces, Reply, ReplyEnd};
use attempt::Attempt;
use errors::Redact;

/// How often a reply may be paused and taken up again.
const PAUSES_MAX: usize = 8;

/// Where a model is reached, and with what.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The whole address of the request.
    pub url: reqwest::Url,
    /// Headers that are sent along; each value is a secret until somebody knows better.
    pub headers: Vec<(String, SecretString)>,
}

/// How long to wait, and how often to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For the first byte of a streamed reply.
    pub first_byte: Duration,
    /// For each further byte.
    pub stall: Duration,
    /// For a whole reply, streamed or not.
    pub total: Duration,
    /// How often a request is repeated.
    pub retries: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            stall: Duration::from_secs(60),
            total: Duration::from_secs(30 * 60),
            retries: 2,
        }
    }
}

/// A model behind a wire.
pub struct HttpModel {
    name: String,
    wire: Arc<dyn Wire>,
    url: reqwest::Url,
    headers: HeaderMap,
    redact: Redact,
    client: reqwest::Client,
    patience: Patience,
    circuit: Circuit,
}

/// A model that cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A header that HTTP does not know.
    #[error("`{0}` cannot be sent as a header, or its value cannot")]
    Header(String),
    /// No HTTP client.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}

impl HttpModel {
    /// A model at this endpoint, speaking this wire.
    pub fn new(
        name: impl Into<String>,
        wire: Arc<dyn Wire>,
        endpoint: Endpoint,
        patience: Patience,
    ) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &endpoint.headers {
            let bad = || SetupError::Header(name.clone());
            let key = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
            let mut value = HeaderValue::try_from(value.expose_secret()).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        let redact = Redact::new(endpoint.headers.into_iter().map(|(_, value)| value).collect());
        Ok(Self {
            name: name.into(),
            wire,
            url: endpoint.url,
            headers,
            redact,
            client: client(patience.connect)?,
            patience,
            circuit: Circuit::default(),
        })
    }

    async fn run(&self, request: &ModelRequest, watch: &mut Watch<'_>) -> Result<Reply, ModelError> {
        let mut parts: Vec<AssistantMessage> = Vec::new();
        let mut usage = crate::Usage::default();
        loop {
            let body = self.wire.encode(request, &parts)?;
            let finished = match self.ask(body, request.stream, watch).await {
                Ok(finished) => finished,
                Err(error) if parts.is_empty() => return Err(error),
                // A part of the reply is there already: it broke off.
                Err(error) => return Ok(joined(parts, None, ReplyEnd::Interrupted(error.message), usage)),
            };
            usage.input_tokens = usage.input_tokens.saturating_add(finished.reply.usage.input_tokens);
            usage.output_tokens = usage.output_tokens.saturating_add(finished.reply.usage.output_tokens);
            // Calls are to be answered first, whatever the provider meant to go on with.
            let goes_on = finished.paused && finished.reply.message.calls().next().is_none();
            if !goes_on {
                let end = finished.reply.end.clone();
                return Ok(joined(parts, Some(finished.reply), end, usage));
            }
            parts.push(finished.reply.message);
            if parts.len() > PAUSES_MAX {
                let why = format!("the provider paused the reply more than {PAUSES_MAX} times");
                return Ok(joined(parts, None, ReplyEnd::Interrupted(why), usage));
            }
        }
    }

    /// One request, repeated while that is allowed and helps.
    async fn ask(&self, body: Vec<u8>, stream: bool, watch: &mut Watch<'_>) -> Result<Finished, ModelError> {
        let attempt = Attempt {
            client: &self.client,
            wire: self.wire.as_ref(),
            url: &self.url,
            headers: &self.headers,
            patience: self.patience,
            stream,
            redact: &self.redact,
        };
        // Shared by every repetition, not copied.
        let body = Bytes::from(body);
        let mut done = 0;
        loop {
            let ticket = self.circuit.enter(Instant::now())?;
            let result = attempt.run(body.clone(), watch).await;
            ticket.settle(&result, Instant::now());
            let Some(wait) = retry::wait(&result, done, self.patience.retries, watch.shown) else {
                return result;
            };
            tokio::time::sleep(wait).await;
            done += 1;
        }
    }
}

#[async_trait]
impl Model for HttpModel {
    fn name(&self) -> &str {
        &self.name
    }

    async fn reply(&self, request: &ModelRequest, pieces: &mut dyn Pieces) -> Result<Reply, ModelError> {
        let mut watch = Watch { pieces, stream: request.stream, shown: false };
        // A cancel drops the future, and with it the connection.
        let reply = request.cancel.run_until_cancelled(self.run(request, &mut watch)).await;
        reply.unwrap_or_else(|| Err(ModelError::cancelled()))
    }
}

/// Joins the parts of a paused reply.
fn joined(parts: Vec<AssistantMessage>, last: Option<Reply>, end: ReplyEnd, usage: crate::Usage) -> Reply {
    let mut items: Vec<_> = parts.iter().flat_map(|part| part.items.iter().cloned()).collect();
    let wire = parts.into_iter().map(|part| part.wire).next();
    let (other_choices, other_choices_had_calls) =
        last.as_ref().map_or((0, false), |reply| (reply.other_choices, reply.other_choices_had_calls));
    let wire = wire.or_else(|| last.as_ref().map(|reply| reply.message.wire.clone())).unwrap_or_default();
    items.extend(last.into_iter().flat_map(|reply| reply.message.items));
    Reply {
        message: AssistantMessage { items, wire, incomplete: end.status() },
        end,
        usage,
        other_choices,
        other_choices_had_calls,
    }
}

/// Hands pieces on when somebody streams, and remembers that somebody saw one.
struct Watch<'a> {
    pieces: &'a mut dyn Pieces,
    stream: bool,
    shown: bool,
}

impl Pieces for Watch<'_> {
    fn text(&mut self, piece: &str) {
        if self.stream {
            self.shown = true;
            self.pieces.text(piece);
        }
    }

    fn reasoning(&mut self, piece: &str) {
        if self.stream {
            self.shown = true;
            self.pieces.reasoning(piece);
        }
    }
}

fn client(connect: Duration) -> Result<reqwest::Client, SetupError> {
    // The process may have chosen a provider already; then that one is meant.
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder()
        .connect_timeout(connect)
        // A redirect would carry the key to wherever it points.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .user_agent(concat!("holdpoint/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| SetupError::Client(errors::root_cause(&error)))
}
