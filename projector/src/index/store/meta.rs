//! A store's own state: not an index, and never compared. These rows are the same in every layout. So the journal and the
//! progress of a store of an older layout can still be read.

use super::{index::Index, key::Key};
use runlog_schemas::{
    datum,
    datum::Sha256,
    id::{Offset, RunId},
    schema,
};

/// Its keys start like an index'.
pub const INDEX: Index = Index::new(0, "meta", &[]);

/// The layout of the rows and of their keys.
const ROWS: u32 = 26;
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

/// A voided offset. Layouts up to 18 have other rows, under 3: the log has these skips, too.
pub fn skip(offset: Offset) -> Key {
    skips().offset(offset)
}

/// All voided offsets.
pub fn skips() -> Key {
    Key::new(INDEX, 11)
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

/// The log that the store was built from.
pub fn log() -> Key {
    Key::new(INDEX, 7)
}

/// The home in force.
pub fn home() -> Key {
    Key::new(INDEX, 8)
}

/// A run that may continue after the loss of a home; `None` for all runs that were unknown.
pub fn accepted(run_id: Option<RunId<&str>>) -> Key {
    Key::new(INDEX, 9).text(run_id.as_ref().map_or("", RunId::as_str))
}

/// Present if the store was built from committed records only.
pub fn committed() -> Key {
    Key::new(INDEX, 10)
}

/// The body file: its number, and the end of the bodies that rows name. Only on disk.
pub fn bodies() -> Key {
    Key::new(INDEX, 12)
}

/// The numbers of runs by status.
pub fn run_counts() -> Key {
    Key::new(INDEX, 13)
}

/// A body file (`store/bodies.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodiesRow {
    /// Its number within the folder.
    pub file: u32,
    /// The end of its last block, bytes.
    pub end: u64,
}
datum!(BodiesRow { file, end });

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
    /// The offset of the skip itself.
    pub at: Offset,
    /// Its author.
    pub who: String,
    /// Its reason.
    pub why: String,
}
datum!(SkipRow { at, who, why });

/// The log that a store was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    /// Its id.
    pub log: String,
}
datum!(LogRow { log });

/// The home in force after a partition's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomeRow {
    /// The number of the home within the journal, from 1.
    pub epoch: u32,
    /// The log.
    pub log: String,
    /// The partition's first known home.
    pub origin: String,
    /// Another log that was made the home in the same epoch; empty if there is none.
    pub rival: String,
    /// The home before it; empty if it took over from none.
    pub from: String,
    /// The offset of the record.
    pub offset: Offset,
    /// The log's time of the record, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
    /// The author of the decision; empty for the home of a new journal.
    pub who: String,
    /// The reason.
    pub why: String,
}
datum!(HomeRow { epoch, log, origin, rival, from, offset, logged_at_millis, who, why });

/// An operator's statement that a run may continue although its home was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptRow {
    /// The epoch of the home that it follows.
    pub epoch: u32,
    /// The offset of the record.
    pub offset: Offset,
    /// The author.
    pub who: String,
    /// The reason.
    pub why: String,
}
datum!(AcceptRow { epoch, offset, who, why });
