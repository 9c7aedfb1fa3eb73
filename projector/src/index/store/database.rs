//! Rows in a RocksDB database, at the locations that [`on_disk`](super::on_disk) defines.
//!
//! All column families are flushed together (`atomic_flush`), so that the rows on disk are always of one commit.

use super::{
    bodies::{BodyFile, BodyScan},
    budget::Budget,
    error::Error,
    meta,
    numbers::{self, Numbers},
    on_disk::{ColumnFamilyName, OnDisk, append_key},
    options,
    rows::{Commit, Memtable, Rows, Visit, decode},
    tables::TableFiles,
};
use rocksdb::{ColumnFamily, Direction, ErrorKind, ReadOptions, ReadTier, properties};
use runlog_schemas::{datum::Datum as _, id::Offset};
use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

mod scan;

/// The overhead of a row in a write batch, bytes, in addition to its key and value.
const ROW_BYTES: usize = 12;
/// The longest row that a cached view returns, bytes: work on a longer row would occupy the thread for long.
const CACHED_ROW_BYTES_MAX: usize = 64 << 10;
/// The maximum number of rows that one cached snapshot reads. More reads take longer than a change of threads.
pub(super) const CACHED_ROWS_MAX: usize = 256;
/// Sorts after all possible remaining parts of a key.
const END: [u8; 24] = [0xff; 24];

/// A database in a folder, written without a write-ahead log.
pub(super) struct Database {
    db: rocksdb::DB,
    dir: PathBuf,
    numbers: Numbers,
    bodies: BodyFile,
    /// The limit of a memtable of runs, bytes.
    memtable_bytes: usize,
    /// Held for writing while tables are added, and for reading while a snapshot is taken.
    ingestion: RwLock<()>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens or creates the database in `dir`. The write-ahead log of an older version's folder is read and flushed. A
    /// database with an older layout gets no further column families: the version that wrote it could no longer open it.
    pub(super) fn open(budget: &Budget, dir: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(dir).ok();
        let failed = |source| Error::from_rocksdb(dir, source);
        let options = options::build(budget, ColumnFamilyName::Default);
        let names = if dir.join("CURRENT").exists() {
            rocksdb::DB::list_cf(&options, dir).map_err(failed)?
        } else {
            vec![ColumnFamilyName::Default.as_str().to_owned()]
        };
        let parse_name = |name: &str| {
            ColumnFamilyName::ALL.into_iter().find(|cf| cf.as_str() == name).unwrap_or(ColumnFamilyName::Default)
        };
        let named = names.into_iter().map(|name| {
            let options = options::build(budget, parse_name(&name));
            (name, options)
        });
        let mut db = rocksdb::DB::open_cf_with_opts(&options, dir, named).map_err(failed)?;
        if db.get_pinned(meta::layout().bytes()).map_err(failed)?.is_none() {
            for cf in ColumnFamilyName::ALL {
                if db.cf_handle(cf.as_str()).is_none() {
                    db.create_cf(cf.as_str(), &options::build(budget, cf)).map_err(failed)?;
                }
            }
        }
        let key = meta::bodies();
        let row = db.get_pinned(key.bytes()).map_err(failed)?.map(|row| decode(key.bytes(), &row)).transpose()?;
        let bodies = BodyFile::open(dir, &db.get_db_identity().map_err(failed)?, budget.bodies.clone(), row)?;
        let memtable_bytes = budget.memtable_bytes();
        let (dir, numbers, ingestion) = (dir.to_owned(), Numbers::default(), RwLock::default());
        let database = Self { db, dir, numbers, bodies, memtable_bytes, ingestion };
        database.next_number(&mut database.numbers.next())?;
        Ok(database)
    }

    fn rocks(&self, source: rocksdb::Error) -> Error {
        Error::from_rocksdb(&self.dir, source)
    }

    /// A column family's handle. Only a store of an older layout, of which only `meta` may be read, lacks some.
    fn cf_handle(&self, cf: ColumnFamilyName) -> &ColumnFamily {
        let family = self.db.cf_handle(cf.as_str());
        family.unwrap_or_else(|| {
            panic!("the store in {} has an older layout, in which only its meta rows can be read", self.dir.display())
        })
    }

    /// All column families.
    fn families(&self) -> impl Iterator<Item = &ColumnFamily> {
        ColumnFamilyName::ALL.into_iter().filter_map(|cf| self.db.cf_handle(cf.as_str()))
    }

    /// Flushes the committed rows: if `waits`, returns when they are on disk, otherwise flushes in the background.
    pub(super) fn flush(&self, waits: bool) -> Result<(), Error> {
        self.bodies.sync()?;
        let mut options = rocksdb::FlushOptions::default();
        options.set_wait(waits);
        self.db.flush_cfs_opt(&self.families().collect::<Vec<_>>(), &options).map_err(|source| self.rocks(source))
    }

