//! The figures of a dashboard.

use super::{OrOther, PartitionState};
use crate::id::{Offset, PartitionId};
use serde::{Deserialize, Serialize};

/// How far a partition's index is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PartitionProgress {
    /// The partition.
    pub partition: PartitionId,
    /// The next offset to apply.
    pub applied: Offset,
    /// The high watermark; null if the log did not answer.
    pub end: Option<Offset>,
    /// Offsets between both; null if the log did not answer.
    pub lag: Option<u64>,
    /// Whether its index follows the log.
    pub state: OrOther<PartitionState>,
}

/// Effects without a recorded end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PendingByState {
    /// The process that started them last claimed the run, still has it and wrote to it within 30 s.
    pub running: u64,
    /// The others.
    pub waiting: u64,
}

/// Effects without a recorded end, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PendingByClass {
    /// May run again without a decision.
    pub retry_safe: PendingByState,
    /// Must not run again before a decision.
    pub reconcile_required: PendingByState,
}

/// A journal and its server at a glance. Of effects, refused records and dead letters at most 10,000 of a partition are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Overview {
    /// The server's version.
    pub version: String,
    /// The topic.
    pub topic: String,
    /// The journal.
    pub journal_id: String,
    /// Every partition.
    pub partitions: Vec<PartitionProgress>,
    /// The lag of all partitions together; null if the lag of one is unknown.
    pub lag: Option<u64>,
    /// Partitions that are stopped.
    pub stopped: Vec<PartitionId>,
    /// Partitions of which the counts may lack records: stopped, rebuilt or unreadable, or the log did not tell their end. A partition
    /// that is behind is not among them; its `lag` tells.
    pub unavailable_partitions: Vec<PartitionId>,
    /// Pending effects of the runs that the credential is for.
    pub pending: PendingByClass,
    /// Ended effects of these runs that a later result contradicts.
    pub contradicted: u64,
    /// Refused records; null if the credential is not for all runs.
    pub refused: Option<u64>,
    /// Unreadable records; null if the credential is not for all runs.
    pub dead_letters: Option<u64>,
}
