//! How a server is declared.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use holdpoint_core::limits::TIME_MAX_MS;
use holdpoint_core::tool::EffectClass;
use serde::Deserialize;

/// The longest name of a server, in bytes: half of a tool's name is the tool's own.
const NAME_MAX_BYTES: usize = 31;

/// One MCP server, as an operator declares it: a command to start, or a URL.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServerConfig {
    /// The program of a stdio server.
    #[serde(default)]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its environment, beside `PATH`, `HOME`, `LANG`, `TMPDIR` and `USER`. Nothing else of ours reaches it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of our own environment that it gets as well, by name: keys that do not stand in a file.
    #[serde(default)]
    pub env_from: Vec<String>,
    /// The directory it is started in; ours when absent.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// The URL of a streamable HTTP server.
    #[serde(default)]
    pub url: Option<String>,
    /// Headers of every request to it.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The variable of our environment that holds its bearer token.
    #[serde(default)]
    pub token_env: Option<String>,
    /// Lets a token and the calls go to a host other than this one without TLS.
    #[serde(default)]
    pub allow_plain_http: bool,
    /// The tools to offer, by the server's own names; all of them when absent, none when empty.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// What running a tool does to the world, by the server's own names: the operator's word, not the server's.
    #[serde(default)]
    pub effects: BTreeMap<String, EffectClass>,
    /// The argument of a tool that names a request of the world outside, by the server's own names of the tools: each request is
    /// carried out once, and a second call for it gets the recorded result. It must be required, and a text or a whole number.
    #[serde(default)]
    pub business_keys: BTreeMap<String, String>,
    /// How long starting and greeting may take, in milliseconds.
    #[serde(default = "default_start_timeout_ms")]
    pub start_timeout_ms: u64,
    /// How long listing all tools may take, in milliseconds.
    #[serde(default = "default_list_timeout_ms")]
    pub list_timeout_ms: u64,
    /// How long a call may take, in milliseconds; the runtime's default when absent.
    #[serde(default)]
    pub call_timeout_ms: Option<u64>,
}

fn default_start_timeout_ms() -> u64 {
    30_000
}

fn default_list_timeout_ms() -> u64 {
    15_000
}

impl Default for McpServerConfig {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            env_from: Vec::new(),
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            token_env: None,
            allow_plain_http: false,
            tools: None,
            effects: BTreeMap::new(),
            business_keys: BTreeMap::new(),
            start_timeout_ms: default_start_timeout_ms(),
            list_timeout_ms: default_list_timeout_ms(),
            call_timeout_ms: None,
        }
    }
}

impl McpServerConfig {
    /// A server to be started as a child process.
    pub fn stdio(command: impl Into<String>, args: impl IntoIterator<Item: Into<String>>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { command: Some(command.into()), args, ..Self::default() }
    }

    /// A server that is reached by HTTP.
    pub fn http(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }

    pub(super) fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    pub(super) fn list_timeout(&self) -> Duration {
        Duration::from_millis(self.list_timeout_ms)
    }
}

// Values of `env` and `headers` are often keys, and so are arguments and the rest of a URL.
impl fmt::Debug for McpServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerConfig")
            .field("command", &self.command)
            .field("args", &format_args!("[{} values]", self.args.len()))
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("env_from", &self.env_from)
            .field("url", &self.url.as_deref().map(|url| host(url).unwrap_or("?")))
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("tools", &self.tools)
            .field("effects", &self.effects)
            .field("business_keys", &self.business_keys)
            .finish_non_exhaustive()
    }
}

/// A declaration that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server `{server}` cannot be used: {why}")]
pub struct ConfigError {
    /// The server.
    pub server: String,
    /// Why, and what to do.
    pub why: String,
}

/// How a server is reached, checked.
#[derive(Clone)]
pub(super) enum Target {
    Stdio { command: String, env: Vec<(String, String)> },
    Http { url: String, headers: Vec<(String, String)>, token: Option<String> },
}

