//! `checkpoints`: by what they cover, and by id. The latest is one seek from the end; each invalid one costs a step more.

use super::{Index, Key};
use runlog_schemas::datum;

/// A checkpoint by its rank: covered `journal_seq`, number, time, then place.
pub fn key(run_id: &str, row: &CheckpointRow) -> Key {
    prefix(run_id)
        .u64(row.covers_journal_seq)
        .u64(row.checkpoint_seq)
        .u64(row.created_at_millis)
        .u64(row.offset)
        .u32(row.index)
}

/// A run's checkpoints.
pub fn prefix(run_id: &str) -> Key {
    Key::new(Index::Checkpoints, 0).text(run_id)
}

/// A checkpoint by id.
pub fn by_id(run_id: &str, checkpoint_id: &str) -> Key {
    Key::new(Index::Checkpoints, 1).text(run_id).text(checkpoint_id)
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRow {
    /// Its id.
    pub checkpoint_id: String,
    /// The last `journal_seq` covered, inclusive.
    pub covers_journal_seq: u64,
    /// Its number within the run.
    pub checkpoint_seq: u64,
    /// When it was made, milliseconds since the Unix epoch.
    pub created_at_millis: u64,
    /// Its offset.
    pub offset: u64,
    /// Its index.
    pub index: u32,
    /// Records of the run applied up to it, itself included.
    pub records: u64,
}
datum!(CheckpointRow { checkpoint_id, covers_journal_seq, checkpoint_seq, created_at_millis, offset, index, records });
