//! Finds the outcome of an appended record.

use super::TopicPartition;
use crate::index::{
    error::Error,
    store::{self, Rows, anomalies::AnomalyRow, effects::EffectRow, records::RecordRow, runs::RunRow},
};
use runlog_schemas::{
    answer::{Disposition, Outcome, ReadBack, Writer},
    codec::Envelope,
    id::{JournalSeq, Offset, RecordId, RunId},
    judge::{FirstJudgement, Reason, lifecycle::EffectKind},
    payload::PayloadType,
    record::RecordKind,
};

/// The outcome of the record at an offset and index that the index has reached; none if the record there has another id
/// than `record_id`. A repeat of an applied record has no row at its own offset and is found by its record id.
///
/// Cost: at most seven gets. If the first two find no row, also a seek, for a batch that was refused because of another of
/// its records.
pub fn get<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    (offset, index): (Offset, u32),
    record_id: Option<RecordId<&str>>,
) -> Result<Option<Outcome>, Error> {
    let outcome = |outcome: Disposition, reason: Option<Reason>, (offset, index), record_writer| Outcome {
        position: place.position(offset, index),
        outcome: outcome.into(),
        reason: reason.map(Into::into),
        record_id: record_id.into(),
        journal_seq: None,
        record_writer,
    };
    let refused = |(index, row): (u32, AnomalyRow)| {
        let writer = Writer { writer_id: row.writer_id, epoch: row.writer_epoch };
        outcome(Disposition::Refused, Some(row.reason), (offset, index), Some(writer))
    };
    let here: Option<AnomalyRow> = rows.get(&store::anomalies::key(offset, index))?;
    if let Some(row) = here.filter(|row| row.run_id == run_id) {
        let refusal = (index, row);
        return Ok(has_refused(rows, (offset, index), &refusal, record_id)?.then(|| refused(refusal)));
    }
    let seen = || match record_id {
        Some(record_id) => store::seen(run_id, record_id, |key| rows.get(key)),
        None => Ok(None),
    };
    // A batch's id has the position of its first record, which may be a repeat and have no row.
    let applied_here = |seen: &FirstJudgement| (seen.offset, seen.index) == (offset, index) && seen.refused.is_none();
    let row: Option<RecordRow> = rows.get(&store::records::key(run_id, offset, index))?;
    if let Some(row) = row {
        let stored = super::envelope(&row.framed.0)?;
        let is_named =
            record_id.is_none_or(|named| named == stored.record_id) || seen()?.as_ref().is_some_and(applied_here);
        return Ok(is_named.then(|| outcome(Disposition::Applied, None, (offset, index), Some(writer(&stored)))));
    }
    // The whole batch at this offset was refused, even if its records were applied later elsewhere.
    if let Some(found) = refused_at(rows, offset)?
        && found.1.run_id == run_id
    {
        return Ok(has_refused(rows, (offset, index), &found, record_id)?.then(|| refused(found)));
    }
    if let Some(first) = rows.get::<FirstJudgement>(&store::anomalies::repeat(run_id, offset))? {
        let (_, writer) = first_one(rows, run_id, &first)?;
        return Ok(Some(outcome(Disposition::Repeat, first.refused, (first.offset, first.index), writer)));
    }
    let Some(first) = seen()? else { return Ok(None) };
    let (journal_seq, writer) = first_one(rows, run_id, &first)?;
    if applied_here(&first) {
        return Ok(Some(outcome(Disposition::Applied, None, (offset, index), writer)));
    }
    let repeat = outcome(Disposition::Repeat, first.refused, (first.offset, first.index), writer);
    Ok(Some(Outcome { journal_seq, ..repeat }))
}

/// The writer of a stored record.
fn writer(envelope: &Envelope<'_>) -> Writer {
    Writer { writer_id: envelope.writer_id.into(), epoch: envelope.writer_epoch }
}

/// The `journal_seq`, if it was applied, and the writer of the first record under an id. At most two gets.
pub fn first_one<R: Rows>(
    rows: &R,
    run_id: RunId<&str>,
    FirstJudgement { offset, index, refused, .. }: &FirstJudgement,
) -> Result<(Option<JournalSeq>, Option<Writer>), Error> {
    if refused.is_some() {
        let row: Option<AnomalyRow> = rows.get(&store::anomalies::key(*offset, *index))?;
        return Ok((None, row.map(|row| Writer { writer_id: row.writer_id, epoch: row.writer_epoch })));
    }
    if let Some(row) = rows.get::<RecordRow>(&store::records::key(run_id, *offset, *index))? {
        let stored = super::envelope(&row.framed.0)?;
        return Ok((Some(stored.journal_seq), Some(writer(&stored))));
    }
    // The first record of the batch is a repeat: the whole batch is stored in `deliveries`.
    let row: Option<RecordRow> = rows.get(&store::deliveries::key(run_id, *offset))?;
    let writer = row.map(|row| super::envelope(&row.framed.0).map(|stored| writer(&stored))).transpose()?;
    Ok((None, writer))
}

/// The `journal_seq` of the applied record at an offset and index. One get.
pub fn number<R: Rows>(
    rows: &R,
    run_id: RunId<&str>,
    (offset, index): (Offset, u32),
) -> Result<Option<JournalSeq>, Error> {
    let row: Option<RecordRow> = rows.get(&store::records::key(run_id, offset, index))?;
    row.map(|row| Ok(super::envelope(&row.framed.0)?.journal_seq)).transpose()
}

