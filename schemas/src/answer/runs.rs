//! Runs, their checkpoints, and what a process needs to resume one.

use super::{Done, MissingContent, OrOther, Pending, Position, Standing};
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{Epoch, JournalSeq, OrEmpty, RecordId, RunHash, RunId, WriterId, WriterSeq},
    json::Json,
    judge::RunStatus,
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
    /// Records applied.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
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
    /// The log's timestamp of its last record, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub updated_at: String,
    /// The age of that record when this was answered, milliseconds: by the clock that timestamps the log if the server has it,
    /// otherwise by the server's own. Null if it is unknown, because the log's time of the record is in the future.
    #[serde(default)]
    pub age_millis: Option<u64>,
    /// Its last applied record.
    pub position: Position,
    /// The run hash.
    pub hash: RunHash,
}

/// A page of runs, ordered by run id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Runs {
    /// The page.
    pub runs: Vec<Run>,
    /// Where the next page starts.
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
    /// The source's messages; absent from a recovery that was not asked for in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Json>>,
    /// The rest of the agent's state.
    pub state: Option<Json>,
    /// Record ids of covered requests that were unanswered.
    #[serde(default)]
    pub unanswered: Vec<RecordId>,
    /// Its position.
    pub position: Position,
}

/// A checkpoint in a list, without its content. Whether it is valid is known once it is read by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CheckpointSummary {
    /// Its id.
    pub checkpoint_id: String,
    /// The last `journal_seq` covered, inclusive.
    pub covers_journal_seq: JournalSeq,
    /// Its number within the run.
    pub checkpoint_seq: u64,
    /// When it was made, by the writer's clock, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub created_at: String,
    /// The length of its whole message list.
    pub message_count: u64,
    /// Bytes of those messages.
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
    /// The page, newest first: by what they cover, then by number.
    pub checkpoints: Vec<CheckpointSummary>,
    /// Where the next page starts; null at the end.
    pub next_cursor: Option<String>,
}

/// What a copy of a run came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Copied {
    /// The run that it was copied into.
    pub run_id: RunId,
    /// The run that it was copied from.
    pub from: RunId,
    /// The last record of that run when it was copied; later ones are not in the copy.
    pub as_of: Position,
    /// Records that the copy has of it, those that were copied before included.
    pub records: u64,
    /// Records that no copy has: claims, calls, effects and whatever else has a state.
    pub left_out: u64,
}

/// A run at one log position: everything that a process needs to resume it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Recovery {
    /// The run.
    pub run_id: RunId,
    /// Its status.
    pub status: OrOther<RunStatus>,
    /// The last applied record of the run.
    pub position: Position,
    /// The latest valid checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The number of records after the checkpoint; of all records if there is none.
    pub records_after: u64,
    /// Calls that ended and that the checkpoint does not cover, in request order.
    pub completed: Vec<Done>,
    /// Calls that did not end, in request order, wherever they were requested.
    pub pending: Vec<Pending>,
    /// Approvals that are not decided, by id.
    pub approvals: Vec<Standing>,
    /// Wake conditions that the run waits for, by id.
    pub wakes: Vec<Standing>,
    /// Messages that are not delivered, by id.
    pub messages: Vec<Standing>,
    /// Write-backs that are staged and neither committed nor rejected, by transaction.
    pub write_backs: Vec<Standing>,
    /// Content of the run that is missing, as far as this page looked. Checkpoints older than the one above are not
    /// checked: resuming does not need them.
    pub missing_content: Vec<MissingContent>,
    /// Completed calls after the checkpoint that were not requested again, as far as the log tells.
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
    /// Whether an agent can resume the run without a decision, as far as this page looked.
    pub resumable: bool,
    /// Why it is not resumable.
    pub reason: Option<String>,
    /// Where the next page starts: of `completed`, of the four lists of open items, then of `missing_content`.
    pub next_cursor: Option<String>,
}
