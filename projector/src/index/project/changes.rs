//! Overlays collected changes on stored rows, so that each record of a batch reads the writes of the records before it.

use super::new_runs::NewRuns;
use crate::index::store::{self, Key, Rows, beginning};
use runlog_schemas::datum::Datum;
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
};

/// The new row; none if the row is removed.
type Changed = Option<Vec<u8>>;

/// The approximate number of rows that a record writes.
const ROWS_PER_RECORD: usize = 6;

/// Stored rows, and the changes collected over them.
pub struct Changes<'a, R> {
    rows: &'a R,
    pending: HashMap<Vec<u8>, Changed, foldhash::fast::RandomState>,
    bytes: usize,
    /// Whether a record may have been refused for its content.
    refusals: bool,
    /// Runs that had no rows in the store when they began.
    new_runs: Option<NewRuns>,
    /// The earlier changes of the keys that changed since [`Changes::set_save_point`], oldest first.
    undo: Option<Vec<(Vec<u8>, Option<Changed>)>>,
}

impl<R> std::fmt::Debug for Changes<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Changes({})", self.pending.len())
    }
}

impl<'a, R: Rows> Changes<'a, R> {
    /// Creates an overlay without changes.
    pub fn new(rows: &'a R) -> Self {
        Self { rows, pending: HashMap::default(), bytes: 0, refusals: true, new_runs: None, undo: None }
    }

    /// Creates an overlay for about `count` records. `refusals`: whether the rows may have a record that was refused for
    /// its content. All of `new_runs` must have begun over these rows.
    pub(crate) fn of_records(rows: &'a R, count: usize, refusals: bool, new_runs: NewRuns) -> Self {
        let pending = HashMap::with_capacity_and_hasher(count * ROWS_PER_RECORD, Default::default());
        Self { pending, refusals, new_runs: Some(new_runs), ..Self::new(rows) }
    }

    /// Returns the runs that began over these rows.
    pub(crate) fn into_new_runs(self) -> Option<NewRuns> {
        self.new_runs
    }

    /// Records that a run begins: its own row, under this key, does not exist. Does nothing after
    /// [`Changes::set_save_point`], because the batch's row is written before the run's first record.
    pub(super) fn record_new_run(&mut self, key: &Key) {
        if let Some(new_runs) = self.new_runs.as_mut().filter(|_| self.undo.is_none()) {
            new_runs.add_run(key.bytes());
        }
    }

    fn is_absent(&self, key: &Key) -> bool {
        self.new_runs.as_ref().is_some_and(|new_runs| new_runs.is_absent(key.bytes()))
    }

    /// Whether a record may have been refused for its content. If not, such records need not be looked up.
    pub(crate) fn may_have_refusals(&self) -> bool {
        self.refusals
    }

    /// Records that a record is refused for its content.
    pub(super) fn record_refusal(&mut self) {
        self.refusals = true;
    }

    /// Makes later changes revocable by [`Changes::rollback_to_save_point`].
    pub(super) fn set_save_point(&mut self) {
        self.undo = Some(Vec::new());
    }

    /// Keeps the changes since [`Changes::set_save_point`].
    pub(super) fn pop_save_point(&mut self) {
        self.undo = None;
    }

    /// Reverts the changes since [`Changes::set_save_point`].
    pub(super) fn rollback_to_save_point(&mut self) {
        for (key, before) in self.undo.take().unwrap_or_default().into_iter().rev() {
            match before {
                Some(before) => self.pending.insert(key, before),
                None => self.pending.remove(&key),
            };
        }
    }

    fn set(&mut self, key: Vec<u8>, row: Changed) {
        self.bytes += key.len() + row.as_ref().map_or(0, Vec::len);
        if let Some(new_runs) = self.new_runs.as_mut().filter(|_| row.is_some()) {
            new_runs.add_key(&key);
        }
        if let Some(undo) = &mut self.undo {
            let before = self.pending.insert(key.clone(), row);
            undo.push((key, before));
        } else {
            self.pending.insert(key, row);
        }
    }

