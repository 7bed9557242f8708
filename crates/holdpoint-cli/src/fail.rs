//! How a command fails: what is wrong, and on a line of its own what can be done about it.

use std::fmt;
use std::process::ExitCode;

/// A command that did not do what was asked.
#[derive(Debug)]
pub(crate) struct Fail {
    what: String,
    hint: Option<String>,
    kind: Kind,
}

/// What kind of failure it is: the exit code, so that scripts can tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It was tried and did not work.
    Failed,
    /// The configuration or the command line cannot be used.
    Usage,
    /// No server answers.
    NoServer,
    /// The decision was not taken: nothing ran because of it.
    NotTaken,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NoServer => 3,
            Self::NotTaken => 4,
        }
    }
}

/// What a command comes to.
pub(crate) type Result<T> = std::result::Result<T, Fail>;

impl Fail {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, kind: Kind::Failed }
    }

    /// The command line or the configuration is at fault.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(what).kind(Kind::Usage)
    }

    /// No server answers.
    pub(crate) fn no_server(what: impl Into<String>) -> Self {
        Self::new(what).kind(Kind::NoServer)
    }

    /// A decision was not taken.
    pub(crate) fn not_taken(what: impl Into<String>) -> Self {
        Self::new(what).kind(Kind::NotTaken)
    }

    fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// What can be done about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn hint_opt(self, hint: Option<String>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    pub(crate) fn is_no_server(&self) -> bool {
        self.kind == Kind::NoServer
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind.code())
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
