//! Numbers of runs. On disk, the keys of rows that are only read within their run begin with the run's number instead of
//! its id.
//!
//! ```text
//!   a key                   index, family | run id, 00 01 | rest      what all other code writes and reads
//!
//!   column family `runs`    number                       ──▶ run id, 00 01
//!                           number | index, family | rest ──▶ row     all rows of a run are neighbours
//!   default                 00 06 | run id, 00 01         ──▶ number
//! ```
//!
//! A run's number counts the runs in the order in which they got their first row in this database. Ids are long and mostly
//! random. With them, every new table would overlap all older tables, so a larger index would need more compaction per
//! row. Numbers are short and grow, so new tables overlap only the tables of runs that are being written. (A bulk build
//! numbers its runs in the order of their ids, so later rows of these runs are spread over its tables.)
//!
//! A run's number never changes, and belongs to one database. It is not part of an index, and differs in another database
//! of the same log. Families that are often read across runs keep the id in their keys ([`KeyPart`]).

use super::{
    error::Error,
    index::{FAMILIES_MAX, INDICES_MAX, KeyPart},
    indices::INDICES,
    key::text_end,
    meta,
    rows::{damaged, decode},
};
use runlog_schemas::datum::{Datum, Malformed};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The memory of one generation of cached numbers, bytes. A database has two generations, and a server one database per
/// partition.
const GENERATION_BYTES: usize = 128 << 10;
/// Bytes counted for a cached number, in addition to its run's id.
const ENTRY_BYTES: usize = 64;

/// Whether a family's keys begin with a run's number on disk, by their two leading bytes.
static IS_NUMBERED: [[bool; FAMILIES_MAX]; INDICES_MAX] = {
    let mut numbered = [[false; FAMILIES_MAX]; INDICES_MAX];
    let mut index = 0;
    while index < INDICES.len() {
        let mut family = 0;
        while family < INDICES[index].families.len() {
            let row_family = &INDICES[index].families[family];
            numbered[INDICES[index].byte as usize][row_family.order as usize] =
                matches!(row_family.key.first(), Some(KeyPart::Run));
            family += 1;
        }
        index += 1;
    }
    numbered
};

/// Whether keys of this key's family begin with a run's number on disk.
pub(super) fn is_numbered(key: &[u8]) -> bool {
    let [index, family, ..] = key else { return false };
    let families = IS_NUMBERED.get(usize::from(*index));
    families.and_then(|families| families.get(usize::from(*family))).copied().unwrap_or(false)
}

/// The parts of a numbered family's key: index and family, the run, the rest. None for any other key, and for a key that
/// ends within the run.
pub(super) fn split(key: &[u8]) -> Option<Parts<'_>> {
    let end = if is_numbered(key) { text_end(key, 2)? } else { return None };
    Some(Parts { head: &key[..2], run: &key[2..end], rest: &key[end..] })
}

/// The parts of a key, see [`split`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts<'k> {
    pub(super) head: &'k [u8],
    pub(super) run: &'k [u8],
    pub(super) rest: &'k [u8],
}

/// Appends a number: the count of its bytes, then the bytes, big-endian. The encodings sort like the numbers, and no
/// encoding is the beginning of another.
pub(super) fn put_number(number: u64, out: &mut Vec<u8>) {
    let leading = (number.leading_zeros() / 8) as usize;
    out.push(8 - leading as u8);
    out.extend_from_slice(&number.to_be_bytes()[leading..]);
}

/// The number at the beginning of these bytes, and the rest.
fn take_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_at_checked(usize::from(*length))?;
    (*length <= 8).then(|| (number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), rest))
}

/// Appends a key as it is on disk.
pub(super) fn put_key(Parts { head, rest, .. }: Parts<'_>, number: u64, out: &mut Vec<u8>) {
    put_number(number, out);
    out.extend_from_slice(head);
    out.extend_from_slice(rest);
}

/// The number in a key of the column family `runs`, and the rest of the key. The rest is empty if the row is the run's id.
///
/// Errors: `Damaged` if there is no number.
pub(super) fn in_key(on_disk: &[u8]) -> Result<(u64, &[u8]), Error> {
    take_number(on_disk).ok_or_else(|| no_run(on_disk))
}

/// The error for a key whose number is missing or belongs to no run.
pub(super) fn no_run(on_disk: &[u8]) -> Error {
    damaged(on_disk, Malformed { what: "its key has no number of a run", at: 0 })
}

