//! What became of an appended record.

use super::Place;
use crate::{
    Error,
    store::{self, Rows, anomalies::AnomalyRow, runs::RunRow},
};
use runlog_schemas::{
    answer::{Outcome, ReadBack},
    id::{RecordId, RunId},
    judge::Seen,
};

/// The outcome of the record at a place, which must be applied. A repeat is told by its record id: no row stands at its
/// place, and its id stands for the first one. At most four gets.
pub fn one<R: Rows>(
    rows: &R,
    place: Place<'_>,
    run_id: RunId<&str>,
    (offset, index): (u64, u32),
    record_id: Option<RecordId<&str>>,
) -> Result<Option<Outcome>, Error> {
    let outcome = |outcome: &str, reason: Option<&str>, (offset, index)| Outcome {
        position: place.at(offset, index),
        outcome: outcome.to_owned(),
        reason: reason.map(str::to_owned),
        record_id: record_id.into(),
    };
    let refused: Option<AnomalyRow> = rows.get(&store::anomalies::key(offset, index))?;
    if let Some(row) = refused.filter(|row| row.run_id == run_id) {
        return Ok(Some(outcome("refused", Some(row.reason.as_str()), (offset, index))));
    }
    if rows.row(store::records::key(run_id, offset, index).bytes())?.is_some() {
        return Ok(Some(outcome("applied", None, (offset, index))));
    }
    let Some(record_id) = record_id else { return Ok(None) };
    let mut seen: Option<Seen> = rows.get(&store::records::by_id(run_id, record_id))?;
    if seen.is_none() {
        seen = rows.get(&store::anomalies::by_id(run_id, record_id))?;
    }
    Ok(seen.map(|seen| outcome("repeat", seen.refused.map(|reason| reason.as_str()), (seen.offset, seen.index))))
}

/// The outcome, and who writes the run in the same view. One get more.
pub fn read_back<R: Rows>(
    rows: &R,
    place: Place<'_>,
    run_id: RunId<&str>,
    at: (u64, u32),
    record_id: Option<RecordId<&str>>,
) -> Result<Option<ReadBack>, Error> {
    let Some(outcome) = one(rows, place, run_id, at, record_id)? else { return Ok(None) };
    let run: RunRow = rows.get(&store::runs::key(run_id))?.unwrap_or_default();
    Ok(Some(ReadBack { outcome, epoch: run.head.epoch, writer_id: run.head.writer_id }))
}
