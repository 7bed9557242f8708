//! From a model's configuration to the model.

use std::path::Path;
use std::sync::Arc;

use holdpoint_core::limits::TIME_MAX_MS;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use super::{ModelConfig, Provider, Route, RoutingError, Secrets};
use crate::Model;
use crate::http::{Endpoint, HttpModel};
use crate::wire::anthropic::{self, Anthropic};
use crate::wire::chat::{Chat, Profile};
use crate::wire::responses::Responses;
use crate::wire::{RESERVED_FIELDS, Wire, WireOptions};

/// The most repetitions configuration can ask for.
pub const RETRIES_MAX: u32 = 10;

/// The version of Azure's API when configuration does not say.
const AZURE_API_VERSION: &str = "2024-10-21";

type Result<T> = std::result::Result<T, Problem>;

/// A field and what is wrong with it.
struct Problem(&'static str, String);

pub(super) fn route(
    name: &str,
    config: &ModelConfig,
    secrets: &dyn Secrets,
) -> std::result::Result<Route, RoutingError> {
    let model: Result<Arc<dyn Model>> = match config.provider {
        Provider::Scripted => scripted(config, secrets),
        Provider::OpenAi
        | Provider::OpenAiResponses
        | Provider::OpenAiCompatible
        | Provider::Azure
        | Provider::Anthropic => http(name, config, secrets),
    };
    let model = model.and_then(|model| checked_price(config).map(|()| model));
    match model {
        Ok(model) => Ok(Route { model, price: config.price }),
        Err(Problem(field, problem)) => Err(RoutingError { model: name.to_owned(), field, problem }),
    }
}

fn checked_price(config: &ModelConfig) -> Result<()> {
    match config.price {
        Some(price) if [price.input, price.output].iter().any(|each| !each.is_finite() || *each < 0.0) => {
            Err(Problem("price", "a price is a number from 0".into()))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(feature = "yaml")]
fn scripted(config: &ModelConfig, secrets: &dyn Secrets) -> Result<Arc<dyn Model>> {
    let Some(path) = &config.script else {
        return Err(Problem("script", "a scripted model needs the path of its script".into()));
    };
    let others = [
        ("base_url", config.base_url.is_some()),
        ("api_version", config.api_version.is_some()),
        ("api_key_env", config.api_key_env.is_some()),
        ("api_key_file", config.api_key_file.is_some()),
        ("profile", config.profile.is_some()),
        ("max_output_tokens", config.max_output_tokens.is_some()),
        ("encrypted_reasoning", config.encrypted_reasoning.is_some()),
        ("retries", config.retries.is_some()),
    ];
    if let Some((field, _)) = others.iter().find(|(_, set)| *set) {
        return Err(Problem(field, "a scripted model has none: take it out".into()));
    }
    let text = read(secrets, "script", path)?;
    let model = crate::Scripted::from_yaml(&text).map_err(|error| Problem("script", error.to_string()))?;
    Ok(Arc::new(model))
}

#[cfg(not(feature = "yaml"))]
fn scripted(_config: &ModelConfig, _secrets: &dyn Secrets) -> Result<Arc<dyn Model>> {
    Err(Problem("provider", "this build reads no scripts: it lacks the feature `yaml`".into()))
}

fn read(secrets: &dyn Secrets, field: &'static str, path: &Path) -> Result<String> {
    secrets
        .file(path)
        .map_err(|error| Problem(field, format!("`{}` cannot be read: {error}", path.display())))
}

fn http(name: &str, config: &ModelConfig, secrets: &dyn Secrets) -> Result<Arc<dyn Model>> {
    if config.model.trim().is_empty() {
        return Err(Problem("model", "name the model as its provider does".into()));
    }
    if config.script.is_some() {
        return Err(Problem("script", "only a `scripted` model has a script".into()));
    }
    if config.api_version.is_some() && config.provider != Provider::Azure {
        return Err(Problem("api_version", "only `azure` has a version".into()));
    }
    if config.max_output_tokens == Some(0) {
        return Err(Problem("max_output_tokens", "with 0 nothing could be said: leave it out".into()));
    }
    if config.retries.is_some_and(|retries| retries > RETRIES_MAX) {
        return Err(Problem("retries", format!("at most {RETRIES_MAX}")));
    }
    let times = &config.timeouts;
    for (key, ms) in [
        ("connect_ms", times.connect_ms),
        ("first_byte_ms", times.first_byte_ms),
        ("stall_ms", times.stall_ms),
        ("total_ms", times.total_ms),
    ] {
        if ms.is_some_and(|ms| !(1..=TIME_MAX_MS).contains(&ms)) {
            let problem = format!("`{key}` is a number of milliseconds from 1 to {TIME_MAX_MS} (3650 days)");
            return Err(Problem("timeouts", problem));
        }
    }
    if let Some(field) = RESERVED_FIELDS.iter().find(|field| config.extra.contains_key(**field)) {
        let hint = if field.contains("max") { "; use `max_output_tokens` of the model" } else { "" };
        return Err(Problem("extra", format!("`{field}` is written by the wire itself{hint}")));
    }
    let base = base_url(config)?;
    let key = key(config, secrets)?;
    if key.is_some() && base.scheme() == "http" && !is_local(&base) && !config.insecure_http {
        let problem = "the key would travel in plain text; use https, or set `insecure_http` to true";
        return Err(Problem("base_url", problem.into()));
    }
    let wire = wire(config, &base)?;
    let mut headers: Vec<(String, SecretString)> = Vec::new();
    if config.provider == Provider::Anthropic {
        headers.push(("anthropic-version".into(), anthropic::VERSION.to_owned().into()));
    }
    headers.extend(key.map(|key| match config.provider {
        Provider::Anthropic => ("x-api-key".to_owned(), key),
        Provider::Azure => ("api-key".to_owned(), key),
        Provider::OpenAi | Provider::OpenAiResponses | Provider::OpenAiCompatible | Provider::Scripted => {
            ("authorization".to_owned(), format!("Bearer {}", key.expose_secret()).into())
        }
    }));
    headers.extend(config.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    let endpoint = Endpoint { url: address(config, base), headers };
    let model = HttpModel::new(name, wire, endpoint, config.patience())
        .map_err(|error| Problem("headers", error.to_string()))?;
    Ok(Arc::new(model))
}

fn base_url(config: &ModelConfig) -> Result<Url> {
    let usual = match config.provider {
        Provider::OpenAi | Provider::OpenAiResponses => "https://api.openai.com/v1",
        Provider::Anthropic => "https://api.anthropic.com/v1",
        Provider::OpenAiCompatible | Provider::Azure | Provider::Scripted => "",
    };
    let text = config.base_url.as_deref().unwrap_or(usual);
    if text.is_empty() {
        return Err(Problem("base_url", format!("`{}` has no usual address: name it", config.provider)));
    }
    let url = Url::parse(text).map_err(|error| Problem("base_url", format!("no address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(Problem("base_url", "an address begins with https:// or http://".into()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Problem(
            "base_url",
            "no name or password in an address: use `api_key_env` or `headers`".into(),
        ));
    }
    Ok(url)
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn key(config: &ModelConfig, secrets: &dyn Secrets) -> Result<Option<SecretString>> {
    let (field, key): (_, String) = match (&config.api_key_env, &config.api_key_file) {
        (Some(_), Some(_)) => {
            return Err(Problem(
                "api_key_file",
                "the key comes from a variable or from a file, not from both".into(),
            ));
        }
        (None, Some(path)) => ("api_key_file", read(secrets, "api_key_file", path)?),
        (Some(variable), None) => ("api_key_env", variable_value(secrets, variable)?),
        (None, None) => match config.provider.usual_key() {
            Some(variable) => ("api_key_env", variable_value(secrets, variable)?),
            None => return Ok(None),
        },
    };
    let key = key.trim();
    if key.is_empty() {
        return Err(Problem(field, "the key is empty".into()));
    }
    Ok(Some(key.to_owned().into()))
}

fn variable_value(secrets: &dyn Secrets, variable: &str) -> Result<String> {
    let missing = || Problem("api_key_env", format!("the environment variable `{variable}` is not set"));
    secrets.variable(variable).ok_or_else(missing)
}

fn wire(config: &ModelConfig, base: &Url) -> Result<Arc<dyn Wire>> {
    let options = WireOptions {
        model: config.model.clone(),
        max_output_tokens: config.max_output_tokens,
        extra: config.extra.clone(),
    };
    let origin = base.host_str().unwrap_or_default().to_owned();
    let chat = |profile| -> Arc<dyn Wire> {
        Arc::new(Chat { options: options.clone(), profile, origin: origin.clone() })
    };
    let named = config.profile.as_deref().map(|name| {
        Profile::named(name).ok_or_else(|| {
            let names = Profile::NAMED.map(|(name, _)| format!("`{name}`")).join(", ");
            Problem("profile", format!("`{name}` is none of {names}"))
        })
    });
    match config.provider {
        Provider::OpenAi | Provider::Azure => Ok(chat(named.transpose()?.unwrap_or(Profile::OPENAI))),
        Provider::OpenAiCompatible => {
            let of_host = Profile::of_host(base.host_str().unwrap_or_default());
            Ok(chat(named.transpose()?.unwrap_or(of_host)))
        }
        Provider::OpenAiResponses | Provider::Anthropic | Provider::Scripted if named.is_some() => {
            Err(Problem("profile", "only servers of Chat Completions have profiles".into()))
        }
        Provider::Anthropic | Provider::Scripted => Ok(Arc::new(Anthropic { options })),
        Provider::OpenAiResponses => {
            let reasons = Responses::reasons(&config.model);
            let encrypted_reasoning = config.encrypted_reasoning.unwrap_or(reasons);
            Ok(Arc::new(Responses { options, encrypted_reasoning }))
        }
    }
}

/// The whole address of the request.
fn address(config: &ModelConfig, mut base: Url) -> Url {
    let path = base.path().trim_end_matches('/').to_owned();
    let tail = match config.provider {
        Provider::OpenAi | Provider::OpenAiCompatible | Provider::Scripted => "/chat/completions".to_owned(),
        Provider::OpenAiResponses => "/responses".to_owned(),
        // The address is written with and without the version.
        Provider::Anthropic if path.ends_with("/v1") => "/messages".to_owned(),
        Provider::Anthropic => "/v1/messages".to_owned(),
        // Azure's later form is OpenAI's own; the model is then in the body alone.
        Provider::Azure if path.ends_with("/openai/v1") => "/chat/completions".to_owned(),
        Provider::Azure => format!("/openai/deployments/{}/chat/completions", config.model),
    };
    if config.provider == Provider::Azure && !path.ends_with("/openai/v1") {
        let version = config.api_version.as_deref().unwrap_or(AZURE_API_VERSION);
        base.query_pairs_mut().append_pair("api-version", version);
    }
    base.set_path(&format!("{path}{tail}"));
    base
}
