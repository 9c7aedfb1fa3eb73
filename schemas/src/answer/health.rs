//! The health of a journal's indices, with remedies for problems.

#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{Offset, PartitionId},
    or_other::OrOther,
    symbols,
};
use serde::{Deserialize, Serialize};

symbols! {
    /// Whether a partition's index follows the log.
    PartitionState { Running = "running", Stopped = "stopped" }
}

symbols! {
    /// The severity of a finding. An error makes a deployment unhealthy.
    Severity { Error = "error", Warning = "warning" }
}

/// One partition's health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PartitionHealth {
    /// The partition.
    pub partition: PartitionId,
    /// The next offset to apply.
    pub applied: Offset,
    /// The high watermark; null if the log did not answer.
    pub end: Option<Offset>,
    /// Whether the partition's index follows the log.
    pub state: OrOther<PartitionState>,
    /// The reason why it stopped.
    pub error: Option<String>,
}

/// A problem and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The severity of the problem.
    pub severity: OrOther<Severity>,
    /// The problem.
    pub what: String,
    /// The remedy.
    pub fix: String,
}

/// The answer of `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Doctor {
    /// Whether there is no finding of severity `error`.
    pub healthy: bool,
    /// Every partition.
    pub partitions: Vec<PartitionHealth>,
    /// All findings.
    pub findings: Vec<Finding>,
    /// Effects that must not run again before a decision; at most 10,000 of a partition are counted.
    #[serde(default)]
    pub waiting_decisions: u64,
    /// Records that were refused; at most 10,000 of a partition are counted.
    #[serde(default)]
    pub refused_records: u64,
}

/// One index in a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct IndexDigest {
    /// The index.
    pub name: String,
    /// Rows in the live index.
    pub rows: u64,
    /// `sha256:…` over the live rows, in any order.
    #[cfg_attr(feature = "openapi", schemars(with = "form::IndexHash"))]
    pub live_digest: String,
    /// The digest of the index rebuilt from the log.
    #[cfg_attr(feature = "openapi", schemars(with = "form::IndexHash"))]
    pub rebuilt_digest: String,
}

/// One partition in a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PartitionDigest {
    /// The partition.
    pub partition: PartitionId,
    /// Both indices contain the records below this offset.
    pub offset: Offset,
    /// Every index.
    pub indices: Vec<IndexDigest>,
}

/// Whether the indices equal a rebuild from the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Verification {
    /// Whether every digest is equal.
    pub equal: bool,
    /// Log records read.
    pub records: u64,
    /// Every partition.
    pub partitions: Vec<PartitionDigest>,
    /// Partitions that were not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable_partitions: Vec<PartitionId>,
    /// Duration of the verification.
    #[cfg_attr(feature = "openapi", schemars(range(min = 0)))]
    pub seconds: f64,
}
