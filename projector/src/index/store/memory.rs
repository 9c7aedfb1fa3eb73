//! Rows in memory, for folds without a disk: of a run as of an offset, and in tests, where a database each would take
//! most of the time.

use super::{Commit, Error, Rows, Visit, walk};
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
    /// A copy of the current rows: no lock is held while they are visited, because visitors read too.
    fn now(&self) -> Arc<Map> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).map.clone()
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
        Ok(self.now().get(key).cloned())
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let map = self.now();
        let rows: Box<dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>> = match direction {
            rocksdb::Direction::Forward => Box::new(map.range::<[u8], _>((Included(start), Unbounded))),
            rocksdb::Direction::Reverse => Box::new(map.range::<[u8], _>((Unbounded, Included(start))).rev()),
        };
        walk(rows.map(Ok), prefix, visit)
    }
}
