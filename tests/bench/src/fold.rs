//! The fold of one partition, and the rebuild of its index, from memory to disk. RocksDB alone is the upper limit of any
//! projection: it writes the same batches as the fold, or ingests the same rows as sorted files.

use anyhow::{Context, ensure};
use runlog_log::{
    Delivery, Entry, Log,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::{
    Config, Consistency, Projector,
    index::{
        fold::{Fold, Step},
        store::{self, Budget, ColumnFamilyName, Commit, Rows, Store, Visit, anomalies::AnomalyRow, meta},
    },
};
use runlog_schemas::{
    codec::{self, NoRegistry},
    id::{Offset, PartitionId},
    payload::Genesis,
    record::JournalRecord,
};
use std::{
    ops::ControlFlow,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::runtime::Runtime;

use crate::{
    Scale,
    measure::{Cost, Stopwatch, alternating, cpu_micros, rates},
    records::Journal,
    report::{Figure, Goal, Row, Unit},
};

/// Records of a batch at most, as in the live loop.
const BATCH: usize = 4096;
pub(crate) const MEMORY_BYTES: usize = 128 << 20;
/// Bytes of keys and values in a sorted file before the next file begins.
const FILE_BYTES: u64 = 64 << 20;
/// Records of an append to the log in memory.
const APPEND: usize = 1000;
/// How long a rebuild may take.
const REBUILD_MAX: Duration = Duration::from_secs(3600);

/// The rows of a commit in their form on disk, concatenated.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Its column family, and the lengths of key and value; a row without a value is deleted.
    rows: Vec<(ColumnFamilyName, usize, Option<usize>)>,
}

/// A row's column family, key and value.
type OnDiskRow<'b> = (ColumnFamilyName, &'b [u8], Option<&'b [u8]>);

impl Batch {
    fn push(&mut self, (cf, key, value): OnDiskRow<'_>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.rows.push((cf, key.len(), value.map(<[u8]>::len)));
    }

    fn rows(&self) -> impl Iterator<Item = OnDiskRow<'_>> {
        let mut rest = self.bytes.as_slice();
        self.rows.iter().map(move |(cf, key, value)| {
            let (key, tail) = rest.split_at(*key);
            let (bytes, tail) = tail.split_at(value.unwrap_or_default());
            rest = tail;
            (*cf, key, value.map(|_| bytes))
        })
    }
}

/// A store that keeps a copy of every batch.
#[derive(Debug)]
struct Recorded {
    store: Store,
    batches: Mutex<Vec<Batch>>,
}

impl Rows for Recorded {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, store::Error> {
        self.store.row(key)
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), store::Error> {
        self.store.scan(prefix, start, direction, visit)
    }
}

impl Commit for Recorded {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), store::Error> {
        let (rows, mut batch): (Vec<_>, _) = (rows.collect(), Batch::default());
        self.store.on_disk(rows.iter().copied())?.rows().for_each(|row| batch.push(row));
        self.store.commit(rows.into_iter())?;
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
        Ok(())
    }
}

pub(crate) fn run(runtime: &Runtime, scale: &Scale) -> anyhow::Result<Figure> {
    let deliveries = deliveries_of(Journal::new(2, crate::RECORDS_PER_RUN), scale.records, |_| {})?;
    let batches = recorded(&deliveries)?;
    let log = runtime.block_on(log_of(&deliveries))?;
    let costs: [_; 5] = alternating(scale.rounds, |way| {
        let dir = tempfile::tempdir()?;
        match way {
            0 => fold(&deliveries, dir.path()),
            1 => replay(&batches, dir.path(), scale.records, true),
            2 => replay(&batches, dir.path(), scale.records, false),
            3 => runtime.block_on(rebuild(&log, dir.path(), scale.records)),
            _ => bulk(&batches, dir.path(), scale.records),
        }
    })?;
    let (rates, cpu) = (costs.each_ref().map(|costs| rates(costs)), costs.each_ref().map(|costs| cpu_micros(costs)));
    let [of_fold, of_replay, of_replay_without, of_rebuild, of_bulk] = &rates;
    let names = [
        "the fold",
        "RocksDB, the fold's batches, with WAL",
        "RocksDB, without WAL",
        "a rebuild",
        "RocksDB, sorted files",
    ];
    let mut rows = vec![
        Row::ratio("the fold over RocksDB with WAL", of_fold, of_replay).goal(Goal::AtLeast(0.8)),
        Row::ratio("the fold over RocksDB without WAL", of_fold, of_replay_without),
        Row::ratio("the fold over sorted files", of_fold, of_bulk),
        Row::ratio("a rebuild over sorted files", of_rebuild, of_bulk).goal(Goal::AtLeast(0.7)),
    ];
    rows.extend(names.iter().zip(&rates).map(|(name, rates)| Row::new(*name, Unit::RecordsPerSecond, rates.clone())));
    for (nth, (name, cpu)) in names.iter().zip(&cpu).enumerate() {
        let row = Row::new(*name, Unit::CpuMicrosPerRecord, cpu.clone());
        rows.push(if nth == 0 { row.goal(Goal::AtMost(12.0)) } else { row });
    }
    Ok(Figure {
        title: "Live projection, one partition".into(),
        method: format!(
            "{} records of runs of {} records, from memory, in batches of {BATCH}, with the options and {} MiB of `serve`; \
             each way ends with a flush. RocksDB alone writes the batches that the fold wrote; with sorted files it sorts the same \
             rows, given in log order, and ingests the files. A rebuild is measured for a projector whose folder is empty, over a \
             log in memory, until it answers for the last record.",
            scale.records,
            crate::RECORDS_PER_RUN,
            MEMORY_BYTES >> 20
        ),
        rows,
    })
}

