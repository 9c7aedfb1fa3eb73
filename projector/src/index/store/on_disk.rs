//! The location of rows on disk: their column family, and their key in it.
//!
//! ```text
//!   key ─┬─ of a numbered family ──▶ runs      number | index, family | rest      (numbers)
//!        ├─ of a bucketed one ─────▶ events    bucket | key                       (buckets)
//!        └─ any other ─────────────▶ default   key
//! ```
//!
//! Each column family either grows at its end or is small. A table with rows of both kinds would overlap all tables.

use super::{bodies::is_body, buckets, error::Error, key::beginning, numbers};

/// A column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnFamilyName {
    /// All other rows.
    Default,
    /// Rows by the number of their run (`numbers`).
    Runs,
    /// Rows by the bucket of their offset (`buckets`).
    Events,
}

impl ColumnFamilyName {
    /// All column families.
    pub const ALL: [Self; 3] = [Self::Default, Self::Runs, Self::Events];

    /// The column family's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => rocksdb::DEFAULT_COLUMN_FAMILY_NAME,
            Self::Runs => "runs",
            Self::Events => "events",
        }
    }
}

/// Appends a key as it is on disk, and returns its column family. `number` finds or assigns a run's number. If it returns
/// none, `append_key` appends no bytes.
pub(super) fn append_key<'k>(
    key: &'k [u8],
    out: &mut Vec<u8>,
    number: impl FnOnce(&'k [u8]) -> Result<Option<u64>, Error>,
) -> Result<Option<ColumnFamilyName>, Error> {
    if let Some(parts) = numbers::split(key) {
        let Some(number) = number(parts.run)? else { return Ok(None) };
        numbers::put_key(parts, number, out);
        return Ok(Some(ColumnFamilyName::Runs));
    }
    if buckets::is_bucketed(key) {
        buckets::put_key(key, out);
        return Ok(Some(ColumnFamilyName::Events));
    }
    out.extend_from_slice(key);
    Ok(Some(ColumnFamilyName::Default))
}

/// Rows as they are written to disk, in the order of their keys there. A memtable inserts neighbouring rows faster, because
/// it starts at the position of the previous insertion.
#[derive(Debug, Default)]
pub struct OnDisk<'r> {
    keys: Vec<u8>,
    rows: Vec<OnDiskRow<'r>>,
    /// Runs without a number, with the numbers assigned to them.
    pub(super) new: Vec<(Vec<u8>, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct OnDiskRow<'r> {
    cf: ColumnFamilyName,
    /// The first 16 bytes of the key.
    beginning: u128,
    /// The key's start and end in `keys`.
    from: usize,
    to: usize,
    row: Option<&'r [u8]>,
    /// Whether its family's rows are bodies.
    is_body: bool,
}

impl<'r> OnDisk<'r> {
    /// Encodes rows; a row without a value is deleted. `number` finds or assigns a run's number. It returns `None` for a row
    /// to delete, if its run has no number.
    pub(super) fn encode(
        rows: impl Iterator<Item = (&'r [u8], Option<&'r [u8]>)>,
        mut number: impl FnMut(&'r [u8], bool) -> Result<Option<u64>, Error>,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        let count = rows.size_hint().0;
        all.rows.reserve(count);
        all.keys.reserve(count * KEY_BYTES);
        for (key, row) in rows {
            let from = all.keys.len();
            let cf = append_key(key, &mut all.keys, |run| number(run, row.is_some()))?;
            let Some(cf) = cf else { continue };
            let to = all.keys.len();
            let beginning = beginning(&all.keys[from..to]);
            all.rows.push(OnDiskRow { cf, beginning, from, to, row, is_body: is_body(key) });
        }
        let Self { keys, rows, .. } = &mut all;
        rows.sort_unstable_by(|one, other| {
            let begin = (one.cf, one.beginning).cmp(&(other.cf, other.beginning));
            begin.then_with(|| keys[one.from..one.to].cmp(&keys[other.from..other.to]))
        });
        Ok(all)
    }

    /// The rows: column family, key and value. Without the rows that assign numbers to runs. Bodies are not replaced by
    /// references.
    pub fn rows(&self) -> impl Iterator<Item = (ColumnFamilyName, &[u8], Option<&'r [u8]>)> {
        self.rows_and_bodies().map(|(cf, key, row, _)| (cf, key, row))
    }

    /// The same rows, and whether each is a body. The bodies of a run are together, in the order of the log.
    pub(super) fn rows_and_bodies(&self) -> impl Iterator<Item = (ColumnFamilyName, &[u8], Option<&'r [u8]>, bool)> {
        self.rows.iter().map(|row| (row.cf, &self.keys[row.from..row.to], row.row, row.is_body))
    }

    /// Bytes of all keys, and of all values except bodies.
    pub(super) fn bytes(&self) -> usize {
        let values = self.rows.iter().filter(|row| !row.is_body);
        self.keys.len() + values.map(|row| row.row.map_or(0, <[u8]>::len)).sum::<usize>()
    }

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

/// The approximate size of a key on disk, bytes.
const KEY_BYTES: usize = 48;
