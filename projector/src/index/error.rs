//! The projector's error. Callers act on its kind.

use super::store;
use runlog_schemas::{
    answer::{self, ErrorKind, Position, Problem, ProblemReason},
    id::{Illegal, LogId, Offset, PartitionId, RecordId},
    subject::Subject,
};
use std::time::Duration;

/// The failure of a call.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    subject: Box<Subject>,
    lag: Option<u64>,
    age_millis: Option<u64>,
    reason: Option<ProblemReason>,
    home: Option<LogId>,
    retry_after: Option<Duration>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`. The message names the problem, its subject and the remedy.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            subject: Box::default(),
            lag: None,
            age_millis: None,
            reason: None,
            home: None,
            retry_after: None,
            source: None,
        }
    }

    /// The error for a decision about an effect that its process may still be running. `age_millis`: the age of its last record.
    pub fn active(message: impl Into<String>, age_millis: u64) -> Self {
        let (reason, age_millis) = (Some(ProblemReason::Active), Some(age_millis));
        Self { reason, age_millis, ..Self::new(ErrorKind::Conflict, message) }
    }

    /// The error for a call that only the journal's home can answer, on another log.
    pub fn not_home(message: impl Into<String>, home: Option<LogId>) -> Self {
        Self { reason: Some(ProblemReason::Mirror), home, ..Self::new(ErrorKind::Unavailable, message) }
    }

    /// The error for a partition that this server does not hold. The request had no effect.
    pub fn not_here(message: impl Into<String>) -> Self {
        Self { reason: Some(ProblemReason::NotHere), ..Self::new(ErrorKind::Unavailable, message) }
    }

    /// The error for a position or a cursor of another log.
    pub fn foreign_log(message: impl Into<String>) -> Self {
        Self { reason: Some(ProblemReason::ForeignLog), ..Self::new(ErrorKind::Conflict, message) }
    }

    /// The error for a run that may have done more than this journal knows, because its home was lost.
    pub fn doubt(message: impl Into<String>) -> Self {
        Self { reason: Some(ProblemReason::Doubt), ..Self::new(ErrorKind::ReconcileRequired, message) }
    }

    /// Sets the wait before a retry.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The wait before a retry, if known.
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the whole subject.
    #[must_use]
    pub fn about(mut self, subject: Subject) -> Self {
        *self.subject = subject;
        self
    }

    /// Sets the partition of the subject.
    #[must_use]
    pub fn in_partition(mut self, partition: PartitionId) -> Self {
        self.subject.partition = Some(partition);
        self
    }

    /// Sets the topic, partition and offset of the subject.
    #[must_use]
    pub fn at(mut self, position: &Position) -> Self {
        let Subject { topic, partition, offset, .. } = position.subject();
        *self.subject = Subject { topic, partition, offset, ..*self.subject };
        self
    }

    /// Sets the record of the subject, if there is one.
    #[must_use]
    pub fn about_record<'a>(mut self, record_id: impl Into<Option<RecordId<&'a str>>>) -> Self {
        if let Some(record_id) = record_id.into() {
            self.subject.record_id = Some(record_id.to_owned());
        }
        self
    }

    /// The error for a partition that is applied up to `applied` (exclusive). `target` is the partition and the required
    /// offset (exclusive).
    pub fn stale(applied: Offset, target: &Position) -> Self {
        let Position { partition, offset, .. } = target;
        let lag = offset.since(applied);
        let message = format!(
            "partition {partition} is applied up to offset {applied}, and the query needs {offset} ({lag} more); \
             retry, extend the deadline, or read at eventual"
        );
        Self { lag: Some(lag), ..Self::new(ErrorKind::Stale, message).at(target) }
    }

    /// The error for an append that the log did not acknowledge. `Overloaded` if the log appended no record and the same
    /// append may succeed later, otherwise the kind of [`kind_of`].
    pub fn of_append(source: runlog_log::Error) -> Self {
        let untouched = source.kind() == runlog_log::Kind::Retry;
        let error = Self::from(source);
        if untouched { Self { kind: ErrorKind::Overloaded, ..error } } else { error }
    }

    /// The same error for a request that was partly done. `Overloaded` and the reasons `mirror`, `not_here` and `doubt` would mean that
    /// the request had no effect, so it becomes `Unavailable` without a reason.
    #[must_use]
    pub fn after_a_part(self) -> Self {
        let denies_effect =
            matches!(self.reason, Some(ProblemReason::Mirror | ProblemReason::NotHere | ProblemReason::Doubt));
        if self.kind == ErrorKind::Overloaded || denies_effect {
            return Self { kind: ErrorKind::Unavailable, reason: None, home: None, ..self };
        }
        self
    }

    /// The kind, which callers act on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The reason, for kinds with several reasons.
    pub fn reason(&self) -> Option<ProblemReason> {
        self.reason
    }

    /// The journal's home, for a call that only the home can answer.
    pub fn home(&self) -> Option<&LogId> {
        self.home.as_ref()
    }

    /// The record or log position that it concerns, as far as known.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The error as RFC 9457 problem details, its causes in the detail.
    pub fn problem(&self) -> Problem {
        let Subject { topic, partition, offset, record_id, .. } = self.subject().clone();
        Problem {
            problem_type: format!("about:blank#{}", self.kind.as_str()),
            title: self.kind.as_str().replace('_', " "),
            status: self.kind.http_status(),
            detail: answer::with_causes(self),
            kind: self.kind,
            reason: self.reason.map(Into::into),
            lag: self.lag,
            age_millis: self.age_millis,
            topic,
            partition,
            offset,
            record_id,
            home: self.home.clone(),
            not_here: None,
        }
    }
}

impl From<store::Error> for Error {
    fn from(source: store::Error) -> Self {
        let kind = match source {
            // The disk may have space again later.
            store::Error::Full { .. } => ErrorKind::Unavailable,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, "index read or write failed").because(source)
    }
}

impl From<Illegal> for Error {
    fn from(source: Illegal) -> Self {
        Self::new(ErrorKind::Invalid, source.to_string())
    }
}

impl From<runlog_content::Error> for Error {
    fn from(source: runlog_content::Error) -> Self {
        Self::new(source.error_kind(), source.chain())
    }
}

impl From<runlog_log::Error> for Error {
    fn from(source: runlog_log::Error) -> Self {
        let reason = (source.kind() == runlog_log::Kind::NotHome).then_some(ProblemReason::Mirror);
        let error = Self::new(kind_of(source.kind()), source.to_string()).about(source.subject().clone());
        Self { reason, source: source.into_source(), ..error }
    }
}

/// The kind for an error of the log, as servers and commands name it.
pub fn kind_of(kind: runlog_log::Kind) -> ErrorKind {
    use runlog_log::Kind;
    match kind {
        Kind::Invalid => ErrorKind::Invalid,
        Kind::Replaced => ErrorKind::PartitionStopped,
        Kind::Retry | Kind::Unknown | Kind::Fatal | Kind::NotHome => ErrorKind::Unavailable,
        Kind::OutOfRange | Kind::Damaged => ErrorKind::Internal,
    }
}
