//! Runs, by id.

use super::{Place, time};
use crate::index::{
    Error,
    store::{self, Parts, Rows, runs::RunRow},
};
use runlog_schemas::{answer::Run, id::RunId, judge::RunStatus};

/// One run: one get. `now` is the log's time, milliseconds since the Unix epoch.
pub fn one<R: Rows>(rows: &R, place: Place<'_>, run_id: RunId<&str>, now: i64) -> Result<Option<Run>, Error> {
    let row: Option<RunRow> = rows.get(&store::runs::key(run_id))?;
    Ok(row.filter(|row| row.head.records > 0).map(|row| answer(place, run_id.to_owned(), row, now)))
}

/// Up to `limit` runs of this partition behind `after`, in id order: one seek, then a step per run looked at.
pub fn list<R: Rows>(
    rows: &R,
    place: Place<'_>,
    prefix: &str,
    after: Option<RunId<&str>>,
    status: Option<RunStatus>,
    limit: usize,
    now: i64,
) -> Result<Vec<Run>, Error> {
    let after = after.map(|run_id| store::runs::key(run_id).into_bytes());
    let (runs, _) = super::page(rows, &store::runs::prefix(prefix), after.as_deref(), limit, |key, row| {
        let Some(run_id) = Parts::new(key).id() else { return Ok(None) };
        let row: RunRow = store::decode(key, row)?;
        let wanted = row.head.records > 0 && status.is_none_or(|status| row.head.status == status);
        Ok(wanted.then(|| answer(place, run_id, row, now)))
    })?;
    Ok(runs)
}

fn answer(place: Place<'_>, run_id: RunId, row: RunRow, now: i64) -> Run {
    Run {
        run_id,
        status: row.head.status.into(),
        records: row.head.records,
        next_journal_seq: row.head.next_journal_seq,
        next_writer_seq: row.head.next_writer_seq,
        next_checkpoint_seq: row.head.checkpoint_seq + 1,
        epoch: row.head.epoch,
        writer_id: row.head.writer_id,
        age_millis: Some(now.saturating_sub(row.updated_at_millis).max(0).cast_unsigned()),
        updated_at: time(row.updated_at_millis.max(0).cast_unsigned()),
        position: place.at(row.offset, row.index),
        hash: row.head.hash,
    }
}
