//! The database: opening, writing, reading, and reopening after a failed write.
//!
//! Each partition is a column family, so that its files are disjoint and in order. RocksDB then moves them down its levels
//! without rewriting them, and an append costs one write to the write-ahead log and one to a table.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::RwLock,
};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator,
    DBRecoveryMode, ErrorKind, LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};

use super::{layout, wal};
use crate::{
    Delivery, LogId, Offset, PartitionId,
    error::{Error, Kind},
};
use runlog_schemas::datum::Sha256;

/// The partition count of a log that is created without one.
pub const PARTITIONS_DEFAULT: u32 = 4;

/// The largest partition count. Each partition is a column family, and RocksDB works best with few of them.
pub const PARTITIONS_MAX: u32 = 64;

const MEMTABLES_BYTES_MAX: usize = 32 << 20;
const MEMTABLE_BYTES_MAX: usize = 16 << 20;
/// Largest size of the write-ahead logs, which a restart reads again.
const WAL_BYTES_MAX: u64 = 96 << 20;
const BLOCK_CACHE_BYTES: usize = 8 << 20;
const BLOCK_BYTES: usize = 32 << 10;
const TABLE_BYTES: u64 = 64 << 20;
const OPEN_FILES_MAX: i32 = 256;
/// The disk is writable again if this many bytes can be written to it.
const PROBE_BYTES: usize = 4 << 20;

/// The system's message for a full disk.
const NO_SPACE: &str = "No space left on device";
/// Advice for a full disk.
const FULL: &str = "free space on its disk; then appends are accepted again without a restart";
/// Advice for damaged data.
const DAMAGED: &str = "the log is damaged, and no record is skipped: restore this folder from a copy";

/// The last record of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The next record's offset.
    pub(super) end: Offset,
    /// The last record's timestamp.
    pub(super) millis: i64,
}

/// The remaining records and bytes of a poll.
pub(super) struct Remaining {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

pub(super) struct Store {
    dir: PathBuf,
    topic: String,
    partitions: u32,
    id: Option<LogId>,
    /// `None` after the close, and after a failed reopening.
    db: RwLock<Option<DB>>,
}

impl Store {
    /// Opens or creates the database. A log without an id gets one of `ids`. Also returns each partition's tail.
    pub(super) fn open(
        dir: PathBuf,
        topic: &str,
        partitions: Option<u32>,
        ids: Option<fn() -> String>,
    ) -> Result<(Self, Vec<Tail>), Error> {
        if let Some(count) = partitions
            && !(1..=PARTITIONS_MAX).contains(&count)
        {
            let what = format!("a local log has 1 to {PARTITIONS_MAX} partitions, not {count}");
            return Err(Error::new(Kind::Invalid, topic, what));
        }
        fs::create_dir_all(&dir).map_err(|source| {
            Error::new(Kind::Retry, topic, format!("the directory {} cannot be created", dir.display())).because(source)
        })?;
        let mut db = open_database(&dir, topic)?;
        let partitions = match stored_partitions(&db, &dir, topic)? {
            Some(stored) if partitions.is_some_and(|count| count != stored) => {
                let what = format!("the log in {} has {stored} partitions, which cannot change", dir.display());
                return Err(Error::new(Kind::Invalid, topic, what));
            }
            Some(stored) => stored,
            None => create(&mut db, topic, partitions.unwrap_or(PARTITIONS_DEFAULT))?,
        };
        let id = stored_id(&db, &dir, topic)?.or_else(|| ids.and_then(|ids| create_id(&db, topic, &ids())));
        let store = Self { dir, topic: topic.into(), partitions, id, db: RwLock::new(None) };
        let tails = store.tails(&db)?;
        *store.db.write().expect("a holder of the database's lock panicked") = Some(db);
        Ok((store, tails))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn partitions(&self) -> u32 {
        self.partitions
    }

    pub(super) fn id(&self) -> Option<&LogId> {
        self.id.as_ref()
    }

    /// Writes all (partition, offset, record) rows and the new ends durably. Rows of a partition are in order. After an error it is
    /// unknown whether they were written.
    pub(super) fn write<'a>(&self, rows: impl Iterator<Item = (PartitionId, Offset, &'a [u8])>) -> Result<(), Error> {
        self.with(|db| {
            let families = self.families(db)?;
            let mut batch = WriteBatch::default();
            let mut ends = BTreeMap::new();
            for (partition, offset, record) in rows {
                batch.put_cf(families[partition.index()], layout::encode_key(offset), record);
                ends.insert(partition, offset.saturating_add(1));
            }
            for (partition, end) in ends {
                batch.put(layout::end_key(partition), layout::encode_key(end));
            }
            db.write_opt(batch, &durably()).map_err(|source| self.error("the write failed", source))
        })
    }