    /// Begins a flush before RocksDB begins one of its own, which would not wait for the bodies.
    fn flush_before_full(&self) -> Result<(), Error> {
        let is_nearly_full = |cf: ColumnFamilyName| {
            let family = self.db.cf_handle(cf.as_str());
            let bytes = family.and_then(|family| self.int_property(family, properties::CUR_SIZE_ACTIVE_MEM_TABLE));
            bytes.is_some_and(|bytes| bytes > options::memtable_bytes(self.memtable_bytes, cf) / 8 * 7)
        };
        if ColumnFamilyName::ALL.into_iter().any(is_nearly_full) { self.flush(false) } else { Ok(()) }
    }

    /// The next offset on disk.
    pub(super) fn durable(&self) -> Result<Offset, Error> {
        let key = meta::progress();
        let row = self
            .db
            .get_pinned_opt(key.bytes(), &options_of(ReadTier::Persisted))
            .map_err(|source| self.rocks(source))?;
        let Some(row) = row else { return Ok(Offset::ZERO) };
        let progress: meta::Progress = decode(key.bytes(), &row)?;
        Ok(progress.next_offset)
    }

    /// The size and state of the memtables.
    pub(super) fn memtable(&self) -> Memtable {
        let sum = |property| self.families().filter_map(|family| self.int_property(family, property)).sum::<usize>();
        let bytes = sum(properties::CUR_SIZE_ACTIVE_MEM_TABLE);
        Memtable { bytes, flushing: sum(properties::NUM_IMMUTABLE_MEM_TABLE) != 0 }
    }

    fn int_property(&self, family: &ColumnFamily, property: &properties::PropName) -> Option<usize> {
        self.db.property_int_value_cf(family, property).ok().flatten()?.try_into().ok()
    }

    /// Adds tables, all or none and durably, and moves their files; no snapshot shows a part of them. Rows committed before
    /// are on disk first. The tables number runs from 0, so the database must have no rows of runs, and no progress.
    ///
    /// The tables of the default column family, which contain the progress, are added last. Without the progress the other
    /// tables are invalid: the next write removes tables that an error or a crash left.
    pub(super) fn ingest(&self, files: TableFiles) -> Result<(), Error> {
        self.flush(true)?;
        let mut options = rocksdb::IngestExternalFileOptions::default();
        options.set_move_files(true);
        let mut next = self.numbers.next();
        let first = self.next_number(&mut next)?;
        assert!(first == 0, "tables can only be added to a store without runs, but {} has some", self.dir.display());
        let TableFiles { runs, default, run_tables, event_tables, bodies } = files;
        let _ingestion = self.ingestion.write().unwrap_or_else(PoisonError::into_inner);
        *next = None;
        if let Some((built, row)) = bodies {
            self.bodies.install(&built, row)?;
        }
        for (cf, files) in [
            (ColumnFamilyName::Runs, run_tables),
            (ColumnFamilyName::Events, event_tables),
            (ColumnFamilyName::Default, default),
        ] {
            if !files.is_empty() {
                let added = self.db.ingest_external_file_cf_opts(self.cf_handle(cf), &options, files);
                added.map_err(|source| self.rocks(source))?;
            }
        }
        *next = Some(runs);
        Ok(())
    }

    /// Removes incompletely added tables: the rows of a database without progress in other column families than the default
    /// one.
    fn remove_partial_tables(&self) -> Result<(), Error> {
        let has_progress = self.db.get_pinned(meta::progress().bytes()).map_err(|source| self.rocks(source))?.is_some();
        let mut options = rocksdb::WriteOptions::default();
        options.disable_wal(true);
        let mut any = false;
        for cf in [ColumnFamilyName::Runs, ColumnFamilyName::Events] {
            let Some(family) = self.db.cf_handle(cf.as_str()).filter(|_| !has_progress) else { continue };
            let mut rows = self.db.raw_iterator_cf(family);
            rows.seek_to_first();
            if !rows.valid() {
                rows.status().map_err(|source| self.rocks(source))?;
                continue;
            }
            drop(rows);
            any = true;
            let (from, to) = (&[][..], &END[..]);
            let removed = self.db.delete_file_in_range_cf(family, from, to);
            let removed = removed.and_then(|()| self.db.delete_range_cf_opt(family, from, to, &options));
            removed.map_err(|source| self.rocks(source))?;
        }
        if any { self.flush(true) } else { Ok(()) }
    }

