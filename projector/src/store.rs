//! A partition's indices: one RocksDB database, one key space, an index per leading byte.
//!
//! ```text
//!   00 meta          layout, next offset, journal, skips         (not an index: never compared)
//!   01 runs          02 records      03 tool_calls   04 checkpoints
//!   05 effects       06 anomalies    07 dead_letters 08 contents
//!   09 approvals     0a wakes        0b messages     0c pools
//!   0d markers       0e write_backs  0f turns        10 proposals
//!   11 events        12 keys         13 deliveries   14 horizons
//! ```
//!
//! The bytes are given once and never reused. Keys sort by their parts: numbers are big-endian, strings are escaped and
//! terminated ([`Key`]). Rows are Avro-encoded structs. The offset that the rows reflect is in the same write batch as
//! the rows, so a crash can neither lose nor repeat a record.

use runlog_schemas::{
    datum::{Datum, Malformed},
    id::{RecordId, RunId},
    judge::Seen,
};
use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

pub mod anomalies;
pub mod approvals;
pub mod checkpoints;
pub mod contents;
pub mod dead_letters;
pub mod deliveries;
pub mod effects;
pub mod events;
pub mod evolving;
pub mod facts;
pub mod horizons;
mod key;
pub mod keys;
pub mod markers;
mod memory;
pub mod messages;
pub mod meta;
pub mod pools;
pub mod proposals;
pub mod records;
pub mod runs;
pub mod tool_calls;
pub mod turns;
pub mod wakes;
pub mod write_backs;

pub use key::{Key, Parts};
pub use memory::Memory;

/// An index: its leading key byte and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "named like the modules")]
pub enum Index {
    Meta = 0,
    Runs = 1,
    Records = 2,
    ToolCalls = 3,
    Checkpoints = 4,
    Effects = 5,
    Anomalies = 6,
    DeadLetters = 7,
    Contents = 8,
    Approvals = 9,
    Wakes = 10,
    Messages = 11,
    Pools = 12,
    Markers = 13,
    WriteBacks = 14,
    Turns = 15,
    Proposals = 16,
    Events = 17,
    Keys = 18,
    Deliveries = 19,
    Horizons = 20,
}

impl Index {
    /// Every index that is rebuilt from the log and compared with what is live.
    pub const COMPARED: [Self; 20] = [
        Self::Runs,
        Self::Records,
        Self::ToolCalls,
        Self::Checkpoints,
        Self::Effects,
        Self::Anomalies,
        Self::DeadLetters,
        Self::Contents,
        Self::Approvals,
        Self::Wakes,
        Self::Messages,
        Self::Pools,
        Self::Markers,
        Self::WriteBacks,
        Self::Turns,
        Self::Proposals,
        Self::Events,
        Self::Keys,
        Self::Deliveries,
        Self::Horizons,
    ];

    /// Its name, as `verify` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Runs => "runs",
            Self::Records => "records",
            Self::ToolCalls => "tool_calls",
            Self::Checkpoints => "checkpoints",
            Self::Effects => "effects",
            Self::Anomalies => "anomalies",
            Self::DeadLetters => "dead_letters",
            Self::Contents => "contents",
            Self::Approvals => "approvals",
            Self::Wakes => "wakes",
            Self::Messages => "messages",
            Self::Pools => "pools",
            Self::Markers => "recovery_markers",
            Self::WriteBacks => "write_backs",
            Self::Turns => "turns",
            Self::Proposals => "proposals",
            Self::Events => "events",
            Self::Keys => "idempotency_keys",
            Self::Deliveries => "deliveries",
            Self::Horizons => "horizons",
        }
    }
}

/// Why the indices could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full. What was committed stays, and RocksDB goes on by itself some seconds after there is room for a
    /// memtable.
    #[error("the disk under the index store in {dir} is full; make room, more than 16 MiB, and it goes on by itself")]
    Full {
        /// The database's folder.
        dir: PathBuf,
        /// RocksDB's own words.
        #[source]
        source: rocksdb::Error,
    },
    /// Files are not what was written.
    #[error(
        "the index store in {dir} is damaged; stop the server, delete this folder, and start again: it is built from the log"
    )]
    Torn {
        /// The database's folder.
        dir: PathBuf,
        /// RocksDB's own words.
        #[source]
        source: rocksdb::Error,
    },
    /// RocksDB failed otherwise: another process in the folder, a disk that fails.
    #[error("index store in {dir}")]
    Rocks {
        /// The database's folder.
        dir: PathBuf,
        /// RocksDB's own words.
        #[source]
        source: rocksdb::Error,
    },
    /// A row does not decode: the index is damaged. Delete the index folder; it is rebuilt from the log.
    #[error("index {index} has a damaged row under key {key}; delete the index folder to rebuild it from the log")]
    Damaged {
        /// The index.
        index: &'static str,
        /// The key, hexadecimal.
        key: String,
        /// What does not decode.
        #[source]
        source: Malformed,
    },
    /// The index was written by another version of Runlog.
    #[error(
        "index layout {found} in {dir}, this build writes {expected}; delete the index folder to rebuild it from the log"
    )]
    Layout {
        /// The database's folder.
        dir: PathBuf,
        /// The version found there.
        found: u32,
        /// The version of this build.
        expected: u32,
    },
}

