//! `dead_letters`: records that do not decode, by offset. Their bytes stay in the log.

use super::{
    index::{Index, OFFSET, RowFamily},
    key::Key,
};
use runlog_schemas::{datum, datum::Sha256, id::Offset};

/// The index.
pub const INDEX: Index =
    Index::new(7, "dead_letters", &[RowFamily::new::<DeadLetterRow>(0, "dead_letters", &[OFFSET])]);

/// A dead letter by offset.
pub fn key(offset: Offset) -> Key {
    prefix().offset(offset)
}

/// All dead letters.
pub fn prefix() -> Key {
    Key::new(INDEX, 0)
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DeadLetterRow {
    /// `not_framed`, `undecodable`, `too_large`.
    pub reason: String,
    /// SHA-256 of the bytes.
    pub sha256: Sha256,
    /// Number of bytes.
    pub bytes: u64,
    /// Why it does not decode, as text for people.
    pub detail: String,
}
datum!(DeadLetterRow { reason, sha256, bytes, detail });
