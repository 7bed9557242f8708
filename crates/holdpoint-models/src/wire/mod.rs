//! The three wires: what goes to a provider as bytes, and what its bytes mean. Pure: no network, no clock.
//!
//! A [`Wire`] writes a request and reads a whole body; a [`WireReader`] reads a stream, event by event.
//! [`StreamReading`] joins a reader to the event stream, so that bytes go in as they come. The transport adds nothing
//! but the bytes.

pub mod anthropic;
pub mod chat;
pub mod history;
mod reading;
pub mod responses;

use std::borrow::Cow;

#[cfg(feature = "http")]
pub(crate) use reading::short;
pub use reading::{ITEMS_MAX, REPLY_MAX_BYTES};

use holdpoint_core::message::AssistantMessage;

use crate::sse::{SseReader, Step};
use crate::{ModelError, ModelRequest, Pieces, Reply};

/// What every wire is told beside the request itself.
#[derive(Debug, Clone, Default)]
pub struct WireOptions {
    /// The provider's name of the model.
    pub model: String,
    /// The most tokens of one reply; the provider's default when absent.
    pub max_output_tokens: Option<u32>,
    /// Further fields of the request body (`temperature` and the like). The wire's own fields win nothing here:
    /// configuration refuses [`RESERVED_FIELDS`].
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// Fields of a request body that the wires write themselves.
pub const RESERVED_FIELDS: [&str; 15] = [
    "model",
    "messages",
    "input",
    "instructions",
    "system",
    "tools",
    "functions",
    "stream",
    "stream_options",
    "n",
    "store",
    "include",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
];

/// One provider's language.
pub trait Wire: Send + Sync + 'static {
    /// Its name, as it stands in [`AssistantMessage::wire`].
    fn name(&self) -> &'static str;

    /// The request as a JSON body. `paused` are the parts of a reply that the provider paused and wants back, to go
    /// on with it.
    fn encode(&self, request: &ModelRequest, paused: &[AssistantMessage]) -> Result<Vec<u8>, ModelError>;

    /// A reader for one streamed reply.
    fn reader(&self) -> Box<dyn WireReader>;

    /// Reads a whole body.
    fn whole(&self, body: &str, pieces: &mut dyn Pieces) -> Result<Finished, ModelError>;
}

/// Reads one streamed reply.
pub trait WireReader: Send {
    /// Takes the data of one event.
    fn event(&mut self, data: &str, pieces: &mut dyn Pieces) -> Step;

    /// The stream is over: `lost` says how, when it did not end by itself.
    fn finish(self: Box<Self>, lost: Option<&str>) -> Result<Finished, ModelError>;
}

/// A reply that was read.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The reply.
    pub reply: Reply,
    /// The provider paused it and goes on when it gets it back: not the end of a round.
    pub paused: bool,
}

/// A streamed body, read as its bytes come.
pub struct StreamReading {
    events: SseReader,
    reader: Box<dyn WireReader>,
    lost: Option<String>,
    done: bool,
}

impl StreamReading {
    /// A body of this wire, at its start.
    pub fn new(wire: &dyn Wire) -> Self {
        Self { events: SseReader::new(), reader: wire.reader(), lost: None, done: false }
    }

    /// Takes bytes. After [`Step::Done`] nothing more is read.
    pub fn push(&mut self, bytes: &[u8], pieces: &mut dyn Pieces) -> Step {
        if self.done {
            return Step::Done;
        }
        let reader = &mut self.reader;
        let step = self.events.push(bytes, &mut |data| reader.event(data, pieces));
        self.done = match step {
            Ok(step) => step == Step::Done,
            Err(error) => {
                self.lost = Some(error.to_string());
                true
            }
        };
        if self.done { Step::Done } else { Step::More }
    }