/// A journal of one partition: its genesis, and `count` records. Calls `show` with each record.
pub(crate) fn deliveries_of(
    mut journal: Journal,
    count: u64,
    mut show: impl FnMut(&JournalRecord),
) -> anyhow::Result<Vec<Delivery>> {
    let records = (0..count).map(|_| journal.record().inspect(&mut show));
    deliveries_in(records)
}

/// A journal of one partition with these records.
pub(crate) fn deliveries_in(
    records: impl Iterator<Item = anyhow::Result<JournalRecord>>,
) -> anyhow::Result<Vec<Delivery>> {
    let genesis = Genesis { journal_id: "bench".into(), partitions: 1 };
    let genesis = JournalRecord::of_partition("genesis".parse()?, "bench", genesis.into());
    let delivery = |(offset, record): (u64, anyhow::Result<JournalRecord>)| {
        let record = record?;
        Ok(Delivery {
            partition: PartitionId::ZERO,
            offset: Offset::ZERO.saturating_add(offset),
            timestamp_millis: 1_700_000_000_000,
            key: record.body.run_id.as_str().into(),
            value: codec::encode(&record),
            headers: Vec::new(),
        })
    };
    (0..).zip(std::iter::once(Ok(genesis)).chain(records)).map(delivery).collect()
}

pub(crate) fn apply_all<S: Commit>(store: &Arc<S>, deliveries: &[Delivery]) -> anyhow::Result<()> {
    let journal = meta::Journal { journal_id: "bench".into(), partitions: 1 };
    let mut fold = Fold::resume(PartitionId::ZERO, journal, store.clone(), Arc::new(NoRegistry))?;
    for batch in deliveries.chunks(BATCH) {
        let step = fold.apply_batch(batch)?;
        ensure!(step == Step::Applied, "{step:?}");
    }
    Ok(())
}

