//! One error for the registry's refusals and for missing answers; [`Error::kind`] says what the caller can do.

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The registry answered that the subject, version or schema does not exist. The answer is final.
    NotFound,
    /// The registry refuses the schema: it is invalid, or not compatible with the subject's schemas.
    Refused,
    /// The credentials are refused or missing: correct the configuration. It is no answer about schemas.
    Denied,
    /// The registry gave no answer: retry.
    Unavailable,
    /// The configuration is invalid.
    Invalid,
}

/// Why a request to the registry failed. `Display` never shows credentials.
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

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}
