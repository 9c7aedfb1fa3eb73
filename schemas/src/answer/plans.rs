//! Answers to dry runs: what a request that voids or deletes something would do.

use super::{OrOther, Position};
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{OrEmpty, PartitionId, RecordId, RunId},
    payload::PayloadType,
    symbols,
};
use serde::{Deserialize, Serialize};

symbols! {
    /// What a skip points at: bytes that cannot be read, a record at which its partition stopped, or a record that can
    /// be read, which is skipped only by force.
    SkipTarget { Unreadable = "unreadable", Stop = "stop", Readable = "readable" }
}

/// What a skip would void.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SkipPlan {
    /// Always true: nothing was changed.
    pub dry_run: bool,
    /// The position to skip.
    pub position: Position,
    /// What is at that position.
    pub target: OrOther<SkipTarget>,
    /// Why it cannot be read, or why the partition stopped.
    pub detail: Option<String>,
    /// The run of a record that can be read.
    pub run_id: Option<RunId>,
    /// Its id.
    pub record_id: OrEmpty<RecordId>,
    /// Its payload's type.
    pub payload_type: Option<OrOther<PayloadType>>,
}

/// What a retention horizon would delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RetentionPlan {
    /// Always true: nothing was changed.
    pub dry_run: bool,
    /// The payload type.
    pub family: String,
    /// It deletes the content of records with a log timestamp before this time, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub until: String,
    /// Each partition.
    pub partitions: Vec<RetentionOfPartition>,
    /// Records of all partitions whose content would be deleted.
    pub records: u64,
    /// Whether all records were counted within the deadline; otherwise the counts are lower bounds.
    pub complete: bool,
}

/// What a retention horizon would delete in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RetentionOfPartition {
    /// The partition.
    pub partition: PartitionId,
    /// Records whose content would be deleted.
    pub records: u64,
}