/// The batches that the fold writes.
fn recorded(deliveries: &[Delivery]) -> anyhow::Result<Vec<Batch>> {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path(), &Budget::new(MEMORY_BYTES))?;
    let recorded = Arc::new(Recorded { store, batches: Mutex::default() });
    apply_all(&recorded, deliveries)?;
    let (anomalies, mut refused) = (store::anomalies::prefix(), None);
    recorded.scan(anomalies.bytes(), anomalies.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        refused = Some(store::decode::<AnomalyRow>(key, row)?);
        Ok(ControlFlow::Break(()))
    })?;
    ensure!(refused.is_none(), "a record of the benchmark is refused: {refused:?}");
    let recorded = Arc::into_inner(recorded).context("the store is still shared")?;
    Ok(recorded.batches.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn fold(deliveries: &[Delivery], dir: &Path) -> anyhow::Result<Cost> {
    let store = Arc::new(Store::open(dir, &Budget::new(MEMORY_BYTES))?);
    let watch = Stopwatch::start()?;
    apply_all(&store, deliveries)?;
    store.flush()?;
    watch.stop(deliveries.len() as u64)
}

/// A log in memory with these records.
async fn log_of(deliveries: &[Delivery]) -> anyhow::Result<MemoryLog> {
    let log = MemoryLog::with(MemoryOptions { partitions: 1, ..MemoryOptions::default() });
    for batch in deliveries.chunks(APPEND) {
        let entry = |of: &Delivery| Entry { key: of.key.clone(), value: of.value.clone(), headers: of.headers.clone() };
        log.append(PartitionId::ZERO, batch.iter().map(entry).collect()).await?;
    }
    Ok(log)
}

/// Builds an index in an empty folder, until the last record is applied.
async fn rebuild(log: &MemoryLog, dir: &Path, records: u64) -> anyhow::Result<Cost> {
    let config = Config { memory_bytes: MEMORY_BYTES, ..Config::new(dir, || 0, || "bench".to_owned()) };
    let last = Consistency::AtLeast(PartitionId::ZERO, Offset::new(records)?);
    let watch = Stopwatch::start()?;
    let projector = Projector::start(config, Arc::new(log.clone())).await?;
    projector.wait(PartitionId::ZERO, last, REBUILD_MAX).await?;
    watch.stop(records)
}

/// The options of a separate database.
fn options() -> rocksdb::Options {
    let mut table = rocksdb::BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    table.set_block_size(16 << 10);
    table.set_format_version(5);
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.set_compression_type(rocksdb::DBCompressionType::Lz4);
    options.set_block_based_table_factory(&table);
    options
}

fn open(options: &rocksdb::Options, dir: &Path) -> anyhow::Result<rocksdb::DB> {
    let mut options = options.clone();
    options.create_missing_column_families(true);
    Ok(rocksdb::DB::open_cf_with_opts(&options, dir, ColumnFamilyName::ALL.map(|cf| (cf.as_str(), options.clone())))?)
}

fn family(database: &rocksdb::DB, cf: ColumnFamilyName) -> anyhow::Result<&rocksdb::ColumnFamily> {
    database.cf_handle(cf.as_str()).context("its column family")
}

/// Writes the batches with an unsynced write-ahead log or without one, and with 64 MiB for memtables, like `serve`.
fn replay(batches: &[Batch], dir: &Path, records: u64, is_logged: bool) -> anyhow::Result<Cost> {
    let mut options = options();
    options.set_write_buffer_size(16 << 20);
    options.set_max_write_buffer_number(3);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_atomic_flush(!is_logged);
    let database = open(&options, dir)?;
    let mut written = rocksdb::WriteOptions::default();
    written.disable_wal(!is_logged);
    let watch = Stopwatch::start()?;
    for batch in batches {
        let mut rows = rocksdb::WriteBatch::default();
        for (cf, key, value) in batch.rows() {
            match value {
                Some(value) => rows.put_cf(family(&database, cf)?, key, value),
                None => rows.delete_cf(family(&database, cf)?, key),
            }
        }
        database.write_opt(rows, &written)?;
    }
    let families =
        ColumnFamilyName::ALL.map(|cf| family(&database, cf)).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    database.flush_cfs_opt(&families, &rocksdb::FlushOptions::default())?;
    watch.stop(records)
}

/// Sorts the rows, which are in log order, writes them to files, and ingests the files into a database.
fn bulk(batches: &[Batch], dir: &Path, records: u64) -> anyhow::Result<Cost> {
    let options = options();
    let watch = Stopwatch::start()?;
    let mut rows: Vec<OnDiskRow<'_>> = batches.iter().flat_map(Batch::rows).collect();
    // A stable sort: the last of equal keys is the newest.
    rows.sort_by_key(|(cf, key, _)| (*cf, *key));
    let database = open(&options, &dir.join("database"))?;
    let mut ingest = rocksdb::IngestExternalFileOptions::default();
    ingest.set_move_files(true);
    let mut count = 0;
    for of in rows.chunk_by(|one, other| one.0 == other.0) {
        let newest = of.chunk_by(|one, other| one.1 == other.1).filter_map(|equal| equal.last());
        let (mut files, mut open): (Vec<std::path::PathBuf>, Option<rocksdb::SstFileWriter<'_>>) = (Vec::new(), None);
        for (_, key, value) in newest {
            let Some(value) = value else { continue };
            let full = open.as_ref().is_some_and(|file| file.file_size() >= FILE_BYTES);
            if full && let Some(mut file) = open.take() {
                file.finish()?;
            }
            let file = match &mut open {
                Some(file) => file,
                none => {
                    count += 1;
                    let path = dir.join(format!("{count}.sst"));
                    let file = rocksdb::SstFileWriter::create(&options);
                    file.open(&path)?;
                    files.push(path);
                    none.insert(file)
                }
            };
            file.put(key, value)?;
        }
        if let Some(mut file) = open {
            file.finish()?;
        }
        if !files.is_empty() {
            database.ingest_external_file_cf_opts(family(&database, of[0].0)?, &ingest, files)?;
        }
    }
    watch.stop(records)
}
