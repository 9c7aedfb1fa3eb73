//! Folds a whole partition, run by run: to build an index from the log's beginning, or to verify one.
//!
//! ```text
//!   log ─▶ scan: decode, sort by run ─▶ fold each run in memory ─┬─ families keyed by run ──────────▶ ┐
//!          (sorter: memory, segments)   (the live fold's code)   └─ all others ─▶ sorter, at the end ─▶ sink
//!
//!   sink: tables that a store ingests at once (build), or digests (verify), which accept rows in any order
//! ```
//!
//! The result equals the rows of the live fold. A run's rows depend only on its own records in log order, and the fold of a
//! run reads no rows of other runs (`order`).
//!
//! Memory: [`Limits::memory_bytes`] for sorting and folding; in addition a block per segment, and a table's buffers per
//! family. Disk: a copy of the records and, for tables, of the rows that need sorting, until the end.

mod digest;
pub(crate) mod limits;
mod order;
mod run;
mod scan;
mod segment;
mod sink;
mod sorter;

pub use digest::digest;
pub(crate) use digest::{Digests, digests};
pub use limits::Limits;

use super::{
    error::Error,
    failpoint,
    fold::{self, Fold},
    project::{self, Changes, Standing},
    shared::Shared,
    store::{self, Commit, Folder, Rows, TableBytes, TableOptions, Tables, meta, sort_key, sorted_key},
};
use order::{FamilyOrder, RowOrder};
use run::RunRows;
use runlog_log::Delivery;
use runlog_schemas::{
    answer::{ErrorKind, RunsByStatus},
    codec::{self, NoRegistry},
    datum::Datum,
    id::{Offset, PartitionId, RunId},
};
use scan::{Scanned, Skips, Source};
use sink::Sink;
use sorter::{Sorted, Sorter};
use std::{collections::BTreeMap, ops::ControlFlow};

/// Changes of a run are committed after the record that reaches this size, bytes, because a prefix read visits all
/// uncommitted changes. Smaller if the build has less memory.
const CHANGES_BYTES: usize = 1 << 20;
/// The sizes of tables, bytes before compression. Smaller if the build has less memory.
const FAMILY_BYTES_MIN: usize = 256 << 10;
const TABLE_BYTES_MAX: usize = 128 << 20;
const TABLE_BYTES_MIN: usize = 16 << 10;
/// A verification uses the memory of a build divided by this number, because the server answers queries at the same
/// time.
const VERIFY_DIVISOR: usize = 4;
/// Number of records or rows between two checks for a shutdown.
const SHUTDOWN_CHECK_EVERY: u64 = 1024;
/// Bytes of an offset and of a timestamp.
const NUMBER: usize = 8;

/// Builds the index of `fold`, whose store is empty, from the log's beginning, up to `to` (exclusive) or to the first
/// record that blocks the partition. Returns false if the loop must apply the records instead. Then the store is in
/// memory or not empty, or the log does not begin with the journal's genesis. The caller must resume the fold from the
/// store, also after an error.
///
/// After a crash the store has all rows of the build or none. Blocking.
pub(crate) fn build(shared: &Shared, fold: &Fold, to: Offset) -> Result<bool, Error> {
    let fold = &fold.reload()?;
    if !fold.store.takes_tables() || fold.next != Offset::ZERO {
        return Ok(false);
    }
    let folder = folder(&shared.config.index(), fold.partition);
    folder.remove();
    let built = build_in(shared, fold, to, &folder);
    folder.remove();
    built
}

/// The folder of a build's temporary files.
pub(crate) fn folder(index: &Folder, partition: PartitionId) -> Folder {
    index.join(&format!("build-{partition}"))
}