    /// A snapshot: every read through it is of one log position.
    pub(super) fn snapshot(&self) -> DatabaseSnapshot<'_> {
        let _no_ingestion = self.ingestion.read().unwrap_or_else(PoisonError::into_inner);
        self.snapshot_by(ReadTier::All)
    }

    /// A snapshot that reads only memtables and cached blocks, and never waits. A read that needs more fails with
    /// [`Error::NotCached`], and so does each read after [`CACHED_ROWS_MAX`] rows. None while tables are added.
    pub(super) fn cached_snapshot(&self) -> Option<DatabaseSnapshot<'_>> {
        let _no_ingestion = self.ingestion.try_read().ok()?;
        Some(self.snapshot_by(ReadTier::BlockCache))
    }

    fn snapshot_by(&self, tier: ReadTier) -> DatabaseSnapshot<'_> {
        DatabaseSnapshot { snapshot: self.db.snapshot(), database: self, tier, reads: AtomicUsize::new(0) }
    }

    /// The number for the next run without one. If it is not known, first removes incompletely added tables.
    fn next_number(&self, next: &mut Option<u64>) -> Result<u64, Error> {
        if let Some(next) = next {
            return Ok(*next);
        }
        self.remove_partial_tables()?;
        let Some(runs) = self.db.cf_handle(ColumnFamilyName::Runs.as_str()) else { return Ok(*next.insert(0)) };
        let mut rows = self.db.raw_iterator_cf(runs);
        rows.seek_to_last();
        rows.status().map_err(|source| self.rocks(source))?;
        let last = rows.key().map(numbers::in_key).transpose()?;
        Ok(*next.insert(last.map_or(0, |(number, _)| number + 1)))
    }

    /// A run's number; `None` if it has no rows by number. At most one get.
    fn number(&self, run: &[u8], tier: ReadTier) -> Result<Option<u64>, Error> {
        if let Some(number) = self.numbers.cached(run) {
            return Ok(Some(number));
        }
        let key = numbers::by_run(run);
        let row = self.db.get_pinned_opt(&key, &options_of(tier)).map_err(|source| self.rocks(source))?;
        let number = row.map(|row| numbers::in_row(&key, &row)).transpose()?;
        if let Some(number) = number {
            self.numbers.cache(run, number);
        }
        Ok(number)
    }

    /// The column family of a key's row, and its key there. None if its run has no number, so that the row does not exist.
    fn locate(&self, key: &[u8], tier: ReadTier) -> Result<Option<(ColumnFamilyName, Vec<u8>)>, Error> {
        let mut on_disk = Vec::with_capacity(key.len() + 4);
        let cf = append_key(key, &mut on_disk, |run| self.number(run, tier))?;
        Ok(cf.map(|cf| (cf, on_disk)))
    }

    /// Encodes rows for a write. Runs without a number get the next numbers, starting at `next`.
    fn encode<'a>(
        &self,
        rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        mut next: u64,
    ) -> Result<OnDisk<'a>, Error> {
        let mut new = Vec::new();
        let mut run_numbers: HashMap<&[u8], Option<u64>, foldhash::fast::RandomState> = HashMap::default();
        let mut encoded = OnDisk::encode(rows, |run, gives| {
            let number = match run_numbers.get(run) {
                Some(number) => *number,
                None => self.number(run, ReadTier::All)?,
            };
            let number = number.or_else(|| {
                gives.then(|| {
                    new.push((run.to_vec(), next));
                    next += 1;
                    next - 1
                })
            });
            run_numbers.insert(run, number);
            Ok(number)
        })?;
        encoded.new = new;
        Ok(encoded)
    }

    /// Rows as a commit would write them now.
    pub(super) fn on_disk<'a>(
        &self,
        rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<OnDisk<'a>, Error> {
        let next = self.next_number(&mut self.numbers.next())?;
        self.encode(rows, next)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // RocksDB flushes the rows when it is closed. If this fails, the next start finds out whether a body is missing.
        if let Err(error) = self.bodies.sync() {
            tracing::error!(dir = %self.dir.display(), %error, "the bodies of the index could not be synced");
        }
    }
}

impl Commit for Database {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error> {
        let mut next = self.numbers.next();
        let first = self.next_number(&mut next)?;
        let rows = self.encode(rows, first)?;
        let mut batch = rocksdb::WriteBatch::with_capacity_bytes(rows.bytes() + rows.len() * ROW_BYTES);
        for (run, number) in &rows.new {
            batch.put(numbers::by_run(run), numbers::row(*number));
            batch.put_cf(self.cf_handle(ColumnFamilyName::Runs), numbers::by_number(*number), run);
        }
        // Rows are sorted by column family.
        let mut family = None;
        let (mut bodies, mut stored) = (self.bodies.append(), Vec::new());
        for (cf, key, row, is_body) in rows.rows_and_bodies() {
            let (_, family) = match family {
                Some((last, family)) if last == cf => (last, family),
                _ => *family.insert((cf, self.cf_handle(cf))),
            };
            match row {
                Some(row) if is_body => {
                    bodies.encode(row, &mut stored)?;
                    batch.put_cf(family, key, &stored);
                }
                Some(row) => batch.put_cf(family, key, row),
                None => batch.delete_cf(family, key),
            }
        }
        let end = bodies.write()?;
        if let Some(end) = &end {
            batch.put(meta::bodies().bytes(), end.to_bytes());
        }
        let mut options = rocksdb::WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(batch, &options).map_err(|source| self.rocks(source))?;
        if let Some(end) = end {
            bodies.keep(end);
            self.flush_before_full()?;
        }
        *next = Some(first + rows.new.len() as u64);
        rows.new.iter().for_each(|(run, number)| self.numbers.cache(run, *number));
        Ok(())
    }
}

