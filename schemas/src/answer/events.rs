//! Records by the summary that they bring for event streams.

use super::Position;
use crate::{
    id::{JournalSeq, PartitionId, RecordId, RunId},
    record::EventIndexProjection,
};
use serde::{Deserialize, Serialize};

/// A record by the summary that it brings for event streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Where it stands.
    pub position: Position,
    /// The run.
    pub run_id: RunId,
    /// The record.
    pub record_id: RecordId,
    /// Its `journal_seq`; 0 where it has none.
    pub journal_seq: JournalSeq,
    /// The type of its payload.
    pub payload_type: String,
    /// The writer's clock, RFC 3339.
    pub timestamp: String,
    /// The summary, as it was recorded.
    pub event: EventIndexProjection,
}

/// A page of events. It may have fewer than asked for, and still say where the next one starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// The page: by partition, then in the order of what it was found by.
    pub events: Vec<Event>,
    /// Partitions that could not be asked.
    pub unavailable_partitions: Vec<PartitionId>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}