/// The key of a run's number.
pub(super) fn by_run(run: &[u8]) -> Vec<u8> {
    [meta::run_numbers().bytes(), run].concat()
}

/// The row under [`by_run`].
pub(super) fn row(number: u64) -> Vec<u8> {
    number.to_bytes()
}

/// The number in a row under [`by_run`].
pub(super) fn in_row(key: &[u8], row: &[u8]) -> Result<u64, Error> {
    decode(key, row)
}

/// The key of a run's id.
pub(super) fn by_number(number: u64) -> Vec<u8> {
    let mut key = Vec::new();
    put_number(number, &mut key);
    key
}

/// The numbers that a database returns without a read from disk.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The next run's number; `None` while the database may contain rows of incompletely added tables. The lock is held
    /// during writes.
    next: Mutex<Option<u64>>,
    cache: Mutex<NumberCache>,
}

impl Numbers {
    /// Locks the next run's number, for a write of rows.
    pub(super) fn next(&self) -> MutexGuard<'_, Option<u64>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run's number, if it is in memory.
    pub(super) fn cached(&self, run: &[u8]) -> Option<u64> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(run)
    }

    /// Remembers a run's number in the database.
    pub(super) fn cache(&self, run: &[u8], number: u64) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).add(run, number);
    }
}

type Map = HashMap<Box<[u8]>, u64, foldhash::fast::RandomState>;

/// Numbers in memory: a number stays until about [`GENERATION_BYTES`] of other numbers were used after it.
#[derive(Debug, Default)]
struct NumberCache {
    young: Map,
    old: Map,
    /// Bytes of the young generation.
    bytes: usize,
}

impl NumberCache {
    fn get(&mut self, run: &[u8]) -> Option<u64> {
        if let Some(number) = self.young.get(run) {
            return Some(*number);
        }
        let number = *self.old.get(run)?;
        self.add(run, number);
        Some(number)
    }

    fn add(&mut self, run: &[u8], number: u64) {
        if self.bytes >= GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += run.len() + ENTRY_BYTES;
        self.young.insert(run.into(), number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::{Key, records, runs};
    use runlog_schemas::id::{Offset, RunId};

    #[test]
    fn encoded_numbers_keep_their_order_and_no_number_is_a_prefix_of_another() {
        let numbers = [0, 1, 9, 255, 256, 257, 65_535, 65_536, 1 << 40, u64::MAX - 1, u64::MAX];
        let written = numbers.map(|number| {
            let mut bytes = Vec::new();
            put_number(number, &mut bytes);
            assert_eq!(take_number(&[&bytes[..], b"rest"].concat()), Some((number, &b"rest"[..])));
            bytes
        });
        assert!(written.is_sorted());
        for (nth, one) in written.iter().enumerate() {
            assert!(written.iter().skip(nth + 1).all(|other| !other.starts_with(one)), "{one:?}");
        }
    }

    #[test]
    fn a_key_is_split_after_the_whole_run_whatever_bytes_its_id_has() {
        for id in ["r", "a\0b", "\0", "\u{1}", "a\0\u{1}", "0c7a9a0e-7a44-4c5c-8a3a-3b1e2f7a0c11"] {
            let (run, at) = (RunId::new(id).expect("an id"), Offset::from(7));
            let key = records::key(run, at, 3);
            let parts = split(key.bytes()).expect("it has a run");
            assert_eq!(parts.run, Key::from_bytes(Vec::new()).text(id).bytes());
            assert_eq!(parts.rest, Key::from_bytes(Vec::new()).offset(at).u32(3).bytes());
            assert_eq!(split(runs::key(run).bytes()), None, "runs are listed in the order of their ids");
            assert_eq!(split(&key.bytes()[..2 + id.len()]), None);
        }
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_requested_numbers() {
        let (mut numbers, requested) = (NumberCache::default(), b"requested".to_vec());
        numbers.add(&requested, 7);
        let run = |number: u64| format!("{number:036}").into_bytes();
        let many = 20 * GENERATION_BYTES as u64 / 100;
        for number in 0..many {
            numbers.add(&run(number), number);
            assert_eq!(numbers.get(&requested), Some(7));
        }
        assert_eq!((numbers.get(&run(many - 1)), numbers.get(&run(0))), (Some(many - 1), None));
        assert!(
            (numbers.young.len() + numbers.old.len()) * (36 + ENTRY_BYTES)
                <= 2 * GENERATION_BYTES + 2 * (36 + ENTRY_BYTES)
        );
    }
}
