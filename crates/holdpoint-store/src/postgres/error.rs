//! What PostgreSQL reports, in our words.

use tokio_postgres::error::SqlState;

use crate::Error;

/// Why an operation did not go through.
#[derive(Debug)]
pub(super) enum Fault {
    /// It was refused before it wrote anything.
    Refused(Error),
    /// Another transaction was in the way: done again, it can go through. What it means when it never does.
    Again(Error),
}

impl Fault {
    /// The same, saying what it is that cannot be read.
    pub(super) fn about(self, what: impl std::fmt::Display) -> Self {
        match self {
            Self::Refused(error) => Self::Refused(error.about(what)),
            Self::Again(error) => Self::Again(error),
        }
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
        let Some(code) = error.code() else {
            return Self::Refused(if is_of_a_value(&error) {
                Error::Corrupt(text)
            } else {
                Error::Unavailable(text)
            });
        };
        match *code {
            SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => {
                Self::Again(Error::Unavailable(text))
            }
            // A statement that was sent beside this one failed, and that is what there is to say: done again, it may come first.
            SqlState::IN_FAILED_SQL_TRANSACTION => Self::Again(Error::Unavailable(text)),
            // Somebody else has just made the same row, or table: looked at again, it is found.
            SqlState::UNIQUE_VIOLATION | SqlState::DUPLICATE_OBJECT | SqlState::DUPLICATE_TABLE => {
                Self::Again(Error::Inconsistent(text))
            }
            SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => Self::Refused(Error::Full(text)),
            SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => Self::Refused(Error::Corrupt(text)),
            // By their class: a value that the database cannot keep, a constraint; a table, a column or a right that is not there.
            // Neither mends itself. The rest is the machine's doing or somebody's at work on it, and can be gone the next time.
            _ => Self::Refused(match code.code().get(..2) {
                Some("22" | "23") => Error::Inconsistent(text),
                Some("42") => Error::Corrupt(text),
                Some(_) | None => Error::Unavailable(text),
            }),
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

/// Whether the database answered, and what it answered is not what is kept there: the driver says so of a column, of a row that is
/// not there, and of what it was asked to send. Everything else without a code is a connection that failed.
fn is_of_a_value(error: &tokio_postgres::Error) -> bool {
    const SAID: [&str; 6] = [
        "error deserializing column",
        "error serializing parameter",
        "invalid column",
        "query returned an unexpected number of columns",
        "query returned an unexpected number of rows",
        "expected ",
    ];
    let text = error.to_string();
    !error.is_closed() && SAID.iter().any(|said| text.starts_with(said))
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
