//! A run as of an offset (inclusive), re-folded from its stored records by the same code.
//!
//! ```text
//!   records index     (applied singly)          ─┬─▶ in log order ─▶ project::delivery ─▶ rows in memory ─▶ query
//!   deliveries index  (all others with an effect) ┘                  (judge, project)
//! ```
//!
//! Applied records alone are not enough. A refused record may have consumed numbers or be evidence, a repeat may have
//! consumed a number, and a batch is judged as a whole. Each is judged again by the same code, so this module has no rules
//! of its own.
//!
//! Cost: time and memory for all deliveries of the run up to the offset. Skipped records are void as of every offset.

use super::{
    error::Error,
    fold::{self, Voided},
    project::{self, Changes, Effect, RecordContext, RunRecord, Standing},
    query,
    store::{
        self, Commit, Key, Memory, Parts, Rows, View, Visit, deliveries,
        horizons::{self, HorizonRow},
        records::{ClaimRow, RecordRow, prefix},
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{Offset, PartitionId, RunId},
    record::RecordKind,
};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::ControlFlow,
};
use tokio::time::Instant;

/// Maximum memory of one run: bytes of its keys and rows.
pub const BYTES_MAX: usize = 256 << 20;
/// Bytes that are read ahead of the fold; exceeded by at most one record.
const AHEAD_BYTES: usize = 1 << 20;

/// Limits of folding a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of its keys and rows; exceeded by at most one record.
    pub bytes: usize,
    /// The deadline.
    pub until: Option<Instant>,
}

/// The rows of one run as of an offset.
#[derive(Debug)]
pub struct RunAsOf {
    run_id: RunId,
    partition: PartitionId,
    partitions: u32,
    rows: Memory,
    next: Offset,
}

/// A folded delivery.
struct Folded {
    offset: Offset,
    /// Whether the index has applied it as a single record.
    is_alone: bool,
    /// The number of its records that the index has applied.
    applied: u64,
    /// `None` if a skip voids the delivery.
    effect: Option<Effect>,
}

impl RunAsOf {
    /// A run before its first record, in `partition` of a journal of `partitions`.
    pub fn new(run_id: RunId, partition: PartitionId, partitions: u32) -> Self {
        Self { run_id, partition, partitions, rows: Memory::default(), next: Offset::ZERO }
    }

    /// Folds the run's deliveries in `index` up to the offset `to` (inclusive), which the index must have applied.
    ///
    /// Errors: `TooLarge` and `Unavailable` beyond the limits; `Internal` if a record that was applied is not applied
    /// again: the index is damaged. After an error the rows are incomplete.
    pub fn fold<R: Rows>(&mut self, index: &R, to: Offset, limits: Limits) -> Result<(), Error> {
        let skips = fold::skips_of(index)?;
        self.fold_deliveries(index, to, &skips, limits, |run, folded| match &folded.effect {
            Some(effect) if folded.is_alone && *effect != Effect::Applied => Err(run.damaged(folded.offset, effect)),
            _ => Ok(()),
        })?;
        // A horizon drops content as of every offset.
        let mut changes = Changes::new(&self.rows);
        if let Some(row) = index.get::<Vec<HorizonRow>>(&horizons::key())? {
            changes.put(horizons::key(), &row);
        }
        self.rows.commit(changes.rows())?;
        Ok(())
    }

    /// The number of the run's applied records after `voided` that would not be applied if a skip voided that record. Folds the
    /// whole run.
    ///
    /// Errors: as [`RunAsOf::fold`].
    pub fn count_displaced<R: Rows>(mut self, index: &R, voided: Offset, limits: Limits) -> Result<u64, Error> {
        let (mut skips, mut displaced) = (fold::skips_of(index)?, 0);
        skips.insert(voided, Offset::MAX);
        self.fold_deliveries(index, Offset::MAX, &skips, limits, |_, folded| {
            if folded.offset > voided && folded.effect != Some(Effect::Applied) {
                displaced += folded.applied;
            }
            Ok(())
        })?;
        Ok(displaced)
    }

