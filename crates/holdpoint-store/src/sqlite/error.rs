//! What SQLite reports, in our words.

use rusqlite::ErrorCode;

use crate::Error;

/// Why an operation did not go through.
#[derive(Debug)]
pub(super) enum Fault {
    /// It was refused before it wrote anything: the other operations of its group are not concerned.
    Refused(Error),
    /// The database failed: nothing of the transaction stands.
    Database(rusqlite::Error),
}

impl Fault {
    /// The same, saying what it is that cannot be read.
    pub(super) fn about(self, what: impl std::fmt::Display) -> Self {
        Self::Refused(Error::from(self).about(what))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Database(error) => error_of(&error),
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        error_of(&error)
    }
}

/// What an error means to the caller.
pub(super) fn error_of(error: &rusqlite::Error) -> Error {
    let text = error.to_string();
    let Some(code) = error.sqlite_error_code() else { return Error::Corrupt(text) };
    match code {
        ErrorCode::DiskFull => Error::Full(text),
        ErrorCode::ConstraintViolation
        | ErrorCode::TooBig
        | ErrorCode::ApiMisuse
        | ErrorCode::ParameterOutOfRange => Error::Inconsistent(text),
        // `Unknown` is what SQLite says of a statement that does not fit the schema: a table or a column is not there.
        ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::TypeMismatch
        | ErrorCode::Unknown => Error::Corrupt(text),
        // The rest is the machine's doing and can be gone the next time. (The enum is SQLite's, and may grow.)
        _ => Error::Unavailable(text),
    }
}

/// What an error of the commit itself means. A full disk is known to have kept the commit out of the log; after a
/// failed write or sync it may or may not be in it.
pub(super) fn error_of_commit(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => Error::CommitUnknown(error.to_string()),
        _ => error_of(error),
    }
}
