//! The crate's error. [`Error::action`] is the reaction for the caller, [`Error::side_effect`] the possible effects, and
//! [`Error::subject`] the run, record and position.

use runlog_content::Kind;
use runlog_schemas::{
    answer::{ErrorKind, Position, Problem, ProblemReason},
    depth::TooDeep,
    id::{Epoch, Illegal, OrEmpty, RecordId, RunId, WriterId},
    subject::Subject,
};
use std::time::Duration;

/// The caller's reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing happened: the same call may succeed later.
    Retry,
    /// The input is wrong. The handle stays usable.
    FixTheInput,
    /// The handle is stopped until [`crate::Run::reopen`], which looks up the records in the log. Without a handle, open the
    /// run again.
    Reopen,
    /// Another process writes the run: stop working on it. A takeover is a decision, not a retry.
    Stop,
    /// A person must investigate or decide: `runlog recover`, `runlog effects resolve`, `runlog doctor`.
    Operator,
}

/// The possible side effects of a failed operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideEffect {
    /// Nothing: no record was appended and no effect ran.
    #[default]
    None,
    /// A record may be in the log; [`crate::Run::reopen`] looks it up. No effect ran.
    Unknown,
    /// The effect ran. The handle holds its result until the next operation or [`crate::Run::reopen`] records it. After that
    /// the journal answers the same call.
    Held,
    /// The effect ran, but another process writes the run, or the run has ended. The log contains the result as evidence for
    /// the decision about the call.
    Evidence,
    /// The effect may have run, and the log does not contain its result: the call stays pending.
    Unrecorded,
}

/// The active writer because of which [`crate::Runlog::open_unless_active`] did not take the run over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveWriter {
    /// The writer's id; empty if the run was never claimed.
    pub writer_id: OrEmpty<WriterId>,
    /// The writer's epoch.
    pub epoch: Epoch,
    /// The age of the run's last record; zero if the log's timestamp of that record is in the future.
    pub age: Duration,
}

/// A failed call on the journal.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    action: Action,
    side_effect: SideEffect,
    message: String,
    subject: Box<Subject>,
    active: Option<Box<ActiveWriter>>,
    not_requested: Box<[RecordId]>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, action: Action, message: impl Into<String>) -> Self {
        let (side_effect, message) = (SideEffect::None, message.into());
        Self {
            kind,
            action,
            side_effect,
            message,
            subject: Box::default(),
            active: None,
            not_requested: Box::default(),
        }
    }

    /// The kind, with the same names as in answers of servers and commands.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The caller's reaction.
    pub fn action(&self) -> Action {
        self.action
    }

    /// The possible side effects of the failed operation.
    pub fn side_effect(&self) -> SideEffect {
        self.side_effect
    }

    /// The run, the record and the log position of the error. The record is the one written or read, or the request of
    /// a call. The position is the acknowledged record's, or comes from the server.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The run's active writer, if it prevented the takeover.
    pub fn active(&self) -> Option<&ActiveWriter> {
        self.active.as_deref()
    }

    /// The recorded calls after the checkpoint that this process has not requested, oldest first, if the new call failed because of
    /// them; see [`OnDivergence::Fail`](crate::OnDivergence::Fail). Otherwise empty.
    pub fn not_requested(&self) -> &[RecordId] {
        &self.not_requested
    }

    pub(crate) fn because_not_requested(self, calls: Vec<RecordId>) -> Self {
        Self { not_requested: calls.into(), ..self }
    }

    pub(crate) fn with_side_effect(self, side_effect: SideEffect) -> Self {
        Self { side_effect, ..self }
    }

    pub(crate) fn because_of(self, active: ActiveWriter) -> Self {
        Self { active: Some(Box::new(active)), ..self }
    }

    /// Sets the run, unless the error already has one.
    pub(crate) fn about_run(mut self, run_id: RunId<&str>) -> Self {
        self.subject.run_id.get_or_insert_with(|| run_id.to_owned());
        self
    }

    /// Sets the record, unless the error already has one.
    pub(crate) fn about_record(mut self, record_id: RecordId<&str>) -> Self {
        self.subject.record_id.get_or_insert_with(|| record_id.to_owned());
        self
    }

    /// Sets or replaces the record.
    pub(crate) fn of_record(mut self, record_id: RecordId<&str>) -> Self {
        self.subject.record_id = Some(record_id.to_owned());
        self
    }

    /// Sets the position, and replaces the server's: a `stale` error contains the target that the index did not reach.
    pub(crate) fn about_position(mut self, position: &Position) -> Self {
        let Subject { topic, partition, offset, .. } = position.subject();
        *self.subject = Subject { topic, partition, offset, ..*self.subject };
        self
    }

    /// Replaces the message by a function of it, which adds context.
    pub(crate) fn map_message(self, message: impl FnOnce(&str) -> String) -> Self {
        let message = message(&self.message);
        Self { message, ..self }
    }

    /// Changes the action to `Reopen`, for a stopped handle; `Operator` stays.
    pub(crate) fn stopping(self) -> Self {
        let action = if self.action == Action::Operator { Action::Operator } else { Action::Reopen };
        Self { action, ..self }
    }

    /// Copies the error for a later operation, which had no side effect.
    pub(crate) fn without_side_effect(&self) -> Self {
        self.clone().with_side_effect(SideEffect::None)
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let elsewhere = [ProblemReason::Mirror, ProblemReason::NotHere];
        let is_elsewhere = problem.reason.as_ref().is_some_and(|reason| elsewhere.iter().any(|one| reason == one));
        let action = match problem.kind {
            // This server will never accept the request: a person must name another server.
            ErrorKind::Unavailable if is_elsewhere => Action::Operator,
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
    fn a_mirrors_refusal_needs_an_operator_and_any_other_unavailable_server_another_try()
    -> Result<(), serde_json::Error> {
        let action = |reason: &str| {
            let problem = format!(
                r#"{{"type": "about:blank#unavailable", "title": "unavailable", "status": 503, "detail": "d", "kind": "unavailable"
                    {reason}}}"#
            );
            serde_json::from_str::<Problem>(&problem).map(|problem| Error::from(problem).action())
        };
        assert_eq!(action(r#", "reason": "mirror", "home": "kafka:c:t""#)?, Action::Operator);
        assert_eq!(action(r#", "reason": "of a later version""#)?, Action::Retry);
        assert_eq!(action("")?, Action::Retry);
        Ok(())
    }

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
        let position = Position { topic: "t".into(), partition: 1.into(), offset: 7.into(), index: 0, log: None };
        assert_eq!(error.about_position(&position).subject(), &Subject { offset: Some(7.into()), ..named });
        Ok(())
    }
}
