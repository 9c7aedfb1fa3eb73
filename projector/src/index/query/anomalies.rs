//! Lists anomalies: refused records.

use super::{TopicPartition, visible::Visible};
use crate::index::{
    error::Error,
    store::{
        self, Parts, Rows,
        anomalies::{AnomalyRow, key, prefix, run_prefix},
        deliveries,
        records::RecordRow,
    },
};
use runlog_schemas::{
    answer::Anomaly,
    id::{Offset, RecordId, RunId},
    judge::Reason,
    record::RecordKind,
};
use std::ops::ControlFlow;

/// Maximum number of refused records of a run that [`has_fenced_claim`] reads, newest first.
pub const FENCED_READ_MAX: usize = 4096;

/// Whether the run's newest [`FENCED_READ_MAX`] refused records contain a fenced claim with this id. One seek, a step and a get for
/// each of them, and a get for each that has the id. A fenced record of another kind consumes no id, and is no claim that lost.
pub fn has_fenced_claim<R: Rows>(rows: &R, run_id: RunId<&str>, record_id: RecordId<&str>) -> Result<bool, Error> {
    let prefix = run_prefix(run_id);
    let (mut fenced, mut read) = (Vec::new(), 0);
    rows.scan(prefix.bytes(), prefix.clone().last().bytes(), rocksdb::Direction::Reverse, &mut |at, _| {
        let mut parts = Parts::new(at);
        if let (Some(_), Some(offset), Some(index)) = (parts.text(), parts.offset(), parts.u32()) {
            let row: Option<AnomalyRow> = rows.get(&key(offset, index))?;
            let is_fenced = row.is_some_and(|row| row.reason == Reason::Fenced && row.record_id.borrow() == record_id);
            fenced.extend(is_fenced.then_some(offset));
        }
        read += 1;
        Ok(if read == FENCED_READ_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    for offset in fenced {
        if kind_at(rows, run_id, offset)? == Some(RecordKind::RunClaim) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The kind of the run's refused record or batch at an offset. One get.
pub fn kind_at<R: Rows>(rows: &R, run_id: RunId<&str>, offset: Offset) -> Result<Option<RecordKind>, Error> {
    let row: Option<RecordRow> = rows.get(&deliveries::key(run_id, offset))?;
    row.map(|row| Ok(super::envelope(&row.framed.0)?.kind)).transpose()
}

/// A page of this partition's anomalies, of one run or of all visible runs, in log order. Cost: one seek, and a step
/// per anomaly; for one run also a get per anomaly.
pub fn page<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    visible: &Visible,
    run_id: Option<RunId<&str>>,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Anomaly>, Option<Vec<u8>>), Error> {
    match run_id {
        None => super::page(rows, &prefix(), cursor, limit, |at, row| {
            let mut parts = Parts::new(at);
            let (Some(offset), Some(index)) = (parts.offset(), parts.u32()) else { return Ok(None) };
            let row: AnomalyRow = store::decode(at, row)?;
            Ok(visible.contains(row.run_id.borrow()).then(|| answer(place, offset, index, row)))
        }),
        Some(run_id) => super::page(rows, &run_prefix(run_id), cursor, limit, |at, _| {
            let mut parts = Parts::new(at);
            let (Some(_), Some(offset), Some(index)) = (parts.text(), parts.offset(), parts.u32()) else {
                return Ok(None);
            };
            let row: Option<AnomalyRow> = rows.get(&key(offset, index))?;
            let row = row.filter(|row| visible.contains(row.run_id.borrow()));
            Ok(row.map(|row| answer(place, offset, index, row)))
        }),
    }
}

fn answer(place: TopicPartition<'_>, offset: Offset, index: u32, row: AnomalyRow) -> Anomaly {
    Anomaly {
        position: place.position(offset, index),
        run_id: row.run_id,
        record_id: row.record_id,
        reason: row.reason.into(),
        writer_id: row.writer_id,
        epoch: row.writer_epoch,
    }
}
