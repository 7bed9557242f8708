//! HTTP by hand, so that the tests do not depend on the client they test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// Sends a request on a connection of its own. Gives the status and the body.
pub fn send(url: &str, token: Option<&str>, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let body = body.unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    reader.read_line(&mut status).unwrap();
    let code =
        status.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{status:?}"));
    let mut chunked = false;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        chunked |= line.to_lowercase().starts_with("transfer-encoding: chunked");
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = Vec::new();
    reader.read_to_end(&mut body).unwrap();
    let body = if chunked { unchunked(&body) } else { body };
    (code, String::from_utf8(body).unwrap())
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
