//! The error for the registry's refusals and for missing answers. [`Error::kind`] determines how the caller can react.

/// The possible reaction of a caller to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The registry answered that the subject, version or schema does not exist. The answer is final.
    NotFound,
    /// The registry refuses the schema: it is invalid, or not compatible with the subject's schemas.
    Refused,
    /// The credentials are refused or missing: correct the configuration. This is not an answer about schemas.
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

    /// The possible reaction of the caller.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}