impl Rows for Database {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some((cf, on_disk)) = self.locate(key, ReadTier::All)? else { return Ok(None) };
        let row = self.db.get_cf(self.cf_handle(cf), on_disk).map_err(|source| self.rocks(source))?;
        row.map(|row| self.bodies.row(key, row, false)).transpose()
    }

    fn scan(&self, prefix: &[u8], start: &[u8], direction: Direction, visit: &mut Visit<'_>) -> Result<(), Error> {
        let iterate = |cf| self.db.raw_iterator_cf(self.cf_handle(cf));
        // In key order within a run, also without a prefix: a bulk build adds the rows of a run to tables in this order.
        let mut bodies = BodyScan::new(&self.bodies, false, false);
        let mut with_bodies = |key: &[u8], row: &[u8]| bodies.visit(key, row, visit);
        self.scan_by((&iterate, ReadTier::All), prefix, start, direction, &mut with_bodies)?;
        bodies.finish(visit)
    }
}

/// A database at one moment.
pub struct DatabaseSnapshot<'a> {
    snapshot: rocksdb::Snapshot<'a>,
    /// Also contains the numbers of runs that are younger than the snapshot; the snapshot has no rows of these runs.
    database: &'a Database,
    /// The part of storage that reads may use.
    tier: ReadTier,
    /// Rows that were read from memory.
    reads: AtomicUsize,
}

impl fmt::Debug for DatabaseSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseSnapshot").field("dir", &self.database.dir).finish_non_exhaustive()
    }
}

impl DatabaseSnapshot<'_> {
    /// Maps the error of a read that needs a block which is not cached.
    fn not_cached(&self, error: Error) -> Error {
        match error {
            Error::Rocks { source, .. }
                if self.tier == ReadTier::BlockCache && source.kind() == ErrorKind::Incomplete =>
            {
                Error::NotCached
            }
            error => error,
        }
    }

    /// Counts a row that is read. Fails if the snapshot is limited and has read too many.
    fn count(&self) -> Result<(), Error> {
        if self.tier == ReadTier::BlockCache && self.reads.fetch_add(1, Ordering::Relaxed) >= CACHED_ROWS_MAX {
            return Err(Error::NotCached);
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.count()?;
        let cached_only = self.tier == ReadTier::BlockCache;
        let Some((cf, on_disk)) = self.database.locate(key, self.tier)? else { return Ok(None) };
        let row = self.snapshot.get_pinned_cf_opt(self.database.cf_handle(cf), on_disk, options_of(self.tier));
        let row = row.map_err(|source| self.database.rocks(source))?;
        let Some(row) = row else { return Ok(None) };
        if cached_only && row.len() > CACHED_ROW_BYTES_MAX {
            return Err(Error::NotCached);
        }
        let row = self.database.bodies.row(key, row.to_vec(), cached_only)?;
        if cached_only && row.len() > CACHED_ROW_BYTES_MAX {
            return Err(Error::NotCached);
        }
        Ok(Some(row))
    }
}

impl Rows for DatabaseSnapshot<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.get(key).map_err(|error| self.not_cached(error))
    }

    fn scan(&self, prefix: &[u8], start: &[u8], direction: Direction, visit: &mut Visit<'_>) -> Result<(), Error> {
        let iterate = |cf| self.snapshot.raw_iterator_cf_opt(self.database.cf_handle(cf), options_of(self.tier));
        let cached_only = self.tier == ReadTier::BlockCache;
        let mut bodies = BodyScan::new(&self.database.bodies, cached_only, prefix.len() < 2);
        let mut counted = |key: &[u8], row: &[u8]| {
            self.count()?;
            bodies.visit(key, row, visit)
        };
        let scanned = self.database.scan_by((&iterate, self.tier), prefix, start, direction, &mut counted);
        scanned.map_err(|error| self.not_cached(error))?;
        bodies.finish(visit)
    }
}

fn options_of(tier: ReadTier) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_read_tier(tier);
    options
}
