//! The configuration of a server: from a file to agents that can run.

mod agents;
mod file;
mod guard;
mod mcp;
mod models;
mod read;
mod terms;
mod time;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdpoint::Agent;

use crate::database::Database;
use crate::fail::{Fail, Result};

pub(crate) use agents::shipped_policy;
pub(crate) use guard::Protected;

/// How long running tools have to end when the server is stopped and nobody says.
pub(crate) const SHUTDOWN_GRACE_DEFAULT: Duration = Duration::from_secs(10);

/// A configuration that was read and checked.
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) database: Database,
    pub(crate) bypass_approval: bool,
    pub(crate) shutdown_grace: Duration,
    pub(crate) retention: Option<Duration>,
    pub(crate) agents: Vec<Agent>,
    /// What is not wrong but can hardly be meant.
    pub(crate) warnings: Vec<String>,
}

/// Reads and checks the configuration at this path, or at the usual one.
pub(crate) async fn load(path: Option<&Path>) -> Result<Config> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => usual()?,
    };
    let file = read::file(&path)?;
    let folder = folder_of(&path)?;
    let database = database(&file.server, &folder)?;
    let mut protected = Protected::default();
    protected.add("the configuration", &path);
    if let Database::File(path) = &database {
        protected.add("the database", path);
    }
    let models = models::load(&file.models, &folder, &mut protected)?;
    let (servers, mut warnings) = mcp::start(&file, &folder).await?;
    let built = agents::build(&file, &folder, &models, &servers, &mut protected)?;
    warnings.extend(built.warnings);
    warnings.extend(database.warning());
    for (agent, workdir) in &built.workdirs {
        protected.check(agent, workdir)?;
    }
    Ok(Config {
        listen: file.server.listen,
        database,
        bypass_approval: file.server.bypass_approval,
        shutdown_grace: file.server.shutdown_grace.map_or(SHUTDOWN_GRACE_DEFAULT, |grace| grace.0),
        retention: file.server.retention.map(|keep| keep.0),
        agents: built.agents,
        warnings,
    })
}

fn usual() -> Result<PathBuf> {
    let path =
        read::usual_path().ok_or_else(|| Fail::usage("there is no HOME to look for a configuration in"))?;
    if path.exists() {
        return Ok(path);
    }
    Err(Fail::usage(format!("there is no configuration at `{}`", path.display())).hint(
        "name one with --config FILE; README.md has one to start with, and `holdpoint demo` needs none",
    ))
}

/// The folder that the paths of a configuration start from.
fn folder_of(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Fail::usage(format!("`{}` cannot be found: {error}", path.display())))?;
    Ok(absolute.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Where the database is. Nothing is opened.
fn database(server: &file::Server, folder: &Path) -> Result<Database> {
    let database = database_alone(server, folder)?;
    match &server.database_listen_url_env {
        Some(name) => {
            let url = variable(name, "database_listen_url_env")?;
            database.listening_at(&url, &format!("the variable `{name}`"))
        }
        None => Ok(database),
    }
}

fn variable(name: &str, key: &str) -> Result<String> {
    match std::env::var(name) {
        Ok(url) if !url.is_empty() => Ok(url),
        Ok(_) | Err(_) => Err(Fail::usage(format!("the variable `{name}` is not set")).hint(format!(
            "it is named by `{key}` under `[server]`, and holds postgres://USER:PASSWORD@HOST/DATABASE"
        ))),
    }
}

fn database_alone(server: &file::Server, folder: &Path) -> Result<Database> {
    let ca_file = server.database_ca_file.as_ref().map(|path| folder.join(path));
    match (&server.database, &server.database_url_env) {
        (Some(_), Some(_)) => Err(Fail::usage("`[server]` has both `database` and `database_url_env`")
            .hint("keep one of them; the variable keeps a password out of the file")),
        (Some(database), None) if is_meant_as_address(database) => {
            Database::at_url(database, "`database`", ca_file)
        }
        (Some(database), None) => Ok(Database::File(folder.join(database))),
        (None, Some(name)) => {
            let url = variable(name, "database_url_env")?;
            Database::at_url(&url, &format!("the variable `{name}`"), ca_file)
        }
        (None, None) => Ok(Database::File(usual_database()?)),
    }
}

/// Whether a text is meant as the address of a server, rightly written or not: taken for a path, it would be a new and empty
/// database of SQLite, with the password in its name.
fn is_meant_as_address(database: &str) -> bool {
    let lower = database.to_ascii_lowercase();
    database.contains("://")
        || (lower.starts_with("postgres") && lower.contains(':'))
        || ["host=", "dbname=", "password="].iter().any(|part| lower.contains(part))
}

/// Reads of a configuration where the database is, and nothing else: no key is needed for that, and nothing is started.
pub(crate) fn load_database(path: Option<&Path>) -> Result<Database> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => usual()?,
    };
    database(&read::file(&path)?.server, &folder_of(&path)?)
}

fn usual_database() -> Result<PathBuf> {
    let folder = match std::env::var_os("XDG_STATE_HOME").filter(|value| !value.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => match std::env::var_os("HOME") {
            Some(home) => Path::new(&home).join(".local/state"),
            None => {
                return Err(Fail::usage("there is no HOME to keep the database in")
                    .hint("set `database` under `[server]`"));
            }
        },
    };
    Ok(folder.join("holdpoint/holdpoint.db"))
}

#[cfg(test)]
mod tests;
