//! Starts a projector: opens its indices, and checks each against the log.
//!
//! ```text
//!   journal::open ─▶ stores ─▶ home (genesis, indices) ─▶ journal::complete ─▶ folds, checked against the log ─▶ the loop
//! ```

use super::{Projector, Runner};
use crate::index::{
    bulk,
    config::Config,
    error::Error,
    executor::Executor,
    failpoint,
    fold::{Fold, Stop, StopKind, skip_rows_of},
    guarded_log::GuardedLog,
    held::{Found, Holds},
    home::HomeState,
    journal,
    pipeline::{self, Pipeline},
    project::Changes,
    rebuild::{self, LiveStore},
    shared::{self, Logs, Progress, Shared},
    store::{Budget, Commit, Rows, Store, meta},
    stored_journal::indexed_partitions,
};
use runlog_log::{Bounds, Delivery, Kind, Log};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    datum::Sha256,
    id::{Offset, PartitionId},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

impl Projector {
    /// Opens the journal and its indices, checks each against the log, and starts the loop.
    ///
    /// A partition whose index does not match the log (truncated, diverged, another journal) stops; the others continue.
    /// Its rows are kept and still answer at `eventual`.
    pub async fn start(config: Config, log: Arc<dyn Log>) -> Result<Self, Error> {
        let opened = journal::open(&log, &config).await?;
        let budget = Budget::new(config.memory_bytes);
        let chosen = chosen(&config, &log, &opened.journal).await?;
        let is_held = |partition: &PartitionId| chosen.as_ref().is_none_or(|chosen| chosen.contains(partition));
        let mut live = Vec::new();
        for partition in PartitionId::all(opened.journal.partitions).filter(is_held) {
            live.push((partition, open_live(&config, partition, &budget)?));
        }
        let home = HomeState::new(log.id().cloned(), opened.home.clone());
        for (_, live) in &live {
            let journal: Option<meta::Journal> = live.store().get(&meta::journal())?;
            if journal.is_some_and(|journal| journal == opened.journal) {
                live.store().get(&meta::home())?.iter().for_each(|row| home.learn(row));
            }
        }
        if live.len() < PartitionId::all(opened.journal.partitions).count() {
            home.holds_a_part();
        }
        journal::complete(&log, &opened, &home, &config).await?;
        let journal = opened.journal;
        let unguarded = committed_if_mirror(&config, log, &home).await?;
        if unguarded.reads_uncommitted() {
            home.reads_uncommitted();
        }
        let log: Arc<dyn Log> = Arc::new(GuardedLog::new(unguarded.clone(), home.clone()));
        let mut partitions: Vec<_> = PartitionId::all(journal.partitions).map(|_| None).collect();
        let (mut folds, mut log_starts) = (Vec::new(), Vec::new());
        for (partition, live) in live {
            let store = Arc::new(current(&config, &log, &journal, (partition, live), &budget).await?);
            config.failpoints.reach(failpoint::STORE_OPENED);
            let fold = Fold::resume(partition, journal.clone(), store.clone(), config.schemas.clone())?
                .with_failpoints(config.failpoints.clone())
                .with_home(home.clone());
            // Another machine's log can be a mirror.
            let can_be_mirror = log.clock_millis().is_none();
            let bounds = log.bounds(partition, Duration::from_secs(30)).await?;
            let (stopped, build) = if config.paused {
                (None, None)
            } else {
                log_starts.push((partition, bounds.start));
                begins(&log, &fold, bounds, &config).await?
            };
            if stopped.is_none() && fold.next < bounds.end && can_be_mirror {
                home.expect(partition, bounds.end);
            }
            // Another server may have the records that this index lacks, so no query is answered without them.
            let follows = chosen.is_some() && !config.paused;
            let first_end = (follows && (fold.next < bounds.end || stopped.is_some())).then_some(bounds.end);
            let progress = Progress { applied: fold.next, stopped: stopped.clone() };
            let older = store.get(&meta::older())?;
            partitions[partition.index()] = Some(shared::Start { store, progress, older, first_end });
            folds.push(pipeline::Start { fold, stopped, build });
        }
        let shared = Arc::new(Shared::new(config, Logs { log, unguarded, home }, journal, budget, partitions));
        log_starts
            .into_iter()
            .for_each(|(partition, start)| shared.flushes.saw_log_start(partition, start, Instant::now()));
        // A loop without partitions would have nothing to read.
        let is_idle = shared.config.paused || folds.is_empty();
        let runner = Mutex::new(if is_idle { Runner::Nobody } else { runner(&shared, folds)? });
        Ok(Self { shared, runner })
    }
}

/// The partitions to hold; `None` for all.
async fn chosen(
    config: &Config,
    log: &Arc<dyn Log>,
    journal: &meta::Journal,
) -> Result<Option<BTreeSet<PartitionId>>, Error> {
    let choose = match &config.holds {
        Holds::All => return Ok(None),
        Holds::Chosen(chosen) => return Ok(Some(chosen.clone())),
        Holds::ChosenBy(choose) => choose.clone(),
    };
    let (index, log, journal) = (config.index(), log.clone(), journal.clone());
    let chosen = config.executor.run(move || {
        let indexed = indexed_partitions(&index, &journal);
        choose.partitions(&Found { journal: &journal, log: log.id(), indexed: &indexed })
    });
    let chosen = chosen.await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the choice of the partitions did not complete").because(error)
    })?;
    Ok(Some(chosen))
}