    /// Reads a row, changes included.
    pub fn get<T: Datum>(&self, key: &Key) -> Result<Option<T>, store::Error> {
        match self.pending.get(key.bytes()) {
            Some(row) => row.as_deref().map(|row| store::decode(key.bytes(), row)).transpose(),
            None if self.is_absent(key) => Ok(None),
            None => self.rows.get(key),
        }
    }

    /// The rows without the changes.
    pub fn below(&self) -> &R {
        self.rows
    }

    /// Whether there is a row, changes included.
    pub fn has(&self, key: &Key) -> Result<bool, store::Error> {
        match self.pending.get(key.bytes()) {
            Some(row) => Ok(row.is_some()),
            None if self.is_absent(key) => Ok(false),
            None => Ok(self.rows.row(key.bytes())?.is_some()),
        }
    }

    /// The rows whose keys start with `prefix`, changes included, in key order. One seek, a step per row, and one per
    /// change.
    pub fn rows_with_prefix(&self, prefix: &Key) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, store::Error> {
        let mut merged = BTreeMap::new();
        let prefix = prefix.bytes();
        self.rows.scan(prefix, prefix, rocksdb::Direction::Forward, &mut |key, row| {
            merged.insert(key.to_vec(), row.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        for (key, row) in self.pending.iter().filter(|(key, _)| key.starts_with(prefix)) {
            match row {
                Some(row) => merged.insert(key.clone(), row.clone()),
                None => merged.remove(key),
            };
        }
        Ok(merged)
    }

    /// Sets a row.
    pub fn put<T: Datum>(&mut self, key: Key, row: &T) {
        self.set(key.into_bytes(), Some(row.to_bytes()));
    }

    /// Sets an encoded row.
    pub fn put_encoded(&mut self, key: Key, row: Vec<u8>) {
        self.set(key.into_bytes(), Some(row));
    }

    /// Sets a row without content.
    pub fn mark(&mut self, key: Key) {
        self.set(key.into_bytes(), Some(Vec::new()));
    }

    /// Removes a row.
    pub fn remove(&mut self, key: Key) {
        self.set(key.into_bytes(), None);
    }

    /// The changes, in no order.
    pub fn unordered_rows(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.pending.iter().map(|(key, row)| (key.as_slice(), row.as_deref()))
    }

    /// The changes, in key order.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let sorted = self.pending.iter().map(|(key, row)| (beginning(key), key.as_slice(), row.as_deref()));
        let mut rows: Vec<_> = sorted.collect();
        rows.sort_unstable_by_key(|(beginning, key, _)| (*beginning, *key));
        rows.into_iter().map(|(_, key, row)| (key, row))
    }

    /// Bytes of all keys and rows that were set, including replaced and reverted ones.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of changed rows.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether no row changed.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

/// The rows with the changes: another projection over them can be tried apart.
impl<R: Rows> Rows for Changes<'_, R> {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, store::Error> {
        match self.pending.get(key) {
            Some(row) => Ok(row.clone()),
            None => self.rows.row(key),
        }
    }

    /// Reads all rows with the prefix.
    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut store::Visit<'_>,
    ) -> Result<(), store::Error> {
        let merged = self.rows_with_prefix(&Key::from_bytes(prefix.to_vec()))?;
        let rows: Vec<_> = match direction {
            rocksdb::Direction::Forward => merged.range(start.to_vec()..).collect(),
            rocksdb::Direction::Reverse => merged.range(..=start.to_vec()).rev().collect(),
        };
        for (key, row) in rows {
            if visit(key, row)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::{Memory, records, runs};
    use runlog_schemas::id::{RecordId, RunId};

    #[test]
    fn a_run_does_not_begin_after_a_record_of_its_batch_was_written() {
        let (rows, run) = (Memory::default(), RunId::new("r").expect("an id"));
        let batch = records::by_id(run, RecordId::new("batch").expect("an id"));
        let mut changes = Changes::of_records(&rows, 1, false, NewRuns::for_partitions(1));
        changes.set_save_point();
        changes.mark(batch.clone());
        changes.record_new_run(&runs::key(run));
        changes.pop_save_point();
        assert!(!changes.is_absent(&batch));
        changes.record_new_run(&runs::key(run));
        assert!(changes.is_absent(&batch), "outside of a batch it begins");
    }
}
