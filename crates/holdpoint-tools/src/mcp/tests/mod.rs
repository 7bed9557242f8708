//! Against real servers that nobody here wrote, and against a bad one.

mod bad;
mod real;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdpoint_core::message::ResultContent;
use holdpoint_protocol::ExecId;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::keeper::Live;
use super::tool::McpTool;
use super::{McpServer, McpServerConfig};
use crate::{Snapshot, SourceStatus, Tool, ToolError, ToolOutput, ToolSource};

const EXEC: &str = "0194f3a0-0000-7000-8000-000000000001";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp")
}

/// The tool as the snapshot offers it, to be run without a permit: in this crate's own tests alone.
fn tool(server: &McpServer, name: &str) -> McpTool {
    let snapshot = server.snapshot();
    let found = snapshot.tools.iter().find(|tool| tool.definition().name == name);
    let definition = found.unwrap_or_else(|| panic!("no {name} in {snapshot:?}")).definition().clone();
    let digest = holdpoint_core::digest::definition_digest(&definition).to_string();
    let wire_name = name.split_once("__").unwrap().1.to_owned();
    McpTool {
        offered: super::definition::Offered { definition, wire_name, digest },
        link: server.link().clone(),
    }
}

async fn call(tool: &McpTool, arguments: Value) -> Result<ToolOutput, ToolError> {
    call_with(tool, arguments, &CancellationToken::new(), &|_, _| {}).await
}

async fn call_with(
    tool: &McpTool,
    arguments: Value,
    cancel: &CancellationToken,
    report: &(dyn Fn(Option<&str>, Option<f64>) + Send + Sync),
) -> Result<ToolOutput, ToolError> {
    let exec: ExecId = EXEC.parse().unwrap();
    let arguments = serde_json::from_value(arguments).unwrap();
    tokio::time::timeout(Duration::from_secs(60), tool.run(arguments, exec, cancel, report))
        .await
        .expect("it hangs")
}

fn text(output: ToolOutput) -> String {
    match output.content {
        ResultContent::Text(text) => text,
        other => panic!("not text: {other:?}"),
    }
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot.tools.iter().map(|tool| tool.definition().name.clone()).collect()
}

async fn ready(server: &McpServer) -> Arc<Snapshot> {
    let snapshot =
        tokio::time::timeout(Duration::from_secs(60), server.ready()).await.expect("it is never ready");
    assert_eq!(snapshot.status, SourceStatus::Ready, "{snapshot:?}");
    snapshot
}

async fn down(server: &McpServer) -> String {
    match &tokio::time::timeout(Duration::from_secs(60), server.ready())
        .await
        .expect("it is never down")
        .status
    {
        SourceStatus::Down(why) => why.clone(),
        other => panic!("it is not down: {other:?}"),
    }
}

/// Waits for the next snapshot.
async fn next(server: &McpServer, since: u64) -> Arc<Snapshot> {
    tokio::time::timeout(Duration::from_secs(60), server.changed(since)).await.expect("nothing changes")
}

fn live(server: &McpServer) -> Arc<Live> {
    server.link().live.borrow().clone().expect("it is not connected")
}

/// Reports of progress, collected.
#[derive(Default)]
struct Reports(Mutex<Vec<(Option<String>, Option<f64>)>>);

impl Reports {
    fn add(&self, message: Option<&str>, fraction: Option<f64>) {
        self.0.lock().unwrap().push((message.map(Into::into), fraction));
    }

    fn fractions(&self) -> Vec<f64> {
        self.0.lock().unwrap().iter().filter_map(|(_, fraction)| *fraction).collect()
    }
}
