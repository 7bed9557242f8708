//! HTTP by hand, so that the tests do not depend on the client they test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Sends a request on a connection of its own. Gives the status and the body.
pub fn send(url: &str, token: Option<&str>, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
    try_send(url, token, method, path, body.unwrap_or_default(), "", super::PATIENCE).unwrap()
}

/// The same, to a server that may be gone before it has answered, or say nothing for longer than anybody waits. Further headers end
/// in `\r\n` each.
pub fn try_send(
    url: &str,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
    headers: &str,
    patience: Duration,
) -> io::Result<(u16, String)> {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(patience))?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}{headers}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    reader.read_line(&mut status)?;
    let code = status.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(cut_off)?;
    let (mut chunked, mut length) = (false, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.to_lowercase();
        chunked |= line.starts_with("transfer-encoding: chunked");
        length = length.or(line.strip_prefix("content-length:").and_then(|text| text.trim().parse().ok()));
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = Vec::new();
    reader.read_to_end(&mut body)?;
    let body = if chunked { unchunked(&body) } else { body };
    if length.is_some_and(|length: usize| body.len() < length) {
        return Err(cut_off());
    }
    Ok((code, String::from_utf8(body).unwrap()))
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut off")
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = rest.iter().position(|&byte| byte == b'\n') {
        let size = usize::from_str_radix(String::from_utf8_lossy(&rest[..at]).trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        body.extend_from_slice(&rest[at + 1..at + 1 + size]);
        rest = &rest[at + 1 + size + 2..];
    }
    body
}

/// A server, and the token to speak to it with.
#[derive(Clone, Debug)]
pub struct Server {
    pub url: String,
    pub token: String,
}

impl Server {
    pub fn get(&self, path: &str) -> Value {
        let (status, body) = send(&self.url, Some(&self.token), "GET", path, None);
        assert_eq!(status, 200, "GET {path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = send(&self.url, Some(&self.token), "POST", path, Some(&body.to_string()));
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// The same where there may be no answer any more, and with an idempotency key.
    pub fn try_post(&self, path: &str, body: &Value, key: Option<&str>) -> io::Result<(u16, Value)> {
        let headers = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
        let (status, text) = self.send("POST", path, &body.to_string(), &headers, super::PATIENCE)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// A request with what it says of itself; see [`try_send`].
    pub fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
        headers: &str,
        patience: Duration,
    ) -> io::Result<(u16, String)> {
        try_send(&self.url, Some(&self.token), method, path, body, headers, patience)
    }

    /// What is there, where there may be no answer any more.
    pub fn try_get(&self, path: &str) -> io::Result<(u16, Value)> {
        let (status, text) = self.send("GET", path, "", "", super::PATIENCE)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// Starts a run and waits until it ends or needs a person.
    pub fn chat(&self, query: &str) -> (u16, Value) {
        self.post("/chat", &serde_json::json!({ "query": query }))
    }

    pub fn pending(&self) -> Vec<Value> {
        self.get("/v1/interactions?status=pending")["items"].as_array().unwrap().clone()
    }

    /// Decides strictly, by what the request says.
    pub fn decide(&self, interaction: &Value, word: &str, more: Value) -> (u16, Value) {
        let mut body = serde_json::json!({ "decision": word, "digest": interaction["request"]["digest"] });
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let id = interaction["requestId"].as_str().unwrap();
        self.post(&format!("/v1/interactions/{id}/decision"), &body)
    }

    pub fn run(&self, id: &str) -> Value {
        self.get(&format!("/v1/runs/{id}"))
    }

    /// All events of a run that has ended.
    pub fn events(&self, run: &str) -> Vec<Value> {
        let (status, stream) =
            send(&self.url, Some(&self.token), "GET", &format!("/v1/runs/{run}/events"), None);
        assert_eq!(status, 200);
        let data = stream.lines().filter_map(|line| line.strip_prefix("data:"));
        data.map(|json| serde_json::from_str(json.trim()).unwrap()).collect()
    }

    /// Waits until the run has ended.
    pub fn ended(&self, id: &str) -> Value {
        super::until("the end of the run", || {
            let run = self.run(id);
            ["finished", "failed"].iter().any(|end| run["status"] == *end).then_some(run)
        })
    }
}
