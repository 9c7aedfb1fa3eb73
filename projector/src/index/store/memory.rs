//! Rows in memory, for folds without a disk: runs as of an offset, tests and simulations. In simulations, databases would
//! take most of the time.

use super::{
    error::Error,
    rows::{Commit, Rows, Visit},
};
use std::{
    collections::BTreeMap,
    ops::Bound::{Included, Unbounded},
    sync::{Arc, PoisonError, RwLock},
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rows in memory, lost when the value is dropped.
#[derive(Debug, Default)]
pub struct Memory(RwLock<Held>);

#[derive(Debug, Default)]
struct Held {
    map: Arc<Map>,
    bytes: usize,
}

impl Memory {
    /// The current rows. A commit copies them if a snapshot exists. The visitors of a scan use a snapshot and not the lock,
    /// because they read too.
    pub(super) fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot(self.0.read().unwrap_or_else(PoisonError::into_inner).map.clone())
    }

    /// Bytes of its keys and rows.
    pub fn bytes(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl Commit for Memory {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error> {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Held { map, bytes } = &mut *now;
        let map = Arc::make_mut(map);
        for (key, row) in rows {
            let before = match row {
                Some(row) => map.insert(key.to_vec(), row.to_vec()),
                None => map.remove(key),
            };
            *bytes -= before.map_or(0, |before| key.len() + before.len());
            *bytes += row.map_or(0, |row| key.len() + row.len());
        }
        Ok(())
    }
}

impl Rows for Memory {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).map.get(key).cloned())
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.snapshot().scan(prefix, start, direction, visit)
    }
}

/// Rows in memory at one moment.
#[derive(Debug)]
pub struct MemorySnapshot(Arc<Map>);

impl Rows for MemorySnapshot {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        match direction {
            rocksdb::Direction::Forward => walk(self.0.range::<[u8], _>((Included(start), Unbounded)), prefix, visit),
            rocksdb::Direction::Reverse => {
                walk(self.0.range::<[u8], _>((Unbounded, Included(start))).rev(), prefix, visit)
            }
        }
    }
}

/// Visits rows as long as their keys start with `prefix` and the visitor continues.
fn walk<'r>(
    rows: impl Iterator<Item = (&'r Vec<u8>, &'r Vec<u8>)>,
    prefix: &[u8],
    visit: &mut Visit<'_>,
) -> Result<(), Error> {
    for (key, row) in rows {
        if !key.starts_with(prefix) || visit(key, row)?.is_break() {
            break;
        }
    }
    Ok(())
}
