//! Retention horizons, and what they took away.

use super::{Outcome, Position};
use crate::id::{PartitionId, RecordId};
use serde::{Deserialize, Serialize};

/// Content of a record that a retention horizon took away. What the record did is known all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// The record.
    pub record_id: RecordId,
    /// The type of its payload.
    pub payload_type: String,
    /// Where it stands.
    pub position: Position,
    /// The horizon: where that stands.
    pub dropped: Position,
}

/// A retention horizon of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Horizon {
    /// The payload type whose content it takes away, from records before it in the log.
    pub family: String,
    /// Of those that the log took before this time: RFC 3339, exclusive, within the years 1970 to 9999.
    pub until: String,
    /// The same, milliseconds since the Unix epoch.
    pub until_millis: i64,
    /// Who decided.
    pub who: String,
    /// Why.
    pub why: String,
    /// Where it stands.
    pub position: Position,
}

/// A page of horizons: by partition, there by family and in log order. One that takes away nothing that another one does not
/// is not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Horizons {
    /// The page.
    pub horizons: Vec<Horizon>,
    /// Partitions that are stopped: of them this is what was known before.
    #[serde(default)]
    pub unavailable_partitions: Vec<PartitionId>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// What was appended to several partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// One each, by partition.
    pub outcomes: Vec<Outcome>,
}