    /// Reads a partition's records from `next` up to `end` (exclusive), within `remaining`. Returns an error only if no record
    /// precedes it. The writer numbers records without gaps, so a missing record is damage.
    pub(super) fn read(
        &self,
        partition: PartitionId,
        next: Offset,
        end: Offset,
        remaining: &mut Remaining,
    ) -> Result<Vec<Delivery>, Error> {
        self.with(|db| {
            let mut options = ReadOptions::default();
            options.set_iterate_upper_bound(layout::encode_key(end));
            let mut iterator = db.raw_iterator_cf_opt(self.family(db, partition)?, options);
            iterator.seek(layout::encode_key(next));
            let mut records = Vec::new();
            let mut next = next;
            while remaining.records > 0 && remaining.bytes > 0 && next < end {
                match self.record_at(&iterator, partition, next) {
                    Ok(record) => records.push(record),
                    Err(error) if records.is_empty() => return Err(error),
                    Err(_) => break,
                }
                remaining.records -= 1;
                remaining.bytes = remaining.bytes.saturating_sub(iterator.value().map_or(0, <[u8]>::len));
                next = next.saturating_add(1);
                iterator.next();
            }
            Ok(records)
        })
    }

    /// Decodes the iterator's record, which must have the offset `next`.
    fn record_at(&self, iterator: &DBRawIterator<'_>, partition: PartitionId, next: Offset) -> Result<Delivery, Error> {
        let Some((key, value)) = iterator.item() else {
            iterator.status().map_err(|source| self.error("the read failed", source).in_partition(partition))?;
            return Err(self.damaged(partition, "a record is missing").at_offset(next));
        };
        let record = match layout::decode_key(key) {
            Some(offset) if offset != next => {
                return Err(self.damaged(partition, "a record is missing").at_offset(next));
            }
            offset => offset.and_then(|offset| layout::decode_record(partition, offset, value)),
        };
        record.ok_or_else(|| self.damaged(partition, "a record does not decode").at_offset(next))
    }

    /// Removes a record, as damage would.
    #[cfg(test)]
    pub(super) fn remove(&self, partition: PartitionId, offset: Offset) {
        let removed = self.with(|db| Ok(db.delete_cf(self.family(db, partition)?, layout::encode_key(offset))));
        removed.expect("an open database").expect("a removed record");
    }

    /// Removes the end of a partition: the log is then as an older program wrote it.
    #[cfg(test)]
    pub(super) fn remove_end(&self, partition: PartitionId) {
        let removed = self.with(|db| Ok(db.delete(layout::end_key(partition))));
        removed.expect("an open database").expect("a removed end");
    }

    /// Replaces the id, as damage would.
    #[cfg(test)]
    pub(super) fn put_id(&self, id: &[u8]) {
        let put = self.with(|db| Ok(db.put(layout::ID_KEY, id)));
        put.expect("an open database").expect("a replaced id");
    }

    /// Reopens the database, which after a failed write is the only way to learn whether it landed. If the disk does not
    /// accept writes yet, the database stays open, so that its records can still be read.
    pub(super) fn reopen(&self) -> Result<Vec<Tail>, Error> {
        self.probe()?;
        let mut slot = self.db.write().expect("a holder of the database's lock panicked");
        // Drop the old database first: it has the lock of the directory.
        drop(slot.take());
        let db = open_database(&self.dir, &self.topic)?;
        let tails = self.tails(&db)?;
        *slot = Some(db);
        Ok(tails)
    }

    pub(super) fn close(&self) {
        drop(self.db.write().expect("a holder of the database's lock panicked").take());
    }

    fn probe(&self) -> Result<(), Error> {
        let path = self.dir.join("probe");
        let written = fs::File::create(&path).and_then(|mut file| {
            file.write_all(&vec![0; PROBE_BYTES])?;
            file.sync_all()
        });
        let removed = fs::remove_file(&path);
        written.and(removed).map_err(|source| {
            let mut what = format!("the directory {} cannot be written", self.dir.display());
            if source.kind() == io::ErrorKind::StorageFull {
                what = format!("{what}; {FULL}");
            }
            Error::new(Kind::Retry, &self.topic, what).because(source)
        })
    }

