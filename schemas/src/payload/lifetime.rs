//! Erasures, forks and retention horizons.

use crate::{
    datum,
    id::{JournalSeq, Offset, PartitionId, RunHash, RunId},
};
use serde::{Deserialize, Serialize};

/// Destroys the keys of an erasable run. Content that was encrypted with them is lost; statuses and numbers stay. Needs no claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// The keys, as in the envelopes' `key_id`; empty for all keys of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_ids: Vec<String>,
    /// The author of the erasure.
    pub who: String,
    /// The reason.
    pub why: String,
}
datum!(Erasure { key_ids, who, why });

/// The first record of a run that continues from a point in another run. It does not change the other run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The other run.
    pub from_run_id: RunId,
    /// Its last `journal_seq` that this run shares, inclusive.
    pub from_journal_seq: JournalSeq,
    /// The partition of the other run.
    pub from_partition: PartitionId,
    /// The offset of the last shared record in that partition.
    pub from_offset: Offset,
    /// The other run's hash after that record, which lets a reader verify the shared history.
    pub from_hash: RunHash,
    /// The checkpoint of the other run that an agent continues from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_checkpoint_id: Option<String>,
    /// Who forked it.
    pub who: String,
    /// The reason.
    pub why: String,
}
datum!(Fork { from_run_id, from_journal_seq, from_partition, from_offset, from_hash, from_checkpoint_id, who, why });

/// Permits to drop the content of a family from this partition's rows, if the log received it before a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionHorizon {
    /// The payload type that it applies to.
    pub family: String,
    /// Log time, exclusive, milliseconds since the Unix epoch.
    pub until_millis: i64,
    /// The author of the decision.
    pub who: String,
    /// The reason.
    pub why: String,
}
datum!(RetentionHorizon { family, until_millis, who, why });
