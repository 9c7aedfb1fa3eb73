//! The error of the content store. [`Error::kind`] determines how the caller can react.

use runlog_schemas::answer::{self, ErrorKind};

/// The possible reaction of a caller to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The store gave no valid answer in time: the same call may succeed later.
    Unavailable,
    /// The object does not exist: restore it from a copy.
    Missing,
    /// The object's length or hash differs from its reference: restore it from a copy.
    Corrupt,
    /// The content exceeds the store's limit.
    TooLarge,
    /// The store's URL or one of its options is invalid.
    Invalid,
}

/// Why a call on the content store failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: Kind,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    #[must_use]
    pub(crate) fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The possible reaction of the caller.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The kind's name in HTTP problems and in the commands' errors.
    pub fn error_kind(&self) -> ErrorKind {
        match self.kind {
            Kind::Unavailable => ErrorKind::Unavailable,
            Kind::Missing | Kind::Corrupt => ErrorKind::MissingContent,
            Kind::TooLarge => ErrorKind::TooLarge,
            Kind::Invalid => ErrorKind::Invalid,
        }
    }

    /// The message and its causes, in one line.
    pub fn chain(&self) -> String {
        answer::with_causes(self)
    }
}
