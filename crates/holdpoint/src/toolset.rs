//! The tools of an agent: each with its definition, its digest and its compiled schema.

use std::collections::HashMap;
use std::sync::Arc;

use holdpoint_core::digest::{DefinitionDigest, definition_digest, tool_set_digest};
use holdpoint_core::limits::TOOLS_PER_REQUEST_MAX;
use holdpoint_core::schema::Schema;
use holdpoint_core::tool::ToolDefinition;
use holdpoint_store::ToolSet;
use holdpoint_tools::Tool;

/// The longest name a tool may have, in bytes: what the strictest provider takes.
pub const TOOL_NAME_MAX_BYTES: usize = 64;

/// The tools of an agent.
pub struct Toolset {
    entries: HashMap<String, Arc<Entry>>,
    names: Vec<String>,
    stored: ToolSet,
}

/// One tool, ready to be checked against and run.
pub(crate) struct Entry {
    pub(crate) definition: Arc<ToolDefinition>,
    pub(crate) digest: DefinitionDigest,
    pub(crate) schema: Schema,
    pub(crate) tool: Arc<dyn Tool>,
}

/// Tools that cannot stand side by side.
#[derive(Debug, thiserror::Error)]
pub enum BadToolset {
    /// Two have one name.
    #[error("two tools are named `{name}`: one from {first}, one from {second}; rename one")]
    Twice {
        /// The name.
        name: String,
        /// Where the first comes from.
        first: String,
        /// Where the second comes from.
        second: String,
    },
    /// A name that not every provider takes.
    #[error("tool name {name:?} (from {origin}): use 1 to 64 ASCII letters, digits, `_` and `-`")]
    Name {
        /// The name.
        name: String,
        /// Where it comes from.
        origin: String,
    },
    /// A schema that cannot be used.
    #[error("tool `{name}` (from {origin}): {why}")]
    Schema {
        /// The tool.
        name: String,
        /// Where it comes from.
        origin: String,
        /// Why.
        why: String,
    },
    /// A business key that a call may lack.
    #[error("tool `{name}` (from {origin}): {why}")]
    BusinessKey {
        /// The tool.
        name: String,
        /// Where it comes from.
        origin: String,
        /// Why.
        why: String,
    },
    /// Too many.
    #[error("tool `{name}` is one too many: at most {TOOLS_PER_REQUEST_MAX} can be offered")]
    TooMany {
        /// The first that is too many.
        name: String,
    },
}

impl Toolset {
    /// All of these, or what is wrong with them.
    pub(crate) fn new(tools: Vec<Arc<dyn Tool>>) -> Result<Self, BadToolset> {
        let mut set = Self::empty();
        for tool in tools {
            set.add(tool)?;
        }
        set.seal();
        Ok(set)
    }

    /// Those of these that fit together, and why the others are left out.
    pub(crate) fn of_what_fits(tools: impl Iterator<Item = Arc<dyn Tool>>) -> (Self, Vec<BadToolset>) {
        let mut set = Self::empty();
        let left_out = tools.filter_map(|tool| set.add(tool).err()).collect();
        set.seal();
        (set, left_out)
    }

    fn empty() -> Self {
        let stored = ToolSet { digest: tool_set_digest(&[]), tools: Arc::default() };
        Self { entries: HashMap::new(), names: Vec::new(), stored }
    }

    fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), BadToolset> {
        if self.names.len() >= TOOLS_PER_REQUEST_MAX {
            return Err(BadToolset::TooMany { name: tool.definition().name.clone() });
        }
        let definition = tool.definition().clone();
        let (name, origin) = (definition.name.clone(), definition.origin.clone());
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if name.is_empty() || name.len() > TOOL_NAME_MAX_BYTES || !name.bytes().all(legal) {
            return Err(BadToolset::Name { name, origin });
        }
        if let Some(first) = self.entries.get(&name) {
            let first = first.definition.origin.clone();
            return Err(BadToolset::Twice { name, first, second: origin });
        }
        if let Some(why) = definition.business_key_fault() {
            return Err(BadToolset::BusinessKey { name, origin, why });
        }
        let schema = Schema::compile(&definition.schema).map_err(|why| BadToolset::Schema {
            name: name.clone(),
            origin,
            why: why.to_string(),
        })?;
        let digest = definition_digest(&definition);
        self.names.push(name.clone());
        self.entries.insert(name, Arc::new(Entry { definition: Arc::new(definition), digest, schema, tool }));
        Ok(())
    }

    fn seal(&mut self) {
        let in_order = self.names.iter().filter_map(|name| self.entries.get(name));
        let tools: Arc<[ToolDefinition]> = in_order.map(|entry| (*entry.definition).clone()).collect();
        self.stored = ToolSet { digest: tool_set_digest(&tools), tools };
    }

    /// The names, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The definitions, in order.
    pub fn definitions(&self) -> &Arc<[ToolDefinition]> {
        &self.stored.tools
    }

    pub(crate) fn stored(&self) -> &ToolSet {
        &self.stored
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }
}

impl std::fmt::Debug for Toolset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.names).finish()
    }
}
