//! The limits of ids, and the reasons why a value is illegal.

/// The longest id of a run, a record or a writer, bytes. Ids are message keys in Kafka and parts of every key in
/// RocksDB, which may contain several. Real ids are far shorter.
pub const ID_BYTES_MAX: usize = 1024;

/// The longest fingerprint, bytes. Runlog's fingerprints have 67. A host's own fingerprint is kept unchanged. Fingerprints are
/// parts of keys, like ids.
pub const FINGERPRINT_BYTES_MAX: usize = 1024;

/// Returns `.` or `..` if the text is one of them. URL parsers remove such a path segment, percent-encoded or not. A
/// request for one run would then address another run, or all.
pub fn dots(text: &str) -> Option<&'static str> {
    [".", ".."].into_iter().find(|dots| *dots == text)
}

/// The reason why a value is illegal for its type, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// An empty id.
    #[error("a {what} is not empty; give it one")]
    Empty {
        /// The type, for people.
        what: &'static str,
    },
    /// An id beyond its limit.
    #[error("a {what} has at most {max} bytes; shorten it from {bytes}")]
    TooLong {
        /// The type, for people.
        what: &'static str,
        /// The limit, bytes.
        max: usize,
        /// The id's length, bytes.
        bytes: usize,
    },
    /// An id that URL parsers remove from a path.
    #[error("a {what} is not {text:?}, which URL parsers remove from a path; choose another {what}")]
    Dots {
        /// The type, for people.
        what: &'static str,
        /// `.` or `..`.
        text: &'static str,
    },
    /// An id with other characters than allowed.
    #[error("a {what} has only {allowed}")]
    Characters {
        /// The type, for people.
        what: &'static str,
        /// The allowed characters.
        allowed: &'static str,
    },
    /// A number beyond the schema's range.
    #[error("{what} must be at most {max}, the schema's maximum, not {number}")]
    TooLarge {
        /// The type, for people.
        what: &'static str,
        /// The greatest.
        max: u64,
        /// The number.
        number: u64,
    },
    /// A text that is not a number.
    #[error("{what} must be a whole number from 0 to {max}, not {text:?}")]
    NotANumber {
        /// The type, for people.
        what: &'static str,
        /// The greatest.
        max: u64,
        /// The text.
        text: String,
    },
}

impl From<std::convert::Infallible> for Illegal {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
