//! Compares the bulk build of an index with the live fold of the same log: all rows must be equal.

use super::{
    encoding::{self, history},
    pure::Product,
};
use anyhow::{Context, ensure};
use runlog_log::{
    Clock, Delivery, Entry, Log, PartitionId,
    memory::{MemoryLog, MemoryOptions, Repeats},
};
use runlog_model::{AppendFault, History, Step};
use runlog_projector::{
    Config, Projector,
    index::{
        bulk::Limits,
        failpoint::{self, Failpoints},
        shared::Progress,
        store::{self, meta},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Runtime;

/// How long a seed's journal may take to be applied.
const WAIT: Duration = Duration::from_secs(60);

/// Rows by their keys.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Counts of a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compared {
    /// Partitions.
    pub partitions: u64,
    /// Partitions that were built in bulk; the log of the others does not begin with the journal's genesis.
    pub built: u64,
    /// Rows.
    pub rows: u64,
    /// Skips that were in effect.
    pub skips: u64,
    /// Partitions that had stopped.
    pub stopped: u64,
}

impl std::ops::AddAssign for Compared {
    fn add_assign(&mut self, other: Self) {
        self.partitions += other.partitions;
        self.built += other.built;
        self.rows += other.rows;
        self.skips += other.skips;
        self.stopped += other.stopped;
    }
}

/// A seed's log; its start never moves.
struct Written {
    log: MemoryLog,
    now: Arc<AtomicI64>,
    runtime: Runtime,
    deliveries: Vec<Delivery>,
}

impl Written {
    fn new(history: &History) -> anyhow::Result<Self> {
        let (now, seed) = (Arc::new(AtomicI64::new(0)), history.seed);
        let clock = now.clone();
        let log = MemoryLog::with(MemoryOptions {
            topic: history.journal.topic.clone(),
            partitions: history.journal.partitions,
            value_bytes_max: 4 << 20,
            clock: Clock::new(move || clock.load(Ordering::Relaxed)),
            repeats: seed.is_multiple_of(2).then_some(Repeats { every: 3 + seed % 5, back: 2 }),
            ..MemoryOptions::default()
        });
        Ok(Self { log, now, runtime: Runtime::new()?, deliveries: Vec::new() })
    }

    /// Whether every partition has a record.
    fn has_begun(&self) -> bool {
        let partitions: BTreeSet<_> = self.deliveries.iter().map(|delivery| delivery.partition).collect();
        partitions.len() == self.log.partitions() as usize
    }

    /// Appends the record of a step.
    fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Append { delivery, fault } if *fault != AppendFault::Lost => {
                let delivery = encoding::encode(delivery)?.log;
                self.now.store(delivery.timestamp_millis, Ordering::Relaxed);
                let entry = Entry {
                    key: delivery.key.clone(),
                    value: delivery.value.clone(),
                    headers: delivery.headers.clone(),
                };
                let offsets = self.runtime.block_on(self.log.append(delivery.partition, vec![entry]))?;
                ensure!(offsets == [delivery.offset], "{offsets:?}, not {}", delivery.offset);
                self.deliveries.push(delivery);
            }
            Step::Gap { partition, count } => self.log.skip(PartitionId::new(*partition)?, *count),
            _ => {}
        }
        Ok(())
    }
}

/// The rows of a store, without the rows about its own build.
pub fn rows<R: store::Rows>(store: &R) -> anyhow::Result<Rows> {
    let mut rows = BTreeMap::new();
    store.scan(&[], &[], rocksdb::Direction::Forward, &mut |key, row| {
        rows.insert(key.to_vec(), row.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    for key in [meta::layout(), meta::live(), meta::older(), meta::bodies()] {
        rows.remove(key.bytes());
    }
    rows.retain(|key, _| !key.starts_with(meta::run_numbers().bytes()));
    Ok(rows)
}

/// Whether two stores of a partition have the same rows.
pub fn same_rows(partition: PartitionId, built: &Rows, live: &Rows) -> anyhow::Result<()> {
    for key in built.keys().chain(live.keys()) {
        let (built, live) = (built.get(key), live.get(key));
        ensure!(built == live, "partition {partition}, row {key:?}: {built:?}, not {live:?}");
    }
    Ok(())
}

/// Builds the indices of a seed's log in bulk, with `memory_bytes` for sorting and folding. Compares every row with the
/// live fold. A part of the log is appended during the build or after it.
pub fn bulk(seed: u64, memory_bytes: usize) -> anyhow::Result<Compared> {
    let history = history(seed);
    let mut written = Written::new(&history)?;
    let mut steps = history.steps.iter();
    let early = history.steps.len() * (seed as usize % 4 + 1) / 4;
    for (nth, step) in (1..).zip(steps.by_ref()) {
        written.step(step)?;
        if nth >= early && written.has_begun() {
            break;
        }
    }
    let (folder, ingested) = (tempfile::tempdir()?, Arc::new(AtomicU64::new(0)));
    let counted = ingested.clone();
    let config = Config {
        bulk: Limits { offsets_min: 1, memory_bytes },
        failpoints: Failpoints::new(move |point| {
            counted.fetch_add(u64::from(point == failpoint::BULK_INGESTED), Ordering::Relaxed);
        }),
        ..Config::new(folder.path(), || 0, || "an-id".to_owned())
    };
    let projector = written.runtime.block_on(Projector::start(config, Arc::new(written.log.clone())))?;
    steps.try_for_each(|step| written.step(step))?;
    let mut expected = Product::new(&history);
    written.deliveries.iter().try_for_each(|delivery| expected.deliver(delivery.clone()))?;
    expected.settle()?;
    let expected = expected.queries();
    let mut compared = Compared::default();
    for partition in PartitionId::all(history.journal.partitions) {
        let part = &expected.parts[partition.index()];
        let applied = part.applied.context("a position")?;
        let there = |progress: &Progress| match (&progress.stopped, &part.stopped) {
            (None, None) => progress.applied >= applied,
            (Some(stop), Some(expected)) => (stop.offset, stop.kind) == (expected.offset, expected.kind),
            _ => false,
        };
        let waited = async { tokio::time::timeout(WAIT, projector.wait_until(partition, there)).await };
        let waited = written.runtime.block_on(waited);
        waited.with_context(|| format!("{:?}, not {part:?}", projector.progress(partition)))??;
        let (built, live) = (rows(&*projector.store(partition)?)?, rows(expected.rows[partition.index()])?);
        same_rows(partition, &built, &live)?;
        compared.partitions += 1;
        compared.rows += built.len() as u64;
        compared.skips += built.keys().filter(|key| key.starts_with(meta::skips().bytes())).count() as u64;
        compared.stopped += u64::from(part.stopped.is_some());
    }
    ensure!(projector.verify()?.equal, "the built indices differ from the log");
    drop(projector);
    ensure!(!has_build(&folder.path().join("index"))?, "files of a build are left");
    compared.built = ingested.load(Ordering::Relaxed);
    Ok(compared)
}

/// Whether a folder of indices has files of a build.
pub fn has_build(index: &Path) -> anyhow::Result<bool> {
    let names: Vec<_> = fs::read_dir(index)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<_>>()?;
    Ok(names.iter().any(|name| name.to_string_lossy().starts_with("build")))
}
