//! A server that sends exactly the bytes a test wants, when it wants, and keeps what it was sent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to one request.
#[derive(Clone)]
pub enum Act {
    Send(Vec<u8>),
    Wait(Duration),
    /// Sends this over and over, this many times.
    Repeat(Vec<u8>, usize),
    /// The connection is reset, not closed in order.
    Cut,
}

pub struct Server {
    pub base: String,
    requests: Arc<Mutex<Vec<String>>>,
    /// How many clients went away before the answer was over.
    gone: Arc<Mutex<usize>>,
}

impl Server {
    /// Answers the n-th request with the n-th script, and every later one with the last.
    pub async fn start(scripts: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let gone = Arc::new(Mutex::new(0));
        let (seen, left) = (requests.clone(), gone.clone());
        tokio::spawn(async move {
            let mut n = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let script = scripts[n.min(scripts.len() - 1)].clone();
                n += 1;
                tokio::spawn(serve(stream, script, seen.clone(), left.clone()));
            }
        });
        Self { base, requests, gone }
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub fn gone(&self) -> usize {
        *self.gone.lock().unwrap()
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Vec<Act>,
    seen: Arc<Mutex<Vec<String>>>,
    gone: Arc<Mutex<usize>>,
) {
    let Some(request) = read_request(&mut stream).await else { return };
    seen.lock().unwrap().push(request);
    let left = || *gone.lock().unwrap() += 1;
    for act in script {
        match act {
            Act::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return left();
                }
                stream.flush().await.ok();
            }
            Act::Repeat(bytes, times) => {
                for _ in 0..times {
                    if stream.write_all(&bytes).await.is_err() {
                        return left();
                    }
                }
            }
            Act::Wait(time) => {
                let mut byte = [0; 1];
                // A client that hangs up shows as the end of what it sends.
                if tokio::time::timeout(time, stream.read(&mut byte)).await.is_ok() {
                    return left();
                }
            }
            Act::Cut => {
                #[allow(deprecated)] // Lingering for no time is exactly what resets a connection.
                stream.set_linger(Some(Duration::ZERO)).unwrap();
                return;
            }
        }
    }
    stream.shutdown().await.ok();
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
        }
    }
}

/// A head for a body that ends with the connection.
pub fn head(status: u16, headers: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}\r\n").into_bytes()
}

/// An answer whose body ends with the connection.
pub fn answer(status: u16, headers: &str, body: &str) -> Vec<Act> {
    vec![Act::Send(head(status, headers)), Act::Send(body.as_bytes().to_vec())]
}

/// A piece of a chunked body.
pub fn chunk(bytes: &str) -> Act {
    Act::Send(format!("{:x}\r\n{bytes}\r\n", bytes.len()).into_bytes())
}

/// A streamed answer, each piece a chunk of its own; with `end`, the body ends in order.
pub fn stream(pieces: &[&str], end: bool) -> Vec<Act> {
    let mut acts =
        vec![Act::Send(head(200, "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"))];
    acts.extend(pieces.iter().map(|piece| chunk(piece)));
    if end {
        acts.push(Act::Send(b"0\r\n\r\n".to_vec()));
    }
    acts
}