/// The system's words for a disk that is full: RocksDB's own kind for it is lost on its way through C.
const NO_SPACE: &str = "No space left on device";

impl Error {
    fn of(dir: &Path, source: rocksdb::Error) -> Self {
        let dir = dir.to_owned();
        match source.kind() {
            rocksdb::ErrorKind::Corruption => Self::Torn { dir, source },
            _ if source.as_ref().contains(NO_SPACE) => Self::Full { dir, source },
            _ => Self::Rocks { dir, source },
        }
    }

    /// Whether it is built anew from the log, and nothing else helps.
    pub fn damaged(&self) -> bool {
        matches!(self, Self::Torn { .. } | Self::Damaged { .. })
    }
}

/// One value of RocksDB's memory, shared by every partition: a block cache, and memtables charged to it.
#[derive(Clone)]
pub struct Budget {
    cache: rocksdb::Cache,
    buffers: rocksdb::WriteBufferManager,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Budget({} bytes of cache in use)", self.cache.get_usage())
    }
}

/// The cache's shards, as a power of two. What is larger than its shard is never kept: few, so that a shard of a small budget
/// still holds a memtable's charge and blocks of every sort.
const SHARD_BITS: i32 = 4;

impl Budget {
    /// `bytes` for cache and memtables together; memtables take half at the most.
    pub fn new(bytes: usize) -> Self {
        let mut options = rocksdb::LruCacheOptions::default();
        options.set_capacity(bytes);
        options.set_num_shard_bits(SHARD_BITS);
        let cache = rocksdb::Cache::new_lru_cache_opts(&options);
        let buffers = rocksdb::WriteBufferManager::new_write_buffer_manager_with_cache(bytes / 2, false, cache.clone());
        Self { cache, buffers }
    }
}

/// How a store is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The write-ahead log is on: a crash loses nothing that was committed.
    Live,
    /// The write-ahead log is off: a crash means starting over.
    Bulk,
}

/// A partition's database.
pub struct Store {
    db: rocksdb::DB,
    dir: PathBuf,
    mode: Mode,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("dir", &self.dir).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// What is done with each row of a scan: key and row.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error> + 'a;

/// Reads of rows, by a store or by a snapshot of one.
pub trait Rows {
    /// The row under `key`.
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Visits the rows whose keys start with `prefix`, from `start` on (inclusive), in key order or against it.
    /// One seek, then one step per visited row.
    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error>;

    /// Reads and decodes one row.
    fn get<T: Datum>(&self, key: &Key) -> Result<Option<T>, Error>
    where
        Self: Sized,
    {
        self.row(key.bytes())?.map(|bytes| decode(key.bytes(), &bytes)).transpose()
    }
}

/// Rows that can be written.
pub trait Commit: Rows {
    /// Writes rows (and removes those without a value), all or none.
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error>;
}

/// Decodes a row.
pub fn decode<T: Datum>(key: &[u8], row: &[u8]) -> Result<T, Error> {
    T::from_bytes(row).map_err(|source| damaged(key, source))
}

/// The error for a row that is not what is written there.
pub fn damaged(key: &[u8], source: Malformed) -> Error {
    Error::Damaged {
        index: key
            .first()
            .and_then(|byte| Index::COMPARED.into_iter().find(|index| *index as u8 == *byte))
            .unwrap_or(Index::Meta)
            .name(),
        key: runlog_schemas::datum::hex(key),
        source,
    }
}

/// What became of the first record of an id: among those applied, else among those refused for their content. Two gets at
/// the most, by whatever reads rows.
pub fn seen(
    run_id: RunId<&str>,
    record_id: RecordId<&str>,
    get: impl Fn(&Key) -> Result<Option<Seen>, Error>,
) -> Result<Option<Seen>, Error> {
    match get(&records::by_id(run_id, record_id))? {
        Some(seen) => Ok(Some(seen)),
        None => get(&anomalies::by_id(run_id, record_id)),
    }
}

impl Store {
    /// Opens or creates the database in `dir`.
    pub fn open(dir: &Path, budget: &Budget, mode: Mode) -> Result<Self, Error> {
        let rocks = |source| Error::of(dir, source);
        std::fs::create_dir_all(dir).ok();
        let db = rocksdb::DB::open(&options(budget, mode), dir).map_err(rocks)?;
        let store = Self { db, dir: dir.to_owned(), mode };
        store.check_layout()?;
        Ok(store)
    }