    fn fold_deliveries<R: Rows>(
        &mut self,
        index: &R,
        to: Offset,
        skips: &BTreeMap<Offset, Offset>,
        limits: Limits,
        mut look: impl FnMut(&Self, Folded) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let run_id = self.run_id.clone();
        let unread = self.unread(index)?.into_iter().filter(|offset| *offset <= to);
        let by = |offset: Offset| skips.get(&offset).copied().unwrap_or(Offset::MAX);
        let mut unread = unread.map(|offset| (offset, by(offset))).peekable();
        let mut alone = Ahead::new(index, prefix(run_id.borrow()), self.next);
        let mut apart = Ahead::new(index, deliveries::prefix(run_id.borrow()), self.next);
        loop {
            let (at, is_alone) = match (alone.offset()?, apart.offset()?) {
                (record, Some(other)) if record.is_none_or(|record| other <= record) => (other, false),
                (Some(record), _) => (record, true),
                (None, _) => break,
            };
            if at > to {
                break;
            }
            while let Some((offset, by)) = unread.next_if(|(offset, _)| *offset < at) {
                self.take_unread(offset, by)?;
            }
            self.check(limits)?;
            let row = if is_alone { alone.take()? } else { apart.take()? };
            // The records of an applied batch are in the records index too.
            let mut applied = u64::from(is_alone);
            while !is_alone && alone.offset()? == Some(at) {
                alone.take()?;
                applied += 1;
            }
            let Some(row) = row else { break };
            let envelope = query::envelope(&row.framed.0)?;
            let Some(record) = RunRecord::new(&envelope) else { return Err(self.damaged(at, &"of a partition")) };
            let (logged_at_millis, framed) = (row.logged_at_millis, &row.framed.0);
            let partition = self.partition;
            let claimant = claimant_of(record, at, index)?;
            let claimant = claimant.as_deref();
            let at = RecordContext { partition, offset: at, index: 0, logged_at_millis, framed, claimant };
            let standing = Standing::of(skips.get(&at.offset).copied());
            let effect = self.take(record, at, standing, |_, _| Ok(()))?;
            look(self, Folded { offset: at.offset, is_alone, applied, effect })?;
        }
        for (offset, by) in unread {
            self.take_unread(offset, by)?;
        }
        self.next = self.next.max(to.saturating_add(1));
        Ok(())
    }

