//! May a call run unattended? A policy is three lists of tool names: what is allowed, what asks, what is denied.
//!
//! Within a policy deny is stronger than ask and ask is stronger than allow, whatever the order they are
//! written in; a tool that no list names asks. Several policies - the operator's, the agent's, a parent
//! agent's - are layers: the strictest verdict wins, so that a layer can tighten and never loosen. A layer
//! that names a tool nowhere therefore asks for it; one that only wants to deny says `allow = ["*"]` beside it.
//!
//! Names are matched whole, exactly as the tool is registered, case and all; never by a title or description.

mod glob;
mod preset;

use std::fmt;

use holdpoint_protocol::Reason;
use serde::{Deserialize, Serialize};

use crate::digest::Fields;

pub use glob::{Glob, InvalidGlob, PATTERN_MAX_BYTES};
pub use preset::{BadPreset, Condition, PRESET_NAME_MAX_BYTES, Preset, Release, Scalar};

/// The name a stack without any policy gives as its reason.
const NO_POLICY: &str = "default";

/// The rule that is given when no list names the tool.
const UNLISTED: &str = "unlisted";

/// What a policy says of a call. The later one is the stricter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run unattended.
    Allow,
    /// A person must release it.
    Ask,
    /// It may not run.
    Deny,
}

impl Verdict {
    /// The word in files and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One layer: three lists of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// What it is called in reasons.
    #[serde(default = "unnamed")]
    pub name: String,
    /// What may run unattended.
    #[serde(default)]
    pub allow: Vec<Glob>,
    /// What a person must release.
    #[serde(default)]
    pub require_approval_for: Vec<Glob>,
    /// What may not run.
    #[serde(default)]
    pub deny: Vec<Glob>,
}

fn unnamed() -> String {
    "policy".into()
}

impl Policy {
    /// A policy to be filled in.
    pub fn builder(name: impl Into<String>) -> PolicyBuilder {
        PolicyBuilder { name: name.into(), ..PolicyBuilder::default() }
    }

    /// What this layer says of a tool, and by which rule.
    pub fn rule(&self, tool: &str) -> Ruling {
        let (verdict, rule) = self
            .lists()
            .into_iter()
            .find_map(|(verdict, key, globs)| {
                let glob = globs.iter().find(|glob| glob.matches(tool))?;
                Some((verdict, rule_text(key, glob)))
            })
            .unwrap_or((Verdict::Ask, UNLISTED.into()));
        Ruling { verdict, reason: Reason { policy: self.name.clone(), rule } }
    }

    /// The rules that match none of these tools: written for a name that does not exist.
    pub fn rules_without_a_tool<'t>(&self, tools: impl Iterator<Item = &'t str> + Clone) -> Vec<String> {
        let mut dead = Vec::new();
        for (_, key, globs) in self.lists() {
            let unmatched = globs.iter().filter(|glob| !tools.clone().any(|tool| glob.matches(tool)));
            dead.extend(unmatched.map(|glob| rule_text(key, glob)));
        }
        dead
    }

    /// The lists from the strictest to the mildest, with the key they are written under.
    fn lists(&self) -> [(Verdict, &'static str, &[Glob]); 3] {
        [
            (Verdict::Deny, "deny", &self.deny),
            (Verdict::Ask, "require_approval_for", &self.require_approval_for),
            (Verdict::Allow, "allow", &self.allow),
        ]
    }
}

fn rule_text(key: &str, glob: &Glob) -> String {
    format!("{key} = \"{glob}\"")
}

/// A policy in the making; a bad pattern is reported when it is built.
#[derive(Debug, Clone, Default)]
pub struct PolicyBuilder {
    name: String,
    allow: Vec<String>,
    require_approval_for: Vec<String>,
    deny: Vec<String>,
}

impl PolicyBuilder {
    /// Lets these run unattended.
    pub fn allow<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.allow.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Has a person release these.
    pub fn require_approval_for<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.require_approval_for.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Never lets these run.
    pub fn deny<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.deny.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Checks the patterns.
    pub fn build(self) -> Result<Policy, InvalidGlob> {
        let globs =
            |patterns: Vec<String>| patterns.iter().map(|p| p.parse()).collect::<Result<Vec<Glob>, _>>();
        Ok(Policy {
            name: self.name,
            allow: globs(self.allow)?,
            require_approval_for: globs(self.require_approval_for)?,
            deny: globs(self.deny)?,
        })
    }
}

/// A verdict and the rule that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// What is said.
    pub verdict: Verdict,
    /// By which policy and which rule of it.
    pub reason: Reason,
}

/// Policies one on the other. Empty, it asks for everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyStack {
    layers: Vec<Policy>,
}

impl PolicyStack {
    /// The layers from the outermost (the operator's) inwards.
    pub fn new(layers: impl IntoIterator<Item = Policy>) -> Self {
        Self { layers: layers.into_iter().collect() }
    }

    /// This stack with one more layer inside: a subagent's policy is its parent's and its own.
    #[must_use]
    pub fn with(&self, layer: Policy) -> Self {
        let mut layers = self.layers.clone();
        layers.push(layer);
        Self { layers }
    }

    /// The layers.
    pub fn layers(&self) -> &[Policy] {
        &self.layers
    }

    /// The strictest verdict of all layers; of equal ones, the outermost gives the reason.
    pub fn rule(&self, tool: &str) -> Ruling {
        self.layers
            .iter()
            .map(|layer| layer.rule(tool))
            .reduce(|first, next| if next.verdict > first.verdict { next } else { first })
            .unwrap_or_else(|| Ruling {
                verdict: Verdict::Ask,
                reason: Reason { policy: NO_POLICY.into(), rule: UNLISTED.into() },
            })
    }

    /// What every layer says, from the outermost inwards.
    pub fn explain(&self, tool: &str) -> Vec<Ruling> {
        self.layers.iter().map(|layer| layer.rule(tool)).collect()
    }

    /// A text that is another one as soon as any rule is: how a change during a suspension is seen.
    pub fn version(&self) -> String {
        let mut fields = Fields::new("holdpoint.policy.v1");
        for layer in &self.layers {
            fields.text(&layer.name);
            for (verdict, _, globs) in layer.lists() {
                fields.text(verdict.as_str());
                fields.shown(globs.len());
                globs.iter().for_each(|glob| fields.text(glob.as_str()));
            }
        }
        fields.finish()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests;
