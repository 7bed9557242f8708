//! A reader of `text/event-stream`: bytes in, events out, however the network cut them.
//!
//! Our own and small, because the two things that matter here are easy to get wrong: a line ending cut in two, and a
//! bound on everything a server can send.

use std::str::Utf8Error;

/// The longest line, in bytes. One event of a provider is one line; the longest repeats a whole reply.
pub const LINE_MAX_BYTES: usize = 8 * 1024 * 1024;

/// The longest stream, in bytes.
pub const STREAM_MAX_BYTES: u64 = 128 * 1024 * 1024;

/// Why a stream could not be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line, or the joined data of one event, over the bound.
    #[error("the provider sent a line over {LINE_MAX_BYTES} bytes")]
    LineTooLong,
    /// A stream over the bound.
    #[error("the provider sent a stream over {STREAM_MAX_BYTES} bytes")]
    StreamTooLong,
    /// A line that is no UTF-8.
    #[error("the provider sent a line that is not UTF-8")]
    NotUtf8,
}

impl From<Utf8Error> for SseError {
    fn from(_: Utf8Error) -> Self {
        Self::NotUtf8
    }
}

/// Whether to go on reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There may be more.
    More,
    /// The end mark was read, or nothing after this can count.
    Done,
}

/// Bytes in, events out.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    data: String,
    has_data: bool,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// A line was read: a byte order mark can no longer come.
    begun: bool,
    total: u64,
}

impl SseReader {
    /// A reader at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes and hands the `data` of each event they complete to `event`, until it says [`Step::Done`]. The
    /// other fields (`event`, `id`, `retry`) and comments are ignored: every provider says the kind in the data.
    pub fn push(&mut self, bytes: &[u8], event: &mut impl FnMut(&str) -> Step) -> Result<Step, SseError> {
        self.total = self.total.saturating_add(bytes.len() as u64);
        if self.total > STREAM_MAX_BYTES {
            return Err(SseError::StreamTooLong);
        }
        let mut rest = bytes;
        if self.after_cr && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        self.after_cr = self.after_cr && bytes.is_empty();
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(end);
            let cr = tail[0] == b'\r';
            rest = match tail {
                [b'\r', b'\n', after @ ..] => after,
                [_, after @ ..] => {
                    self.after_cr = cr && after.is_empty();
                    after
                }
                [] => tail,
            };
            if self.whole_line(line, event)? == Step::Done {
                return Ok(Step::Done);
            }
        }
        self.keep(rest)?;
        Ok(Step::More)
    }

    /// The stream is at its end. An event without its blank line still counts: what was cut inside is not JSON, and
    /// whoever reads it will say so.
    pub fn finish(mut self, event: &mut impl FnMut(&str) -> Step) -> Result<Step, SseError> {
        if !self.line.is_empty() && self.whole_line(&[], event)? == Step::Done {
            return Ok(Step::Done);
        }
        Ok(self.dispatch(event))
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + bytes.len() > LINE_MAX_BYTES {
            return Err(SseError::LineTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// A line ended: `tail` is the part of it that is not kept yet.
    fn whole_line(&mut self, tail: &[u8], event: &mut impl FnMut(&str) -> Step) -> Result<Step, SseError> {
        if self.line.is_empty() {
            if tail.len() > LINE_MAX_BYTES {
                return Err(SseError::LineTooLong);
            }
            return self.read_line(tail, event);
        }
        self.keep(tail)?;
        // Taken out for as long as it is read, then put back empty: the buffer is reused.
        let mut line = std::mem::take(&mut self.line);
        let step = self.read_line(&line, event);
        line.clear();
        self.line = line;
        step
    }

    fn read_line(&mut self, line: &[u8], event: &mut impl FnMut(&str) -> Step) -> Result<Step, SseError> {
        let line = if self.begun { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            return Ok(self.dispatch(event));
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            Some(_) | None => return Ok(Step::More),
        };
        let value = std::str::from_utf8(value)?;
        if self.data.len() + value.len() + 1 > LINE_MAX_BYTES {
            return Err(SseError::LineTooLong);
        }
        if self.has_data {
            self.data.push('\n');
        }
        self.data.push_str(value);
        self.has_data = true;
        Ok(Step::More)
    }

    fn dispatch(&mut self, event: &mut impl FnMut(&str) -> Step) -> Step {
        if !self.has_data {
            return Step::More;
        }
        self.has_data = false;
        let step = event(&self.data);
        self.data.clear();
        step
    }
}
