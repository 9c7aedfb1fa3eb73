//! What a registry's answer, or the lack of one, means to whoever asked.

/// What callers do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The registry says that there is no such subject, version or schema: an answer, and final.
    NotFound,
    /// The registry refuses the schema: it is not compatible with what the subject has, or no schema to it.
    Refused,
    /// The credentials are refused or missing: mend the configuration. No answer about schemas.
    Denied,
    /// No answer: try again.
    Unavailable,
    /// The configuration is wrong.
    Invalid,
}

/// Why a question has no useful answer. `Display` never shows credentials.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: Kind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What to do about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}
