//! The figures of a dashboard.

use super::health::PartitionState;
use crate::{
    datum,
    id::{Offset, PartitionId},
    judge::RunStatus,
    or_other::OrOther,
};
use serde::{Deserialize, Serialize};

/// The progress of a partition's index.
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
    /// Effects whose starting process claimed the run, still has it and wrote to it within 30 s.
    pub running: u64,
    /// The other effects.
    pub waiting: u64,
}

/// Effects without a recorded end, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PendingByClass {
    /// Effects that may run again without a decision.
    pub retry_safe: PendingByState,
    /// Effects that must not run again before a decision.
    pub reconcile_required: PendingByState,
}

/// The numbers of runs with an applied record, by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RunsByStatus {
    /// Runs without an end.
    pub open: u64,
    /// Completed runs.
    pub completed: u64,
    /// Failed runs.
    pub failed: u64,
    /// Cancelled runs.
    pub cancelled: u64,
}
datum!(RunsByStatus { open, completed, failed, cancelled });

impl RunsByStatus {
    /// The number of runs with this status.
    pub fn number(&self, status: RunStatus) -> u64 {
        let mut counts = *self;
        *counts.number_mut(status)
    }

    /// The number of runs with this status.
    pub fn number_mut(&mut self, status: RunStatus) -> &mut u64 {
        match status {
            RunStatus::Open => &mut self.open,
            RunStatus::Completed => &mut self.completed,
            RunStatus::Failed => &mut self.failed,
            RunStatus::Cancelled => &mut self.cancelled,
        }
    }
}

impl std::ops::AddAssign for RunsByStatus {
    fn add_assign(&mut self, other: Self) {
        self.open += other.open;
        self.completed += other.completed;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
    }
}

/// An overview of a journal and its server. At most 10,000 effects, refused records and dead letters each are counted per
/// partition.
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
    /// Partitions whose counts may lack records, because they are stopped, rebuilt or unreadable, or because the log did not return
    /// their end. Does not contain partitions that only lag; see `lag`.
    pub unavailable_partitions: Vec<PartitionId>,
    /// The numbers of runs; null if the credential does not allow all runs, and from an older server.
    #[serde(default)]
    pub runs: Option<RunsByStatus>,
    /// Pending effects of the runs that the credential allows.
    pub pending: PendingByClass,
    /// Ended effects of these runs that a later result contradicts.
    pub contradicted: u64,
    /// Refused records; null if the credential does not allow all runs.
    pub refused: Option<u64>,
    /// Unreadable records; null if the credential does not allow all runs.
    pub dead_letters: Option<u64>,
}
