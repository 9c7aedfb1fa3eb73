//! Where an agent's loop stood.

use super::Place;
use crate::{
    Error,
    store::{
        self, Rows,
        checkpoints::{CheckpointRow, MessageRow, Range, RankRow, by_id, message, message_prefix, page, prefix},
        runs::RunRow,
    },
};
use runlog_schemas::{
    answer::Checkpoint,
    json::Json,
    messages::{self, MESSAGES_MAX},
    payload::{LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint, Payload},
};
use std::ops::ControlFlow;

/// Invalid checkpoints looked at before giving up; each costs as much as a valid one.
const INVALID_MAX: usize = 64;

/// The latest valid checkpoint that covers no more than `at_or_before`, with its row and its whole message list: a seek
/// from the end, and what [`load`] costs for each one looked at. Valid: not pruned, a schema version that this build
/// knows, the hash right, and no more covered than the run has.
pub fn latest<R: Rows>(
    rows: &R,
    run_id: &str,
    at_or_before: Option<u64>,
) -> Result<Option<(CheckpointRow, LoopCheckpoint)>, Error> {
    let run: Option<RunRow> = rows.get(&store::runs::key(run_id))?;
    let Some(run) = run else { return Ok(None) };
    let covers_max = at_or_before.unwrap_or(u64::MAX).min(run.head.next_journal_seq.saturating_sub(1));
    let from = prefix(run_id).u64(covers_max).last();
    let mut looked_at = 0;
    let mut found = Ok(None);
    rows.scan(prefix(run_id).bytes(), from.bytes(), rocksdb::Direction::Reverse, &mut |key, row| {
        let rank: RankRow = store::decode(key, row)?;
        looked_at += 1;
        found = load(rows, run_id, &rank.checkpoint_id);
        let over = looked_at == INVALID_MAX || !matches!(found, Ok(None));
        Ok(if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    found
}

/// A checkpoint by id, with its row and its whole message list as if it had been written so; none where there is none, or
/// where it is not valid.
///
/// Cost: its row and its record, a get per page of ranges, and per range a get or a seek and a step per message that other
/// checkpoints brought: each message is read once.
pub fn load<R: Rows>(rows: &R, run_id: &str, id: &str) -> Result<Option<(CheckpointRow, LoopCheckpoint)>, Error> {
    let row: Option<CheckpointRow> = rows.get(&by_id(run_id, id))?;
    let Some(row) = row.filter(|row| !row.pruned) else { return Ok(None) };
    let record = super::record(rows, run_id, row.offset, row.index)?;
    let Some(Payload::LoopCheckpoint(mut checkpoint)) = record.map(|record| record.payload) else { return Ok(None) };
    if checkpoint.schema_version > LOOP_CHECKPOINT_SCHEMA_VERSION {
        return Ok(None);
    }
    let Some(list) = list(rows, run_id, &row, &checkpoint.messages)? else { return Ok(None) };
    let hashes: Vec<_> = list.iter().map(messages::hash).collect();
    if checkpoint.state_hash != checkpoint.hash_with(&hashes) {
        return Ok(None);
    }
    (checkpoint.base, checkpoint.spans, checkpoint.messages) = (None, Vec::new(), list);
    Ok(Some((row, checkpoint)))
}

/// The messages of a checkpoint, of which it brought `own`; none where one is missing, or is not as large as the facts
/// that the judge went by said.
fn list<R: Rows>(rows: &R, run_id: &str, row: &CheckpointRow, own: &[Json]) -> Result<Option<Vec<Json>>, store::Error> {
    // The judge let no longer one pass.
    let mut messages = Vec::with_capacity(row.list.messages.min(MESSAGES_MAX) as usize);
    for at in &row.list.pages {
        for range in rows.get::<Vec<Range>>(&page(run_id, at.page))?.unwrap_or_default() {
            read(rows, run_id, row.own_from, &range, own, &mut messages)?;
        }
    }
    for range in &row.list.tail {
        read(rows, run_id, row.own_from, range, own, &mut messages)?;
    }
    let bytes: u64 = messages.iter().map(|message| message.as_str().len() as u64).sum();
    let complete = (messages.len() as u64, bytes) == (row.list.messages, row.list.bytes);
    Ok(complete.then_some(messages))
}

/// Reads the messages of a range: those before `own_from` from the array, the others from the record that brought them.
fn read<R: Rows>(
    rows: &R,
    run_id: &str,
    own_from: u64,
    range: &Range,
    own: &[Json],
    messages: &mut Vec<Json>,
) -> Result<(), store::Error> {
    let older = own_from.saturating_sub(range.from).min(range.count);
    let (first, mut left) = (message(run_id, range.from), older);
    if older == 1 {
        messages.extend(rows.get::<MessageRow>(&first)?.and_then(|row| row.text));
    } else if older > 0 {
        rows.scan(message_prefix(run_id).bytes(), first.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
            messages.extend(store::decode::<MessageRow>(key, row)?.text);
            left -= 1;
            Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    let index = |number: u64| usize::try_from(number.saturating_sub(own_from)).unwrap_or(usize::MAX);
    let (from, to) = (index(range.from + older), index(range.from + range.count));
    messages.extend_from_slice(own.get(from..to).unwrap_or_default());
    Ok(())
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
