//! One error for everything that a projector answers; its kind is what callers act on.

use crate::index::store;
use runlog_schemas::{
    answer::{self, ErrorKind, Problem},
    id::{Illegal, Offset, PartitionId},
    subject::Subject,
};

/// Why a call was not answered.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    subject: Box<Subject>,
    lag: Option<u64>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; the message says what, where and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), subject: Box::default(), lag: None, source: None }
    }

    /// Names the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Names the record or the place in the log that it is about.
    #[must_use]
    pub fn about(mut self, subject: Subject) -> Self {
        *self.subject = subject;
        self
    }

    /// The answer would have been `lag` records old.
    pub fn stale(partition: PartitionId, applied: Offset, target: Offset) -> Self {
        let lag = target.since(applied);
        Self {
            kind: ErrorKind::Stale,
            message: format!(
                "partition {partition} is applied up to offset {applied}, asked for {target} ({lag} behind); \
                 retry, extend the deadline, or read at eventual"
            ),
            subject: Box::new(Subject { partition: Some(partition), offset: Some(target), ..Subject::default() }),
            lag: Some(lag),
            source: None,
        }
    }

    /// An append that the log did not acknowledge: `Overloaded` where nothing was appended and the same append may
    /// succeed later, otherwise the kind of [`kind_of`].
    pub fn of_append(source: runlog_log::Error) -> Self {
        let untouched = source.kind() == runlog_log::Kind::Retry;
        let error = Self::from(source);
        if untouched { Self { kind: ErrorKind::Overloaded, ..error } } else { error }
    }

    /// The same error of a request of which a part was done: no longer `Overloaded`, which says that nothing happened.
    #[must_use]
    pub fn after_a_part(self) -> Self {
        let kind = if self.kind == ErrorKind::Overloaded { ErrorKind::Unavailable } else { self.kind };
        Self { kind, ..self }
    }

    /// What callers act on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The record or the place in the log that it is about, as far as it is known.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The error as RFC 9457 problem details, its causes in the detail.
    pub fn problem(&self) -> Problem {
        Problem {
            problem_type: format!("about:blank#{}", self.kind.as_str()),
            title: self.kind.as_str().replace('_', " "),
            status: self.kind.http_status(),
            detail: answer::with_causes(self),
            kind: self.kind,
            lag: self.lag,
        }
    }
}

impl From<store::Error> for Error {
    fn from(source: store::Error) -> Self {
        let kind = match source {
            // It may have room again.
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
        let subject = source.subject().clone();
        Self::new(kind_of(source.kind()), "log append or read failed").about(subject).because(source)
    }
}

/// The kind of a log's error, as servers and commands name it.
pub fn kind_of(kind: runlog_log::Kind) -> ErrorKind {
    use runlog_log::Kind;
    match kind {
        Kind::Invalid => ErrorKind::Invalid,
        Kind::Retry | Kind::Unknown | Kind::Fatal => ErrorKind::Unavailable,
        Kind::OutOfRange | Kind::Damaged => ErrorKind::Internal,
    }
}