fn build_in(shared: &Shared, fold: &Fold, to: Offset, folder: &Folder) -> Result<bool, Error> {
    let (partition, memory_bytes) = (fold.partition, shared.build_bytes());
    let voided = fold::skip_rows_of(&*fold.store)?;
    let source = Source { shared, partition, to, voided, skips: Skips::OfLog };
    let records = Sorter::new(folder.path().join("records"), memory_bytes / 2);
    let Some(scanned) = scan::scan(source, records)? else { return Ok(false) };
    tracing::info!(%partition, records = scanned.read, end = %scanned.end, "the log is read, building the index");
    std::fs::create_dir_all(folder.path()).ok();
    let options = TableOptions::new(&shared.budget);
    let bytes = TableBytes {
        min: FAMILY_BYTES_MIN.min(memory_bytes / 64),
        max: memory_bytes.clamp(TABLE_BYTES_MIN, TABLE_BYTES_MAX),
    };
    let mut tables = Tables::new(&options, folder.path().to_owned(), bytes);
    let Scanned { end, last, voided, home, accepts, .. } = &scanned;
    tables.put(meta::progress().bytes(), &meta::Progress { next_offset: *end, last: last.clone() }.to_bytes())?;
    tables.put(meta::journal().bytes(), &shared.journal.to_bytes())?;
    for (offset, row) in voided {
        tables.put(meta::skip(*offset).bytes(), &row.to_bytes())?;
    }
    if let Some(log) = shared.home.own() {
        tables.put(meta::log().bytes(), &meta::LogRow { log: log.to_string() }.to_bytes())?;
    }
    if let Some(home) = home {
        tables.put(meta::home().bytes(), &home.to_bytes())?;
    }
    let accepts = accepts.iter().map(|(run_id, row)| (meta::accepted(run_id.as_ref().map(RunId::borrow)), row));
    let accepts: BTreeMap<_, _> = accepts.map(|(key, row)| (key.bytes().to_vec(), row)).collect();
    for (key, row) in accepts {
        tables.put(&key, &row.to_bytes())?;
    }
    let tables = Bulk::new(shared, partition, folder, memory_bytes).fold(scanned, tables)?;
    let files = tables.finish()?;
    shared.config.failpoints.reach(failpoint::BULK_FOLDED);
    fold.store.ingest(files)?;
    shared.config.failpoints.reach(failpoint::BULK_INGESTED);
    Ok(true)
}

/// Folds a partition up to `end` (exclusive), into a sink. Skips exactly the offsets in `voided`. Returns the sink and
/// the number of records read. Temporary files are in `folder`. Blocking.
pub(crate) fn replay<S: Sink>(
    shared: &Shared,
    partition: PartitionId,
    end: Offset,
    voided: BTreeMap<Offset, meta::SkipRow>,
    folder: &Folder,
    sink: S,
) -> Result<(S, u64), Error> {
    let memory_bytes = shared.build_bytes() / VERIFY_DIVISOR;
    let source = Source { shared, partition, to: end, voided, skips: Skips::Known };
    let records = Sorter::new(folder.path().join("records"), memory_bytes / 2);
    match scan::scan(source, records)? {
        Some(scanned) => {
            let read = scanned.read;
            Ok((Bulk::new(shared, partition, folder, memory_bytes).fold(scanned, sink)?, read))
        }
        None if end == Offset::ZERO => Ok((sink, 0)),
        None => {
            let message = format!("the log of partition {partition} does not begin with the genesis of the journal");
            Err(Error::new(ErrorKind::Internal, message))
        }
    }
}

/// The fold of a partition's sorted records.
struct Bulk<'a> {
    partition: PartitionId,
    journal: &'a meta::Journal,
    order: RowOrder,
    folder: &'a Folder,
    /// The limits of a run's rows in memory and of its uncommitted changes, bytes.
    run_bytes_max: usize,
    changes_bytes_max: usize,
    /// The rows whose families are not keyed by run.
    unordered: Sorter,
    counts: RunsByStatus,
    watch: Watch<'a>,
}

/// Ends the work at a shutdown.
struct Watch<'a> {
    shared: &'a Shared,
    steps: u64,
}

impl Watch<'_> {
    fn step(&mut self) -> Result<(), Error> {
        self.steps += 1;
        if self.steps.is_multiple_of(SHUTDOWN_CHECK_EVERY) && self.shared.is_ending() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down; try again"));
        }
        Ok(())
    }
}

impl<'a> Bulk<'a> {
    fn new(shared: &'a Shared, partition: PartitionId, folder: &'a Folder, memory_bytes: usize) -> Self {
        let unordered = Sorter::new(folder.path().join("rows"), memory_bytes / 4);
        let (run_bytes_max, changes_bytes_max) = (memory_bytes / 4, CHANGES_BYTES.min(memory_bytes / 16));
        let (order, watch) = (RowOrder::new(), Watch { shared, steps: 0 });
        let (counts, journal) = (RunsByStatus::default(), &shared.journal);
        Self { partition, order, folder, run_bytes_max, changes_bytes_max, unordered, counts, watch, journal }
    }

    fn fold<S: Sink>(mut self, scanned: Scanned, mut sink: S) -> Result<S, Error> {
        let Scanned { mut records, end, voided, .. } = scanned;
        let order = self.order.clone();
        while let Some((key, _)) = records.entry() {
            let run = RunRows::new(&order, key[..key.len() - NUMBER].to_vec());
            self.fold_run(run, &mut records, (end, &voided), &mut sink)?;
        }
        let Self { unordered, mut watch, counts, .. } = self;
        if counts != RunsByStatus::default() {
            sink.put(meta::run_counts().bytes(), &counts.to_bytes())?;
        }
        let mut rows = unordered.finish()?;
        while let Some((key, row)) = rows.entry() {
            sink.put(sorted_key(key), row)?;
            rows.advance()?;
            watch.step()?;
        }
        Ok(sink)
    }

