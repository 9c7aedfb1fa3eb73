//! The rows of one run during its fold: in memory, or in a temporary store if they are too large.

use super::order::RowOrder;
use crate::index::store::{Budget, Commit, Error, Folder, Memory, Rows, Store, Visit};
use std::ops::ControlFlow;

/// The memory of a temporary store, bytes.
const STORE_BYTES: usize = 32 << 20;
/// The size of one commit when rows move to a temporary store, bytes.
const MOVED_BYTES: usize = 4 << 20;

/// The committed rows of one run, or of the partition itself.
#[derive(Debug)]
pub(super) struct RunRows<'o> {
    order: &'o RowOrder,
    /// The run's part of a key.
    run: Vec<u8>,
    memory: Memory,
    /// The temporary store, if there is one. It contains all rows.
    store: Option<(Store, Folder)>,
}

impl<'o> RunRows<'o> {
    /// Creates an empty set of rows.
    pub(super) fn new(order: &'o RowOrder, run: Vec<u8>) -> Self {
        Self { order, run, memory: Memory::default(), store: None }
    }

    /// The run's part of a key.
    pub(super) fn run(&self) -> &[u8] {
        &self.run
    }

    /// Whether no row was committed.
    pub(super) fn is_empty(&self) -> bool {
        self.store.is_none() && self.memory.bytes() == 0
    }

    /// Moves the rows to a temporary store if they take more than `bytes_max` in memory.
    pub(super) fn limit(&mut self, bytes_max: usize, folder: &Folder) -> Result<(), Error> {
        if self.store.is_some() || self.memory.bytes() <= bytes_max {
            return Ok(());
        }
        folder.remove();
        let store = Store::open(folder.clone(), &Budget::new(STORE_BYTES))?;
        let (mut moved, mut bytes) = (Vec::new(), 0);
        std::mem::take(&mut self.memory).scan(&[], &[], rocksdb::Direction::Forward, &mut |key, row| {
            bytes += key.len() + row.len();
            moved.push((key.to_vec(), row.to_vec()));
            if bytes >= MOVED_BYTES {
                store.commit(rows(&moved))?;
                moved.clear();
                bytes = 0;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        store.commit(rows(&moved))?;
        self.store = Some((store, folder.clone()));
        Ok(())
    }

    /// Asserts that the fold of a run reads only the run's own rows. Other rows are absent here, so reading them would
    /// result in wrong rows.
    fn check(&self, key: &[u8]) {
        assert!(self.order.is_of(key, &self.run), "the fold of a run reads the row {key:?}, which is not the run's");
    }
}

fn rows(moved: &[(Vec<u8>, Vec<u8>)]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    moved.iter().map(|(key, row)| (key.as_slice(), Some(row.as_slice())))
}

impl Rows for RunRows<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.check(key);
        match &self.store {
            Some((store, _)) => store.row(key),
            None => self.memory.row(key),
        }
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        if !prefix.is_empty() {
            self.check(prefix);
        }
        match &self.store {
            Some((store, _)) => store.scan(prefix, start, direction, visit),
            None => self.memory.scan(prefix, start, direction, visit),
        }
    }
}

impl Commit for RunRows<'_> {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error> {
        match &self.store {
            Some((store, _)) => store.commit(rows),
            None => self.memory.commit(rows),
        }
    }
}

impl Drop for RunRows<'_> {
    fn drop(&mut self) {
        if let Some((store, folder)) = self.store.take() {
            drop(store);
            folder.remove();
        }
    }
}
