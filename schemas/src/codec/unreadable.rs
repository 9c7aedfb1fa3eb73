//! The reasons why bytes are not a record.

use crate::datum::Malformed;

/// The largest framed record that a producer may append and a reader accepts, bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// The reason why bytes are not a record. Each reason has one reaction of the projector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Unknown framing: a dead letter.
    #[error("neither Avro single-object encoding nor Confluent framing")]
    NotFramed,
    /// Not a datum of its schema: a dead letter.
    #[error("does not decode by its schema: {0}")]
    Undecodable(Malformed),
    /// Over [`RECORD_BYTES_MAX`]: a dead letter.
    #[error("{0} bytes, more than {RECORD_BYTES_MAX}")]
    TooLarge(usize),
    /// A schema that this build does not know: the partition stops.
    #[error("unknown schema {0}; start a reader that knows it, or append a skip for the record")]
    UnknownSchema(String),
    /// The registry has not answered for this schema id yet: read again later.
    #[error("schema {what}")]
    Unresolved {
        /// The id, and the reason why there is no answer.
        what: String,
        /// Whether the request failed, so that an operator may have to act; otherwise it is in flight.
        failing: bool,
    },
    /// A payload branch that the known schema does not have: the partition stops.
    #[error("unknown payload branch {0}; start a reader that knows it, or append a skip for the record")]
    UnknownBranch(i64),
}

impl Unreadable {
    /// Returns whether the partition stops here. Otherwise the record is a dead letter and the partition continues.
    pub fn stops(&self) -> bool {
        matches!(self, Self::UnknownSchema(_) | Self::UnknownBranch(_))
    }

    /// Returns the dead letter's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFramed => "not_framed",
            Self::Undecodable(_) => "undecodable",
            Self::TooLarge(_) => "too_large",
            Self::UnknownSchema(_) | Self::UnknownBranch(_) => "unknown_schema",
            Self::Unresolved { .. } => "registry",
        }
    }
}

impl From<Malformed> for Unreadable {
    fn from(malformed: Malformed) -> Self {
        Self::Undecodable(malformed)
    }
}
