//! Models named in configuration.
//!
//! ```yaml
//! default:
//!   provider: openai
//!   model: gpt-5
//!   api_key_env: OPENAI_API_KEY
//! local:
//!   provider: openai-compatible
//!   model: qwen3
//!   base_url: http://localhost:8080/v1
//! ```
//!
//! A key is named, never written: it comes from the environment or from a file, and is not printed. An error says
//! which model, which field, and what is wrong with it.

mod build;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use serde::Deserialize;

use crate::http::Patience;
use crate::{Model, Usage};

/// The models of a configuration, by the names it gives them.
pub type ModelsConfig = BTreeMap<String, ModelConfig>;

/// One model of a configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Who provides it, and so which language it speaks.
    pub provider: Provider,
    /// The provider's name of it; the deployment with `azure`. Not for `scripted`.
    #[serde(default)]
    pub model: String,
    /// Where it is reached, up to and without `/chat/completions` and the like.
    pub base_url: Option<String>,
    /// The version of the API (`azure`).
    pub api_version: Option<String>,
    /// The environment variable that holds the key. Each provider has a usual one.
    pub api_key_env: Option<String>,
    /// The file that holds the key; a path from the configuration's own folder.
    pub api_key_file: Option<PathBuf>,
    /// Sends the key over plain HTTP to a host that is not this machine.
    #[serde(default)]
    pub insecure_http: bool,
    /// Further headers. Their values are treated as secrets.
    #[serde(default)]
    pub headers: BTreeMap<String, SecretString>,
    /// What is known of an OpenAI-compatible server; told by its host when absent.
    pub profile: Option<String>,
    /// The most tokens of one reply.
    pub max_output_tokens: Option<u32>,
    /// Whether to ask for encrypted reasoning (`openai-responses`); told by the model's name when absent.
    pub encrypted_reasoning: Option<bool>,
    /// Further fields of the request body.
    #[serde(default)]
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// How long to wait.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// How often a request is repeated.
    pub retries: Option<u32>,
    /// What it costs.
    pub price: Option<Price>,
    /// The script (`scripted`); a path from the configuration's own folder.
    pub script: Option<PathBuf>,
}

/// Who provides a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// OpenAI, over Chat Completions.
    #[serde(rename = "openai")]
    OpenAi,
    /// OpenAI, over Responses.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Any server that speaks Chat Completions.
    #[serde(rename = "openai-compatible")]
    OpenAiCompatible,
    /// Azure's form of Chat Completions.
    Azure,
    /// Anthropic, over Messages.
    Anthropic,
    /// A script in place of a model.
    Scripted,
}

impl Provider {
    /// Every provider by its name.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("openai", Self::OpenAi),
        ("openai-responses", Self::OpenAiResponses),
        ("openai-compatible", Self::OpenAiCompatible),
        ("azure", Self::Azure),
        ("anthropic", Self::Anthropic),
        ("scripted", Self::Scripted),
    ];

    /// The environment variable that usually holds its key.
    pub fn usual_key(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiResponses => Some("OPENAI_API_KEY"),
            Self::Azure => Some("AZURE_OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::OpenAiCompatible | Self::Scripted => None,
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMED.iter().find(|(_, own)| own == self).map_or("", |(name, _)| name))
    }
}

/// How long to wait, in milliseconds; what is absent has its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// For a connection.
    pub connect_ms: Option<u64>,
    /// For the first byte of a streamed reply.
    pub first_byte_ms: Option<u64>,
    /// For each further byte.
    pub stall_ms: Option<u64>,
    /// For a whole reply.
    pub total_ms: Option<u64>,
}

/// What tokens cost, in US dollars a million.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens sent.
    pub input: f64,
    /// Tokens that come back.
    pub output: f64,
}

impl Price {
    /// What a use of tokens costs, in millionths of a dollar, rounded up.
    pub fn micro_dollars(&self, usage: Usage) -> u64 {
        // A dollar a million tokens is a millionth of a dollar a token.
        (usage.input_tokens as f64 * self.input + usage.output_tokens as f64 * self.output).ceil() as u64
    }
}

