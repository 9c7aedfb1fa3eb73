//! Answers to dry runs: the plans of requests that void or delete data.

use super::position::Position;
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{OrEmpty, PartitionId, RecordId, RunId},
    or_other::OrOther,
    payload::PayloadType,
    symbols,
};
use serde::{Deserialize, Serialize};

symbols! {
    /// The target of a skip: bytes that cannot be read, a record at which its partition stopped, or a readable record, which only
    /// `force` skips.
    SkipTarget { Unreadable = "unreadable", Stop = "stop", Readable = "readable" }
}

/// The data that a skip would void.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SkipPlan {
    /// Always true: a dry run changes no data.
    pub dry_run: bool,
    /// The position to skip.
    pub position: Position,
    /// The target at this position.
    pub target: OrOther<SkipTarget>,
    /// The reason why it cannot be read, or why the partition stopped.
    pub detail: Option<String>,
    /// The run of a readable record.
    pub run_id: Option<RunId>,
    /// The id of a readable record.
    pub record_id: OrEmpty<RecordId>,
    /// The payload type of a readable record.
    pub payload_type: Option<OrOther<PayloadType>>,
    /// How many later records of its run are applied now and would be refused after the skip. None if the record is not readable, if
    /// its partition is stopped, if the run is too large to count them in time, or from an older server.
    #[serde(default)]
    pub displaced: Option<u64>,
}

/// The content that a retention horizon would delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RetentionPlan {
    /// Always true: a dry run changes no data.
    pub dry_run: bool,
    /// The payload type.
    pub family: String,
    /// The horizon deletes the content of records with a log timestamp before this time, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub until: String,
    /// Each partition.
    pub partitions: Vec<RetentionOfPartition>,
    /// Records of all partitions whose content would be deleted.
    pub records: u64,
    /// Whether all records were counted within the deadline; otherwise the counts are lower bounds.
    pub complete: bool,
}

/// The content that a retention horizon would delete in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RetentionOfPartition {
    /// The partition.
    pub partition: PartitionId,
    /// Records whose content would be deleted.
    pub records: u64,
}