/// Checks a declaration, and reads what it takes from the environment.
pub(super) fn check(name: &str, config: &McpServerConfig) -> Result<Target, ConfigError> {
    check_all(name, config).map_err(|why| ConfigError { server: name.to_owned(), why })
}

fn check_all(name: &str, config: &McpServerConfig) -> Result<Target, String> {
    check_name(name)?;
    if let Some((tool, _)) = config.effects.iter().find(|(_, effect)| **effect == EffectClass::Verifiable) {
        return Err(format!(
            "`effects.{tool}` is `verifiable`, but an MCP tool cannot be asked whether it ran"
        ));
    }
    for (key, ms) in [
        ("start_timeout_ms", Some(config.start_timeout_ms)),
        ("list_timeout_ms", Some(config.list_timeout_ms)),
        ("call_timeout_ms", config.call_timeout_ms),
    ] {
        if ms.is_some_and(|ms| !(1..=TIME_MAX_MS).contains(&ms)) {
            return Err(format!("`{key}` is a number of milliseconds from 1 to {TIME_MAX_MS} (3650 days)"));
        }
    }
    match (&config.command, &config.url) {
        (Some(_), Some(_)) => Err("it has both a `command` and a `url`: which of them?".into()),
        (None, None) => Err("it has neither a `command` nor a `url`".into()),
        (Some(command), None) => stdio(command, config),
        (None, Some(url)) => http(url, config),
    }
}

/// Letters, digits, `_` and `-`; not `__`, which stands between server and tool and could be read two ways.
fn check_name(name: &str) -> Result<(), String> {
    let closed = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let clear = !name.contains("__") && !name.starts_with('_') && !name.ends_with('_');
    if closed && clear && (1..=NAME_MAX_BYTES).contains(&name.len()) {
        return Ok(());
    }
    Err(format!(
        "a name is 1 to {NAME_MAX_BYTES} ASCII letters, digits, `-` and single `_` that stand between others"
    ))
}

fn stdio(command: &str, config: &McpServerConfig) -> Result<Target, String> {
    if !config.headers.is_empty() || config.token_env.is_some() || config.allow_plain_http {
        return Err("`headers`, `token_env` and `allow_plain_http` are for servers with a `url`".into());
    }
    let mut env: Vec<_> = config.env.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    for key in &config.env_from {
        if key.starts_with("HOLDPOINT_") {
            return Err(format!("`{key}` is Holdpoint's own and is given to no server"));
        }
        env.push((key.clone(), variable(key)?));
    }
    Ok(Target::Stdio { command: command.to_owned(), env })
}

fn http(url: &str, config: &McpServerConfig) -> Result<Target, String> {
    let of_a_process = !config.args.is_empty() || !config.env.is_empty() || !config.env_from.is_empty();
    if of_a_process || config.cwd.is_some() {
        return Err("`args`, `env`, `env_from` and `cwd` are for servers with a `command`".into());
    }
    let host = host(url).ok_or("its `url` does not begin with `https://` or `http://` and a host")?;
    if authority(url).is_some_and(|authority| authority.contains('@')) {
        return Err("its `url` holds a user or a password: use `token_env` or `headers`".into());
    }
    let local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    if url.starts_with("http://") && !local && !config.allow_plain_http {
        return Err(format!(
            "it is reached at `{host}` without TLS; set `allow_plain_http` to true if that is meant"
        ));
    }
    let headers = config.headers.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let token = config.token_env.as_deref().map(variable).transpose()?;
    Ok(Target::Http { url: url.to_owned(), headers, token })
}

fn variable(key: &str) -> Result<String, String> {
    std::env::var(key).map_err(|_| format!("the variable `{key}` is not set, or is not text"))
}

fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    rest.split(['/', '?', '#', '\\']).next()
}

