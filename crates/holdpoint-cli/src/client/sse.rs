//! A reader of the server's event stream: bytes in, events out, however the network cut them.

use crate::fail::{Fail, Result};

/// The longest event, in bytes: a reply of 64 calls with the longest arguments, as JSON, and some room.
const EVENT_MAX_BYTES: usize = 64 * 1024 * 1024;

/// One event as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its sequence number, where it is a durable one.
    pub(crate) id: Option<String>,
    /// The JSON object.
    pub(crate) data: String,
}

/// Bytes in, events out. The server ends lines with `\n` alone; a `\r` before it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    id: Option<String>,
    data: String,
}

impl Reader {
    /// Takes bytes, and gives the events they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        self.buffer.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = self.buffer[from..].iter().position(|&byte| byte == b'\n') {
            let line = std::str::from_utf8(&self.buffer[from..from + length])
                .map_err(|_| Fail::new("the server sent an event that is not UTF-8"))?
                .trim_end_matches('\r')
                .to_owned();
            from += length + 1;
            frames.extend(self.line(&line));
        }
        self.buffer.drain(..from);
        if self.buffer.len() + self.data.len() > EVENT_MAX_BYTES {
            return Err(Fail::new(format!("the server sent an event over {EVENT_MAX_BYTES} bytes")));
        }
        Ok(frames)
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let (id, data) = (self.id.take(), std::mem::take(&mut self.data));
            return (!data.is_empty()).then_some(Frame { id, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // A comment, or a field that says nothing here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_whole_wherever_the_network_cuts() {
        let stream = ": hi\n\nid: 7\ndata: {\"a\":\n\ndata: 1\r\ndata: 2\r\n\r\nevent: x\nretry: 5\n\nid:8\ndata:é\n\n";
        let frame = |id: Option<&str>, data: &str| Frame { id: id.map(str::to_owned), data: data.to_owned() };
        let wanted = [frame(Some("7"), "{\"a\":"), frame(None, "1\n2"), frame(Some("8"), "é")];
        for cut in 0..stream.len() {
            let mut reader = Reader::default();
            let mut frames = reader.push(&stream.as_bytes()[..cut]).unwrap();
            frames.extend(reader.push(&stream.as_bytes()[cut..]).unwrap());
            assert_eq!(frames, wanted, "cut at {cut}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused_at_the_bound() {
        let mut reader = Reader::default();
        let piece = vec![b'x'; 1024 * 1024];
        let refused = (0..=64).find(|_| reader.push(&piece).is_err());
        assert_eq!(refused, Some(64));
    }
}