/// The log, read committed if it began as a mirror.
async fn committed_if_mirror(config: &Config, log: Arc<dyn Log>, home: &HomeState) -> Result<Arc<dyn Log>, Error> {
    if log.reads_committed() || !home.began_as_mirror() {
        return Ok(log);
    }
    let uncommitted = log.clone();
    let committed = config.executor.run(move || uncommitted.committed()).await.map_err(|error| {
        Error::new(ErrorKind::Internal, "connecting to read committed records did not complete").because(error)
    })?;
    Ok(committed.transpose()?.unwrap_or(log))
}

fn runner(shared: &Arc<Shared>, folds: Vec<pipeline::Start>) -> Result<Runner, Error> {
    let pipeline = Pipeline::new(shared.clone(), folds)?;
    if shared.config.executor.is_caller() {
        return Ok(Runner::Caller(Box::new(pipeline)));
    }
    let thread = Executor::thread("runlog-project", move || pipeline.run());
    thread
        .map(Runner::Thread)
        .map_err(|error| Error::new(ErrorKind::Internal, "the projection thread did not start").because(error))
}

/// Opens the partition's store, in whichever layout it is.
fn open_live(config: &Config, partition: PartitionId, budget: &Budget) -> Result<LiveStore, Error> {
    let index = config.index();
    // Removes the temporary files of an unfinished build.
    bulk::folder(&index, partition).remove();
    Ok(rebuild::open(&index, partition, budget)?)
}

/// Returns the partition's store. If it has an older layout, creates an empty store beside it, which is built from the log.
/// If the log cannot rebuild the index, the older store stays unchanged and this fails.
async fn current(
    config: &Config,
    log: &Arc<dyn Log>,
    journal: &meta::Journal,
    (partition, live): (PartitionId, LiveStore),
    budget: &Budget,
) -> Result<Store, Error> {
    let older = match live {
        LiveStore::Current(store) => return committed_store(config, log, (partition, store), budget).await,
        LiveStore::Older(store) => store,
    };
    let older_journal: Option<meta::Journal> = older.get(&meta::journal())?;
    if let Some(other) = older_journal.filter(|other| other != journal) {
        // An index built from this log would answer that the other journal's runs do not exist.
        let why = format!("it belongs to journal {}, the log to journal {}", other.journal_id, journal.journal_id);
        return Err(older.outgrown(why)?.into());
    }
    if let Some(why) = other_log(log, &older)? {
        return Err(older.outgrown(why)?.into());
    }
    if config.paused {
        return Err(older.outgrown("a paused server does not rebuild it; start the server without --paused")?.into());
    }
    let start = log.bounds(partition, Duration::from_secs(30)).await?.start;
    if start > Offset::ZERO {
        let why =
            format!("it cannot be rebuilt: partition {partition} of the log begins at offset {start}, no longer at 0");
        return Err(older.outgrown(why)?.into());
    }
    Ok(rebuild::create_beside(&config.index(), partition, &older, budget, log.reads_committed())?)
}

/// Returns the partition's store of this layout. If the log is read committed, and the store may have other records, creates an
/// empty store beside it. If the log cannot rebuild the index, the store stays as it is.
async fn committed_store(
    config: &Config,
    log: &Arc<dyn Log>,
    (partition, store): (PartitionId, Store),
    budget: &Budget,
) -> Result<Store, Error> {
    let is_committed = !log.reads_committed() || store.row(meta::committed().bytes())?.is_some();
    if is_committed || other_log(log, &store)?.is_some() {
        return Ok(store);
    }
    let progress: meta::Progress = store.get(&meta::progress())?.unwrap_or_default();
    if progress.next_offset == Offset::ZERO {
        let mut changes = Changes::new(&store);
        changes.mark(meta::committed());
        // They were copied from a store that was built from uncommitted records.
        skip_rows_of(&store)?.into_keys().for_each(|offset| changes.remove(meta::skip(offset)));
        store.commit(changes.rows())?;
        return Ok(store);
    }
    let start = if config.paused { None } else { Some(log.bounds(partition, Duration::from_secs(30)).await?.start) };
    if start != Some(Offset::ZERO) {
        tracing::warn!(
            %partition,
            "the index may have records of aborted transactions, and is not rebuilt: this server is paused, or the log no \
             longer begins at offset 0"
        );
        return Ok(store);
    }
    Ok(rebuild::create_beside(&config.index(), partition, &store, budget, true)?)
}

/// The time limit of a partition's first read at start.
const FIRST_READ: Duration = Duration::from_secs(30);

