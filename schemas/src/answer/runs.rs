//! Runs, their checkpoints, and the data to resume a run.

use super::{
    calls::{Done, Pending},
    lines::MissingContent,
    position::Position,
    standing::Standing,
};
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{Epoch, JournalSeq, OrEmpty, PartitionId, RecordId, RunHash, RunId, WriterId, WriterSeq},
    json::Json,
    judge::RunStatus,
    or_other::OrOther,
};
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Run {
    /// Its id.
    pub run_id: RunId,
    /// Its status.
    pub status: OrOther<RunStatus>,
    /// Records applied. 0 only in the list of stuck runs: a skip voided or displaced all records of the run.
    pub records: u64,
    /// The next `journal_seq`.
    pub next_journal_seq: JournalSeq,
    /// The next `writer_seq` of the epoch.
    pub next_writer_seq: WriterSeq,
    /// The next `checkpoint_seq` of the run's loop checkpoints.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    #[serde(default)]
    pub next_checkpoint_seq: u64,
    /// The epoch; 0 when never claimed.
    pub epoch: Epoch,
    /// The epoch's writer; empty when never claimed.
    pub writer_id: OrEmpty<WriterId>,
    /// The log's timestamp of the run's last record, RFC 3339. The Unix epoch without an applied record.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub updated_at: String,
    /// The age of that record at the time of this answer, milliseconds. Measured by the clock that timestamps the log, or by the
    /// server's own if the server does not have that clock. Null if the record's timestamp is in the future, and without an applied record.
    #[serde(default)]
    pub age_millis: Option<u64>,
    /// Its last applied record.
    pub position: Position,
    /// The run hash.
    pub hash: RunHash,
    /// Its summary, in lists of a request with `summary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<RunSummary>,
}

/// A summary of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// The log's timestamp of the run's first record, RFC 3339. Null without a record that the log gave a time.
    pub started_at: Option<String>,
    /// The agent of that record.
    pub agent_id: Option<String>,
    /// The tags of that record.
    pub tags: Vec<String>,
    /// Its tool calls and the effects of other contracts.
    pub effects: EffectCounts,
    /// Its loop checkpoints.
    pub checkpoints: u64,
    /// How often it was claimed.
    pub claims: u64,
}

/// Numbers of a run's effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EffectCounts {
    /// Completed effects.
    pub completed: u64,
    /// Failed effects.
    pub failed: u64,
    /// Effects without a recorded end.
    pub pending: u64,
    /// Pending effects that must not run again before a decision.
    pub reconcile_required: u64,
    /// Whether the run has more effects than are counted for a list: 1,000 that ended, and 1,000 that are pending.
    pub has_more: bool,
}

/// A page of runs, ordered by run id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Runs {
    /// The page.
    pub runs: Vec<Run>,
    /// Partitions that did not answer. The list may lack runs of them, and later records of its runs there.
    #[serde(default)]
    pub unavailable_partitions: Vec<PartitionId>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}

/// A claim that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Claim {
    /// The writer.
    pub writer_id: WriterId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The claim's position.
    pub position: Position,
    /// The next `journal_seq`.
    pub next_journal_seq: JournalSeq,
    /// The run hash after the claim.
    pub hash: RunHash,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Checkpoint {
    /// Its id.
    pub checkpoint_id: String,
    /// The last `journal_seq` covered, inclusive.
    pub covers_journal_seq: JournalSeq,
    /// Its number within the run.
    pub checkpoint_seq: u64,
    /// The source's schema version.
    pub schema_version: u32,
    /// The source's messages; absent from a recovery without `full=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Json>>,
    /// The other state of the agent.
    pub state: Option<Json>,
    /// Record ids of covered requests that were unanswered.
    #[serde(default)]
    pub unanswered: Vec<RecordId>,
    /// Its position.
    pub position: Position,
}

/// A checkpoint in a list, without its content. Its validity is checked when it is read by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CheckpointSummary {
    /// Its id.
    pub checkpoint_id: String,
    /// The last `journal_seq` covered, inclusive.
    pub covers_journal_seq: JournalSeq,
    /// Its number within the run.
    pub checkpoint_seq: u64,
    /// The time of its creation by the writer's clock, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub created_at: String,
    /// The length of its whole message list.
    pub message_count: u64,
    /// Bytes of these messages.
    pub message_bytes: u64,
    /// Its position.
    pub position: Position,
}

/// A page of a run's checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Checkpoints {
    /// The run.
    pub run_id: RunId,
    /// The page, newest first: by covered `journal_seq`, then by number.
    pub checkpoints: Vec<CheckpointSummary>,
    /// The cursor of the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// The result of copying a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Copied {
    /// The target run.
    pub run_id: RunId,
    /// The source run.
    pub from: RunId,
    /// The last record of the source run at the time of the copy. The copy contains no later record.
    pub as_of: Position,
    /// Records of the source run in the copy, including earlier copied records.
    pub records: u64,
    /// Records that are not copied: claims, calls, effects and other records with a state.
    pub left_out: u64,
}

/// A run at one log position, with all data that a process needs to resume it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Recovery {
    /// The run.
    pub run_id: RunId,
    /// Its status.
    pub status: OrOther<RunStatus>,
    /// The last applied record of the run. Offset 0 if it has none: a skip voided its records, and their effects are pending.
    pub position: Position,
    /// The latest valid checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The number of records after the checkpoint; of all records if there is none.
    pub records_after: u64,
    /// Ended calls that the checkpoint does not cover, in request order.
    pub completed: Vec<Done>,
    /// Calls and other effects without an end, in request order, also from before the checkpoint.
    pub pending: Vec<Pending>,
    /// Approvals that are not decided, by id.
    pub approvals: Vec<Standing>,
    /// Wake conditions that the run waits for, by id.
    pub wakes: Vec<Standing>,
    /// Messages that are not delivered, by id.
    pub messages: Vec<Standing>,
    /// Write-backs that are staged and neither committed nor rejected, by transaction.
    pub write_backs: Vec<Standing>,
    /// Missing content of the run, as far as this page checked. Checkpoints older than `checkpoint` are not checked, because
    /// resuming does not need them.
    pub missing_content: Vec<MissingContent>,
    /// Number of calls in `completed` on this page. The log does not show whether an agent requested them again.
    pub unclaimed: u64,
    /// The next `journal_seq`.
    pub next_journal_seq: JournalSeq,
    /// The next `writer_seq` of the epoch.
    pub next_writer_seq: WriterSeq,
    /// The next `checkpoint_seq`.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub next_checkpoint_seq: u64,
    /// The epoch.
    pub epoch: Epoch,
    /// The epoch's writer.
    pub writer_id: OrEmpty<WriterId>,
    /// The run hash.
    pub hash: RunHash,
    /// Whether an agent can resume the run without a decision, as far as this page checked.
    pub resumable: bool,
    /// The reason why it is not resumable.
    pub reason: Option<String>,
    /// The cursor of the next page: of `completed`, of the four lists of open items, then of `missing_content`.
    pub next_cursor: Option<String>,
}
