//! One error; [`Error::action`] says what the caller can do, [`Error::happened`] what it may have left behind.

use runlog_content::Kind;
use runlog_schemas::{
    answer::{ErrorKind, Problem},
    depth::TooDeep,
    id::{Epoch, Illegal, OrEmpty, WriterId},
};
use std::time::Duration;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing happened: the same call may succeed later.
    Retry,
    /// The input is at fault, and the handle stays usable.
    FixTheInput,
    /// The handle stands still until [`crate::Run::reopen`], which finds out what landed. Where no handle came to be, open
    /// the run again.
    Reopen,
    /// Another process has the run: stop working on it. To take it back is a decision, and not a retry.
    Stop,
    /// Somebody must find out or decide: `runlog recover`, `runlog effects resolve`, `runlog doctor`.
    Operator,
}

/// What an operation that failed may have left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Happened {
    /// Nothing: no record was appended for it and no effect ran.
    #[default]
    Nothing,
    /// A record may be in the log. [`crate::Run::reopen`] finds out. No effect ran.
    Unknown,
    /// The effect ran, and how it ended is held by the handle, to be recorded by what it does next or by
    /// [`crate::Run::reopen`]. Asked for again after that, the call is answered from the journal.
    Held,
    /// The effect ran, the run is another process's, and how it ended was left in the log as evidence for that one.
    Evidence,
    /// The effect may have happened, and nothing says how it ended: the call stays pending.
    Effect,
}

/// The writer that [`crate::Runlog::open_unless_active`] did not take a run over from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// The writer; empty where nobody ever claimed the run.
    pub writer_id: OrEmpty<WriterId>,
    /// Its epoch.
    pub epoch: Epoch,
    /// How long ago the run's last record was appended.
    pub age: Duration,
}

/// Why a call on the journal failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    action: Action,
    happened: Happened,
    message: String,
    active: Option<Box<Active>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, action: Action, message: impl Into<String>) -> Self {
        Self { kind, action, happened: Happened::Nothing, message: message.into(), active: None }
    }

    /// The kind, as servers and commands name it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the caller can do.
    pub fn action(&self) -> Action {
        self.action
    }

    /// What the operation may have left behind.
    pub fn happened(&self) -> Happened {
        self.happened
    }

    /// Who has the run, where it was not taken over for that.
    pub fn active(&self) -> Option<&Active> {
        self.active.as_deref()
    }

    pub(crate) fn left(self, happened: Happened) -> Self {
        Self { happened, ..self }
    }

    pub(crate) fn because_of(self, active: Active) -> Self {
        Self { active: Some(Box::new(active)), ..self }
    }

    /// The same error, said of something larger.
    pub(crate) fn of(self, message: impl FnOnce(&str) -> String) -> Self {
        let message = message(&self.message);
        Self { message, ..self }
    }

    /// The same error as the reason why a handle stands still.
    pub(crate) fn stopping(self) -> Self {
        let action = if self.action == Action::Operator { Action::Operator } else { Action::Reopen };
        Self { action, ..self }
    }

    /// The same error for a later operation, which did nothing.
    pub(crate) fn without_side_effect(&self) -> Self {
        self.clone().left(Happened::Nothing)
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let action = match problem.kind {
            ErrorKind::Stale | ErrorKind::Unavailable => Action::Retry,
            ErrorKind::Conflict => Action::Reopen,
            ErrorKind::ClaimLost | ErrorKind::Fenced => Action::Stop,
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

impl From<TooDeep> for Error {
    fn from(deep: TooDeep) -> Self {
        Self::new(ErrorKind::Invalid, Action::FixTheInput, deep.to_string())
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
