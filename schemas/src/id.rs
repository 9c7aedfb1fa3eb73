//! Ids, numbers and hashes. Each has its own type, so that the compiler finds exchanged values.
//!
//! ```text
//!   text    RunId RecordId WriterId Fingerprint     not empty, bounded; borrowed in an envelope, owned elsewhere
//!   number  Epoch WriterSeq JournalSeq Offset       the range of an Avro long
//!           PartitionId                             the range of an Avro int
//!   hash    ContentHash RunHash PrevHash            SHA-256
//!   secret  Secret                                  32 bytes that no output shows
//! ```
//!
//! Every value is legal: constructors, JSON and Avro refuse the same inputs. A record in the log with an illegal value
//! does not decode by its schema, so it is a dead letter and its partition continues
//! (`codec::Unreadable::Undecodable`). In Avro and in JSON a value is a plain string, number or hash.
//!
//! ```
//! # use runlog_schemas::{answer::Position, id::{Offset, PartitionId}};
//! let (partition, offset) = (PartitionId::from(3), Offset::from(7));
//! let place = Position { topic: "runlog.journal".into(), partition, offset, index: 0 };
//! ```
//!
//! Exchanged values do not compile, such as partition and offset of a position:
//!
//! ```compile_fail,E0308
//! # use runlog_schemas::{answer::Position, id::{Offset, PartitionId}};
//! let (offset, partition) = (PartitionId::from(3), Offset::from(7));
//! let place = Position { topic: "runlog.journal".into(), partition, offset, index: 0 };
//! ```
//!
//! or an offset compared with a run's own number:
//!
//! ```compile_fail,E0308
//! # use runlog_schemas::id::{JournalSeq, Offset};
//! let covered = Offset::from(7) <= JournalSeq::from(9);
//! ```

mod hash;
mod number;
mod secret;
mod text;

pub use hash::{ContentHash, PrevHash, RunHash};
pub use number::{Epoch, JournalSeq, Offset, PartitionId, WriterSeq};
pub use secret::Secret;
pub use text::{Fingerprint, OrEmpty, RecordId, RunId, Text, WriterId};

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
    #[error("a {what} has at most {max} bytes; shorten the one of {bytes}")]
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

#[cfg(test)]
mod tests;
