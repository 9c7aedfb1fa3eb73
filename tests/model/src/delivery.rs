//! The deliveries of the log to a reader: the model's only input.

use serde_json::Value;
use std::sync::Arc;

/// The journal that a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The topic's name, as positions carry it.
    pub topic: String,
    /// As the genesis has it.
    pub journal_id: String,
    /// How many partitions.
    pub partitions: u32,
}

/// One offset of the log, as a reader gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The partition.
    pub partition: u32,
    /// The offset. The offsets of a partition ascend, except on redelivery.
    pub offset: u64,
    /// The log's timestamp, milliseconds since the Unix epoch.
    pub log_millis: i64,
    /// The content of the offset.
    pub what: What,
}

/// The content of an offset.
///
/// Records are compared as JSON without their place fields. A hash from the product's codec would let the product
/// decide which records are equal, and that is under test. Equal records must therefore have equal JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A record, as `publish` accepts it, with its sequence numbers filled in.
    Record {
        /// The JSON, shared with other holders of the delivery.
        record: Arc<Value>,
        /// The version of the schema that it is written in.
        version: u16,
        /// Hexadecimal SHA-256 of the datum, for a batch one for each record within, from the encoder. Run hashes are
        /// computed over these. Without them the run has no hash, since the model does not encode.
        datums: Vec<String>,
        /// The content hash of the record, for a batch one for each record within, from the encoder. Without them the
        /// model hashes the JSON, as [`crate::content_hash`] does.
        contents: Vec<String>,
        /// The principal that a server writes beside a claim.
        claimant: Option<String>,
    },
    /// Bytes that are no record.
    Unreadable {
        /// `not_framed`, `undecodable` or `too_large`.
        reason: String,
        /// Hexadecimal SHA-256 of the bytes.
        sha256: String,
        /// How many.
        bytes: u64,
    },
    /// A record of a schema, or with a payload, that the reader does not know.
    UnknownSchema {
        /// The schema or the branch that the reader does not know.
        what: String,
    },
    /// The same, with the key of a run's record.
    UnknownOfRun {
        /// The schema or the branch that the reader does not know.
        what: String,
        /// The run.
        run_id: String,
    },
}

impl What {
    /// The record, if this is one.
    pub fn record(&self) -> Option<&Value> {
        match self {
            Self::Record { record, .. } => Some(record),
            _ => None,
        }
    }
}
