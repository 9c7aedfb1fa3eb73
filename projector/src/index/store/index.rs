//! Defines an index: the first byte of its keys, its name, and its row families. Each index is a constant in its own file,
//! and [`INDICES`](super::INDICES) lists them.

use runlog_schemas::{
    datum::{Datum, Malformed},
    judge::lifecycle::Family,
};
use serde::Serialize;
use serde_json::Value;

/// Exclusive limits of the bytes of indices and of families.
pub(crate) const INDICES_MAX: usize = 32;
pub(crate) const FAMILIES_MAX: usize = 8;

/// An index. Indices with the same byte are equal.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// The first byte of its keys. A byte is never reused for another index.
    pub byte: u8,
    /// Its name in `verify`, in URLs and in cursors.
    pub name: &'static str,
    /// Its row families. Empty for an index whose rows do not depend on single runs: clients cannot follow its changes.
    pub families: &'static [RowFamily],
    /// The lifecycle whose states it stores as [`evolving`](super::evolving) rows, if any.
    pub lifecycle: Option<Family>,
}

impl Index {
    /// An index with these row families.
    pub const fn new(byte: u8, name: &'static str, families: &'static [RowFamily]) -> Self {
        Self { byte, name, families, lifecycle: None }
    }

    /// The row family of a key of this index.
    pub fn family_of(&self, key: &[u8]) -> Option<&'static RowFamily> {
        self.families.iter().find(|family| Some(&family.order) == key.get(1))
    }
}

impl PartialEq for Index {
    fn eq(&self, other: &Self) -> bool {
        self.byte == other.byte
    }
}

impl Eq for Index {}

/// Rows of an index with the same key parts and the same row type.
#[derive(Clone, Copy, Debug)]
pub struct RowFamily {
    /// The second byte of the keys.
    pub order: u8,
    /// Its name; unique within the index.
    pub name: &'static str,
    /// The parts of the key after the two leading bytes.
    pub key: &'static [KeyPart],
    /// The content of the rows.
    pub row: RowType,
    /// Whether the rows are long and written once: on disk they are bodies (`store/bodies.rs`).
    pub bodies: bool,
}

impl RowFamily {
    /// Rows of type `T`.
    pub const fn new<T: Datum + Serialize>(order: u8, name: &'static str, key: &'static [KeyPart]) -> Self {
        Self { order, name, key, row: RowType::Fields(to_json::<T>), bodies: false }
    }

    /// Rows without content: the key contains all information.
    pub const fn empty(order: u8, name: &'static str, key: &'static [KeyPart]) -> Self {
        Self { order, name, key, row: RowType::Empty, bodies: false }
    }

    /// Rows of type [`RecordRow`](super::records::RecordRow), which are bodies. The key starts with the run and the offset.
    pub const fn records(order: u8, name: &'static str, key: &'static [KeyPart]) -> Self {
        Self { order, name, key, row: RowType::Record, bodies: true }
    }

    /// The same rows, as bodies: the family's keys start with the run.
    pub const fn as_bodies(self) -> Self {
        Self { bodies: true, ..self }
    }
}

/// The content of a row.
#[derive(Clone, Copy, Debug)]
pub enum RowType {
    /// Fields; the function converts a row to JSON.
    Fields(fn(&[u8]) -> Result<Value, Malformed>),
    /// Nothing.
    Empty,
    /// A record as it was logged.
    Record,
}

/// A part of a key, with its name.
#[derive(Clone, Copy, Debug)]
pub enum KeyPart {
    /// The run, `run_id`: the first part. On disk it is a number (`store/numbers.rs`). So rows are found within their run,
    /// and across runs only with a seek for each.
    Run,
    /// A string.
    Text(&'static str),
    /// A big-endian `u64`.
    U64(&'static str),
    /// A big-endian `u32`.
    U32(&'static str),
    /// A SHA-256 hash.
    Hash(&'static str),
    /// A byte that encodes a word; the function returns `None` for an unknown byte.
    Word(&'static str, fn(u8) -> Option<&'static str>),
}

/// The run.
pub(super) const RUN: KeyPart = KeyPart::Run;
/// The run, in a family that is read across runs, in the order of their ids.
pub(super) const RUN_ID: KeyPart = KeyPart::Text("run_id");
/// The record's id.
pub(super) const RECORD: KeyPart = KeyPart::Text("record_id");
/// The record's offset.
pub(super) const OFFSET: KeyPart = KeyPart::U64("offset");
/// The record's index within its offset.
pub(super) const RECORD_INDEX: KeyPart = KeyPart::U32("index");

fn to_json<T: Datum + Serialize>(row: &[u8]) -> Result<Value, Malformed> {
    serde_json::to_value(T::from_bytes(row)?).map_err(|_| Malformed { what: "the row has no JSON form", at: 0 })
}
