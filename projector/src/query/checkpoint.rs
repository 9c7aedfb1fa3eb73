//! Where an agent's loop stood.

use super::Place;
use crate::{
    Error,
    store::{
        self, Rows,
        checkpoints::{CheckpointRow, prefix},
        runs::RunRow,
    },
};
use runlog_schemas::{
    answer::Checkpoint,
    payload::{LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint, Payload},
};
use std::ops::ControlFlow;

/// Invalid checkpoints looked at before giving up; each costs a get and a decode.
const INVALID_MAX: usize = 64;

/// The latest valid checkpoint that covers no more than `at_or_before`, with its row: a seek from the end and one get,
/// and as much again per invalid one. Valid: a schema version that this build knows, the hash right, and no more
/// covered than the run has.
pub fn latest<R: Rows>(
    rows: &R,
    run_id: &str,
    at_or_before: Option<u64>,
) -> Result<Option<(CheckpointRow, LoopCheckpoint)>, Error> {
    let run: Option<RunRow> = rows.get(&store::runs::key(run_id))?;
    let Some(run) = run else { return Ok(None) };
    let covers_max = at_or_before.unwrap_or(u64::MAX).min(run.head.next_journal_seq.saturating_sub(1));
    let from = prefix(run_id).u64(covers_max).last();
    let mut found = Vec::new();
    rows.scan(prefix(run_id).bytes(), from.bytes(), rocksdb::Direction::Reverse, &mut |key, row| {
        found.push(store::decode::<CheckpointRow>(key, row)?);
        // A checkpoint is nearly always valid: the first is read before more are looked at.
        Ok(if found.len() == INVALID_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    for row in found {
        let record = super::record(rows, run_id, row.offset, row.index)?;
        if let Some(Payload::LoopCheckpoint(checkpoint)) = record.map(|record| record.payload)
            && checkpoint.schema_version <= LOOP_CHECKPOINT_SCHEMA_VERSION
            && checkpoint.state_hash == checkpoint.content_hash()
        {
            return Ok(Some((row, checkpoint)));
        }
    }
    Ok(None)
}

/// A checkpoint as it is answered, with its messages or without.
pub fn answer(place: Place<'_>, row: &CheckpointRow, checkpoint: LoopCheckpoint, full: bool) -> Checkpoint {
    Checkpoint {
        checkpoint_id: checkpoint.checkpoint_id,
        covers_journal_seq: checkpoint.covers_journal_seq,
        checkpoint_seq: checkpoint.checkpoint_seq,
        schema_version: checkpoint.schema_version,
        messages: full.then_some(checkpoint.messages),
        state: checkpoint.state,
        unanswered: checkpoint.unanswered,
        position: place.at(row.offset, row.index),
    }
}
