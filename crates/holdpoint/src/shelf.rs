//! The tools an agent has at hand: those it was built with, and those of sources that come and go.

use std::sync::{Arc, PoisonError, RwLock};

use holdpoint_tools::{Tool, ToolSource};

use crate::toolset::{BadToolset, Toolset};

/// The tools of an agent, as they are now.
pub(crate) struct Shelf {
    fixed: Vec<Arc<dyn Tool>>,
    sources: Vec<Source>,
    current: RwLock<Current>,
}

/// A source, and which of its tools the agent may have.
pub(crate) struct Source {
    pub(crate) source: Arc<dyn ToolSource>,
    pub(crate) takes: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

struct Current {
    revisions: Vec<u64>,
    tools: Arc<Toolset>,
}

impl Shelf {
    pub(crate) fn new(fixed: Vec<Arc<dyn Tool>>, sources: Vec<Source>) -> Result<Self, BadToolset> {
        let tools = Arc::new(Toolset::new(fixed.clone())?);
        let current = RwLock::new(Current { revisions: Vec::new(), tools });
        Ok(Self { fixed, sources, current })
    }

    /// Whether it can change.
    pub(crate) fn can_change(&self) -> bool {
        !self.sources.is_empty()
    }

    /// The tools as they are now. A round resolves against what it was offered; a start is checked against this.
    pub(crate) fn now(&self) -> Arc<Toolset> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if self.sources.is_empty() {
            return Arc::clone(&current.tools);
        }
        let snapshots: Vec<_> = self.sources.iter().map(|source| source.source.snapshot()).collect();
        let revisions: Vec<u64> = snapshots.iter().map(|snapshot| snapshot.revision).collect();
        if revisions == current.revisions {
            return Arc::clone(&current.tools);
        }
        drop(current);
        let offered = self.sources.iter().zip(&snapshots).flat_map(|(source, snapshot)| {
            snapshot.tools.iter().filter(|tool| (source.takes)(&tool.definition().name)).cloned()
        });
        // What an agent was built with comes first: a server cannot take a name away from it.
        let (tools, left_out) = Toolset::of_what_fits(self.fixed.iter().cloned().chain(offered));
        for why in left_out {
            tracing::warn!(%why, "a tool is left out");
        }
        let tools = Arc::new(tools);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            Current { revisions, tools: Arc::clone(&tools) };
        tools
    }
}
