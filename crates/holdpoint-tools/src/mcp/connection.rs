//! The way to a server: a child process and its pipes, or HTTP.

use std::collections::HashMap;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RoleClient, RunningService, serve_client_with_lifecycle,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::config::{McpServerConfig, Target};
use super::handler::Handler;
use crate::process::Group;

/// The largest message a server may send, in bytes: a result of 1 MiB, an image as base64, a listing.
const MESSAGE_MAX_BYTES: usize = 8 * 1024 * 1024;
/// How long connecting to an HTTP server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process has to end, each: of itself, and once it is told to.
const END_GRACE: Duration = Duration::from_secs(2);
/// How much of what a process last wrote to its standard error is kept, in bytes.
const LAST_WORDS_BYTES: usize = 2 * 1024;
/// What of our environment a process gets without being named.
const ENVIRONMENT: [&str; 5] = ["HOME", "LANG", "PATH", "TMPDIR", "USER"];

/// A connection that has been greeted.
pub struct Connection {
    pub running: RunningService<RoleClient, Handler>,
    pub process: Option<Process>,
}

/// The process of a stdio server.
pub struct Process {
    group: Group,
    last_words: LastWords,
}

impl Process {
    /// Gives it time to end, then ends it, and says how it went. Its input is closed by now.
    pub async fn end(mut self) -> String {
        if timeout(END_GRACE, self.group.leader_ended()).await.is_err() {
            self.group.signal(Signal::TERM);
            if timeout(END_GRACE, self.group.leader_ended()).await.is_err() {
                self.group.signal(Signal::KILL);
                self.group.leader_ended().await;
            }
        }
        let status = match self.group.finish().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        match self.last_words.text() {
            Some(words) => format!("its process ended ({status}); it last said: {words}"),
            None => format!("its process ended ({status})"),
        }
    }
}

/// Connects, and greets in whichever era the server speaks.
pub async fn connect(
    target: &Target,
    config: &McpServerConfig,
    handler: Handler,
) -> Result<Connection, String> {
    match target {
        Target::Stdio { command, env } => {
            let (process, transport) = start(command, env, config)
                .map_err(|error| format!("`{command}` could not be started: {error}"))?;
            match serve_client_with_lifecycle(handler, transport, lifecycle()).await {
                Ok(running) => Ok(Connection { running, process: Some(process) }),
                Err(error) => Err(format!("{}; {}", said(&error), process.end().await)),
            }
        }
        Target::Http { url, headers, token } => {
            let transport = http(url, headers, token.as_deref())?;
            let running = serve_client_with_lifecycle(handler, transport, lifecycle())
                .await
                // The path and the query of a URL can be secrets.
                .map_err(|error| said(&error).replace(url.as_str(), "its URL"))?;
            Ok(Connection { running, process: None })
        }
    }
}

fn lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    }
}

fn said(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection before it answered".into(),
        ClientInitializeError::JsonRpcError(error) => format!("it refused to begin: {}", error.message),
        // What stands around it names types of Rust; the innermost cause says what happened.
        ClientInitializeError::TransportError { error, .. } => {
            let mut cause: &dyn std::error::Error = error.error.as_ref();
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            format!("it cannot be reached: {cause}")
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it speaks no version of MCP that is spoken here".into()
        }
        _ => "what it answered is not the beginning of MCP".into(),
    }
}

type Pipes = AsyncRwTransport<RoleClient, pipe::Receiver, pipe::Sender>;

fn start(command: &str, env: &[(String, String)], config: &McpServerConfig) -> io::Result<(Process, Pipes)> {
    let (stdin, our_stdin) = io::pipe()?;
    let (our_stdout, stdout) = io::pipe()?;
    let (our_stderr, stderr) = io::pipe()?;
    let mut child = Command::new(command);
    child.args(&config.args).env_clear().stdin(stdin).stdout(stdout).stderr(stderr);
    child.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    child.envs(env.iter().map(|(key, value)| (key, value)));
    if let Some(cwd) = &config.cwd {
        child.current_dir(cwd);
    }
    let group = Group::start(child)?;
    let read = pipe::Receiver::from_owned_fd(our_stdout.into())?;
    let write = pipe::Sender::from_owned_fd(our_stdin.into())?;
    let last_words = LastWords::listen(pipe::Receiver::from_owned_fd(our_stderr.into())?);
    let transport = AsyncRwTransport::new_client(read, write).with_max_line_length(MESSAGE_MAX_BYTES);
    Ok((Process { group, last_words }, transport))
}

/// The end of what a process wrote to its standard error: for the operator, when it dies.
#[derive(Clone, Default)]
struct LastWords {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl LastWords {
    fn listen(mut stderr: pipe::Receiver) -> Self {
        let words = Self::default();
        let listener = words.clone();
        // Ends with the pipe. Somebody has to read it, or the process stands still when it is full.
        tokio::spawn(async move {
            let mut buffer = [0; 1024];
            while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
                let mut bytes = listener.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&buffer[..length]);
                let over = bytes.len().saturating_sub(LAST_WORDS_BYTES);
                bytes.drain(..over);
            }
        });
        words
    }

    fn text(&self) -> Option<String> {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

fn http(
    url: &str,
    headers: &[(String, String)],
    token: Option<&str>,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    // Once a process; an error says that it is done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let key: HeaderName = name.parse().map_err(|_| format!("`{name}` is not the name of a header"))?;
        let mut value: HeaderValue =
            value.parse().map_err(|_| format!("the header `{name}` has no valid value"))?;
        value.set_sensitive(true);
        custom.insert(key, value);
    }
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // Another place would get the token and the calls of this one.
        .redirect(reqwest::redirect::Policy::none())
        // A pooled connection that was not read to its end stalls the next request.
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|error| error.to_string())?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(custom)
        .max_sse_event_size(MESSAGE_MAX_BYTES)
        .max_json_response_size(MESSAGE_MAX_BYTES)
        // A new session is a new listing, which has to be looked at before anything is called.
        .reinit_on_expired_session(false);
    if let Some(token) = token {
        config = config.auth_header(token);
    }
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