/// The outcome of the first record with this id, and the run's writer in the same view. None if no record with the id was
/// applied or refused for its content. At most seven gets.
pub fn by_id<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    record_id: RecordId<&str>,
) -> Result<Option<ReadBack>, Error> {
    let Some(seen) = store::seen(run_id, record_id, |key| rows.get(key))? else { return Ok(None) };
    let run: RunRow = rows.get(&store::runs::key(run_id))?.unwrap_or_default();
    let (_, record_writer) = first_one(rows, run_id, &seen)?;
    let outcome = Outcome {
        position: place.position(seen.offset, seen.index),
        outcome: if seen.refused.is_some() { Disposition::Refused } else { Disposition::Applied }.into(),
        reason: seen.refused.map(Into::into),
        record_id: Some(record_id).into(),
        journal_seq: None,
        record_writer,
    };
    let changed = seen.refused.is_none() && has_changed(rows, run_id, (seen.offset, seen.index))?;
    Ok(Some(ReadBack { outcome, epoch: run.head.epoch, writer_id: run.head.writer_id, changed, also: Vec::new() }))
}

/// Whether the refusal `found` at an offset, with its index, is of the record at this index that has this id. A batch has one
/// row for all its records, with its own id. One get.
fn has_refused<R: Rows>(
    rows: &R,
    (offset, index): (Offset, u32),
    (found_index, row): &(u32, AnomalyRow),
    record_id: Option<RecordId<&str>>,
) -> Result<bool, Error> {
    let is_named = record_id.is_none_or(|named| named == row.record_id.borrow());
    let delivered: Option<RecordRow> = rows.get(&store::deliveries::key(row.run_id.borrow(), offset))?;
    // A record in the wrong partition is not kept, so it may be a batch.
    let Some(delivered) = delivered else { return Ok(row.reason == Reason::WrongPartition || is_named) };
    let delivered = super::envelope(&delivered.framed.0)?;
    if delivered.kind != RecordKind::Batch {
        return Ok(is_named && *found_index == index);
    }
    let records = delivered.records().unwrap_or_default();
    let part = usize::try_from(index).ok().and_then(|index| records.get(index));
    Ok(is_named || part.is_some_and(|part| record_id == Some(part.record_id)))
}

/// The refusal at an offset, if any, with the index of the refused record.
fn refused_at<R: Rows>(rows: &R, offset: Offset) -> Result<Option<(u32, AnomalyRow)>, Error> {
    let prefix = store::anomalies::prefix().offset(offset);
    let mut refusal = None;
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        let mut parts = store::Parts::new(key);
        if let (Some(_), Some(index)) = (parts.offset(), parts.u32()) {
            refusal = Some((index, store::decode(key, row)?));
        }
        Ok(std::ops::ControlFlow::Break(()))
    })?;
    Ok(refusal)
}

/// Like [`get`], with the run's writer and the outcomes of the run's records at the positions `also`, all from one view.
/// Cost: three more gets, and the cost of [`get`] for each position.
pub fn read_back<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    at: (Offset, u32),
    record_id: Option<RecordId<&str>>,
    also: &[(Offset, u32)],
) -> Result<Option<ReadBack>, Error> {
    let Some(outcome) = get(rows, place, run_id, at, record_id)? else { return Ok(None) };
    let also = each(rows, place, run_id, also)?;
    let run: RunRow = rows.get(&store::runs::key(run_id))?.unwrap_or_default();
    let (position, is_applied) = (&outcome.position, outcome.reason.is_none());
    let changed = is_applied && has_changed(rows, run_id, (position.offset, position.index))?;
    Ok(Some(ReadBack { outcome, epoch: run.head.epoch, writer_id: run.head.writer_id, changed, also }))
}

/// Whether the call that the applied record at an offset and index requested or attempted has changed since: it was started again,
/// cleared or ended, a result arrived, or a skip voided a record about it. False for other records. At most two gets.
pub fn has_changed<R: Rows>(rows: &R, run_id: RunId<&str>, (offset, index): (Offset, u32)) -> Result<bool, Error> {
    let Some(row) = rows.get::<RecordRow>(&store::records::key(run_id, offset, index))? else { return Ok(false) };
    let stored = super::envelope(&row.framed.0)?;
    let call = match stored.facts.payload_type.known() {
        Some(PayloadType::ToolCallRequested) => Some(stored.record_id),
        Some(PayloadType::ToolCallAttempt) => stored.facts.answers.as_ref().map(RecordId::borrow),
        _ => None,
    };
    let Some(call) = call else { return Ok(false) };
    let row: Option<EffectRow> = rows.get(&store::effects::pending(run_id, EffectKind::ToolCall, call))?;
    let Some(row) = row else { return Ok(true) };
    let is_last_start = (row.start_offset, row.start_index) == (offset, index) && !row.cleared;
    let has_evidence = row.evidence.iter().any(|evidence| (evidence.offset, evidence.index) > (offset, index));
    // An earlier skip is no change: after it each attempt without a basis has a void start.
    let is_void_since = row.void_until.is_some_and(|skip| skip > offset);
    Ok(!is_last_start || is_void_since || has_evidence)
}

/// The outcomes of a run's records at positions that the index has reached, in the given order. None for a position without
/// a record of the run. Cost of each: see [`get`].
pub fn each<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    places: &[(Offset, u32)],
) -> Result<Vec<Option<Outcome>>, Error> {
    places.iter().map(|at| get(rows, place, run_id, *at, None)).collect()
}
