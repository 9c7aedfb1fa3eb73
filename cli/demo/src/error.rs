//! The error of the demo.

use runlog_schemas::answer::ErrorKind;

/// The reason why a step of the demo has no result. A difference between desk and journal is no error.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Creates an error of a step that cannot fail in normal operation.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub(crate) fn because(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The kind, which determines the exit code.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<runlog_projector::Error> for Error {
    fn from(source: runlog_projector::Error) -> Self {
        let problem = source.problem();
        Self::new(problem.kind, problem.detail)
    }
}

impl From<runlog_producer::Error> for Error {
    fn from(source: runlog_producer::Error) -> Self {
        Self::new(source.kind(), source.to_string())
    }
}
