//! Event streams.
//!
//! A stream is a view of the log and nothing else: opening, losing and closing one changes nothing about a run.

mod frame;
mod inbox;
mod opening;
mod pump;
mod run;
mod view;
mod wheel;

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};

use crate::refusal::Refusal;
use crate::routes::Call;

pub(crate) use inbox::inbox;
pub(crate) use opening::Openings;
pub(crate) use pump::pump;
pub(crate) use run::run;
pub(crate) use view::Frames;
pub(crate) use wheel::{Wheel, turn};

/// How a client wants to watch a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// The last event the client has: what comes after it is sent.
    pub(crate) after: u64,
    /// Whether the stream ends when the run needs a person.
    pub(crate) until_suspended: bool,
}

impl Options {
    pub(crate) fn read(call: &Call) -> Result<Self, Refusal> {
        let mut ids = call.headers.get_all("last-event-id").iter();
        let after = match (ids.next(), ids.next()) {
            (None, _) => 0,
            (Some(id), None) => seq_of(id.as_bytes()).ok_or_else(bad_last_event_id)?,
            (Some(_), Some(_)) => return Err(bad_last_event_id()),
        };
        let until_suspended = match call.query.get("until")? {
            None => false,
            Some("suspended") => true,
            Some(_) => return Err(Refusal::bad_request("bad_query", "`until` is `suspended`, or absent")),
        };
        Ok(Self { after, until_suspended })
    }
}

/// A number as we write it: digits, and nothing that reads like one only to some.
fn seq_of(id: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(id).ok()?;
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let seq = text.parse().ok().filter(|seq| i64::try_from(*seq).is_ok());
    if plain { seq } else { None }
}

pub(crate) fn bad_last_event_id() -> Refusal {
    let detail = "this `Last-Event-ID` is not of an event of this run; leave it out to begin from the first";
    Refusal::bad_request("bad_last_event_id", detail)
}

/// The frames of an answer, until the connection takes them: it knows how to carry them.
#[derive(Clone)]
struct Carried(Arc<Mutex<Option<Frames>>>);

/// The answer that carries frames. Nothing between here and the client is to hold them back, change or keep them.
fn response(frames: impl Into<Frames>) -> Response {
    let mut response = headed(Body::empty());
    response.extensions_mut().insert(Carried(Arc::new(Mutex::new(Some(frames.into())))));
    response
}

/// An answer that is a stream.
fn headed(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The frames that an answer carries.
pub(crate) fn take_frames(response: &mut Response) -> Option<Frames> {
    let Carried(frames) = response.extensions_mut().remove()?;
    // Said of the empty body that stands in their place.
    response.headers_mut().remove(header::CONTENT_LENGTH);
    frames.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids that are no numbers of ours.
    #[test]
    fn an_event_id_is_a_plain_number() {
        for (id, seq) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("99999999999999999999", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1;2", None),
            ("1.0", None),
            ("0x1", None),
            ("\u{661}", None),
        ] {
            assert_eq!(seq_of(id.as_bytes()), seq, "{id:?}");
        }
        assert_eq!(seq_of("1".repeat(10_240).as_bytes()), None);
        assert_eq!(seq_of(&[0xff]), None);
    }
}