/// A model that can be asked.
#[derive(Clone)]
pub struct Route {
    /// The model.
    pub model: Arc<dyn Model>,
    /// What it costs, if configuration says.
    pub price: Option<Price>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("model", &self.model.name()).field("price", &self.price).finish()
    }
}

/// The models that can be asked, by name.
#[derive(Debug, Clone, Default)]
pub struct Models {
    routes: BTreeMap<String, Route>,
}

/// What configuration says of a model makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("model `{model}`, `{field}`: {problem}")]
pub struct RoutingError {
    /// The model's name in the configuration.
    pub model: String,
    /// The field.
    pub field: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// Where keys come from. The process' own environment and files, or a test's.
pub trait Secrets {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// The contents of a file.
    fn file(&self, path: &Path) -> std::io::Result<String>;
}

/// The environment of this process, and files from a folder.
#[derive(Debug, Clone)]
pub struct ProcessSecrets {
    /// The folder that relative paths start from: the configuration's.
    pub folder: PathBuf,
}

impl Secrets for ProcessSecrets {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(self.folder.join(path))
    }
}

impl Models {
    /// Sets up every model of a configuration.
    pub fn from_config(config: &ModelsConfig, secrets: &dyn Secrets) -> Result<Self, RoutingError> {
        let mut models = Self::default();
        for (name, config) in config {
            models.routes.insert(name.clone(), build::route(name, config, secrets)?);
        }
        Ok(models)
    }

    /// Adds a model of the program's own, or puts it in another's place.
    pub fn insert(&mut self, name: impl Into<String>, model: Arc<dyn Model>) {
        self.routes.insert(name.into(), Route { model, price: None });
    }

    /// The model of this name.
    pub fn get(&self, name: &str) -> Option<&Route> {
        self.routes.get(name)
    }

    /// Every name, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.routes.keys().map(String::as_str)
    }
}

impl ModelConfig {
    /// A model of this provider, everything else as usual.
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            base_url: None,
            api_version: None,
            api_key_env: None,
            api_key_file: None,
            insecure_http: false,
            headers: BTreeMap::new(),
            profile: None,
            max_output_tokens: None,
            encrypted_reasoning: None,
            extra: serde_json::Map::new(),
            timeouts: Timeouts::default(),
            retries: None,
            price: None,
            script: None,
        }
    }

    /// Reads what a command line names a model by: `PROVIDER/MODEL`, or `MODEL@URL` for an OpenAI-compatible server.
    pub fn from_short(text: &str) -> Result<Self, RoutingError> {
        if let Some((model, url)) = text.split_once('@').filter(|(_, url)| url.contains("://")) {
            let base_url = Some(url.to_owned());
            return Ok(Self { base_url, ..Self::new(Provider::OpenAiCompatible, model) });
        }
        let named = text.split_once('/').and_then(|(provider, model)| {
            let provider = Provider::NAMED.iter().find(|(name, _)| *name == provider)?.1;
            (!model.is_empty()).then(|| Self::new(provider, model))
        });
        named.ok_or_else(|| RoutingError {
            model: text.to_owned(),
            field: "provider",
            problem: format!(
                "write `PROVIDER/MODEL` with one of {}, or `MODEL@URL` for an OpenAI-compatible server",
                Provider::NAMED.map(|(name, _)| format!("`{name}`")).join(", ")
            ),
        })
    }

    fn patience(&self) -> Patience {
        let usual = Patience::default();
        let or = |ms: Option<u64>, usual| ms.map_or(usual, std::time::Duration::from_millis);
        Patience {
            connect: or(self.timeouts.connect_ms, usual.connect),
            first_byte: or(self.timeouts.first_byte_ms, usual.first_byte),
            stall: or(self.timeouts.stall_ms, usual.stall),
            total: or(self.timeouts.total_ms, usual.total),
            retries: self.retries.unwrap_or(usual.retries),
        }
    }
}
