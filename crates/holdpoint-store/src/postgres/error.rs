//! What PostgreSQL reports, in our words.

use tokio_postgres::error::SqlState;

use crate::Error;

/// Why an operation did not go through.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// It was refused before it wrote anything.
    Refused(Error),
    /// Another transaction was in the way: done again, it can go through. What it means when it never does.
    Again(Error),
}

impl Fault {
    /// Whether what was to be written may be written.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused(Error::CommitUnknown(_)))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = text_of(&error);
        let Some(code) = error.code() else { return Self::Refused(Error::Unavailable(text)) };
        match *code {
            SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => {
                Self::Again(Error::Unavailable(text))
            }
            // Somebody else has just made the same row, or table: looked at again, it is found.
            SqlState::UNIQUE_VIOLATION | SqlState::DUPLICATE_OBJECT | SqlState::DUPLICATE_TABLE => {
                Self::Again(Error::Inconsistent(text))
            }
            SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => Self::Refused(Error::Full(text)),
            SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => Self::Refused(Error::Corrupt(text)),
            _ => Self::Refused(Error::Unavailable(text)),
        }
    }
}

impl From<deadpool_postgres::PoolError> for Fault {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            // It has no more to say than the database has.
            deadpool_postgres::PoolError::Backend(error) => {
                Self::Refused(Error::Unavailable(text_of(&error)))
            }
            deadpool_postgres::PoolError::Timeout(_)
            | deadpool_postgres::PoolError::Closed
            | deadpool_postgres::PoolError::NoRuntimeSpecified
            | deadpool_postgres::PoolError::PostCreateHook(_) => {
                Self::Refused(Error::Unavailable(error.to_string()))
            }
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) | Fault::Again(error) => error,
        }
    }
}

/// What an error means of a statement that commits. Where the server did not say no, it may have said yes; and a server that
/// says that it stops may have written the commit before.
pub(super) fn of_commit(error: tokio_postgres::Error) -> Fault {
    let stops = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN];
    if error.code().is_some_and(|code| !stops.contains(code)) {
        Fault::from(error)
    } else {
        Fault::Refused(Error::CommitUnknown(text_of(&error)))
    }
}

/// The error with its causes: the driver's own text is "db error" and no more.
pub(super) fn text_of(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
