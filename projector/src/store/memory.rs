//! Rows in memory, for folds without a disk: in tests, where a database each would take longer than all the rest.

use super::{Commit, Error, Rows, Visit, walk};
use std::{
    collections::BTreeMap,
    ops::Bound::{Included, Unbounded},
    sync::{Arc, PoisonError, RwLock},
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rows in memory. Nothing survives the value.
#[derive(Debug, Default)]
pub struct Memory(RwLock<Arc<Map>>);

impl Memory {
    /// The rows of this moment: no lock is held while they are visited, for visitors read too.
    fn now(&self) -> Arc<Map> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Commit for Memory {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error> {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let map = Arc::make_mut(&mut now);
        for (key, row) in rows {
            match row {
                Some(row) => map.insert(key.to_vec(), row.to_vec()),
                None => map.remove(key),
            };
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