    fn check_layout(&self) -> Result<(), Error> {
        let key = meta::layout();
        match self.get::<u32>(&key)? {
            Some(meta::LAYOUT) => Ok(()),
            Some(found) => Err(Error::Layout { dir: self.dir.clone(), found, expected: meta::LAYOUT }),
            None => self.db.put(key.bytes(), meta::LAYOUT.to_bytes()).map_err(|source| self.rocks(source)),
        }
    }

    fn rocks(&self, source: rocksdb::Error) -> Error {
        Error::of(&self.dir, source)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes memtables to disk; a bulk store is durable from here on.
    pub fn flush(&self) -> Result<(), Error> {
        self.db.flush().map_err(|source| self.rocks(source))
    }

    /// Merges what a bulk build left in level 0, so that going live does not begin with a stall.
    pub fn compact(&self) {
        self.db.compact_range::<&[u8], &[u8]>(None, None);
    }

    /// A view of this moment: every read through it is of one log position.
    pub fn view(&self) -> View<'_> {
        View { snapshot: self.db.snapshot(), dir: &self.dir }
    }
}

impl Commit for Store {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error> {
        let mut batch = rocksdb::WriteBatch::default();
        for (key, row) in rows {
            match row {
                Some(row) => batch.put(key, row),
                None => batch.delete(key),
            }
        }
        let mut options = rocksdb::WriteOptions::default();
        // Not synced: what a power cut takes from the end of the write-ahead log goes together with its offset, and the
        // log has it.
        options.disable_wal(self.mode == Mode::Bulk);
        self.db.write_opt(batch, &options).map_err(|source| self.rocks(source))
    }
}

impl Rows for Store {
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

/// A store at one moment.
pub struct View<'a> {
    snapshot: rocksdb::Snapshot<'a>,
    dir: &'a Path,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl View<'_> {
    fn rocks(&self, source: rocksdb::Error) -> Error {
        Error::of(self.dir, source)
    }
}

impl Rows for View<'_> {
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

/// Visits rows for as long as their keys start with `prefix` and the visitor wants more.
fn walk<B: AsRef<[u8]>>(
    rows: impl Iterator<Item = Result<(B, B), Error>>,
    prefix: &[u8],
    visit: &mut Visit<'_>,
) -> Result<(), Error> {
    for row in rows {
        let (key, row) = row?;
        if !key.as_ref().starts_with(prefix) || visit(key.as_ref(), row.as_ref())?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Of a table's index and filter.
const METADATA_BLOCK_BYTES: usize = 8 << 10;

fn options(budget: &Budget, mode: Mode) -> rocksdb::Options {
    let mut table = rocksdb::BlockBasedOptions::default();
    table.set_block_cache(&budget.cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_bloom_filter(10.0, false);
    // In small blocks, of which those in use stay in the cache. A table's whole filter, a megabyte, would be read and checked
    // again for nearly every id that is looked for.
    table.set_index_type(rocksdb::BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(METADATA_BLOCK_BYTES);
    table.set_pin_top_level_index_and_filter(true);
    table.set_block_size(16 << 10);
    table.set_format_version(5);
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&budget.buffers);
    options.set_write_buffer_size(16 << 20);
    options.set_max_write_buffer_number(3);
    // Most ids that are looked for are new: this answers without walking the memtable.
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(0.05);
    options.set_compression_type(rocksdb::DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_background_jobs(2);
    options.set_max_open_files(256);
    options.set_max_total_wal_size(64 << 20);
    options.set_keep_log_file_num(2);
    options.set_bytes_per_sync(1 << 20);
    // A power cut may take the end of a write-ahead log that is not the last one: what was written behind it must not be
    // there without it. What is lost so is folded again from the log.
    options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::PointInTime);
    if mode == Mode::Bulk {
        options.set_level_zero_slowdown_writes_trigger(1 << 20);
        options.set_level_zero_stop_writes_trigger(1 << 20);
        options.set_disable_auto_compactions(true);
    }
    options
}
