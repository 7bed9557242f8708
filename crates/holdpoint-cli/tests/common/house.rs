//! A server in this process with one agent of our making, so that a request can hold whatever a case needs.

use std::sync::{Arc, Mutex};

use holdpoint::core::tool::ToolDefinition;
use holdpoint::prelude::*;
use holdpoint::protocol::RequestId;
use holdpoint_server::{OperatorToken, ServerConfig};

use super::http::Server;

pub struct House {
    pub server: Server,
    pub request: RequestId,
    runs: Arc<Mutex<Vec<String>>>,
    // The server lives in it.
    _threads: tokio::runtime::Runtime,
}

/// What is proposed.
pub struct Proposal<'a> {
    pub tool: &'a str,
    pub origin: &'a str,
    pub claims: Option<&'a str>,
    pub says: &'a str,
    pub arguments: &'a str,
}

impl Proposal<'_> {
    pub fn of<'a>(tool: &'a str, arguments: &'a str) -> Proposal<'a> {
        Proposal { tool, origin: "program", claims: None, says: "", arguments }
    }
}

impl House {
    /// An agent that has proposed this call and waits.
    pub fn waiting_on(proposal: &Proposal<'_>) -> Self {
        let threads =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let runs = Arc::new(Mutex::new(Vec::new()));
        let mut definition =
            ToolDefinition::new(proposal.tool, "A tool of a test.", serde_json::json!({ "type": "object" }));
        definition.origin = proposal.origin.into();
        definition.claims = proposal.claims.map(Into::into);
        let log = Arc::clone(&runs);
        let tool = FnTool::new(definition, move |invocation: Invocation| {
            log.lock().unwrap().push(invocation.arguments().to_owned());
            async { ToolOutput::text("ran") }
        });
        let mut first = Answer::empty();
        if !proposal.says.is_empty() {
            first = first.and_text(proposal.says);
        }
        let model = Scripted::sequence(
            "script",
            [first.and_call("c1", proposal.tool, proposal.arguments), Answer::text("done")],
        );
        let (server, request) = threads.block_on(async {
            let agent = Agent::builder("main", model).tool(tool).build().unwrap();
            let runtime = Runtime::builder().agent(agent).build().unwrap();
            let token = OperatorToken::generate().unwrap();
            let config = ServerConfig { listen: ([127, 0, 0, 1], 0).into(), ..ServerConfig::default() };
            let bound = holdpoint_server::Server::bind(runtime.clone(), config, token.clone()).await.unwrap();
            let server = Server { url: bound.url(), token: token.reveal().to_owned() };
            tokio::spawn(bound.serve(std::future::pending()));
            let outcome = runtime.run(&local(), Start::text("go")).await.unwrap();
            (server, outcome.pending()[0].request_id)
        });
        Self { server, request, runs, _threads: threads }
    }

    /// The argument texts the tool has run with.
    pub fn ran(&self) -> Vec<String> {
        self.runs.lock().unwrap().clone()
    }

    /// The pending request, as the server says it.
    pub fn interaction(&self) -> serde_json::Value {
        self.server.get(&format!("/v1/interactions/{}", self.request))
    }

    pub fn is_pending(&self) -> bool {
        self.interaction()["status"] == "pending"
    }

    /// The variables with which a command finds the server.
    pub fn variables(&self) -> Vec<(&str, &str)> {
        vec![("HOLDPOINT_TOKEN", &self.server.token), ("NO_COLOR", "1")]
    }

    /// A command about the request.
    pub fn arguments(&self, command: &str) -> Vec<String> {
        [command, &self.request.to_string(), "--server", &self.server.url].map(str::to_owned).into()
    }
}
