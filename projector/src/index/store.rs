//! A partition's indices: one RocksDB database (or, for simulations, rows in memory), one key space, an index per leading
//! byte (hexadecimal):
//!
//! ```text
//!   00        meta       layout, next offset, journal, skips, numbers of runs   (not an index: never compared)
//!   01 … 15   INDICES    in that order
//! ```
//!
//! An index byte is never reused. Keys sort by their parts: numbers are big-endian, strings are escaped and
//! terminated ([`Key`]). On disk most keys begin with the number of their run (`store/on_disk.rs`). Rows are Avro-encoded
//! structs. The offset that the rows reflect is in the same write batch as the rows.
//!
//! **No write-ahead log**: the journal's log serves as one. The memtables of all column families are flushed together, in the
//! order of the commits, and no commit spans two flushes. A crash therefore loses the last commits, rows and offset together,
//! and the fold resumes at the offset on disk: it neither omits a record nor applies one twice. The layout and the journal
//! are on disk before any row that depends on them. A write that must survive a crash at once waits for a flush: see
//! [`flush`](super::flush).

use database::Database;
use runlog_schemas::{
    datum::Datum,
    id::{Offset, RecordId, RunId},
    judge::FirstJudgement,
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub mod anomalies;
mod bodies;
mod buckets;
mod budget;
pub mod checkpoints;
pub mod contents;
mod database;
pub mod dead_letters;
pub mod deliveries;
pub mod effects;
mod error;
pub mod events;
pub mod evolving;
pub mod facts;
mod folder;
pub mod horizons;
mod index;
mod indices;
mod key;
pub mod keys;
pub mod markers;
mod memory;
pub mod meta;
mod numbers;
mod on_disk;
mod options;
pub mod pools;
pub mod records;
mod rows;
pub mod runs;
pub mod runs_by_time;
mod tables;
#[cfg(test)]
mod tests;
pub mod tool_calls;
pub mod turns;
pub mod write_backs;

pub(crate) use buckets::{sort_key, sorted_key};
pub use budget::Budget;
pub use database::DatabaseSnapshot;
pub use error::Error;
pub use folder::{Folder, MemoryFolders, Storage};
pub(crate) use index::{FAMILIES_MAX, INDICES_MAX};
pub use index::{Index, KeyPart, RowFamily, RowType};
pub use indices::{INDICES, index_of};
pub use key::{Key, Parts};
pub(crate) use key::{beginning, text_end};
pub use memory::{Memory, MemorySnapshot};
pub use on_disk::{ColumnFamilyName, OnDisk};
pub use rows::{Commit, Memtable, Rows, Visit, damaged, decode};
pub use tables::{TableBytes, TableFiles, TableOptions, Tables};

/// The store of a partition's rows, in its folder.
#[derive(Debug)]
pub struct Store {
    backend: Backend,
    /// Must follow `backend`: fields are dropped in order, and the database must be closed first.
    removal: Removal,
}

/// The storage of the rows.
#[derive(Debug)]
enum Backend {
    Database(Box<Database>),
    Memory(Arc<Memory>),
}

/// Removes a store's folder when it is dropped, if that was requested.
#[derive(Debug)]
struct Removal {
    folder: Folder,
    wanted: AtomicBool,
}

impl Drop for Removal {
    fn drop(&mut self) {
        if self.wanted.load(Ordering::Acquire) {
            self.folder.remove();
        }
    }
}

/// The judgement of the first record with an id: of an applied record, otherwise of a record that was refused for its
/// content. At most two gets.
pub fn seen(
    run_id: RunId<&str>,
    record_id: RecordId<&str>,
    get: impl Fn(&Key) -> Result<Option<FirstJudgement>, Error>,
) -> Result<Option<FirstJudgement>, Error> {
    match get(&records::by_id(run_id, record_id))? {
        Some(seen) => Ok(Some(seen)),
        None => get(&anomalies::by_id(run_id, record_id)),
    }
}

impl Store {
    /// Opens or creates the store in `folder`. Errors: `Layout` or `Outgrown` if it has another layout.
    pub fn open(folder: impl Into<Folder>, budget: &Budget) -> Result<Self, Error> {
        let store = Self::open_any(folder, budget)?;
        match store.layout()? {
            meta::LAYOUT => Ok(store),
            _ => Err(store.outgrown("it may not be rebuilt here")?),
        }
    }

    /// Opens or creates the store in `folder`, with any layout up to [`meta::LAYOUT`]. In a store of an older layout only the
    /// rows of [`meta`] may be read.
    pub fn open_any(folder: impl Into<Folder>, budget: &Budget) -> Result<Self, Error> {
        let folder = folder.into();
        let backend = match folder.storage() {
            Storage::Disk => Backend::Database(Box::new(Database::open(budget, folder.path())?)),
            Storage::Memory(folders) => Backend::Memory(folders.open(folder.path())),
        };
        let store = Self { backend, removal: Removal { folder, wanted: AtomicBool::new(false) } };
        let key = meta::layout();
        match store.get::<u32>(&key)? {
            Some(found) if found > meta::LAYOUT => {
                return Err(Error::Layout { dir: store.dir().to_owned(), found, expected: meta::LAYOUT });
            }
            Some(_) => {}
            None => store.commit(std::iter::once((key.bytes(), Some(meta::LAYOUT.to_bytes().as_slice()))))?,
        }
        Ok(store)
    }

    /// Removes the folder when the last reference to the store is dropped. Tables are opened lazily, so a query in progress
    /// may still need any of its files.
    pub fn remove_when_unused(&self) {
        self.removal.wanted.store(true, Ordering::Release);
    }

    /// The layout of its rows.
    pub fn layout(&self) -> Result<u32, Error> {
        Ok(self.get(&meta::layout())?.unwrap_or(meta::LAYOUT))
    }

    /// The error for this store of an older layout, which is kept because of `why`. Changes nothing.
    pub fn outgrown(&self, why: impl Into<String>) -> Result<Error, Error> {
        let (dir, found) = (self.dir().to_owned(), self.layout()?);
        Ok(Error::Outgrown { dir, found, expected: meta::LAYOUT, why: why.into() })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.removal.folder.path()
    }

    /// Flushes: when this returns, all rows committed before the call survive a power cut.
    pub fn flush(&self) -> Result<(), Error> {
        match &self.backend {
            Backend::Database(database) => database.flush(true),
            Backend::Memory(_) => Ok(()),
        }
    }

    /// Begins a flush in the background. If it fails later, the next commits fail too.
    pub(crate) fn begin_flush(&self) -> Result<(), Error> {
        match &self.backend {
            Backend::Database(database) => database.flush(false),
            Backend::Memory(_) => Ok(()),
        }
    }

    /// The offset at which the fold would resume after a crash.
    pub fn durable(&self) -> Result<Offset, Error> {
        match &self.backend {
            Backend::Database(database) => database.durable(),
            Backend::Memory(_) => {
                let progress: Option<meta::Progress> = self.get(&meta::progress())?;
                Ok(progress.unwrap_or_default().next_offset)
            }
        }
    }

    /// The size and state of its memtables.
    pub(crate) fn memtable(&self) -> Memtable {
        match &self.backend {
            Backend::Database(database) => database.memtable(),
            Backend::Memory(_) => Memtable::default(),
        }
    }

    /// Whether [`Store::ingest`] can add tables: only to a store on disk.
    pub fn takes_tables(&self) -> bool {
        matches!(self.backend, Backend::Database(_))
    }

    /// Adds the files of [`Tables`], all or none and durably, and moves them. Their rows replace rows with the same keys. A
    /// store in memory ignores them.
    pub fn ingest(&self, files: TableFiles) -> Result<(), Error> {
        match &self.backend {
            Backend::Database(database) => database.ingest(files),
            Backend::Memory(_) => Ok(()),
        }
    }

    /// Rows as a commit would write them to disk now, for benchmarks; empty for a store in memory.
    pub fn on_disk<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<OnDisk<'a>, Error> {
        match &self.backend {
            Backend::Database(database) => database.on_disk(rows),
            Backend::Memory(_) => Ok(OnDisk::default()),
        }
    }

    /// A snapshot: every read through it is of one log position.
    pub fn view(&self) -> View<'_> {
        match &self.backend {
            Backend::Database(database) => View::Database(database.snapshot()),
            Backend::Memory(memory) => View::Memory(memory.snapshot()),
        }
    }

    /// A snapshot for a thread that must not wait for the disk; `None` if the snapshot itself would wait.
    ///
    /// A read fails with [`Error::NotCached`] if its row is neither in a memtable nor in the block cache. So does a read of a
    /// long row, or after many other rows of this snapshot. It never reports such a row as missing.
    pub fn cached_view(&self) -> Option<View<'_>> {
        Some(match &self.backend {
            Backend::Database(database) => View::Database(database.cached_snapshot()?),
            Backend::Memory(memory) => View::Memory(memory.snapshot()),
        })
    }
}

impl Commit for Store {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error> {
        match &self.backend {
            Backend::Database(database) => database.commit(rows),
            Backend::Memory(memory) => memory.commit(rows),
        }
    }
}

impl Rows for Store {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match &self.backend {
            Backend::Database(database) => database.row(key),
            Backend::Memory(memory) => memory.row(key),
        }
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        match &self.backend {
            Backend::Database(database) => database.scan(prefix, start, direction, visit),
            Backend::Memory(memory) => memory.scan(prefix, start, direction, visit),
        }
    }
}

/// A snapshot of a store.
#[derive(Debug)]
pub enum View<'a> {
    /// A snapshot of a database.
    Database(DatabaseSnapshot<'a>),
    /// A snapshot of rows in memory.
    Memory(MemorySnapshot),
}

impl Rows for View<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Database(snapshot) => snapshot.row(key),
            Self::Memory(snapshot) => snapshot.row(key),
        }
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        match self {
            Self::Database(snapshot) => snapshot.scan(prefix, start, direction, visit),
            Self::Memory(snapshot) => snapshot.scan(prefix, start, direction, visit),
        }
    }
}