    /// Reads the partitions' tails. If a partition lacks records before its stored end, a read of the first of them fails, as for any other
    /// missing record.
    fn tails(&self, db: &DB) -> Result<Vec<Tail>, Error> {
        let tail = |partition| {
            let tail = self.last_record(db, partition)?;
            Ok(Tail { end: tail.end.max(self.stored_end(db, partition)?), ..tail })
        };
        PartitionId::all(self.partitions).map(tail).collect()
    }

    /// The stored end of a partition; 0 in a log of an older program.
    fn stored_end(&self, db: &DB, partition: PartitionId) -> Result<Offset, Error> {
        let stored = db.get(layout::end_key(partition));
        let stored = stored.map_err(|source| self.error("the read failed", source).in_partition(partition))?;
        let damaged = || self.damaged(partition, "the end entry does not decode");
        stored.map_or(Ok(Offset::ZERO), |bytes| layout::decode_key(&bytes).ok_or_else(damaged))
    }

    fn last_record(&self, db: &DB, partition: PartitionId) -> Result<Tail, Error> {
        let mut iterator = db.raw_iterator_cf(self.family(db, partition)?);
        iterator.seek_to_last();
        let Some((key, value)) = iterator.item() else {
            iterator.status().map_err(|source| self.error("the read failed", source).in_partition(partition))?;
            return Ok(Tail { end: Offset::ZERO, millis: i64::MIN });
        };
        let record = layout::decode_key(key).and_then(|offset| layout::decode_record(partition, offset, value));
        let record = record.ok_or_else(|| self.damaged(partition, "the last record does not decode"))?;
        Ok(Tail { end: record.offset.saturating_add(1), millis: record.timestamp_millis })
    }

    fn with<T>(&self, work: impl FnOnce(&DB) -> Result<T, Error>) -> Result<T, Error> {
        let slot = self.db.read().expect("a holder of the database's lock panicked");
        let missing = || Error::new(Kind::Retry, &self.topic, "the local log's database is not open");
        work(slot.as_ref().ok_or_else(missing)?)
    }

    fn families<'a>(&self, db: &'a DB) -> Result<Vec<&'a ColumnFamily>, Error> {
        PartitionId::all(self.partitions).map(|partition| self.family(db, partition)).collect()
    }

    fn family<'a>(&self, db: &'a DB, partition: PartitionId) -> Result<&'a ColumnFamily, Error> {
        let missing = || self.damaged(partition, "the partition's column family is missing");
        db.cf_handle(&layout::family(partition)).ok_or_else(missing)
    }

    fn damaged(&self, partition: PartitionId, what: &str) -> Error {
        let what = format!("{what} in {}; {DAMAGED}", self.dir.display());
        Error::new(Kind::Damaged, &self.topic, what).in_partition(partition)
    }

    fn error(&self, what: &str, source: rocksdb::Error) -> Error {
        error(&self.topic, format!("{what} in {}", self.dir.display()), source)
    }
}

/// Opens the database. If only the torn end of the write-ahead log prevents that, cuts it off and opens the database again.
fn open_database(dir: &Path, topic: &str) -> Result<DB, Error> {
    match try_open(dir, topic) {
        Err(damaged) if damaged.kind() == Kind::Damaged => match wal::cut_torn_end(dir) {
            Ok(Some((file, bytes))) => {
                tracing::warn!(topic, file = %file.display(), bytes, "the torn end of the local log was cut off");
                try_open(dir, topic)
            }
            Ok(None) => Err(damaged),
            Err(error) => {
                tracing::warn!(topic, %error, "the end of the local log cannot be checked for a torn record");
                Err(damaged)
            }
        },
        opened => opened,
    }
}

fn try_open(dir: &Path, topic: &str) -> Result<DB, Error> {
    let options = options();
    let exists = dir.join("CURRENT").exists();
    let names = if exists { DB::list_cf(&options, dir) } else { Ok(vec!["default".into()]) };
    let opened = names.and_then(|names| {
        let families = names.into_iter().map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        DB::open_cf_descriptors(&options, dir, families.collect::<Vec<_>>())
    });
    opened.map_err(|source| {
        let (dir, locked) = (dir.display(), source.kind() == ErrorKind::IOError && source.as_ref().contains("/LOCK"));
        if locked {
            let what = format!("the local log in {dir} is already open in this or another process");
            return Error::new(Kind::Retry, topic, what).because(source);
        }
        error(topic, format!("the local log in {dir} cannot be opened"), source)
    })
}

