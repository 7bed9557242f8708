//! What a tool is to the gate: a name, a schema, and what it does to the world.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::terms::AtMost;

/// What running a tool does to the world. It decides what happens when a process dies in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// It changes nothing: run again.
    ReadOnly,
    /// It honours its idempotency key: run again with the same key.
    Idempotent,
    /// It can be asked afterwards whether it ran.
    Verifiable,
    /// It must never run twice. What a tool is that says nothing.
    #[default]
    AtMostOnce,
}

/// A tool as it is offered to a model and known to the gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// The name the model calls it by: ASCII letters, digits, `_` and `-`, at most 64 bytes.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments: an object schema.
    pub schema: serde_json::Value,
    /// What running it does to the world.
    #[serde(default)]
    pub effect: EffectClass,
    /// Whether its result can be the answer of the run.
    #[serde(default)]
    pub return_direct: bool,
    /// How long it may run, in milliseconds; the runtime's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The argument that names a request of the world outside - an order, a payment - which must be carried out once, whichever
    /// call asks for it. See [`ToolDefinition::business_key`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_key: Option<Arc<str>>,
    /// How its approvals wait at most. It can only make what is configured stricter.
    #[serde(default, skip_serializing_if = "AtMost::is_empty")]
    pub approval: AtMost,
    /// Where it comes from: `builtin`, `program`, `mcp:<server>`. Named when two tools collide.
    #[serde(default)]
    pub origin: String,
    /// What its source says of it that nobody has checked: shown as "server says", never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Arc<str>>,
}

impl ToolDefinition {
    /// A tool of the embedding program, `at_most_once`.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: serde_json::Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema,
            effect: EffectClass::default(),
            return_direct: false,
            timeout_ms: None,
            business_key: None,
            approval: AtMost::default(),
            origin: "program".into(),
            claims: None,
        }
    }

    /// The class that says what follows where a call was cut off. Of what is done under a business key there is a record,
    /// which can be looked at before a person is asked.
    pub fn class(&self) -> EffectClass {
        match self.effect {
            EffectClass::AtMostOnce if self.business_key.is_some() => EffectClass::Verifiable,
            class @ (EffectClass::ReadOnly
            | EffectClass::Idempotent
            | EffectClass::Verifiable
            | EffectClass::AtMostOnce) => class,
        }
    }

    /// How long it may run.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }
}

/// Says what changed between two definitions of one tool, for a person who approved the older.
pub fn changes_between(before: &ToolDefinition, now: &ToolDefinition) -> String {
    let mut changed = Vec::new();
    if before.description != now.description {
        changed.push(format!("description: {:?} is now {:?}", before.description, now.description));
    }
    if before.schema != now.schema {
        let fields = |schema: &serde_json::Value| -> Vec<String> {
            let properties = schema.get("properties").and_then(|value| value.as_object());
            properties.map(|map| map.keys().cloned().collect()).unwrap_or_default()
        };
        let (old, new) = (fields(&before.schema), fields(&now.schema));
        let added: Vec<_> = new.iter().filter(|name| !old.contains(name)).cloned().collect();
        let removed: Vec<_> = old.iter().filter(|name| !new.contains(name)).cloned().collect();
        if !added.is_empty() {
            changed.push(format!("arguments added: {}", added.join(", ")));
        }
        if !removed.is_empty() {
            changed.push(format!("arguments removed: {}", removed.join(", ")));
        }
        if added.is_empty() && removed.is_empty() {
            changed.push("the schema of its arguments".to_owned());
        }
    }
    if changed.is_empty() { "the tool's definition".to_owned() } else { changed.join("; ") }
}