    /// Folds the records of one run, and emits its rows.
    fn fold_run<S: Sink>(
        &mut self,
        mut run: RunRows<'_>,
        records: &mut Sorted,
        (end, voided): (Offset, &BTreeMap<Offset, meta::SkipRow>),
        sink: &mut S,
    ) -> Result<(), Error> {
        loop {
            let mut changes = Changes::new(&run);
            let ended = loop {
                let Some((key, value)) = records.entry().filter(|(key, _)| is_key_of_run(key, run.run())) else {
                    break true;
                };
                if changes.bytes() >= self.changes_bytes_max.max(1) {
                    break false;
                }
                let offset = Offset::new(number(&key[run.run().len()..])).map_err(Error::from)?;
                if offset < end {
                    let standing = Standing::of(voided.get(&offset).map(|skip| skip.at));
                    self.project(run.run(), (offset, value), standing, &mut changes)?;
                }
                records.advance()?;
                self.watch.step()?;
            };
            if ended && run.is_empty() {
                let rows = changes.rows().filter_map(|(key, row)| Some((key, row?)));
                for (key, row) in rows {
                    self.emit(run.run(), key, row, sink)?;
                }
                return Ok(());
            }
            run.commit(changes.rows())?;
            drop(changes);
            if ended {
                run.scan(&[], &[], rocksdb::Direction::Forward, &mut |key, row| {
                    if key.first() != Some(&meta::INDEX.byte) {
                        self.emit(run.run(), key, row, sink)?;
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
                return Ok(());
            }
            run.limit(self.run_bytes_max, &self.folder.join("run"))?;
        }
    }

    fn project<R: Rows>(
        &self,
        run: &[u8],
        (offset, value): (Offset, &[u8]),
        standing: Standing,
        changes: &mut Changes<'_, R>,
    ) -> Result<(), store::Error> {
        let (logged_at, rest) = value.split_at(NUMBER);
        let logged_at_millis = number(logged_at).cast_signed();
        let (length, rest) = rest.split_at(1);
        let (claimant, bytes) = rest.split_at(length.iter().map(|length| usize::from(*length)).sum());
        let claimant = std::str::from_utf8(claimant).ok().filter(|claimant| !claimant.is_empty());
        // The scan has reframed the record as a single object, unless the record is too large to be decoded.
        let (partition, partitions) = (self.partition, self.journal.partitions);
        if let Standing::Voided { by } = standing {
            // The run's id is the message key, if the scan has found the run by that.
            let key = store::Parts::from_bytes(run).id::<RunId>().map(|run_id| run_id.as_str().into());
            let delivery = Delivery {
                partition,
                offset,
                timestamp_millis: logged_at_millis,
                key: key.unwrap_or_default(),
                value: bytes.to_vec(),
                headers: Vec::new(),
            };
            // Without a registry, every schema id is known or unknown.
            return fold::apply_voided(&delivery, &NoRegistry, (by, partitions), changes).map(|_| ());
        }
        let (framed, reframed) = fold::reframe(bytes, &NoRegistry);
        let at = project::RecordContext { partition, offset, index: 0, logged_at_millis, framed: &framed, claimant };
        match reframed.and_then(|()| codec::read(&framed)) {
            Ok(record) => fold::apply(&record, at, partitions, changes),
            Err(why) => {
                project::dead_letter(at, &why, changes);
                Ok(())
            }
        }
    }

    fn emit<S: Sink>(&mut self, run: &[u8], key: &[u8], row: &[u8], sink: &mut S) -> Result<(), store::Error> {
        if let Some(by_time) = project::runs_by_time::of_folded(key, row, &mut self.counts)? {
            self.emit(run, by_time.bytes(), &[], sink)?;
        }
        match self.order.family_order(key) {
            FamilyOrder::ByRun => {
                assert!(key[2..].starts_with(run), "the fold of a run writes the row {key:?}, which is not the run's");
                sink.put(key, row)
            }
            FamilyOrder::Unordered(suffix) if S::IN_KEY_ORDER => {
                let sorted = sort_key(key);
                self.unordered.push(&sorted, sorted.len() - suffix, &[row])
            }
            FamilyOrder::Unordered(_) => sink.put(key, row),
        }
    }
}

fn is_key_of_run(key: &[u8], run: &[u8]) -> bool {
    key.len() == run.len() + NUMBER && key.starts_with(run)
}

/// A big-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(NUMBER).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
