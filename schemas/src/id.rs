//! Ids, numbers and hashes. Each has its own type, so that the compiler finds exchanged values.
//!
//! ```text
//!   text    RunId RecordId WriterId Fingerprint     not empty, bounded; borrowed in an envelope, owned elsewhere
//!   number  Epoch WriterSeq JournalSeq Offset       the range of an Avro long
//!           PartitionId                             the range of an Avro int
//!   hash    ContentHash RunHash PrevHash            SHA-256
//!   log     LogId                                   bounded, of few characters
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
//! let position = Position { topic: "runlog.journal".into(), partition, offset, index: 0, log: None };
//! ```
//!
//! Exchanged values do not compile, such as partition and offset of a position:
//!
//! ```compile_fail,E0308
//! # use runlog_schemas::{answer::Position, id::{Offset, PartitionId}};
//! let (offset, partition) = (PartitionId::from(3), Offset::from(7));
//! let position = Position { topic: "runlog.journal".into(), partition, offset, index: 0, log: None };
//! ```
//!
//! or an offset compared with a run's own number:
//!
//! ```compile_fail,E0308
//! # use runlog_schemas::id::{JournalSeq, Offset};
//! let covered = Offset::from(7) <= JournalSeq::from(9);
//! ```

mod hash;
mod illegal;
mod log;
mod number;
mod secret;
mod text;

pub use hash::{ContentHash, PrevHash, RunHash};
pub use illegal::{FINGERPRINT_BYTES_MAX, ID_BYTES_MAX, Illegal, dots};
pub use log::{LOG_ID_BYTES_MAX, LogId, split_log};
pub use number::{Epoch, JournalSeq, Offset, PartitionId, WriterSeq};
pub use secret::Secret;
pub use text::{Fingerprint, OrEmpty, RecordId, RunId, Text, WriterId};

#[cfg(test)]
mod tests;
