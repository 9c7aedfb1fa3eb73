//! What a store knows of itself: not an index, never compared. These rows are the same in every layout, so that a store
//! of an older one still says what it is of and how far it is.

use super::{Index, Key};
use runlog_schemas::{datum, datum::Sha256, id::Offset};

/// Its keys start like an index'.
pub const INDEX: Index = Index::new(0, "meta", &[]);

/// The layout that this build writes.
pub const LAYOUT: u32 = 9;

/// The layout version.
pub fn layout() -> Key {
    Key::new(INDEX, 0)
}

/// The next offset to apply: everything below it is reflected, nothing at or above it is.
pub fn progress() -> Key {
    Key::new(INDEX, 1)
}

/// The journal that this is an index of.
pub fn journal() -> Key {
    Key::new(INDEX, 2)
}

/// A voided offset.
pub fn skip(offset: Offset) -> Key {
    Key::new(INDEX, 3).offset(offset)
}

/// All voided offsets.
pub fn skips() -> Key {
    Key::new(INDEX, 3)
}

/// Present once a rebuilt store has taken its predecessor's place.
pub fn live() -> Key {
    Key::new(INDEX, 4)
}

/// Where the store of an older layout had come to that this one is built beside. Present until this one is as far.
pub fn older() -> Key {
    Key::new(INDEX, 5)
}

/// How far a store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The next offset to apply.
    pub next_offset: Offset,
    /// The last log record that was taken, whatever became of it: its offset and the hash of its bytes.
    pub last: Option<Last>,
}
datum!(Progress { next_offset, last });

/// A log record that can be read again and compared: where it does not hash as it did, the log is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// Its offset.
    pub offset: Offset,
    /// SHA-256 of its value.
    pub hash: Sha256,
}
datum!(Last { offset, hash });

/// The journal's identity, from its genesis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its id.
    pub journal_id: String,
    /// Its partition count.
    pub partitions: u32,
}
datum!(Journal { journal_id, partitions });

/// Who voided an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipRow {
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
}
datum!(SkipRow { who, why });
