//! The reasons why a JSON text is refused.

use std::borrow::Cow;

/// The maximum number of arrays and objects that may be open at once (inclusive).
pub const DEPTH_MAX: usize = 128;

/// The reason why a text was refused, and its JSON pointer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{problem} at {}", describe_pointer(pointer))]
pub struct Error {
    /// RFC 6901 pointer to the innermost value at the error; empty for the text itself.
    pub pointer: String,
    /// The problem of this value.
    pub problem: Problem,
}

/// The problem of a refused text.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Problem {
    /// Not JSON (RFC 8259).
    #[error("not JSON: expected {expected} at byte {offset}")]
    Syntax {
        /// The expected token.
        expected: &'static str,
        /// The offset from the start of the text, 0-based.
        offset: usize,
    },
    /// More than [`DEPTH_MAX`] arrays and objects are open at once.
    #[error("nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// Canonical form only: readers differ in which of the two values they use.
    #[error("duplicate key {0:?}")]
    DuplicateKey(String),
    /// Canonical form only: a lone surrogate has no UTF-8 spelling.
    #[error("a lone surrogate in a string")]
    LoneSurrogate,
    /// Canonical form only: a fraction or exponent beyond the range of a double.
    #[error("a number beyond the range of a double")]
    NotFinite,
}

fn describe_pointer(pointer: &str) -> Cow<'_, str> {
    if pointer.is_empty() { "the top level".into() } else { pointer.into() }
}

/// Escapes a name as a segment of a JSON pointer.
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
