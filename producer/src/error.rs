//! One error; [`Error::action`] says what the caller can do.

use runlog_content::Kind;
use runlog_schemas::{
    answer::{ErrorKind, Problem},
    id::Illegal,
};

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing happened: the same call may succeed later.
    Retry,
    /// The input is at fault, and the handle stays usable.
    FixTheInput,
    /// This handle is over: open the run again, which finds out what landed.
    Reopen,
    /// Somebody must find out or decide: `runlog recover`, `runlog effects resolve`, `runlog doctor`.
    Operator,
}

/// Why a call on the journal failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    action: Action,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, action: Action, message: impl Into<String>) -> Self {
        Self { kind, action, message: message.into() }
    }

    /// The kind, as servers and commands name it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the caller can do.
    pub fn action(&self) -> Action {
        self.action
    }

    /// The same error as the reason why a handle is over.
    pub(crate) fn over(self) -> Self {
        let action = if self.action == Action::Operator { Action::Operator } else { Action::Reopen };
        Self { action, ..self }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let action = match problem.kind {
            ErrorKind::Stale | ErrorKind::Unavailable => Action::Retry,
            ErrorKind::ClaimLost | ErrorKind::Fenced | ErrorKind::Conflict => Action::Reopen,
            ErrorKind::PartitionStopped
            | ErrorKind::Internal
            | ErrorKind::ReconcileRequired
            | ErrorKind::MissingContent => Action::Operator,
            ErrorKind::Usage | ErrorKind::Invalid | ErrorKind::TooLarge | ErrorKind::NotFound => Action::FixTheInput,
        };
        Self::new(problem.kind, action, problem.detail)
    }
}

impl From<Illegal> for Error {
    fn from(illegal: Illegal) -> Self {
        Self::new(ErrorKind::Usage, Action::FixTheInput, illegal.to_string())
    }
}

impl From<runlog_content::Error> for Error {
    fn from(error: runlog_content::Error) -> Self {
        let action = match error.kind() {
            Kind::Unavailable => Action::Retry,
            Kind::Missing | Kind::Corrupt => Action::Operator,
            Kind::TooLarge | Kind::Invalid => Action::FixTheInput,
        };
        Self::new(error.error_kind(), action, error.chain())
    }
}
