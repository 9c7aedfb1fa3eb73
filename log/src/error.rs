//! One error for every adapter; [`Error::kind`] says what the caller can do about it.

use crate::{Offset, PartitionId};
use runlog_schemas::answer::ErrorKind;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing happened; the same call may succeed later.
    Retry,
    /// The input is at fault and was not taken.
    Invalid,
    /// It is not known whether the append landed: read the log before doing it again.
    Unknown,
    /// The offset is not in the log.
    OutOfRange,
    /// The log cannot be used any more by this process.
    Fatal,
    /// What is stored is damaged, and nothing of it is passed over: bring it back from a copy.
    Damaged,
}

/// Why a call on the log failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}, topic {topic}{}{}", named("partition", .partition), named("offset", .offset))]
pub struct Error {
    kind: Kind,
    what: String,
    topic: String,
    partition: Option<PartitionId>,
    offset: Option<Offset>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error about a whole topic.
    pub fn new(kind: Kind, topic: &str, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), topic: topic.into(), partition: None, offset: None, source: None }
    }

    /// Names the partition.
    #[must_use]
    pub fn at(mut self, partition: PartitionId) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Names the offset.
    #[must_use]
    pub fn offset(mut self, offset: Offset) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Names the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error, for a caller that has something else to do about it.
    #[must_use]
    pub fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The partition that it is about, where it is about one.
    pub fn partition(&self) -> Option<PartitionId> {
        self.partition
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The kind as servers and commands name it.
    pub fn error_kind(&self) -> ErrorKind {
        match self.kind {
            Kind::Invalid => ErrorKind::Invalid,
            Kind::Retry | Kind::Unknown | Kind::Fatal => ErrorKind::Unavailable,
            Kind::OutOfRange | Kind::Damaged => ErrorKind::Internal,
        }
    }
}

fn named<T: std::fmt::Display>(name: &str, value: &Option<T>) -> String {
    value.as_ref().map_or_else(String::new, |value| format!(", {name} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_it_knows_and_nothing_else() {
        let error = Error::new(Kind::Retry, "t", "it failed");
        assert_eq!(error.to_string(), "it failed, topic t");
        assert_eq!(error.at(1.into()).offset(7.into()).to_string(), "it failed, topic t, partition 1, offset 7");
    }
}