/// Returns the stop of a fold that cannot continue on this log, and the offset (exclusive) for a bulk build of an empty
/// index.
async fn begins(
    log: &Arc<dyn Log>,
    fold: &Fold,
    bounds: Bounds,
    config: &Config,
) -> Result<(Option<Stop>, Option<Offset>), Error> {
    let stop = match check_against_log(log, fold, bounds, &config.executor).await? {
        Match::Other(kind, error) => Some(Stop { offset: fold.next, kind, error }),
        Match::Unproven => None,
        Match::Same => {
            adopt(log, &fold.store)?;
            None
        }
    };
    let is_new = stop.is_none() && fold.next == Offset::ZERO && fold.store.takes_tables();
    let build = is_new && bounds.end.get() >= config.bulk.offsets_min;
    Ok((stop, build.then_some(bounds.end)))
}

/// Records the log of an index that was built before logs had ids.
fn adopt(log: &Arc<dyn Log>, store: &Store) -> Result<(), Error> {
    let Some(own) = log.id() else { return Ok(()) };
    if store.row(meta::log().bytes())?.is_none() {
        let mut changes = Changes::new(store);
        changes.put(meta::log(), &meta::LogRow { log: own.to_string() });
        store.commit(changes.rows())?;
    }
    Ok(())
}

/// The log that an index was built from, if it is known to be another one.
fn other_log(log: &Arc<dyn Log>, store: &Store) -> Result<Option<String>, Error> {
    let Some(own) = log.id() else { return Ok(None) };
    let row: Option<meta::LogRow> = store.get(&meta::log())?;
    let other = row.filter(|row| row.log != own.as_str());
    Ok(other.map(|row| format!("the index was built from log {}, this is log {own}", row.log)))
}

/// Whether an index matches the log.
#[derive(Debug)]
enum Match {
    /// The log has the last record that the index was built from.
    Same,
    /// Nothing contradicts it: the index is empty, or its last record has been removed from the log.
    Unproven,
    /// The fold cannot continue on this log.
    Other(StopKind, String),
}

/// Compares an index with the log.
///
/// Errors: `Unavailable` if the log did not answer in time: its records are unknown.
async fn check_against_log(
    log: &Arc<dyn Log>,
    fold: &Fold,
    bounds: Bounds,
    executor: &Executor,
) -> Result<Match, Error> {
    let stop = |kind, error: String| Ok(Match::Other(kind, error));
    if let Some(error) = other_log(log, &fold.store)? {
        return stop(StopKind::ForeignLog, error);
    }
    if fold.next < bounds.start {
        return stop(
            StopKind::LogTruncated,
            format!(
                "the index ends at offset {}, the log now starts at {}: records between are lost",
                fold.next, bounds.start
            ),
        );
    }
    if fold.next > bounds.end {
        return stop(
            StopKind::LogDiverged,
            format!(
                "the index ends at offset {}, the log already at {}: this is another log, or the log lost its end",
                fold.next, bounds.end
            ),
        );
    }
    let journal: Option<meta::Journal> = fold.store.get(&meta::journal())?;
    if let Some(other) = journal.filter(|journal| *journal != fold.journal) {
        return stop(
            StopKind::LogDiverged,
            format!("the index is of journal {}, the log of {}", other.journal_id, fold.journal.journal_id),
        );
    }
    let progress: meta::Progress = fold.store.get(&meta::progress())?.unwrap_or_default();
    let Some(last) = progress.last.filter(|last| last.offset >= bounds.start) else {
        return Ok(Match::Unproven);
    };
    let (topic, partition) = (log.topic().to_owned(), fold.partition);
    let (record, is_read) = match read_at(log, partition, last.offset, executor).await? {
        Err(error) if error.kind() == Kind::Damaged => {
            return stop(StopKind::LogDamaged, Error::from(error).problem().detail);
        }
        read => read?,
    };
    match record {
        Some(record) if record.offset == last.offset && Sha256::of(&record.value) == last.hash => Ok(Match::Same),
        None if !is_read => {
            let waited = humantime::format_duration(FIRST_READ);
            let place = format!("topic {topic}, partition {partition}, offset {}", last.offset);
            let message = format!("timed out after {waited} reading {place}, at the end of the index; retry");
            let position = Position { topic, partition, offset: last.offset, index: 0, log: None };
            Err(Error::new(ErrorKind::Unavailable, message).at(&position))
        }
        _ => stop(
            StopKind::LogDiverged,
            format!("the record at offset {} differs from the record that the index was built from", last.offset),
        ),
    }
}

/// Reads the record at an offset. Also returns whether the log has passed the offset.
async fn read_at(
    log: &Arc<dyn Log>,
    partition: PartitionId,
    offset: Offset,
    executor: &Executor,
) -> Result<Result<(Option<Delivery>, bool), runlog_log::Error>, Error> {
    let (log, wait) = (log.clone(), executor.blocking_wait(FIRST_READ));
    let read = executor.run(move || {
        let mut reader = log.reader(&[(partition, offset)])?;
        let record = reader.poll(1, wait)?.into_iter().next();
        // An empty poll either passed offsets without a record, or timed out.
        let is_read = record.is_some() || reader.position(partition).is_some_and(|next| next > offset);
        Ok((record, is_read))
    });
    read.await.map_err(|error| Error::new(ErrorKind::Internal, "the read of the log did not complete").because(error))
}
