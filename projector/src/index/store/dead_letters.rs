//! `dead_letters`: bytes that nobody can read, by offset. Their bytes stay in the log.

use super::{Index, Key, RowFamily, index::OFFSET};
use runlog_schemas::{datum, datum::Sha256, id::Offset};

/// The index.
pub const INDEX: Index = Index::new(7, "dead_letters", &[RowFamily::of::<DeadLetterRow>(0, "dead_letters", &[OFFSET])]);

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
    /// Of the bytes.
    pub sha256: Sha256,
    /// How many bytes.
    pub bytes: u64,
    /// What does not decode, for people.
    pub detail: String,
}
datum!(DeadLetterRow { reason, sha256, bytes, detail });
