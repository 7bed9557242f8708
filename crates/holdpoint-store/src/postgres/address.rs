//! Where a database is, in words that can be shown: never with the password.

use std::fmt;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How long a connection may take to be made where the URL does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long a peer that says nothing is asked for a sign of life, and how long what was sent may go unacknowledged.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The port where the URL does not say.
const PORT_DEFAULT: u16 = 5432;

/// A URL that names no database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not the URL of a PostgreSQL database: {0}")]
pub struct BadAddress(String);

/// Where a PostgreSQL database is. What it displays is without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    config: Config,
}

impl PostgresAddress {
    /// Reads `postgres://user:password@host:port/database`, or the form `host=… user=…`.
    ///
    /// # Errors
    /// [`BadAddress`], without any part of the text that could be a secret.
    pub fn parse(url: &str) -> Result<Self, BadAddress> {
        // What the parser says may hold a piece of the text; which option is wrong is all that is told of it.
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| BadAddress(super::error::text_of(&error)))?;
        let cut = |host: &Host| matches!(host, Host::Tcp(name) if name.contains(['@', '/', '?', '#']));
        if config.get_hosts().iter().any(cut) {
            let why = "its host cannot be read; in a user or a password, `@`, `/`, `?` and `#` are written as %40, %2F, %3F, %23";
            return Err(BadAddress(why.into()));
        }
        if config.get_hosts().is_empty() {
            return Err(BadAddress("it has no host".into()));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE_MAX);
        }
        config.keepalives_idle(SILENCE_MAX.min(config.get_keepalives_idle()));
        if config.get_application_name().is_none() {
            config.application_name("holdpoint");
        }
        Ok(Self { config })
    }

    /// Whether connections go to another machine, and nothing demands that they are encrypted.
    pub fn may_be_read_by_others(&self) -> bool {
        if self.config.get_ssl_mode() == SslMode::Require {
            return false;
        }
        self.config.get_hosts().iter().any(|host| match host {
            Host::Tcp(name) => {
                name != "localhost"
                    && !name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            Host::Unix(_) => false,
        })
    }

    pub(super) fn config(&self) -> Config {
        self.config.clone()
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.config.get_user();
        let database = self.config.get_dbname().or(user).unwrap_or("postgres");
        write!(f, "PostgreSQL database `{database}` at ")?;
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(PORT_DEFAULT);
            match host {
                Host::Tcp(name) if name.contains(':') => write!(f, "{comma}[{name}]:{port}")?,
                Host::Tcp(name) => write!(f, "{comma}{name}:{port}")?,
                Host::Unix(path) => write!(f, "{comma}{}", path.display())?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, shown, open) in [
            ("postgres://u:secret@db.example:6000/app", "`app` at db.example:6000", true),
            ("postgresql://u:secret@127.0.0.1/app", "`app` at 127.0.0.1:5432", false),
            ("postgres://u:secret@[::1]:1/app", "`app` at [::1]:1", false),
            ("postgres://u:secret@%2Frun%2Fpostgresql/app", "`app` at /run/postgresql", false),
            ("postgres://u:secret@localhost", "`u` at localhost:5432", false),
            ("host=a,b port=1,2 user=u password=secret dbname=app", "`app` at a:1, b:2", true),
            ("postgres://u:secret@db.example/app?sslmode=require", "`app` at db.example:5432", false),
            ("postgres://u:se%40cret@a/app?sslmode=disable", "`app` at a:5432", true),
        ] {
            let address = PostgresAddress::parse(url).unwrap();
            assert_eq!(address.to_string(), format!("PostgreSQL database {shown}"));
            assert_eq!(address.may_be_read_by_others(), open, "{url}");
            assert!(!format!("{address:?}").contains("cret"));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for url in [
            "postgres://u:top@secret@host/app",
            "postgres://u:secret@host:port/app",
            "postgres://u:secret@host/app?secret=1x",
            "postgres:///app",
            "password=secret dbname=app",
            "secret",
            "",
        ] {
            let error = PostgresAddress::parse(url).unwrap_err().to_string();
            assert!(error.starts_with("it is not the URL of a PostgreSQL database: "), "{error}");
            let repeated = error.contains("secret") && !url.contains("secret=1x");
            assert!(!repeated, "{url}: {error}");
        }
    }
}
