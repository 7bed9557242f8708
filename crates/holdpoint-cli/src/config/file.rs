//! What can be written in a configuration file. Every struct refuses a key it does not know: a misspelt `deny` must
//! not mean "nothing is denied".

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use holdpoint::OnNewMessage;
use holdpoint_core::limits::Limits;
use holdpoint_core::policy::{Glob, Policy, Release};
use holdpoint_core::run::{Execution, OnInvalidCall};
use holdpoint_models::routing::ModelsConfig;
use holdpoint_protocol::GroupName;
use holdpoint_tools::mcp::McpServerConfig;
use serde::Deserialize;

use super::time::Span;

/// The port a server listens on when nobody says.
pub(crate) const PORT_DEFAULT: u16 = 7411;

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(default)]
    pub(crate) server: Server,
    /// The models, by the names agents use.
    pub(crate) models: ModelsConfig,
    /// The agents. The first is the default one.
    pub(crate) agents: Vec<Agent>,
    /// Layers of policy above the agents' own.
    #[serde(default)]
    pub(crate) policies: Vec<Layer>,
    /// What may be released when nobody decides in time.
    #[serde(default)]
    pub(crate) presets: Vec<Preset>,
    /// Servers of tools, by the names agents use.
    #[serde(default)]
    pub(crate) mcp: BTreeMap<String, McpServerConfig>,
}

/// `[server]`.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    /// The path of a SQLite file, or the URL of a PostgreSQL database.
    pub(crate) database: Option<String>,
    /// The variable that has the URL, so that its password stands in no file.
    pub(crate) database_url_env: Option<String>,
    /// The variable that has a URL of the same PostgreSQL database past a pooler, for what a pooler does not let through.
    pub(crate) database_listen_url_env: Option<String>,
    /// The certificates to believe of a PostgreSQL database, PEM.
    pub(crate) database_ca_file: Option<PathBuf>,
    /// Whether the operator may start runs without prompts.
    pub(crate) bypass_approval: bool,
    /// How long running tools have to end when the server is stopped.
    pub(crate) shutdown_grace: Option<Span>,
    /// How long conversations are kept after the start of their last run; for ever when absent.
    pub(crate) retention: Option<Span>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], PORT_DEFAULT)),
            database: None,
            database_url_env: None,
            database_listen_url_env: None,
            database_ca_file: None,
            bypass_approval: false,
            shutdown_grace: None,
            retention: None,
        }
    }
}

/// `[[agents]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) instructions: Option<String>,
    pub(crate) instructions_file: Option<PathBuf>,
    pub(crate) model: String,
    /// Further models a request may name.
    #[serde(default)]
    pub(crate) models: Vec<String>,
    /// Where its tools work.
    pub(crate) workdir: Option<PathBuf>,
    /// Its tools; all the built-in ones when absent.
    pub(crate) tools: Option<Vec<String>>,
    /// The servers whose tools it may call too; none when absent.
    #[serde(default)]
    pub(crate) mcp: Vec<String>,
    #[serde(default)]
    pub(crate) execution: Execution,
    #[serde(default)]
    pub(crate) on_invalid_call: OnInvalidCall,
    #[serde(default)]
    pub(crate) on_new_message: OnNewMessage,
    /// How long a request waits for a decision; without a limit when absent.
    pub(crate) approval_timeout: Option<Span>,
    /// What happens then.
    pub(crate) on_timeout: Option<OnTimeout>,
    /// The preset that is asked then.
    pub(crate) preset: Option<String>,
    /// How long after a reminder the next one comes.
    pub(crate) remind_every: Option<Span>,
    /// The groups that are to decide.
    pub(crate) approvers: Option<Vec<GroupName>>,
    /// The groups that may decide too when nobody has in good time.
    pub(crate) escalate_to: Option<Vec<GroupName>>,
    /// The same for some of its tools, more precisely.
    #[serde(default)]
    pub(crate) approvals: Vec<Approvals>,
    #[serde(default)]
    pub(crate) limits: Limits,
    /// Whether the model is asked to stream.
    #[serde(default = "yes")]
    pub(crate) stream: bool,
    /// Its own layers of policy.
    #[serde(default)]
    pub(crate) policies: Vec<OwnLayer>,
}

/// What happens to a request that nobody decides in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnTimeout {
    /// It expires.
    Deny,
    /// It stays open.
    Wait,
    /// A preset is asked.
    Policy,
}

/// `approvals`: how requests for some tools wait.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approvals {
    /// The tools, by name or glob.
    pub(crate) tools: Vec<Glob>,
    pub(crate) timeout: Option<Span>,
    pub(crate) on_timeout: Option<OnTimeout>,
    pub(crate) preset: Option<String>,
    pub(crate) remind_every: Option<Span>,
    pub(crate) approvers: Option<Vec<GroupName>>,
    pub(crate) escalate_to: Option<Vec<GroupName>>,
}

/// `[[presets]]`: what may be released when nobody decides in time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preset {
    pub(crate) name: String,
    pub(crate) releases: Vec<Release>,
}

fn yes() -> bool {
    true
}

/// `[[policies]]`: a layer for all agents, or for those it names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layer {
    pub(crate) name: String,
    pub(crate) agents: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) allow: Vec<Glob>,
    #[serde(default)]
    pub(crate) require_approval_for: Vec<Glob>,
    #[serde(default)]
    pub(crate) deny: Vec<Glob>,
    /// How requests for some tools wait at most.
    #[serde(default)]
    pub(crate) approvals: Vec<Approvals>,
}

impl Layer {
    pub(crate) fn is_for(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|names| names.iter().any(|name| name == agent))
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy {
            name: self.name.clone(),
            allow: self.allow.clone(),
            require_approval_for: self.require_approval_for.clone(),
            deny: self.deny.clone(),
        }
    }
}

/// `[[agents.policies]]`: a layer of one agent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnLayer {
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) allow: Vec<Glob>,
    #[serde(default)]
    pub(crate) require_approval_for: Vec<Glob>,
    #[serde(default)]
    pub(crate) deny: Vec<Glob>,
    /// How requests for some tools wait at most.
    #[serde(default)]
    pub(crate) approvals: Vec<Approvals>,
}

impl OwnLayer {
    pub(crate) fn policy(&self, agent: &str) -> Policy {
        Policy {
            name: self.name.clone().unwrap_or_else(|| format!("{agent}'s policy")),
            allow: self.allow.clone(),
            require_approval_for: self.require_approval_for.clone(),
            deny: self.deny.clone(),
        }
    }
}