    /// The voided deliveries of the run that no build could read, from the next offset on.
    fn unread<R: Rows>(&self, index: &R) -> Result<Vec<Offset>, Error> {
        let (all, mut unread) = (deliveries::all_unread(self.run_id.borrow()), Vec::new());
        let from = all.clone().offset(self.next);
        index.scan(all.bytes(), from.bytes(), rocksdb::Direction::Forward, &mut |key, _| {
            let mut parts = Parts::new(key);
            if let (Some(_), Some(offset)) = (parts.text(), parts.offset()) {
                unread.push(offset);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(unread)
    }

    /// Folds the run's next delivery. `look` gets the changes and the rows before them. Returns no effect for a delivery that a skip
    /// voids.
    pub(crate) fn take(
        &mut self,
        record: RunRecord<'_, '_>,
        at: RecordContext<'_>,
        standing: Standing,
        look: impl FnOnce(&Changes<'_, Memory>, &Memory) -> Result<(), store::Error>,
    ) -> Result<Option<Effect>, Error> {
        let partitions = self.partitions;
        let project = |changes: &mut Changes<'_, Memory>| project::delivery(record, at, standing, partitions, changes);
        self.project(at.offset, project, look)
    }

    /// Folds a delivery of the run that cannot be read and that the skip at `by` voids.
    fn take_unread(&mut self, offset: Offset, by: Offset) -> Result<(), Error> {
        let run_id = self.run_id.clone();
        let project = |changes: &mut Changes<'_, Memory>| project::unread_voided(run_id.borrow(), offset, by, changes);
        self.project(offset, project, |_, _| Ok(()))
    }

    /// Folds the run's next delivery, which the skip at `by` voids.
    pub(crate) fn take_voided(
        &mut self,
        voided: &Voided<'_>,
        (at, by): (RecordContext<'_>, Offset),
        look: impl FnOnce(&Changes<'_, Memory>, &Memory) -> Result<(), store::Error>,
    ) -> Result<(), Error> {
        let partitions = self.partitions;
        self.project(at.offset, |changes: &mut Changes<'_, Memory>| voided.project(at, by, partitions, changes), look)
    }

    fn project<T>(
        &mut self,
        offset: Offset,
        project: impl FnOnce(&mut Changes<'_, Memory>) -> Result<T, store::Error>,
        look: impl FnOnce(&Changes<'_, Memory>, &Memory) -> Result<(), store::Error>,
    ) -> Result<T, Error> {
        let mut changes = Changes::new(&self.rows);
        let projected = project(&mut changes)?;
        look(&changes, &self.rows)?;
        self.rows.commit(changes.rows())?;
        self.next = self.next.max(offset.saturating_add(1));
        Ok(projected)
    }

    fn check(&self, limits: Limits) -> Result<(), Error> {
        if self.rows.bytes() > limits.bytes {
            let message = format!(
                "run {} is too large for a query as of that offset: its rows exceed {} bytes; query as of an earlier \
                 offset, or only for its records (`runlog show --as-of`)",
                self.run_id, limits.bytes
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        if limits.until.is_some_and(|until| Instant::now() >= until) {
            let message = format!("run {} was not rebuilt as of that offset in time; extend the deadline", self.run_id);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(())
    }

    fn damaged(&self, offset: Offset, what: &dyn std::fmt::Debug) -> Error {
        let message = format!(
            "the record of run {} at offset {offset} cannot be applied again ({what:?}); delete the index folder to rebuild \
             it from the log",
            self.run_id
        );
        Error::new(ErrorKind::Internal, message)
    }

    /// The rows, for queries about the run.
    pub fn rows(&self) -> &Memory {
        &self.rows
    }
}

/// The rows of a run under a key prefix that an offset follows, in offset order, with read-ahead.
struct Ahead<'a, R> {
    index: &'a R,
    prefix: Key,
    /// The key to read from; `None` after the last row.
    next: Option<Vec<u8>>,
    buffer: VecDeque<(Offset, RecordRow)>,
}

impl<'a, R: Rows> Ahead<'a, R> {
    fn new(index: &'a R, prefix: Key, from: Offset) -> Self {
        let next = Some(prefix.clone().offset(from).into_bytes());
        Self { index, prefix, next, buffer: VecDeque::new() }
    }

    /// The next row's offset.
    fn offset(&mut self) -> Result<Option<Offset>, Error> {
        self.read()?;
        Ok(self.buffer.front().map(|(offset, _)| *offset))
    }

    fn take(&mut self) -> Result<Option<RecordRow>, Error> {
        self.read()?;
        Ok(self.buffer.pop_front().map(|(_, row)| row))
    }

    fn read(&mut self) -> Result<(), Error> {
        let Some(from) = self.next.take_if(|_| self.buffer.is_empty()) else { return Ok(()) };
        let (buffer, mut next, mut bytes) = (&mut self.buffer, None, 0);
        self.index.scan(self.prefix.bytes(), &from, rocksdb::Direction::Forward, &mut |key, row| {
            if bytes >= AHEAD_BYTES {
                next = Some(key.to_vec());
                return Ok(ControlFlow::Break(()));
            }
            bytes += row.len();
            let mut parts = Parts::new(key);
            if let (Some(_), Some(offset)) = (parts.text(), parts.offset()) {
                buffer.push_back((offset, store::decode(key, row)?));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.next = next;
        Ok(())
    }
}

/// The rows that a query about one run reads.
#[derive(Debug)]
pub enum RunRows<'a> {
    /// A view of the live index.
    Live(View<'a>),
    /// The run as of an offset.
    AsOf(RunAsOf),
    /// No rows: for the caller, the run does not exist.
    Absent,
}

impl Rows for RunRows<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, store::Error> {
        match self {
            Self::Live(view) => view.row(key),
            Self::AsOf(past) => past.rows.row(key),
            Self::Absent => Ok(None),
        }
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), store::Error> {
        match self {
            Self::Live(view) => view.scan(prefix, start, direction, visit),
            Self::AsOf(past) => past.rows.scan(prefix, start, direction, visit),
            Self::Absent => Ok(()),
        }
    }
}

/// The claimant of a record that is an applied claim. The index stores the name alone, without the record's headers.
fn claimant_of<R: Rows>(record: RunRecord<'_, '_>, at: Offset, index: &R) -> Result<Option<String>, Error> {
    if record.kind != RecordKind::RunClaim {
        return Ok(None);
    }
    let row: Option<ClaimRow> = index.get(&store::records::claim(record.run_id, record.writer_epoch))?;
    Ok(row.filter(|row| row.offset == at).and_then(|row| row.claimant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::records::{Bytes, key};
    use runlog_schemas::{
        codec,
        datum::Datum as _,
        id::{JournalSeq, RecordId, WriterSeq},
        payload::RunLifecycle,
        record::JournalRecord,
    };

    /// An index of a run that has `numbers` as its records' `journal_seq`, one an offset from 1 on.
    fn index(numbers: &[u64]) -> (Memory, RunAsOf) {
        let (run_id, rows) = (RunId::new("r").unwrap(), Memory::default());
        for (at, number) in (1u64..).zip(numbers) {
            let says = RunLifecycle { status: "paused".into(), reason: String::new() };
            let id = RecordId::new(at.to_string()).unwrap();
            let mut record = JournalRecord::new(run_id, id, "agent", says.into());
            record.place.journal_seq = JournalSeq::new(*number).unwrap();
            record.place.writer_seq = WriterSeq::new(at).unwrap();
            let row = RecordRow { logged_at_millis: 0, framed: Bytes(codec::encode(&record)) }.to_bytes();
            let key = key(run_id, Offset::new(at).unwrap(), 0);
            rows.commit([(key.bytes(), Some(row.as_slice()))].into_iter()).unwrap();
        }
        (rows, RunAsOf::new(run_id.to_owned(), PartitionId::new(0).unwrap(), 1))
    }

    #[test]
    fn folding_fails_past_its_size_or_deadline_and_on_a_damaged_index() {
        let to = Offset::new(3).unwrap();
        let whole = Limits { bytes: BYTES_MAX, until: None };
        let (rows, mut past) = index(&[1, 2, 3]);
        past.fold(&rows, to, whole).unwrap();
        let bytes = past.rows().bytes();
        let kind = |numbers: &[u64], limits| {
            let (rows, mut past) = index(numbers);
            past.fold(&rows, to, limits).err().map(|error| error.kind())
        };
        // The limit is checked before each record, so the third still fits.
        assert_eq!(kind(&[1, 2, 3], Limits { bytes: bytes - 1, until: None }), None);
        assert_eq!(kind(&[1, 2, 3], Limits { bytes: bytes / 3, until: None }), Some(ErrorKind::TooLarge));
        assert_eq!(kind(&[1, 2, 3], Limits { until: Some(Instant::now()), ..whole }), Some(ErrorKind::Unavailable));
        assert_eq!(kind(&[1, 3, 2], whole), Some(ErrorKind::Internal));
    }

    #[test]
    fn memory_counts_the_bytes_of_its_keys_and_rows() {
        let rows = Memory::default();
        for (row, bytes) in [(Some("row"), 6), (Some("longer"), 9), (Some(""), 3), (None, 0), (None, 0)] {
            rows.commit([(&b"key"[..], row.map(str::as_bytes))].into_iter()).unwrap();
            assert_eq!(rows.bytes(), bytes);
        }
    }
}
