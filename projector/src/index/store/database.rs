//! Rows in a RocksDB database.

use super::{Commit, Error, Memtable, Rows, Visit, meta, walk};
use rocksdb::{ReadTier, properties};
use runlog_schemas::id::Offset;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Bytes of a row and its key, about.
const ROW_BYTES: usize = 256;

/// A database in a folder, written without a write-ahead log.
pub(super) struct Database {
    db: rocksdb::DB,
    dir: PathBuf,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens or creates the database in `dir`. The write-ahead log of an older version's folder is read and flushed.
    pub(super) fn open(options: &rocksdb::Options, dir: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(dir).ok();
        let db = rocksdb::DB::open(options, dir).map_err(|source| Error::of(dir, source))?;
        Ok(Self { db, dir: dir.to_owned() })
    }

    fn rocks(&self, source: rocksdb::Error) -> Error {
        Error::of(&self.dir, source)
    }

    /// Flushes what is committed: until it is on disk if it `waits`, otherwise in the background.
    pub(super) fn flush(&self, waits: bool) -> Result<(), Error> {
        let mut options = rocksdb::FlushOptions::default();
        options.set_wait(waits);
        self.db.flush_opt(&options).map_err(|source| self.rocks(source))
    }

    /// The next offset as it is on disk.
    pub(super) fn durable(&self) -> Result<Offset, Error> {
        let mut options = rocksdb::ReadOptions::default();
        options.set_read_tier(ReadTier::Persisted);
        let key = meta::progress();
        let row = self.db.get_pinned_opt(key.bytes(), &options).map_err(|source| self.rocks(source))?;
        let Some(row) = row else { return Ok(Offset::ZERO) };
        let progress: meta::Progress = super::decode(key.bytes(), &row)?;
        Ok(progress.next_offset)
    }

    /// What is not on disk.
    pub(super) fn memtable(&self) -> Memtable {
        let bytes = self.int_property(properties::CUR_SIZE_ACTIVE_MEM_TABLE).unwrap_or_default();
        Memtable { bytes, flushing: self.int_property(properties::NUM_IMMUTABLE_MEM_TABLE) != Some(0) }
    }

    fn int_property(&self, property: &properties::PropName) -> Option<usize> {
        self.db.property_int_value(property).ok().flatten()?.try_into().ok()
    }

    /// Adds tables, all or none and durably, and moves them. What was committed before is on disk before them.
    pub(super) fn ingest(&self, files: Vec<PathBuf>) -> Result<(), Error> {
        self.flush(true)?;
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
        let mut batch = rocksdb::WriteBatch::with_capacity_bytes(rows.size_hint().0 * ROW_BYTES);
        for (key, row) in rows {
            match row {
                Some(row) => batch.put(key, row),
                None => batch.delete(key),
            }
        }
        let mut options = rocksdb::WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(batch, &options).map_err(|source| self.rocks(source))
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
