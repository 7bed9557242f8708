//! Where a server keeps everything: a file of its own, or a PostgreSQL database that other instances use too.

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdpoint_store::{
    Error, PostgresAddress, PostgresOptions, PostgresStore, SqliteStore, Store, SystemClock,
};

use crate::fail::{Fail, Result};
use crate::text::line;

/// Where a server keeps everything. What it displays has no password in it.
#[derive(Clone)]
pub(crate) enum Database {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database.
    Postgres {
        url: String,
        address: Box<PostgresAddress>,
        /// Where to listen for other instances, if not there.
        listen_url: Option<String>,
        /// The certificates to believe instead of the machine's.
        ca_file: Option<PathBuf>,
    },
}

impl Database {
    /// The database at this URL; `whence` says where the URL stands.
    pub(crate) fn at_url(url: &str, whence: &str, ca_file: Option<PathBuf>) -> Result<Self> {
        let hint = "it looks like postgres://USER:PASSWORD@HOST:5432/DATABASE";
        match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) => {}
            // Only a scheme is repeated: anything else may be a password in the wrong place.
            Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
                return Err(Fail::usage(format!(
                    "{whence} is a URL of `{}`, not of PostgreSQL",
                    line(scheme)
                ))
                .hint(format!("{hint}; a SQLite file is given as a path")));
            }
            Some(_) | None => return Err(Fail::usage(format!("{whence} is no URL")).hint(hint)),
        }
        match PostgresAddress::parse(url) {
            Ok(address) => Ok(Self::Postgres {
                url: url.to_owned(),
                address: Box::new(address),
                listen_url: None,
                ca_file,
            }),
            Err(error) => Err(Fail::usage(format!("{whence} cannot be used: {error}")).hint(hint)),
        }
    }

    /// The same, with another way to it for listening.
    pub(crate) fn listening_at(self, url: &str, whence: &str) -> Result<Self> {
        match (self, Self::at_url(url, whence, None)?) {
            (Self::Postgres { url, address, ca_file, .. }, Self::Postgres { url: listen_url, .. }) => {
                Ok(Self::Postgres { url, address, ca_file, listen_url: Some(listen_url) })
            }
            (Self::File(_), _) | (_, Self::File(_)) => {
                Err(Fail::usage(format!("{whence} is a URL to listen at, and the database is a file"))
                    .hint("leave `database_listen_url_env` out: a SQLite file has one process"))
            }
        }
    }

    /// What is not wrong but should be known.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Postgres { address, .. } if address.may_be_read_by_others() => Some(format!(
                "nothing demands that the connection to the {address} is encrypted; add `?sslmode=require` to its URL"
            )),
            Self::Postgres { .. } | Self::File(_) => None,
        }
    }

    /// Opens it; makes what is missing, and brings an older one up to date.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>> {
        match self {
            Self::File(path) => {
                make_folder_of(path)?;
                match SqliteStore::open(path, Arc::new(SystemClock::new())) {
                    Ok(store) => Ok(Arc::new(store)),
                    Err(error) => Err(self.cannot(&error)),
                }
            }
            Self::Postgres { url, ca_file, listen_url, .. } => {
                let options = PostgresOptions {
                    ca_file: ca_file.clone(),
                    listen_url: listen_url.clone(),
                    ..PostgresOptions::default()
                };
                match PostgresStore::connect(url, options).await {
                    Ok(store) => Ok(store),
                    Err(error) => Err(self.cannot(&error)),
                }
            }
        }
    }

    /// As it is called in a sentence.
    pub(crate) fn named(&self) -> String {
        match self {
            Self::File(path) => format!("database `{}`", path.display()),
            Self::Postgres { address, .. } => address.to_string(),
        }
    }

    fn cannot(&self, error: &Error) -> Fail {
        let fail = Fail::new(format!("the {} cannot be used: {error}", self.named()));
        match (self, error) {
            (Self::Postgres { .. }, Error::Unavailable(_)) => fail.hint(
                "see that it runs and takes connections from here, that the database is there, and that the user may create \
                 tables in it; `holdpoint doctor` looks closer",
            ),
            (Self::Postgres { .. } | Self::File(_), _) => fail,
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres { address, .. } => address.fmt(f),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Database {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(a), Self::File(b)) => a == b,
            (Self::Postgres { url: a, .. }, Self::Postgres { url: b, .. }) => a == b,
            (Self::File(_), Self::Postgres { .. }) | (Self::Postgres { .. }, Self::File(_)) => false,
        }
    }
}

/// Makes the folder of the database where it is missing, for its owner alone: arguments and results are in it.
fn make_folder_of(database: &Path) -> Result<()> {
    let Some(folder) = database.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        Fail::new(format!("the folder of the database, `{}`, cannot be made: {error}", folder.display()))
    })
}
