//! Rows in a RocksDB database.

use super::{
    Budget, Commit, Error, Mode, Rows, Visit,
    budget::{self, Share},
    walk,
};
use rocksdb::properties;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A database in a folder.
pub(super) struct Database {
    db: rocksdb::DB,
    dir: PathBuf,
    mode: Mode,
    /// Held by every write and by a switch to a new memtable: nothing is written between the sync of the old
    /// write-ahead log and the new one.
    memtable: Mutex<Share>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("dir", &self.dir).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens or creates the database in `dir`.
    pub(super) fn open(options: &rocksdb::Options, dir: &Path, budget: &Budget, mode: Mode) -> Result<Self, Error> {
        std::fs::create_dir_all(dir).ok();
        let db = rocksdb::DB::open(options, dir).map_err(|source| Error::of(dir, source))?;
        Ok(Self { db, dir: dir.to_owned(), mode, memtable: Mutex::new(budget.share()) })
    }

    fn rocks(&self, source: rocksdb::Error) -> Error {
        Error::of(&self.dir, source)
    }

    /// Writes memtables to disk; a bulk store is durable from here on.
    pub(super) fn flush(&self) -> Result<(), Error> {
        self.rotate_memtable(&mut self.memtable(), true)
    }

    /// Syncs everything that was committed to disk.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.db.flush_wal(true).map_err(|source| self.rocks(source))
    }

    /// What it holds are numbers, right at any time.
    fn memtable(&self) -> MutexGuard<'_, Share> {
        self.memtable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs the write-ahead log, then switches to a new memtable and a new write-ahead log. The old memtable is
    /// flushed to a table in the background, or, with `waits`, before this returns.
    fn rotate_memtable(&self, memtable: &mut Share, waits: bool) -> Result<(), Error> {
        if self.mode == Mode::Live {
            self.sync()?;
        }
        let mut options = rocksdb::FlushOptions::default();
        options.set_wait(waits);
        self.db.flush_opt(&options).map_err(|source| self.rocks(source))?;
        memtable.set(0);
        Ok(())
    }

    /// An integer RocksDB property. Callers treat `None` as the worst case.
    fn int_property(&self, property: &properties::PropName) -> Option<usize> {
        self.db.property_int_value(property).ok().flatten()?.try_into().ok()
    }

    /// Adds tables, all or none and durably, and moves them.
    pub(super) fn ingest(&self, files: Vec<PathBuf>) -> Result<(), Error> {
        let mut memtable = self.memtable();
        // RocksDB would switch memtables itself where their keys overlap, without syncing the write-ahead log.
        self.rotate_memtable(&mut memtable, true)?;
        let mut options = rocksdb::IngestExternalFileOptions::default();
        options.set_move_files(true);
        self.db.ingest_external_file_opts(&options, files).map_err(|source| self.rocks(source))
    }

    /// A snapshot: every read through it is of one log position.
    pub(super) fn snapshot(&self) -> DatabaseSnapshot<'_> {
        DatabaseSnapshot { snapshot: self.db.snapshot(), dir: &self.dir }
    }
}

impl Commit for Database {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error> {
        let mut batch = rocksdb::WriteBatch::default();
        for (key, row) in rows {
            match row {
                Some(row) => batch.put(key, row),
                None => batch.delete(key),
            }
        }
        let mut options = rocksdb::WriteOptions::default();
        // Not synced: whatever a power cut loses from the end of the write-ahead log is lost together with its offset,
        // and the log has it. `rotate_memtable` ensures that only the end can be lost.
        options.disable_wal(self.mode == Mode::Bulk);
        let mut memtable = self.memtable();
        if memtable.is_past_full() {
            self.rotate_memtable(&mut memtable, true)?;
        }
        self.db.write_opt(batch, &options).map_err(|source| self.rocks(source))?;
        memtable.set(self.int_property(properties::CUR_SIZE_ACTIVE_MEM_TABLE).unwrap_or(budget::WRITE_BUFFER_BYTES));
        let under_way = || self.int_property(properties::NUM_IMMUTABLE_MEM_TABLE) != Some(0);
        // Only after a successful write: if the sync fails or the new log cannot be created, RocksDB stops for good
        // when it already has another error, and here it has none.
        if (memtable.is_full() || memtable.all_are_full() && !under_way())
            && let Err(error) = self.rotate_memtable(&mut memtable, false)
        {
            // The write succeeded; the next write that needs a new memtable switches first.
            tracing::debug!(dir = %self.dir.display(), %error, "a memtable is kept");
        }
        Ok(())
    }
}

impl Rows for Database {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.db.get(key).map_err(|source| self.rocks(source))
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let iterator = self.db.iterator(rocksdb::IteratorMode::From(start, direction));
        walk(iterator.map(|item| item.map_err(|source| self.rocks(source))), prefix, visit)
    }
}

/// A database at one moment.
pub struct DatabaseSnapshot<'a> {
    snapshot: rocksdb::Snapshot<'a>,
    dir: &'a Path,
}

impl fmt::Debug for DatabaseSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseSnapshot").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl DatabaseSnapshot<'_> {
    fn rocks(&self, source: rocksdb::Error) -> Error {
        Error::of(self.dir, source)
    }
}

impl Rows for DatabaseSnapshot<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.snapshot.get(key).map_err(|source| self.rocks(source))
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let iterator = self.snapshot.iterator(rocksdb::IteratorMode::From(start, direction));
        walk(iterator.map(|item| item.map_err(|source| self.rocks(source))), prefix, visit)
    }
}
