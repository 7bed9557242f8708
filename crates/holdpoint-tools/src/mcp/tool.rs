//! One tool of a server, and the one call it makes.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::ExecId;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest,
    JsonObject, MetaObject, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::definition::Offered;
use super::keeper::Live;
use super::result;
use crate::{Invocation, Tool, ToolError, ToolOutput};

/// How long a call waits for a server that is just being started again.
const CALL_WAIT: Duration = Duration::from_secs(5);
/// Where the idempotency key stands in a request's `_meta`.
const EXEC_KEY: &str = "dev.holdpoint/exec";

/// What the tools of a server share with the task that keeps it.
pub struct Link {
    pub server: String,
    pub live: watch::Sender<Option<Arc<Live>>>,
    /// A call would like a lost server to be tried again.
    pub wanted: Notify,
    /// A call found the connection broken.
    pub suspect: Notify,
    pub list_timeout: Duration,
}

pub struct McpTool {
    pub offered: Offered,
    pub link: Arc<Link>,
}

#[async_trait]
impl Tool for McpTool {
    fn definition(&self) -> &ToolDefinition {
        &self.offered.definition
    }

    async fn call(&self, invocation: Invocation) -> Result<ToolOutput, ToolError> {
        let arguments = invocation.parse()?;
        let report = |message: Option<&str>, fraction| invocation.progress(message, fraction);
        self.run(arguments, invocation.exec(), invocation.cancel(), &report).await
    }
}

type Report<'a> = &'a (dyn Fn(Option<&str>, Option<f64>) + Send + Sync);

impl McpTool {
    /// Sends the call, once. Private to this module's own tools: the way here is [`Tool::call`].
    pub(super) async fn run(
        &self,
        arguments: JsonObject,
        exec: ExecId,
        cancel: &CancellationToken,
        report: Report<'_>,
    ) -> Result<ToolOutput, ToolError> {
        let live = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                return Err(ToolError::new("CANCELLED", "the call was cancelled before it was sent").not_executed());
            }
            live = self.live() => live?,
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(
            CallToolRequestParams::new(self.offered.wire_name.clone()).with_arguments(arguments),
        ));
        let options = PeerRequestOptions::no_options().with_meta(exec_key(exec));
        let handle =
            live.peer.send_request_with_option(request, options).await.map_err(|_| self.unavailable())?;
        let mut unanswered = Unanswered { peer: live.peer.clone(), request: Some(handle.id.clone()) };
        let mut reports = live.handler.watch(handle.progress_token.clone());
        let answer = handle.await_response();
        tokio::pin!(answer);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                () = cancel.cancelled() => {
                    let why = "the call was cancelled while the server worked on it: it may have taken effect";
                    return Err(ToolError::new("CANCELLED", why).outcome_unknown());
                }
                Some(progress) = reports.next() => {
                    let fraction = progress.total.filter(|total| *total > 0.0).map(|total| progress.progress / total);
                    report(progress.message.as_deref(), fraction.map(|fraction| fraction.clamp(0.0, 1.0)));
                }
            }
        };
        unanswered.request = None;
        self.read(answer)
    }

    /// The connection, if the server still offers exactly this tool.
    async fn live(&self) -> Result<Arc<Live>, ToolError> {
        let mut live = self.link.live.subscribe();
        if live.borrow().is_none() {
            self.link.wanted.notify_one();
        }
        let live = match timeout(CALL_WAIT, live.wait_for(Option::is_some)).await {
            Ok(Ok(live)) => live.clone().ok_or_else(|| self.unavailable())?,
            Ok(Err(_)) | Err(_) => return Err(self.unavailable()),
        };
        // A change that was announced is read before anything is called.
        let announced = *live.handler.announced().borrow();
        let mut listed = live.listed.subscribe();
        match timeout(self.link.list_timeout, listed.wait_for(|listed| *listed >= announced)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return Err(self.unavailable()),
        }
        let pin = {
            let pins = live.pins.read().unwrap_or_else(PoisonError::into_inner);
            pins.get(&self.offered.definition.name).cloned()
        };
        if pin.as_ref() == Some(&self.offered.digest) {
            return Ok(live);
        }
        let (server, tool) = (&self.link.server, &self.offered.definition.name);
        let what = if pin.is_some() { "has another definition now" } else { "is not listed any more" };
        Err(ToolError::new("TOOL_CHANGED", format!("`{tool}` of the server `{server}` {what}"))
            .not_executed())
    }

    fn read(&self, answer: Result<ServerResult, ServiceError>) -> Result<ToolOutput, ToolError> {
        let server = &self.link.server;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => result::output(result),
            // Some servers leave out what they have nothing to say in.
            Ok(ServerResult::EmptyResult(_)) => result::output(CallToolResult::success(Vec::new())),
            Ok(ServerResult::InputRequiredResult(_)) => {
                let why = format!(
                    "the server `{server}` asks for input in the middle of the call, which it is not given"
                );
                Err(ToolError::new("INPUT_REQUIRED", why))
            }
            Ok(_) => {
                let why = format!("the server `{server}` answered with something that is no result");
                Err(ToolError::new("NOT_A_RESULT", why).outcome_unknown())
            }
            Err(ServiceError::McpError(error)) => {
                // Some servers answer so when they were started anew and do not know the session.
                self.link.suspect.notify_one();
                let why = format!("the server `{server}` answered with an error: {}", error.message);
                Err(ToolError::new("SERVER_ERROR", why))
            }
            Err(error) => {
                self.link.suspect.notify_one();
                if never_sent(&error) {
                    return Err(self.unavailable());
                }
                let why = format!("the connection to the server `{server}` was lost during the call");
                Err(ToolError::new("CONNECTION_LOST", why).outcome_unknown())
            }
        }
    }

    /// Nothing was sent.
    fn unavailable(&self) -> ToolError {
        let why = format!("the MCP server `{}` is not available now", self.link.server);
        ToolError::new("SERVER_UNAVAILABLE", why).not_executed()
    }
}

fn exec_key(exec: ExecId) -> RequestMetaObject {
    let mut meta = MetaObject::default();
    meta.0.insert(EXEC_KEY.into(), exec.to_string().into());
    RequestMetaObject(meta)
}

/// Whether it never came to the tool: no connection came about, or HTTP turned it away at the door.
fn never_sent(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    match error.error.downcast_ref() {
        Some(StreamableHttpError::Client(error)) => reqwest::Error::is_connect(error),
        Some(
            StreamableHttpError::SessionExpired
            | StreamableHttpError::AuthRequired(_)
            | StreamableHttpError::InsufficientScope(_),
        ) => true,
        // The type is open; whatever else went wrong, it may have come to the tool.
        Some(_) | None => false,
    }
}

/// A request without an answer. Dropped as such - the time is up, the run is cancelled - it tells the server.
struct Unanswered {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let (Some(request), Ok(runtime)) = (self.request.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let params =
                CancelledNotificationParam::new(Some(request), Some("the call was cancelled".into()));
            let _ = peer.notify_cancelled(params).await;
        });
    }
}
