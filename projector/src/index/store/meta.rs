//! A store's own state: not an index, and never compared. These rows are the same in every layout. So the journal and the
//! progress of a store of an older layout can still be read.

use super::{index::Index, key::Key};
use runlog_schemas::{datum, datum::Sha256, id::Offset, schema};

/// Its keys start like an index'.
pub const INDEX: Index = Index::new(0, "meta", &[]);

/// The layout of the rows and of their keys.
const ROWS: u32 = 18;
/// The layout that this build writes. A build that reads another schema version can have other rows after a skip, because it
/// may read the skipped record: so it builds its indices anew.
pub const LAYOUT: u32 = ROWS * 1000 + schema::NEWEST as u32;

/// The layout version.
pub fn layout() -> Key {
    Key::new(INDEX, 0)
}

/// The next offset to apply: the rows reflect every record below it and none at or above it.
pub fn progress() -> Key {
    Key::new(INDEX, 1)
}

/// The journal that the store indexes.
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

/// The progress of the older store that this one replaces. Present until this store has reached it.
pub fn older() -> Key {
    Key::new(INDEX, 5)
}

/// The numbers of runs (`store/numbers.rs`). Two stores of one log may number them differently.
pub fn run_numbers() -> Key {
    Key::new(INDEX, 6)
}

/// A store's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The next offset to apply.
    pub next_offset: Offset,
    /// The last log record that was consumed, applied or not: its offset and the hash of its bytes.
    pub last: Option<Last>,
}
datum!(Progress { next_offset, last });

/// A log record that can be read again and compared: a different hash means a different log.
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

/// A decision to void an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipRow {
    /// Its author.
    pub who: String,
    /// Its reason.
    pub why: String,
}
datum!(SkipRow { who, why });
