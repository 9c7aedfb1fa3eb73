//! The error of all adapters. [`Error::kind`] determines how the caller can react.

use runlog_schemas::{
    id::{Offset, PartitionId},
    subject::Subject,
};

/// The possible reaction of a caller to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The call had no effect. The same call may succeed later.
    Retry,
    /// The input is invalid. The call appended no record.
    Invalid,
    /// Unknown whether the records were appended. Read the log before sending them again.
    Unknown,
    /// The offset is not in the log.
    OutOfRange,
    /// This process cannot use the log any more.
    Fatal,
    /// The stored data is damaged. No record is skipped: restore the log from a copy.
    Damaged,
    /// The topic was deleted and created again (Kafka), so it is no longer the log that was opened. The append or read had no
    /// effect.
    Replaced,
    /// The log is not the journal's home. The append had no effect, and no repetition to this log can succeed.
    NotHome,
}

/// Why a call on the log failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}{}{}", named("topic", &.subject.topic), named("partition", &.subject.partition), named("offset", &.subject.offset))]
pub struct Error {
    kind: Kind,
    what: String,
    subject: Box<Subject>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error about a whole topic.
    pub fn new(kind: Kind, topic: &str, what: impl Into<String>) -> Self {
        let subject = Subject { topic: Some(topic.into()), ..Subject::default() };
        Self { kind, what: what.into(), subject: Box::new(subject), source: None }
    }

    /// Names the partition.
    #[must_use]
    pub fn in_partition(mut self, partition: PartitionId) -> Self {
        self.subject.partition = Some(partition);
        self
    }

    /// Names the offset.
    #[must_use]
    pub fn at_offset(mut self, offset: Offset) -> Self {
        self.subject.offset = Some(offset);
        self
    }

    /// Names the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Replaces the kind, for a caller that must react differently.
    #[must_use]
    pub fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The topic of the error, and its partition and offset if the call named them.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Takes the cause out, for a caller's error that repeats the message. So the cause appears once in the chain.
    pub fn into_source(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        self.source
    }

    /// The possible reaction of the caller.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

fn named<T: std::fmt::Display>(name: &str, value: &Option<T>) -> String {
    value.as_ref().map_or_else(String::new, |value| format!(", {name} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_only_the_known_parts_of_its_subject() {
        let error = Error::new(Kind::Retry, "t", "it failed");
        assert_eq!(error.to_string(), "it failed, topic t");
        let error = error.in_partition(1.into()).at_offset(7.into());
        assert_eq!(error.to_string(), "it failed, topic t, partition 1, offset 7");
        let Subject { topic, partition, offset, record_id, run_id } = error.subject().clone();
        assert_eq!((topic.as_deref(), partition, offset), (Some("t"), Some(1.into()), Some(7.into())));
        assert_eq!((record_id, run_id), (None, None));
    }
}
