//! A client of raw bytes.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{PATIENCE, Sse};

#[derive(Debug, Clone)]
pub struct Request {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    host: Option<String>,
    body: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        Self {
            address,
            method: method.into(),
            path: path.into(),
            headers: Vec::new(),
            host: Some(address.to_string()),
            body: None,
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Another `Host`, or none.
    pub fn host(mut self, host: Option<&str>) -> Self {
        self.host = host.map(Into::into);
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub fn json(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if let Some(host) = &self.host {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.iter().flatten());
        bytes
    }

    pub async fn send(self) -> Reply {
        let request = self.header("Connection", "close");
        exchange(request.address, &request.bytes()).await
    }

    /// Sends it and leaves the answer's body to be read as it comes.
    pub async fn stream(self) -> Sse {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&self.bytes()).await.unwrap();
        Sse::open(stream).await
    }
}

/// Sends these bytes and reads what comes back to its end.
pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server may answer and close before it has read all.
    let _ = stream.write_all(bytes).await;
    let mut raw = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut raw)).await.unwrap();
    if raw.is_empty() {
        read.unwrap();
    }
    Reply::parse(&raw)
}

impl Reply {
    fn parse(raw: &[u8]) -> Self {
        let end = raw.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let (status, headers) = parse_head(&raw[..end]);
        let mut body = raw[end + 4..].to_vec();
        if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
            let mut whole = Vec::new();
            take_chunks(&mut body, &mut whole);
            body = whole;
        }
        Self { status, headers, body: String::from_utf8(body).unwrap() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The stable code of a problem, after looking at its form.
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        for member in ["type", "title", "detail", "code"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {problem}");
        }
        problem["code"].as_str().unwrap().to_owned()
    }
}

pub fn parse_head(head: &[u8]) -> (u16, Vec<(String, String)>) {
    let head = std::str::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    (status, headers)
}

/// Moves whole chunks from `raw` to `body`; true after the last one.
pub fn take_chunks(raw: &mut Vec<u8>, body: &mut Vec<u8>) -> bool {
    loop {
        let Some(line) = raw.windows(2).position(|two| two == b"\r\n") else { return false };
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..line]).unwrap(), 16).unwrap();
        let end = line + 2 + size + 2;
        if raw.len() < end {
            return false;
        }
        body.extend_from_slice(&raw[line + 2..line + 2 + size]);
        raw.drain(..end);
        if size == 0 {
            return true;
        }
    }
}