/// The host of a URL, without user and port.
pub(super) fn host(url: &str) -> Option<&str> {
    let authority = authority(url)?;
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let end = match host.strip_prefix('[') {
        Some(inside) => inside.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    host.get(..end).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: &str, config: &McpServerConfig) -> String {
        match check(name, config) {
            Ok(_) => "good".into(),
            Err(error) => error.why,
        }
    }

    #[test]
    fn a_declaration_says_one_way_to_reach_the_server() {
        let stdio = McpServerConfig::stdio("server", ["--flag"]);
        let http = McpServerConfig::http("https://mcp.example/x");
        for (config, says) in [
            (stdio.clone(), "good"),
            (http.clone(), "good"),
            (McpServerConfig::default(), "neither"),
            (McpServerConfig { url: http.url.clone(), ..stdio.clone() }, "both"),
            (McpServerConfig { args: vec!["x".into()], ..http.clone() }, "are for servers with a `command`"),
            (
                McpServerConfig { token_env: Some("X".into()), ..stdio.clone() },
                "are for servers with a `url`",
            ),
            (McpServerConfig { token_env: Some("HP_NOT_SET".into()), ..http.clone() }, "is not set"),
            (
                McpServerConfig { env_from: vec!["HOLDPOINT_TOKEN".into()], ..stdio.clone() },
                "Holdpoint's own",
            ),
            (McpServerConfig { start_timeout_ms: 0, ..stdio.clone() }, "`start_timeout_ms` is a number"),
            (McpServerConfig { list_timeout_ms: u64::MAX, ..stdio.clone() }, "`list_timeout_ms` is a number"),
            (McpServerConfig { call_timeout_ms: Some(0), ..stdio.clone() }, "`call_timeout_ms` is a number"),
            (
                McpServerConfig { effects: [("pay".into(), EffectClass::Verifiable)].into(), ..stdio },
                "cannot be asked",
            ),
        ] {
            assert!(why("files", &config).contains(says), "{config:?}: {}", why("files", &config));
        }
    }

    #[test]
    fn without_tls_only_this_machine_is_reached() {
        for (url, says) in [
            ("http://localhost:3000/mcp", "good"),
            ("http://127.0.0.1/mcp", "good"),
            ("http://[::1]:3000/mcp", "good"),
            ("http://mcp.example/mcp", "without TLS"),
            ("http://localhost.evil.example/", "without TLS"),
            ("http://localhost@evil.example/", "a user or a password"),
            ("http://evil.example\\@localhost/", "without TLS"),
            ("ftp://mcp.example/", "does not begin"),
            ("https://", "does not begin"),
        ] {
            assert!(why("web", &McpServerConfig::http(url)).contains(says), "{url}");
        }
        let meant =
            McpServerConfig { allow_plain_http: true, ..McpServerConfig::http("http://mcp.example/") };
        assert_eq!(why("web", &meant), "good");
    }

    #[test]
    fn a_server_has_a_name_that_can_be_read_one_way() {
        let config = McpServerConfig::stdio("server", [""; 0]);
        for (name, fits) in [
            ("files", true),
            ("files-a_b2", true),
            (&"x".repeat(31), true),
            (&"x".repeat(32), false),
            ("", false),
            ("a__b", false),
            ("a_", false),
            ("_a", false),
            ("a.b", false),
            ("ä", false),
        ] {
            assert_eq!(why(name, &config) == "good", fits, "{name}");
        }
    }

    #[test]
    fn a_misspelt_field_is_an_error_and_keys_are_not_printed() {
        let misspelt = serde_json::from_str::<McpServerConfig>(r#"{"command": "x", "tool": []}"#);
        assert!(misspelt.unwrap_err().to_string().contains("unknown field `tool`"));
        let config: McpServerConfig = serde_json::from_str(
            r#"{"url": "https://mcp.example/?key=s3cret", "headers": {"x-key": "s3cret"}, "env": {"KEY": "s3cret"},
                "args": ["s3cret"], "effects": {"read": "read_only"}}"#,
        )
        .unwrap();
        let printed = format!("{config:?}");
        assert!(!printed.contains("s3cret") && printed.contains("mcp.example"), "{printed}");
    }
}
