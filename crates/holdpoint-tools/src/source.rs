//! Where tools come from that come and go: a listing that changes while runs wait.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::Tool;

/// A source of tools that can change: a server of tools, a plug-in.
///
/// What it offers is a [`Snapshot`], replaced as a whole. A changed definition is another definition: the gate
/// asks again for it, and a call released for the old one does not run.
#[async_trait]
pub trait ToolSource: Send + Sync + 'static {
    /// Where its tools come from, as in `ToolDefinition::origin`: `mcp:<server>`.
    fn origin(&self) -> &str;

    /// What it offers now.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Waits for a snapshot of a later revision. Never returns when there can be none any more.
    async fn changed(&self, since: u64) -> Arc<Snapshot>;
}

/// What a source offers at one moment.
#[derive(Clone)]
pub struct Snapshot {
    /// Counts the snapshots of this source; the first is 0 and empty.
    pub revision: u64,
    /// How the source stands.
    pub status: SourceStatus,
    /// The tools that can be used. They stay listed while the source is down: a call to them then fails clearly.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Those it has that cannot be used, and why.
    pub unusable: Vec<Unusable>,
    /// What is different from the listing before.
    pub changes: Vec<ToolChange>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<&str> = self.tools.iter().map(|tool| &*tool.definition().name).collect();
        f.debug_struct("Snapshot")
            .field("revision", &self.revision)
            .field("status", &self.status)
            .field("tools", &tools)
            .field("unusable", &self.unusable)
            .field("changes", &self.changes)
            .finish()
    }
}

/// How a source stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceStatus {
    /// It has not answered yet.
    Starting,
    /// It works.
    Ready,
    /// It does not work, for this reason; it is tried again.
    Down(String),
    /// It was closed.
    Closed,
}

/// A tool that a source has and nobody can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// Its name, as the source writes it.
    pub name: String,
    /// Why not.
    pub why: String,
}

/// One tool that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChange {
    /// The tool, by the name the model calls it.
    pub tool: String,
    /// What kind of change it is.
    pub kind: ChangeKind,
    /// What changed, for a person: the old and the new, line by line.
    pub what: String,
}

/// What kind of change it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// It is gone.
    Removed,
    /// Its definition is another.
    Changed,
}
