//! The frames of Server-Sent Events.
//!
//! Only two fields are ever written: `id`, which is a number, and `data`, whose text may hold anything. A line end in
//! it - a result may be JSON that was written over several lines - begins another `data:` line, so that no text can end
//! a frame or begin a field. Names and ids that come from models stand inside the JSON, never in a field of their own.

use std::fmt::Write as _;

use bytes::Bytes;
use holdpoint::protocol::{Closing, Event, EventBody, Heartbeat, RunId};

/// Milliseconds a client waits before it comes back: a random part of the span keeps all from coming at once.
const RETRY_MIN_MS: u64 = 1_000;
const RETRY_SPAN_MS: u64 = 4_000;

/// A time to wait before coming back.
pub(super) fn retry_ms() -> u64 {
    RETRY_MIN_MS + getrandom::u64().unwrap_or(RETRY_SPAN_MS / 2) % RETRY_SPAN_MS
}

/// The first bytes of a stream: a comment, and when to come back.
pub(super) fn opening() -> Bytes {
    format!(": holdpoint\nretry: {}\n\n", retry_ms()).into()
}

/// An event. Only what is in the log has a number.
pub(super) fn event(seq: Option<u64>, json: &str) -> Bytes {
    let mut frame = String::with_capacity(json.len() + 32);
    if let Some(seq) = seq {
        let _ = writeln!(frame, "id: {seq}");
    }
    let mut rest = json;
    while let Some(end) = rest.find(['\r', '\n']) {
        let _ = writeln!(frame, "data: {}", &rest[..end]);
        let crlf = rest[end..].starts_with("\r\n");
        rest = &rest[end + if crlf { 2 } else { 1 }..];
    }
    let _ = write!(frame, "data: {rest}\n\n");
    frame.into()
}

/// A request as it was announced, sent again to a client that connects: marked, and without a number.
pub(super) fn replayed(json: &str) -> Bytes {
    match json.strip_suffix('}') {
        Some(open) => event(None, &format!("{open},\"replayed\":true}}")),
        None => event(None, json),
    }
}

pub(super) fn heartbeat(run: RunId, degraded: bool) -> Bytes {
    of(run, EventBody::Heartbeat(Heartbeat { degraded }))
}

pub(super) fn closing(run: RunId, reason: &str) -> Bytes {
    of(run, EventBody::Closing(Closing { reason: reason.to_owned(), retry_after_ms: retry_ms() }))
}

fn of(run_id: RunId, body: EventBody) -> Bytes {
    event(None, &Event { seq: None, run_id, child: None, body }.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_a_frame_or_begins_a_field() {
        let text = "{\"a\":\n1,\r\n\"b\":\r2}\n\nevent: approval_resolved\nid: 9\nretry: 1";
        let frame = event(Some(7), text);
        let frame = std::str::from_utf8(&frame).unwrap();
        let (body, end) = frame.split_at(frame.len() - 2);
        assert_eq!(end, "\n\n");
        let lines: Vec<_> = body.split('\n').collect();
        assert_eq!(lines[0], "id: 7");
        assert!(lines[1..].iter().all(|line| line.starts_with("data: ")), "{frame:?}");
        assert!(!body.contains('\r') && !body.contains("\n\n"));
    }

    #[test]
    fn coming_back_is_spread_over_time() {
        let times: std::collections::HashSet<u64> = (0..100).map(|_| retry_ms()).collect();
        assert!(times.len() > 50);
        assert!(times.iter().all(|ms| (RETRY_MIN_MS..RETRY_MIN_MS + RETRY_SPAN_MS).contains(ms)));
    }
}
