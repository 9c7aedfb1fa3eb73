//! `records`: every applied record, whole, in log order per run, and by record id; claims also by epoch. A timeline page is
//! one seek and a step per record; a record by position, id or epoch is one get (two with its content).

use super::{
    Error, Rows, deliveries,
    index::{Index, KeyPart, OFFSET, RECORD, RECORD_INDEX, RUN, RowFamily},
    key::{Key, Parts},
};
use runlog_schemas::{
    datum,
    datum::Datum as _,
    id::{Epoch, Offset, RecordId, RunId},
    judge::FirstJudgement,
};
use serde::Serialize;
use std::ops::ControlFlow;

/// The index.
pub const INDEX: Index = Index::new(
    2,
    "records",
    &[
        RowFamily::records(0, "records", &[RUN, OFFSET, RECORD_INDEX]),
        RowFamily::new::<FirstJudgement>(1, "by_id", &[RUN, RECORD]),
        RowFamily::new::<ClaimRow>(2, "claims", &[RUN, KeyPart::U64("epoch")]),
    ],
);

/// A record by position.
pub fn key(run_id: RunId<&str>, offset: Offset, index: u32) -> Key {
    prefix(run_id).offset(offset).u32(index)
}

/// The records of a run.
pub fn prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}

/// The offset of the run's first record, applied or not. Two seeks.
pub fn first_offset<R: Rows>(rows: &R, run_id: RunId<&str>) -> Result<Option<Offset>, Error> {
    let mut first = None;
    for list in [prefix(run_id), deliveries::prefix(run_id)] {
        rows.scan(list.bytes(), list.bytes(), rocksdb::Direction::Forward, &mut |key, _| {
            let mut parts = Parts::new(key);
            let offset = parts.text().and_then(|_| parts.offset());
            first = first.into_iter().chain(offset).min();
            Ok(ControlFlow::Break(()))
        })?;
    }
    Ok(first)
}

/// The first judgement of a record id (`judge::FirstJudgement`).
pub fn by_id(run_id: RunId<&str>, record_id: RecordId<&str>) -> Key {
    Key::new(INDEX, 1).text(run_id).text(record_id)
}

/// The claim that was applied in an epoch.
pub fn claim(run_id: RunId<&str>, epoch: Epoch) -> Key {
    Key::new(INDEX, 2).text(run_id).u64(epoch.get())
}

/// An applied claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimRow {
    /// Its offset. A claim is in no batch, so its index is 0.
    pub offset: Offset,
    /// The principal that a server authenticated, if the claim's record names one.
    pub claimant: Option<String>,
}
datum!(ClaimRow { offset, claimant });

/// The principal that claimed an epoch, if it is known.
pub fn claimant(
    run_id: RunId<&str>,
    epoch: Epoch,
    get: impl FnOnce(&Key) -> Result<Option<ClaimRow>, Error>,
) -> Result<Option<String>, Error> {
    Ok(get(&claim(run_id, epoch))?.and_then(|claim| claim.claimant))
}

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// The log's timestamp, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
    /// The record as an Avro single object, which names its schema, independent of the framing in the log.
    pub framed: Bytes,
}
datum!(RecordRow { logged_at_millis, framed });

impl RecordRow {
    /// Encodes a row with these fields, without first copying the record.
    pub fn encode(logged_at_millis: i64, framed: &[u8]) -> Vec<u8> {
        let mut row = Vec::with_capacity(framed.len() + 2 * LONG_BYTES_MAX);
        logged_at_millis.put(&mut row);
        runlog_schemas::datum::put_bytes(framed, &mut row);
        row
    }
}

/// The longest Avro `long`, bytes.
const LONG_BYTES_MAX: usize = 10;

/// Avro `bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl runlog_schemas::datum::Datum for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        runlog_schemas::datum::put_bytes(&self.0, out);
    }
    fn take(input: &mut runlog_schemas::datum::Input<'_>) -> Result<Self, runlog_schemas::datum::Malformed> {
        let length = input.length()?;
        Ok(Self(input.bytes(length)?.to_vec()))
    }
}
