//! Where an agent's loop stood.

use super::Place;
use crate::{
    Contents, Error,
    store::{
        self, Rows,
        checkpoints::{CheckpointRow, prefix},
        runs::RunRow,
    },
};
use runlog_schemas::{
    answer::{Checkpoint, MissingContent},
    payload::{LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint, Payload},
};
use std::ops::ControlFlow;

/// Invalid checkpoints looked at before giving up; each costs a get and a decode.
const INVALID_MAX: usize = 64;

/// A valid checkpoint and its row; and what is missing of those that would have come before it.
#[derive(Debug, Default)]
pub struct Latest {
    /// The checkpoint.
    pub found: Option<(CheckpointRow, LoopCheckpoint)>,
    /// Content of later ones that could not be had.
    pub missing: Vec<MissingContent>,
}

/// The latest valid checkpoint that covers no more than `at_or_before`, with its row: a seek from the end and one get,
/// its content where that is stored, and as much again per invalid one. Valid: a schema version that this build knows, the
/// content present, the hash right, and no more covered than the run has.
///
/// Errors: `Unavailable` where the content store does not say whether it has one: an older one is no answer then.
pub fn latest<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: Place<'_>,
    run_id: &str,
    at_or_before: Option<u64>,
) -> Result<Latest, Error> {
    let mut latest = Latest::default();
    let run: Option<RunRow> = rows.get(&store::runs::key(run_id))?;
    let Some(run) = run else { return Ok(latest) };
    let covers_max = at_or_before.unwrap_or(u64::MAX).min(run.head.next_journal_seq.saturating_sub(1));
    let from = prefix(run_id).u64(covers_max).last();
    let mut found = Vec::new();
    rows.scan(prefix(run_id).bytes(), from.bytes(), rocksdb::Direction::Reverse, &mut |key, row| {
        found.push(store::decode::<CheckpointRow>(key, row)?);
        // A checkpoint is nearly always valid: the first is read before more are looked at.
        Ok(if found.len() == INVALID_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    for row in found {
        let Some(record) = super::record(rows, run_id, row.offset, row.index)? else { continue };
        match contents.open(place, &record.body.record_id, (row.offset, row.index), record.payload) {
            Ok(Payload::LoopCheckpoint(checkpoint))
                if checkpoint.schema_version <= LOOP_CHECKPOINT_SCHEMA_VERSION
                    && checkpoint.state_hash == checkpoint.content_hash() =>
            {
                latest.found = Some((row, checkpoint));
                break;
            }
            Ok(_) => {}
            Err(lost) if lost.unknown() => return Err(lost.error),
            Err(lost) => latest.missing.push(lost.missing),
        }
    }
    Ok(latest)
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