    /// The body is over: `lost` says how, when it did not end by itself.
    pub fn finish(self, lost: Option<&str>, pieces: &mut dyn Pieces) -> Result<Finished, ModelError> {
        let mut reader = self.reader;
        let mut own = self.lost;
        if !self.done
            && lost.is_none()
            && let Err(error) = self.events.finish(&mut |data| reader.event(data, pieces))
        {
            own = Some(error.to_string());
        }
        reader.finish(own.as_deref().or(lost))
    }
}

/// What a body is, whatever was asked for: servers answer a stream with a document and the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// An event stream.
    Stream,
    /// One JSON document.
    Document,
    /// Neither: an error page.
    Other,
}

/// What a body is, by its declared type and, where that says nothing, by its first byte.
pub fn body_kind(content_type: Option<&str>, first: &[u8]) -> BodyKind {
    let declared = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if declared.eq_ignore_ascii_case("text/event-stream") {
        return BodyKind::Stream;
    }
    let json = |kind: &str| kind.eq_ignore_ascii_case("application/json") || kind.ends_with("+json");
    if json(declared) {
        return BodyKind::Document;
    }
    let text = first.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(first);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => BodyKind::Document,
        Some(b'd' | b'e' | b'i' | b'r' | b':') if !declared.eq_ignore_ascii_case("text/html") => {
            BodyKind::Stream
        }
        Some(_) | None => BodyKind::Other,
    }
}

/// The error inside a body or an event, in one of the forms providers use: `{"message", "code", "type"}`, a text.
pub(crate) fn error_text(raw: &serde_json::value::RawValue) -> ErrorText<'_> {
    #[derive(serde::Deserialize)]
    struct Form<'a> {
        #[serde(borrow, default)]
        message: Option<&'a serde_json::value::RawValue>,
        #[serde(borrow, default)]
        code: Option<&'a serde_json::value::RawValue>,
        #[serde(borrow, default, rename = "type")]
        kind: Option<&'a serde_json::value::RawValue>,
    }
    let word =
        |raw: Option<&serde_json::value::RawValue>| raw.map(|raw| raw.get().trim_matches('"').to_owned());
    match crate::json::read::<Form<'_>>(Some(raw)) {
        Some(form) => ErrorText {
            message: crate::json::text(form.message).unwrap_or(Cow::Borrowed("no message")),
            code: word(form.code).filter(|code| code != "null"),
            kind: word(form.kind).filter(|kind| kind != "null"),
        },
        None => ErrorText {
            message: crate::json::text(Some(raw)).unwrap_or(Cow::Borrowed(raw.get())),
            code: None,
            kind: None,
        },
    }
}

/// What a provider says went wrong.
pub(crate) struct ErrorText<'a> {
    pub(crate) message: Cow<'a, str>,
    pub(crate) code: Option<String>,
    pub(crate) kind: Option<String>,
}

impl ErrorText<'_> {
    /// Our code for it, and whether asking again could help.
    pub(crate) fn class(&self) -> (&'static str, bool) {
        let said = |word: &str| self.code.as_deref() == Some(word) || self.kind.as_deref() == Some(word);
        let any = |words: &[&str]| words.iter().any(|word| said(word));
        if any(&["insufficient_quota", "billing_error", "billing_hard_limit_reached"]) {
            ("rate_limited", false)
        } else if any(&["rate_limit_error", "rate_limit_exceeded", "429"]) {
            ("rate_limited", true)
        } else if any(&["overloaded_error", "server_overloaded", "overloaded", "503", "529"]) {
            ("overloaded", true)
        } else if any(&["authentication_error", "permission_error", "invalid_api_key", "401", "403"]) {
            ("unauthorized", false)
        } else if any(&["timeout_error", "408", "504"]) {
            ("timeout", true)
        } else if any(&[
            "invalid_request_error",
            "not_found_error",
            "context_length_exceeded",
            "400",
            "404",
            "413",
        ]) {
            ("bad_request", false)
        } else {
            ("provider_error", true)
        }
    }
}
