//! Records without effect: refused records and dead letters.

use super::{OrOther, Position};
use crate::{
    id::{Epoch, OrEmpty, PartitionId, RecordId, RunId, WriterId},
    judge::Reason,
    symbols,
};
use serde::{Deserialize, Serialize};

/// A refused record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Anomaly {
    /// Its position.
    pub position: Position,
    /// Its run.
    pub run_id: RunId,
    /// The record.
    pub record_id: RecordId,
    /// Why it was refused.
    pub reason: OrOther<Reason>,
    /// Its writer.
    pub writer_id: OrEmpty<WriterId>,
    /// Its writer's epoch.
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
    /// Why bytes are no record: they have no frame, do not decode by the schema that they name, or are too large.
    DeadLetterReason { NotFramed = "not_framed", Undecodable = "undecodable", TooLarge = "too_large" }
}

/// Bytes that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DeadLetter {
    /// Their position.
    pub position: Position,
    /// Why they could not be read.
    pub reason: OrOther<DeadLetterReason>,
    /// Their SHA-256, hexadecimal.
    #[cfg_attr(feature = "openapi", schemars(with = "crate::datum::Sha256"))]
    pub sha256: String,
    /// Their length.
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