fn stored_partitions(db: &DB, dir: &Path, topic: &str) -> Result<Option<u32>, Error> {
    let dir = dir.display();
    let stored =
        db.get(layout::LAYOUT_KEY).map_err(|source| error(topic, format!("the read failed in {dir}"), source))?;
    let Some(bytes) = stored else { return Ok(None) };
    match layout::decode_layout(&bytes) {
        Some((_, Some(partitions))) => Ok(Some(partitions)),
        Some((version, None)) if version != layout::VERSION => {
            let what =
                format!("the log in {dir} has layout {version}, but this program reads only {}", layout::VERSION);
            Err(Error::new(Kind::Invalid, topic, what))
        }
        _ => Err(Error::new(Kind::Damaged, topic, format!("the layout entry does not decode in {dir}; {DAMAGED}"))),
    }
}

fn stored_id(db: &DB, dir: &Path, topic: &str) -> Result<Option<LogId>, Error> {
    let dir = dir.display();
    let stored = db.get(layout::ID_KEY).map_err(|source| error(topic, format!("the read failed in {dir}"), source))?;
    let Some(bytes) = stored else { return Ok(None) };
    let id = str::from_utf8(&bytes).ok().and_then(LogId::local);
    let damaged = || Error::new(Kind::Damaged, topic, format!("the id entry does not decode in {dir}; {DAMAGED}"));
    id.map(Some).ok_or_else(damaged)
}

/// Gives the log an id, made of a random text. Returns `None` if it cannot be written: the log works without it, and the next
/// opening tries again.
fn create_id(db: &DB, topic: &str, random: &str) -> Option<LogId> {
    let hash = Sha256::of(random.as_bytes()).to_string();
    let hex = &hash[..layout::ID_HEX_DIGITS];
    match db.put_opt(layout::ID_KEY, hex, &durably()) {
        Ok(()) => LogId::local(hex),
        Err(error) => {
            tracing::warn!(topic, %error, "the local log has no id, because the id cannot be written");
            None
        }
    }
}

/// Creates a new log. Writes the layout last: without it, an interrupted creation is done again.
fn create(db: &mut DB, topic: &str, partitions: u32) -> Result<u32, Error> {
    let created = PartitionId::all(partitions)
        .map(layout::family)
        .try_for_each(|name| if db.cf_handle(&name).is_some() { Ok(()) } else { db.create_cf(&name, &options()) });
    let created = created.and_then(|()| db.put_opt(layout::LAYOUT_KEY, layout::encode_layout(partitions), &durably()));
    created.map_err(|source| error(topic, "the local log cannot be created", source))?;
    Ok(partitions)
}

/// Writes that are on disk when they return.
fn durably() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

fn error(topic: &str, what: impl Into<String>, source: rocksdb::Error) -> Error {
    let (kind, advice) = match source.kind() {
        ErrorKind::Corruption => (Kind::Damaged, DAMAGED),
        ErrorKind::NotSupported | ErrorKind::InvalidArgument => (Kind::Fatal, ""),
        // The C API drops RocksDB's error kind for this, so match the system's message.
        ErrorKind::IOError if source.as_ref().contains(NO_SPACE) => (Kind::Retry, FULL),
        _ => (Kind::Retry, ""),
    };
    let mut what = what.into();
    if !advice.is_empty() {
        what = format!("{what}; {advice}");
    }
    Error::new(kind, topic, what).because(source)
}

fn options() -> Options {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_size(BLOCK_BYTES);
    tables.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES));
    tables.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    // A crash may truncate the last write. A hole before it is damage and must not be skipped.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(MEMTABLE_BYTES_MAX);
    options.set_db_write_buffer_size(MEMTABLES_BYTES_MAX);
    options.set_max_write_buffer_number(3);
    options.set_max_total_wal_size(WAL_BYTES_MAX);
    options.set_target_file_size_base(TABLE_BYTES);
    options.set_block_based_table_factory(&tables);
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_max_background_jobs(2);
    // RocksDB's own log file: small, with warnings only.
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}
