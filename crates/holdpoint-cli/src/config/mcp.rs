//! The MCP servers of a configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use holdpoint_tools::SourceStatus;
use holdpoint_tools::ToolSource;
use holdpoint_tools::mcp::{McpServer, McpServerConfig};

use crate::fail::{Fail, Result};

use super::file;
use super::read::nearest;

/// The servers by the names agents use.
pub(crate) type Servers = BTreeMap<String, Arc<dyn ToolSource>>;

/// Starts every server that an agent lists, and waits until each has answered or given up. One that does not work is a
/// warning: its tools come when it does, and no run waits for it.
pub(crate) async fn start(file: &file::File, folder: &Path) -> Result<(Servers, Vec<String>)> {
    check_names(file)?;
    let mut started = Vec::new();
    let mut warnings = Vec::new();
    for (name, config) in &file.mcp {
        if !file.agents.iter().any(|agent| agent.mcp.contains(name)) {
            warnings.push(format!("mcp server `{name}` is not started: no agent lists it under `mcp`"));
            continue;
        }
        let config = in_folder(config, folder);
        let server = McpServer::start(name, config).map_err(|error| Fail::usage(error.to_string()))?;
        started.push((name.clone(), Arc::new(server)));
    }
    let mut servers = Servers::new();
    for (name, server) in started {
        let snapshot = server.ready().await;
        match &snapshot.status {
            SourceStatus::Ready => {}
            SourceStatus::Down(why) => {
                warnings.push(format!("mcp server `{name}` does not work yet: {why}; it is tried again"));
            }
            SourceStatus::Starting | SourceStatus::Closed => {
                warnings.push(format!("mcp server `{name}` has not answered; it is tried again"));
            }
        }
        for tool in &snapshot.unusable {
            warnings
                .push(format!("mcp server `{name}`: its tool `{}` cannot be used: {}", tool.name, tool.why));
        }
        servers.insert(name, server);
    }
    Ok((servers, warnings))
}

/// Paths start from the configuration's own folder, here as everywhere.
fn in_folder(config: &McpServerConfig, folder: &Path) -> McpServerConfig {
    let mut config = config.clone();
    config.cwd = Some(config.cwd.map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd)));
    if config.command.is_none() {
        config.cwd = None;
    }
    config
}

fn check_names(file: &file::File) -> Result<()> {
    for agent in &file.agents {
        if let Some(name) = agent.mcp.iter().find(|name| !file.mcp.contains_key(*name)) {
            let known = file.mcp.keys().map(String::as_str);
            let hint = match nearest(name, known.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if file.mcp.is_empty() => format!("declare it under `[mcp.{name}]`"),
                None => format!("there are: {}", known.collect::<Vec<_>>().join(", ")),
            };
            return Err(
                Fail::usage(format!("agent `{}`: there is no mcp server `{name}`", agent.name)).hint(hint)
            );
        }
    }
    Ok(())
}
