//! One MCP server as a source of tools.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::config::{ConfigError, McpServerConfig, check};
use super::keeper::Keeper;
use super::tool::Link;
use crate::{Snapshot, SourceStatus, ToolSource};

/// A declared MCP server: connected, kept, and connected again. Dropping it ends the connection, and the process
/// if there is one.
pub struct McpServer {
    origin: String,
    link: Arc<Link>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    cancel: CancellationToken,
    keeper: Option<JoinHandle<()>>,
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("origin", &self.origin).field("snapshot", &self.snapshot()).finish()
    }
}

impl McpServer {
    /// Checks the declaration and begins to connect, in a task of the current Tokio runtime. That the server does
    /// not work is no error here: it is told by its [`Snapshot`].
    pub fn start(name: &str, config: McpServerConfig) -> Result<Self, ConfigError> {
        let target = check(name, &config)?;
        let link = Arc::new(Link {
            server: name.to_owned(),
            live: watch::Sender::new(None),
            wanted: Notify::new(),
            suspect: Notify::new(),
            list_timeout: config.list_timeout(),
        });
        let (sender, snapshot) = watch::channel(Arc::new(Snapshot {
            revision: 0,
            status: SourceStatus::Starting,
            tools: Vec::new(),
            unusable: Vec::new(),
            changes: Vec::new(),
        }));
        let cancel = CancellationToken::new();
        let keeper = Keeper {
            link: link.clone(),
            config,
            target,
            snapshot: sender,
            cancel: cancel.clone(),
            known: None,
        };
        let keeper = tokio::spawn(keeper.keep());
        Ok(Self { origin: format!("mcp:{name}"), link, snapshot, cancel, keeper: Some(keeper) })
    }

    /// Waits until the first attempt to connect has ended, well or not.
    pub async fn ready(&self) -> Arc<Snapshot> {
        self.wait(|snapshot| snapshot.status != SourceStatus::Starting).await
    }

    /// The version of the protocol that is spoken, while it is connected.
    pub fn protocol_version(&self) -> Option<String> {
        let live = self.link.live.borrow().clone()?;
        Some(live.peer.peer_info()?.protocol_version.to_string())
    }

    /// Ends the connection, and waits until the process is gone.
    pub async fn close(mut self) {
        self.cancel.cancel();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.await;
        }
    }

    #[cfg(test)]
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    async fn wait(&self, until: impl FnMut(&Arc<Snapshot>) -> bool) -> Arc<Snapshot> {
        let mut snapshot = self.snapshot.clone();
        let found = snapshot.wait_for(until).await.map(|snapshot| snapshot.clone());
        match found {
            Ok(snapshot) => snapshot,
            // The keeper is gone: there will be no other.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

#[async_trait]
impl ToolSource for McpServer {
    fn origin(&self) -> &str {
        &self.origin
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    async fn changed(&self, since: u64) -> Arc<Snapshot> {
        self.wait(|snapshot| snapshot.revision > since).await
    }
}
