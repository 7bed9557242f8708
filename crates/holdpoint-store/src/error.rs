//! What can go wrong with a store.

/// What can go wrong with a store. Nothing was written, unless it says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, or gave up; the same call can succeed later.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// Too many operations wait for the database already: this one was not begun, and can be when there are fewer.
    #[error("too much waits for the store: {0}")]
    Busy(String),
    /// There is no room left.
    #[error("the store is full: {0}; free some space, nothing was lost and nothing ran")]
    Full(String),
    /// Another process has the file.
    #[error("another process has {path} open; stop it first, or give this one another database")]
    Locked {
        /// The file.
        path: String,
    },
    /// It was written by a newer version.
    #[error(
        "{what} was written by a newer version ({found}, this one knows up to {known}); it was left alone. Start the newer version instead"
    )]
    Newer {
        /// What.
        what: String,
        /// Its version.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// What is stored cannot be read: a row, or the schema around it, is not what this version writes. Trying again does not help.
    #[error("what is stored cannot be read: {0}")]
    Corrupt(String),
    /// What was to be written contradicts what is stored, or itself: a second claim on one attempt, a claim without its
    /// decision, an event out of place. The caller is at fault; nothing was written.
    #[error("refused, because it contradicts what is stored: {0}")]
    Inconsistent(String),
    /// A cursor that this store did not make.
    #[error("not a cursor of this list; start again without one")]
    BadCursor,
    /// Whether the transaction was committed is not known: read again before retrying.
    #[error("it is not known whether the write was committed: {0}")]
    CommitUnknown(String),
}

impl Error {
    /// The same, saying what it is that cannot be read.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn about(self, what: impl std::fmt::Display) -> Self {
        match self {
            Self::Corrupt(why) => Self::Corrupt(format!("{what}: {why}")),
            Self::Unavailable(_)
            | Self::Busy(_)
            | Self::Full(_)
            | Self::Locked { .. }
            | Self::Newer { .. }
            | Self::Inconsistent(_)
            | Self::BadCursor
            | Self::CommitUnknown(_) => self,
        }
    }

    /// Whether the same call can succeed later, with nothing changed but the time.
    pub fn passes(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Busy(_) | Self::Full(_) | Self::CommitUnknown(_) => true,
            Self::Locked { .. }
            | Self::Newer { .. }
            | Self::Corrupt(_)
            | Self::Inconsistent(_)
            | Self::BadCursor => false,
        }
    }
}

/// The result of a call of the store.
pub type Result<T> = std::result::Result<T, Error>;
