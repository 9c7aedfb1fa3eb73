//! One error; [`Error::action`] says what the caller can do, [`Error::side_effect`] what it may have left behind, and
//! [`Error::subject`] what it is about.

use runlog_content::Kind;
use runlog_schemas::{
    answer::{ErrorKind, Position, Problem},
    depth::TooDeep,
    id::{Epoch, Illegal, OrEmpty, RecordId, RunId, WriterId},
    subject::Subject,
};
use std::time::Duration;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing happened: the same call may succeed later.
    Retry,
    /// The input is wrong. The handle stays usable.
    FixTheInput,
    /// The handle is stopped until [`crate::Run::reopen`], which finds out which records are in the log. If there is no handle
    /// yet, open the run again.
    Reopen,
    /// Another process has the run: stop working on it. Taking it back is a decision, not a retry.
    Stop,
    /// A person has to find out or decide: `runlog recover`, `runlog effects resolve`, `runlog doctor`.
    Operator,
}

/// What a failed operation may have left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideEffect {
    /// Nothing: no record was appended and no effect ran.
    #[default]
    None,
    /// A record may be in the log; [`crate::Run::reopen`] finds out. No effect ran.
    Unknown,
    /// The effect ran. The handle holds its result, which the handle's next operation or [`crate::Run::reopen`] records. After
    /// that the same call is answered from the journal.
    Held,
    /// The effect ran, and another process has the run, or the run ended: the result is in the log as evidence for whoever
    /// decides about the call.
    Evidence,
    /// The effect may have happened, and its result is recorded nowhere: the call stays pending.
    Unrecorded,
}

/// The active writer that [`crate::Runlog::open_unless_active`] left the run to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveWriter {
    /// The writer's id; empty if the run was never claimed.
    pub writer_id: OrEmpty<WriterId>,
    /// The writer's epoch.
    pub epoch: Epoch,
    /// How long ago the run's last record was appended; zero if the log's time of that record is in the future.
    pub age: Duration,
}

/// Why a call on the journal failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    action: Action,
    side_effect: SideEffect,
    message: String,
    subject: Box<Subject>,
    active: Option<Box<ActiveWriter>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, action: Action, message: impl Into<String>) -> Self {
        let (side_effect, message) = (SideEffect::None, message.into());
        Self { kind, action, side_effect, message, subject: Box::default(), active: None }
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
    pub fn side_effect(&self) -> SideEffect {
        self.side_effect
    }

    /// The run, the record and the log position that it is about. The record is the one that was written or read, or the
    /// request of a call; the position is the record's, if the log has acknowledged it, or what the server named.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The run's active writer, if the run was not taken over because of it.
    pub fn active(&self) -> Option<&ActiveWriter> {
        self.active.as_deref()
    }

    pub(crate) fn with_side_effect(self, side_effect: SideEffect) -> Self {
        Self { side_effect, ..self }
    }

    pub(crate) fn because_of(self, active: ActiveWriter) -> Self {
        Self { active: Some(Box::new(active)), ..self }
    }

    /// The same error about this run, unless it is already about one.
    pub(crate) fn about_run(mut self, run_id: RunId<&str>) -> Self {
        self.subject.run_id.get_or_insert_with(|| run_id.to_owned());
        self
    }

    /// The same error about this record, unless it is already about one.
    pub(crate) fn about_record(mut self, record_id: RecordId<&str>) -> Self {
        self.subject.record_id.get_or_insert_with(|| record_id.to_owned());
        self
    }

    /// The same error about the record at this position, also where the server named another one: on `stale`, the end that
    /// the index did not reach.
    pub(crate) fn about_position(mut self, position: &Position) -> Self {
        let Subject { topic, partition, offset, .. } = position.subject();
        *self.subject = Subject { topic, partition, offset, ..*self.subject };
        self
    }

    /// The same error with more context.
    pub(crate) fn of(self, message: impl FnOnce(&str) -> String) -> Self {
        let message = message(&self.message);
        Self { message, ..self }
    }

    /// The same error as the reason why a handle is stopped.
    pub(crate) fn stopping(self) -> Self {
        let action = if self.action == Action::Operator { Action::Operator } else { Action::Reopen };
        Self { action, ..self }
    }

    /// The same error for a later operation, which did nothing.
    pub(crate) fn without_side_effect(&self) -> Self {
        self.clone().with_side_effect(SideEffect::None)
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let action = match problem.kind {
            ErrorKind::Stale | ErrorKind::Unavailable | ErrorKind::Overloaded => Action::Retry,
            ErrorKind::Conflict => Action::Reopen,
            ErrorKind::ClaimLost | ErrorKind::Fenced => Action::Stop,
            ErrorKind::PartitionStopped
            | ErrorKind::Internal
            | ErrorKind::ReconcileRequired
            | ErrorKind::MissingContent => Action::Operator,
            ErrorKind::Usage
            | ErrorKind::Invalid
            | ErrorKind::TooLarge
            | ErrorKind::NotFound
            | ErrorKind::Forbidden
            | ErrorKind::Unauthenticated => Action::FixTheInput,
        };
        let subject = Box::new(problem.subject());
        Self { subject, ..Self::new(problem.kind, action, problem.detail) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problems_members_are_the_errors_subject_and_a_records_own_position_replaces_the_servers()
    -> Result<(), serde_json::Error> {
        let problem = r#"{"type": "about:blank#stale", "title": "stale", "status": 503, "detail": "behind", "kind": "stale",
            "lag": 2, "topic": "t", "partition": 1, "offset": 9, "record_id": "r"}"#;
        let error = Error::from(serde_json::from_str::<Problem>(problem)?);
        let named = Subject {
            run_id: None,
            topic: Some("t".into()),
            partition: Some(1.into()),
            offset: Some(9.into()),
            record_id: RecordId::new("r").ok().map(|id| id.to_owned()),
        };
        assert_eq!(error.subject(), &named);
        let position = Position { topic: "t".into(), partition: 1.into(), offset: 7.into(), index: 0 };
        assert_eq!(error.about_position(&position).subject(), &Subject { offset: Some(7.into()), ..named });
        Ok(())
    }
}
