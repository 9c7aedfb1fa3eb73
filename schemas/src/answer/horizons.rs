//! Retention horizons, and the content that they deleted.

use super::{appended::Outcome, position::Position};
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{PartitionId, RecordId},
    or_other::OrOther,
    payload::PayloadType,
};
use serde::{Deserialize, Serialize};

/// Content of a record that a retention horizon deleted. The record's effect does not depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Dropped {
    /// The record.
    pub record_id: RecordId,
    /// The type of the record's payload.
    pub payload_type: OrOther<PayloadType>,
    /// The record's position.
    pub position: Position,
    /// The horizon's position.
    pub dropped: Position,
}

/// A retention horizon of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Horizon {
    /// The payload type whose content it deletes. It applies to records that precede the horizon in the log.
    pub family: String,
    /// The horizon covers records appended before this time (exclusive): RFC 3339, within the years 1970 to 9999.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub until: String,
    /// The same time, milliseconds since the Unix epoch.
    pub until_millis: i64,
    /// The author of the decision.
    pub who: String,
    /// The reason of the decision.
    pub why: String,
    /// The horizon's position.
    pub position: Position,
}

/// A page of horizons: by partition, then by family and in log order. A horizon is left out if another horizon covers
/// its deletions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Horizons {
    /// The page.
    pub horizons: Vec<Horizon>,
    /// Stopped partitions. Their part of the answer is as of the stop.
    #[serde(default)]
    pub unavailable_partitions: Vec<PartitionId>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}

/// Records that were appended to several partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Outcomes {
    /// One per partition, by partition.
    pub outcomes: Vec<Outcome>,
}
