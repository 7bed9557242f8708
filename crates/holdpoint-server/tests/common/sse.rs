//! A reader of event streams, as strict as the specification.

use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{PATIENCE, parse_head, take_chunks};

/// One frame.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    pub id: Option<u64>,
    pub data: Option<Value>,
    pub retry: Option<u64>,
    pub comment: bool,
}

impl Frame {
    pub fn kind(&self) -> &str {
        self.data.as_ref().and_then(|data| data["type"].as_str()).unwrap_or("")
    }

    pub fn data(&self) -> &Value {
        self.data.as_ref().unwrap()
    }
}

/// An open stream.
pub struct Sse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub stream: TcpStream,
    raw: Vec<u8>,
    body: Vec<u8>,
    /// Where the search for the end of a frame goes on: frames may be megabytes long.
    searched: usize,
    ended: bool,
}

impl Sse {
    pub async fn open(stream: TcpStream) -> Self {
        let mut sse = Self {
            status: 0,
            headers: Vec::new(),
            stream,
            raw: Vec::new(),
            body: Vec::new(),
            searched: 0,
            ended: false,
        };
        let end = loop {
            if let Some(end) = sse.raw.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            assert!(sse.fill().await, "the connection ended before an answer");
        };
        (sse.status, sse.headers) = parse_head(&sse.raw[..end]);
        sse.raw.drain(..end + 4);
        sse
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    async fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer)).await;
        let read = read.unwrap_or_else(|_| panic!("nothing came for {PATIENCE:?}")).unwrap_or(0);
        self.raw.extend_from_slice(&buffer[..read]);
        read > 0
    }

    /// The next frame; `None` when the stream has ended in order.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = self.end_of_frame() {
                let text = String::from_utf8(self.body[..end].to_vec()).unwrap();
                self.body.drain(..end + 2);
                self.searched = 0;
                return Some(parse(&text));
            }
            if self.ended {
                assert!(self.body.is_empty(), "half a frame at the end");
                return None;
            }
            let before = self.body.len();
            self.ended = take_chunks(&mut self.raw, &mut self.body);
            if !self.ended && self.body.len() == before {
                assert!(self.fill().await, "the connection broke off");
            }
        }
    }

    fn end_of_frame(&mut self) -> Option<usize> {
        let found = self.body[self.searched..].windows(2).position(|two| two == b"\n\n");
        let end = found.map(|end| self.searched + end);
        self.searched = self.body.len().saturating_sub(1);
        end
    }

    /// The next frame that is an event and no heartbeat.
    pub async fn event(&mut self) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.data.is_some() && frame.kind() != "heartbeat" {
                return Some(frame);
            }
        }
    }

    /// Reads on until an event of this kind.
    pub async fn until(&mut self, kind: &str) -> Frame {
        loop {
            let frame = self.next().await.unwrap_or_else(|| panic!("the stream ended before `{kind}`"));
            if frame.kind() == kind {
                return frame;
            }
        }
    }

    /// All events to the end, without heartbeats.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.event().await {
            frames.push(frame);
        }
        frames
    }

    /// Whether nothing comes for a while.
    pub async fn is_quiet_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.next()).await.is_err()
    }
}

fn parse(text: &str) -> Frame {
    let mut frame = Frame::default();
    let mut data: Vec<&str> = Vec::new();
    for line in text.split('\n') {
        assert!(!line.contains('\r'), "a stray line end in {line:?}");
        if line.starts_with(':') {
            frame.comment = true;
            continue;
        }
        match line.split_once(": ").unwrap_or_else(|| panic!("no field: {line:?}")) {
            ("id", id) => frame.id = Some(id.parse().unwrap()),
            ("retry", ms) => frame.retry = Some(ms.parse().unwrap()),
            ("data", rest) => data.push(rest),
            (name, _) => panic!("a field we never write: {name}"),
        }
    }
    if !data.is_empty() {
        let text = data.join("\n");
        frame.data = Some(serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text:?}")));
    }
    frame
}

/// The frames that are in the log.
pub fn durable(frames: &[Frame]) -> Vec<(u64, Value)> {
    frames.iter().filter_map(|frame| Some((frame.id?, frame.data().clone()))).collect()
}
