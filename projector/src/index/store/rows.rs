//! Reads and writes of rows, by a store or by a snapshot of one.

use super::{error::Error, indices::index_of, key::Key, meta};
use runlog_schemas::datum::{Datum, Malformed, hex};
use std::ops::ControlFlow;

/// A visitor of a scan's rows: key and row.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error> + 'a;

/// Reads of rows, by a store or by a snapshot of one.
pub trait Rows {
    /// The row under `key`.
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Visits the rows whose keys start with `prefix`, from `start` on (inclusive), in ascending or descending key order. With
    /// a prefix of less than two bytes it visits all rows of the prefix, in no order; `start` must then equal `prefix`, and
    /// `direction` must be forward.
    ///
    /// One step per visited row, and one seek; a seek for each run across runs, and for each million offsets in `events`.
    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error>;

    /// Reads and decodes one row.
    fn get<T: Datum>(&self, key: &Key) -> Result<Option<T>, Error>
    where
        Self: Sized,
    {
        self.row(key.bytes())?.map(|bytes| decode(key.bytes(), &bytes)).transpose()
    }
}

/// Rows that can be written.
pub trait Commit: Rows {
    /// Writes rows and deletes keys without a value, all or none. The rows may be in any order; each key occurs once. A crash
    /// may lose this commit, and then loses all later commits too.
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error>;
}

/// Decodes a row.
pub fn decode<T: Datum>(key: &[u8], row: &[u8]) -> Result<T, Error> {
    T::from_bytes(row).map_err(|source| damaged(key, source))
}

/// The error for a row that does not decode.
pub fn damaged(key: &[u8], source: Malformed) -> Error {
    Error::Damaged { index: index_of(key).unwrap_or(meta::INDEX).name, key: hex(key), source }
}

/// The size and state of a store's memtables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memtable {
    /// Bytes of the active memtable.
    pub bytes: usize,
    /// Whether earlier memtables are being flushed.
    pub flushing: bool,
}
