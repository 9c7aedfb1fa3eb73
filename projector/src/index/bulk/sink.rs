//! The destination of a fold's rows.

use crate::index::store::{self, Tables};

/// The destination of rows.
pub(crate) trait Sink {
    /// Whether the rows of a family must come in key order. Families may alternate.
    const IN_KEY_ORDER: bool;

    /// Adds a row.
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), store::Error>;
}

impl Sink for Tables<'_> {
    const IN_KEY_ORDER: bool = true;

    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), store::Error> {
        Tables::put(self, key, row)
    }
}
