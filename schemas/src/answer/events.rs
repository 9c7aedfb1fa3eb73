//! Records with a summary for event streams.

use super::position::Position;
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{JournalSeq, PartitionId, RecordId, RunId},
    or_other::OrOther,
    payload::PayloadType,
    record::EventIndexProjection,
};
use serde::{Deserialize, Serialize};

/// A record with a summary for event streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Event {
    /// The record's position.
    pub position: Position,
    /// The run.
    pub run_id: RunId,
    /// The record.
    pub record_id: RecordId,
    /// Its `journal_seq`; 0 if its kind has none.
    pub journal_seq: JournalSeq,
    /// The type of its payload.
    pub payload_type: OrOther<PayloadType>,
    /// The writer's clock, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub timestamp: String,
    /// The recorded summary.
    pub event: EventIndexProjection,
}

/// A page of events. It may contain fewer events than the limit although there is a next page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Events {
    /// The page, ordered by partition, then by the index that the query used.
    pub events: Vec<Event>,
    /// Partitions that did not answer.
    pub unavailable_partitions: Vec<PartitionId>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}
