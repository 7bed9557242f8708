//! What the tests of the server share: a real server on a free port, and a client that sends exactly what it is told.
#![allow(dead_code, unused_imports, clippy::unwrap_used)] // every test file uses its own part; these are tests

mod client;
mod failing;
mod sse;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdpoint::core::tool::EffectClass;
use holdpoint::prelude::*;
use holdpoint::{AgentBuilder, Runtime};
use holdpoint_server::{OperatorToken, Server, ServerConfig, ServerError};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use client::*;
pub use failing::Failing;
pub use sse::*;

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The calls that tools got, in order: name and exact argument text.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<(String, String)>>>);

impl Log {
    pub fn calls(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap().clone()
    }

    pub fn names(&self) -> Vec<String> {
        self.calls().into_iter().map(|(name, _)| name).collect()
    }
}

/// A tool with this schema for its properties, that logs and returns a fixed text.
pub fn tool(log: &Log, name: &'static str, properties: Value, result: &'static str) -> FnTool {
    with_effect(log, name, properties, result, EffectClass::AtMostOnce)
}

pub fn with_effect(
    log: &Log,
    name: &'static str,
    properties: Value,
    result: &'static str,
    effect: EffectClass,
) -> FnTool {
    let required: Vec<_> = properties.as_object().unwrap().keys().cloned().collect();
    let schema = json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let mut definition = ToolDefinition::new(name, format!("{name} tool"), schema);
    definition.effect = effect;
    let log = log.clone();
    FnTool::new(definition, move |invocation: Invocation| {
        log.0.lock().unwrap().push((name.to_owned(), invocation.arguments().to_owned()));
        async move { Ok::<_, ToolError>(result.to_owned()) }
    })
}

pub fn text() -> Value {
    json!({"type": "string"})
}

/// The agent of the benchmarks: `Read` is free, `Write` and `Bash` ask, and `pay` takes a whole number.
pub fn assistant(log: &Log, model: Scripted) -> AgentBuilder {
    Agent::builder("main", model)
        .tool(with_effect(
            log,
            "Read",
            json!({"path": text()}),
            "contents of notes.txt",
            EffectClass::ReadOnly,
        ))
        .tool(tool(log, "Write", json!({"path": text(), "content": text()}), "written"))
        .tool(tool(log, "Bash", json!({"command": text()}), "build ok"))
        .tool(tool(log, "pay", json!({"sum": {"type": "integer", "maximum": 1000}}), "paid"))
        .policy(Policy::builder("shipped").allow(["Read"]).build().unwrap())
}

/// One turn of three calls, then `done`: as often as it is asked.
pub fn three_calls() -> Scripted {
    Scripted::new("script")
        .rule(When::any().has_tool_result(true), Answer::text("done"))
        .rule(
            When::any(),
            Answer::call("c1", "Read", r#"{"path":"notes.txt"}"#)
                .and_call("c2", "Write", r#"{"path":"out.txt","content":"hello"}"#)
                .and_call("c3", "Bash", r#"{"command":"make build"}"#),
        )
        .build()
}

/// One turn of one call, then `done`: as often as it is asked.
pub fn one_call(name: &str, arguments: &str) -> Scripted {
    Scripted::new("script")
        .rule(When::any().has_tool_result(true), Answer::text("done"))
        .rule(When::any(), Answer::call("c1", name, arguments))
        .build()
}

/// A server that runs until it is stopped.
pub struct Running {
    pub address: SocketAddr,
    pub token: String,
    pub runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<(), ServerError>>,
}

pub fn config() -> ServerConfig {
    ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        shutdown_grace: Duration::from_millis(200),
        ..ServerConfig::default()
    }
}

pub fn runtime(agent: AgentBuilder) -> Runtime {
    Runtime::builder().agent(agent.build().unwrap()).build().unwrap()
}

/// A server with one agent, in memory.
pub async fn serve(agent: AgentBuilder) -> Running {
    serve_runtime(runtime(agent), config()).await
}

pub async fn serve_runtime(runtime: Runtime, config: ServerConfig) -> Running {
    let token = OperatorToken::generate().unwrap();
    let shown = token.reveal().to_owned();
    let server = Server::bind(runtime.clone(), config, token).await.unwrap();
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(async move {
        let _ = stopped.await;
    }));
    Running { address, token: shown, runtime, stop: Some(stop), served }
}

impl Running {
    /// Tells the server to stop.
    pub fn stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits until it has.
    pub async fn stopped(mut self) {
        self.stop();
        tokio::time::timeout(PATIENCE, self.served).await.unwrap().unwrap().unwrap();
    }

    /// A request with the token and what else a well-behaved client sends.
    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.address, method, path).header("Authorization", &format!("Bearer {}", self.token))
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request("GET", path).send().await
    }

    pub async fn post(&self, path: &str, body: &str) -> Reply {
        self.request("POST", path).json(body).send().await
    }

    /// Opens a stream.
    pub async fn events(&self, path: &str) -> Sse {
        self.request("GET", path).stream().await
    }

    pub async fn chat_stream(&self, body: &Value) -> Sse {
        self.request("POST", "/chat/stream").json(&body.to_string()).stream().await
    }

    /// Starts a run that stops at its first request, and gives back the request.
    pub async fn suspended(&self) -> Value {
        let reply = self.post("/chat", r#"{"query":"go"}"#).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.json()["interactions"][0]["request"].clone()
    }

    pub async fn decide(&self, request: &Value, body: &Value) -> Reply {
        let path = format!("/v1/interactions/{}/decision", request["requestId"].as_str().unwrap());
        self.post(&path, &body.to_string()).await
    }

    pub async fn approve(&self, request: &Value) -> Reply {
        self.decide(request, &json!({"decision": "approve", "digest": request["digest"]})).await
    }

    /// How a request stands.
    pub async fn status_of(&self, request: &Value) -> String {
        let path = format!("/v1/interactions/{}", request["requestId"].as_str().unwrap());
        self.get(&path).await.json()["status"].as_str().unwrap().to_owned()
    }

    /// The run, once it has ended.
    pub async fn ended(&self, run: &str) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let view = self.get(&format!("/v1/runs/{run}")).await.json();
            if matches!(view["status"].as_str(), Some("finished" | "failed")) {
                return view;
            }
            assert!(tokio::time::Instant::now() < deadline, "the run did not end: {view}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The run that a request is of: its call's id begins with it.
pub fn run_of(request: &Value) -> String {
    request["callId"].as_str().unwrap().split('.').next().unwrap().to_owned()
}
