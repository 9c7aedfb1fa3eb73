//! Records without effect: refused records and dead letters.

use super::position::Position;
use crate::{
    id::{Epoch, OrEmpty, PartitionId, RecordId, RunId, WriterId},
    judge::Reason,
    or_other::OrOther,
    symbols,
};
use serde::{Deserialize, Serialize};

/// A refused record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Anomaly {
    /// The record's position.
    pub position: Position,
    /// The record's run.
    pub run_id: RunId,
    /// The record.
    pub record_id: RecordId,
    /// The reason of the refusal.
    pub reason: OrOther<Reason>,
    /// The record's writer.
    pub writer_id: OrEmpty<WriterId>,
    /// The writer's epoch.
    pub epoch: Epoch,
}

/// A page of anomalies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Anomalies {
    /// The page.
    pub anomalies: Vec<Anomaly>,
    /// Stopped partitions: their part of the answer is as of the stop.
    #[serde(default)]
    pub unavailable_partitions: Vec<PartitionId>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

symbols! {
    /// The reason why bytes are not a record: they have no frame, do not decode by their schema, or are too large.
    DeadLetterReason { NotFramed = "not_framed", Undecodable = "undecodable", TooLarge = "too_large" }
}

/// Bytes that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DeadLetter {
    /// The position of the bytes.
    pub position: Position,
    /// The reason why they could not be read.
    pub reason: OrOther<DeadLetterReason>,
    /// SHA-256 of the bytes, hexadecimal.
    #[cfg_attr(feature = "openapi", schemars(with = "crate::datum::Sha256"))]
    pub sha256: String,
    /// The number of bytes.
    pub bytes: u64,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DeadLetters {
    /// The page.
    pub records: Vec<DeadLetter>,
    /// Stopped partitions: their part of the answer is as of the stop.
    #[serde(default)]
    pub unavailable_partitions: Vec<PartitionId>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}
