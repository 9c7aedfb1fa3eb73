//! The projector as a value: it owns the indices, runs the loop on threads of its own, and answers queries.

use crate::index::{
    bulk,
    config::Config,
    content::Contents,
    error::Error,
    executor::Executor,
    failpoint,
    fold::{Fold, Stop, StopKind},
    journal,
    pipeline::{self, Pipeline},
    query,
    rebuild::{self, Found},
    run_locks::{Locks, OfLockedRun},
    shared::{Progress, Shared, Start},
    store::{Budget, Rows, Store, meta},
};
use runlog_log::{Bounds, Log};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    datum::Sha256,
    id::{Offset, PartitionId, RunId},
    partition::partition_of,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering, mpsc},
    thread::JoinHandle,
    time::Duration,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long the end waits for the rows to be on disk.
const END_FLUSH_WAIT: Duration = Duration::from_secs(5);

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Whatever has been applied.
    Eventual,
    /// Everything up to this offset of this partition, inclusive.
    AtLeast(PartitionId, Offset),
    /// Everything that was in the log when the question arrived.
    Latest,
}

impl Consistency {
    /// Reads `eventual`, `latest` or `at-least=P:O`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "eventual" => Some(Self::Eventual),
            "latest" => Some(Self::Latest),
            _ => {
                let (partition, offset) = text.strip_prefix("at-least=")?.split_once(':')?;
                Some(Self::AtLeast(query::number(partition)?, query::number(offset)?))
            }
        }
    }
}

/// Who runs the loop.
#[derive(Debug)]
enum Runner {
    /// A thread.
    Thread(JoinHandle<()>),
    /// The caller, by [`Projector::step`].
    Caller(Box<Pipeline>),
    /// Nobody: it is paused or has ended.
    Nobody,
}

/// A running projector. Dropping it ends it, as [`Projector::end`] does.
#[derive(Debug)]
pub struct Projector {
    pub(crate) shared: Arc<Shared>,
    runner: Mutex<Runner>,
    /// By run id.
    pub(crate) run_locks: Locks<OfLockedRun>,
    /// By the record id of a claim.
    pub(crate) claim_locks: Locks<()>,
    /// Appends in progress, up to [`Config::appends_max`].
    pub(crate) appends: Arc<Semaphore>,
}

impl Projector {
    /// Opens the journal and its indices, checks each against the log, and starts the loop.
    ///
    /// A partition whose index does not match the log (truncated, diverged, another journal) stops alone; its rows are
    /// kept and answer at `eventual`.
    pub async fn start(config: Config, log: Arc<dyn Log>) -> Result<Self, Error> {
        let journal = journal::open(&log, &config).await?;
        let budget = Budget::new(config.memory_bytes);
        let mut partitions = Vec::new();
        let (mut folds, mut log_starts) = (Vec::new(), Vec::new());
        for partition in PartitionId::all(journal.partitions) {
            let store = Arc::new(open(&config, &log, &journal, partition, &budget).await?);
            config.failpoints.at(failpoint::STORE_OPENED);
            let fold = Fold::resume(partition, journal.clone(), store.clone(), config.schemas.clone())?
                .failing(config.failpoints.clone());
            let (stopped, build) = if config.paused {
                (None, None)
            } else {
                let bounds = log.bounds(partition, Duration::from_secs(30)).await?;
                log_starts.push((partition, bounds.start));
                begins(&log, &fold, bounds, &config).await?
            };
            let progress = Progress { applied: fold.next, stopped: stopped.clone() };
            let older = store.get(&meta::older())?;
            partitions.push(Start { store, progress, older });
            folds.push(pipeline::Start { fold, stopped, build });
        }
        let shared = Arc::new(Shared::new(config, log, journal, budget, partitions));
        log_starts
            .into_iter()
            .for_each(|(partition, start)| shared.flushes.saw_log_start(partition, start, Instant::now()));
        let runner = Mutex::new(if shared.config.paused { Runner::Nobody } else { runner(&shared, folds)? });
        let appends = Arc::new(Semaphore::new(shared.config.appends_max.min(Semaphore::MAX_PERMITS)));
        Ok(Self { shared, runner, run_locks: Locks::default(), claim_locks: Locks::default(), appends })
    }

    /// Ends the loop and waits for it: at most the wait of a poll, and a second for the writes in progress. One that does not
    /// return by then is left to its thread. Then flushes the indices, for at most 5 s: what is not on disk by then is folded
    /// again at the next start.
    pub fn end(&self) {
        self.shared.ending.store(true, Ordering::Release);
        let runner = std::mem::replace(&mut *self.runner(), Runner::Nobody);
        match runner {
            Runner::Nobody => return,
            Runner::Caller(_) => {}
            Runner::Thread(thread) => {
                if thread.join().is_err() {
                    tracing::error!("the projection loop had panicked; its committed state is intact");
                }
            }
        }
        self.flush_all();
    }

    fn flush_all(&self) {
        let shared = self.shared.clone();
        let flush = move || {
            let all = PartitionId::all(shared.journal.partitions).collect();
            shared.config.executor.each(all, shared.builds_max, |partition| {
                if let Err(error) = shared.store(partition).flush() {
                    tracing::error!(%partition, %error, "the index is not flushed; the next start folds its last records again");
                }
            });
        };
        if self.shared.config.executor.is_caller() {
            flush();
            return;
        }
        let (done, ended) = mpsc::channel();
        let thread = Executor::thread("runlog-flush", move || {
            flush();
            // The caller may be about to close the stores: not on this thread, and not later.
            drop(flush);
            done.send(()).ok();
        });
        if thread.is_err() || ended.recv_timeout(END_FLUSH_WAIT).is_err() {
            tracing::error!("flushing the indices takes too long; the next start folds their last records again");
        }
    }

    /// Runs one iteration of the loop on this thread, for a caller that runs the projector itself
    /// ([`Executor::Caller`]): reads at most `records_max` records that are in the log, applies and commits them, and
    /// wakes the queries that wait for them. Waits for nothing. Partitions with a temporary failure are retried in the
    /// first iteration after their pause.
    ///
    /// Returns how many records it read; 0 if there are none, if the log failed, and if no loop runs or a thread runs
    /// it.
    pub fn step(&self, records_max: usize) -> usize {
        match &mut *self.runner() {
            Runner::Caller(pipeline) if !self.shared.is_ending() => pipeline.turn(records_max),
            _ => 0,
        }
    }

    fn runner(&self) -> MutexGuard<'_, Runner> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.shared.log
    }

    /// The journal.
    pub fn journal(&self) -> &meta::Journal {
        &self.shared.journal
    }

    /// Whether records may name the state of their effect: a server writes schema version 3.
    pub fn writes_basis(&self) -> bool {
        self.shared.config.writes_basis()
    }

    /// The log's time now, milliseconds since the Unix epoch: by the log's own clock, or by the projector's if another
    /// machine timestamps the log's records.
    pub fn log_now(&self) -> i64 {
        let own = || i64::try_from((self.shared.config.clock)()).unwrap_or(i64::MAX);
        self.shared.log.clock_millis().unwrap_or_else(own)
    }

    /// The executor of its reads.
    pub fn executor(&self) -> &Executor {
        &self.shared.config.executor
    }

    /// Whether it consumes nothing.
    pub fn paused(&self) -> bool {
        self.shared.config.paused
    }

    /// The store of payloads that are too large for a record.
    pub fn content(&self) -> Option<&runlog_content::Store> {
        self.shared.config.content.as_ref()
    }

    /// Access to the content for one query, which may wait this long for it.
    pub fn contents(&self, wait: Duration) -> Contents {
        Contents::new(self.content().cloned(), wait)
    }

    /// A run's partition.
    pub fn partition_of(&self, run_id: RunId<&str>) -> PartitionId {
        partition_of(run_id, self.shared.journal.partitions)
    }

    /// The progress of `partition`.
    pub fn progress(&self, partition: PartitionId) -> Progress {
        self.shared.progress(partition)
    }

    /// Waits until `reached` holds for the progress of `partition`, and returns that progress. Never returns if it
    /// never holds. Those who wait for one partition are woken in the order in which they began to wait.
    pub async fn wait_until(&self, partition: PartitionId, reached: impl Fn(&Progress) -> bool) -> Progress {
        self.shared.wait_until(partition, reached).await
    }

    /// The store that answers for `partition`. Each view of it is of one log position.
    pub fn store(&self, partition: PartitionId) -> Arc<Store> {
        self.shared.store(partition)
    }

    /// A position of this journal.
    pub fn position(&self, partition: PartitionId, offset: Offset, index: u32) -> Position {
        Position { topic: self.shared.log.topic().to_owned(), partition, offset, index }
    }

    /// The partition's bounds in the log, asked for now.
    pub async fn bounds(&self, partition: PartitionId, deadline: Duration) -> Result<Bounds, Error> {
        let bounds = self.shared.log.bounds(partition, deadline).await?;
        self.shared.flushes.saw_log_start(partition, bounds.start, Instant::now());
        Ok(bounds)
    }

    /// The end of the partition in the log, asked for now. Its start is asked for with it where it was not asked of late.
    async fn log_end(&self, partition: PartitionId, deadline: Duration) -> Result<Offset, Error> {
        if self.shared.flushes.knows_log_start(partition, Instant::now()) {
            return Ok(self.shared.log.end(partition, deadline).await?);
        }
        Ok(self.bounds(partition, deadline).await?.end)
    }

    /// Waits until `partition` is as fresh as `consistency` asks. An index that is being rebuilt and has not yet
    /// reached an older version's progress waits even at `eventual`. `latest` asks the log for its end offset after
    /// this call began. After the deadline the error is `Stale` with the lag. On a stopped partition it is
    /// `PartitionStopped` at once, even if the index is far enough: it may have been built from another log than the
    /// one that was asked.
    pub async fn wait(
        &self,
        partition: PartitionId,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<(), Error> {
        self.wait_knowing(partition, Offset::ZERO, consistency, deadline).await
    }

    /// Waits until the record at `offset`, which the log has acknowledged, is applied, and `partition` is as fresh as
    /// `consistency` asks: side by side, since the question for the log's end needs only the acknowledgement. At `latest` an end
    /// that is not beyond the record is `Unavailable`, as in [`Projector::wait`]: it is that of a deposed leader.
    pub async fn wait_past(
        &self,
        partition: PartitionId,
        offset: Offset,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<(), Error> {
        let applied = self.wait(partition, Consistency::AtLeast(partition, offset), deadline);
        let fresh = self.wait_knowing(partition, offset.saturating_add(1), consistency, deadline);
        tokio::try_join!(applied, fresh).map(drop)
    }

    /// As [`Projector::wait`]; the log is known to have all offsets below `known`.
    async fn wait_knowing(
        &self,
        partition: PartitionId,
        known: Offset,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        let (partition, target) = match consistency {
            Consistency::Eventual => match self.shared.older(partition) {
                None => return Ok(()),
                // An answer from less than the older layout's index knew would be a wrong "not done yet".
                Some(until) => (partition, until),
            },
            Consistency::AtLeast(partition, offset) => {
                if partition.get() >= self.shared.journal.partitions {
                    let message = format!("the journal has no partition {partition}");
                    return Err(Error::new(ErrorKind::Usage, message).in_partition(partition));
                }
                (partition, offset.saturating_add(1))
            }
            Consistency::Latest => {
                let before = self.progress(partition);
                let (end, known) = (self.log_end(partition, deadline).await?, before.applied.max(known));
                if end < known && before.stopped.is_none() {
                    let error = Error::new(ErrorKind::Unavailable, moved_back(partition, end, known));
                    return Err(error.at(&self.position(partition, end, 0)));
                }
                (partition, end)
            }
        };
        let left = until.saturating_duration_since(Instant::now());
        let fresh = |progress: &Progress| progress.applied >= target || progress.stopped.is_some();
        match tokio::time::timeout(left, self.wait_until(partition, fresh)).await {
            Ok(progress) => match &progress.stopped {
                None => Ok(()),
                Some(stop) => Err(self.stopped(partition, stop)),
            },
            Err(_) => Err(Error::stale(self.progress(partition).applied, &self.position(partition, target, 0))),
        }
    }

    /// Refuses a partition that is stopped.
    pub(crate) fn running(&self, partition: PartitionId) -> Result<(), Error> {
        self.progress(partition).stopped.as_ref().map_or(Ok(()), |stop| Err(self.stopped(partition, stop)))
    }

    fn stopped(&self, partition: PartitionId, stop: &Stop) -> Error {
        let answers = match self.shared.older(partition) {
            None => "`eventual` still answers",
            Some(_) => "its index is not built yet, so nothing answers",
        };
        let why = &stop.error;
        Error::new(
            ErrorKind::PartitionStopped,
            format!("partition {partition} is stopped: {why}; `runlog doctor` says what to do, {answers}"),
        )
        .at(&self.position(partition, stop.offset, 0))
    }
}

impl Drop for Projector {
    fn drop(&mut self) {
        self.end();
    }
}

/// Opens the partition's store. A store of an older layout remains beside a new one that is built from the log; if the
/// log cannot rebuild it, it is left unchanged.
async fn open(
    config: &Config,
    log: &Arc<dyn Log>,
    journal: &meta::Journal,
    partition: PartitionId,
    budget: &Budget,
) -> Result<Store, Error> {
    let index = config.index();
    // Of a build that did not end.
    bulk::folder(&index, partition).remove();
    let older = match rebuild::open(&index, partition, budget)? {
        Found::Current(store) => return Ok(store),
        Found::Older(store) => store,
    };
    let of: Option<meta::Journal> = older.get(&meta::journal())?;
    if let Some(other) = of.filter(|of| of != journal) {
        // Built from this log, the new index would answer that the runs of the older one do not exist.
        let why = format!("it is of journal {}, the log of journal {}", other.journal_id, journal.journal_id);
        return Err(older.outgrown(why)?.into());
    }
    if config.paused {
        return Err(older.outgrown("a paused server builds none; start it without --paused")?.into());
    }
    let start = log.bounds(partition, Duration::from_secs(30)).await?.start;
    if start > Offset::ZERO {
        let why =
            format!("none can be built: partition {partition} of the log begins at offset {start}, no longer at 0");
        return Err(older.outgrown(why)?.into());
    }
    Ok(rebuild::beside(&index, partition, &older, budget)?)
}

/// The message for a log whose end offset is below what was applied from it.
pub(crate) fn moved_back(partition: PartitionId, end: Offset, applied: Offset) -> String {
    format!(
        "the log of partition {partition} ends at offset {end}, and records up to {applied} were applied from it: a deposed \
         leader answered, or the topic was deleted and created again; retry, and restart the server if it stays so"
    )
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

/// How long the first read of a partition may take at start.
const FIRST_READ: Duration = Duration::from_secs(30);

/// Why a fold cannot continue against this log, if it cannot, and up to where its index is first built in bulk, if it is.
async fn begins(
    log: &Arc<dyn Log>,
    fold: &Fold,
    bounds: Bounds,
    config: &Config,
) -> Result<(Option<Stop>, Option<Offset>), Error> {
    let stop = check_against_log(log, fold, bounds, &config.executor).await?;
    let is_new = stop.is_none() && fold.next == Offset::ZERO && fold.store.takes_tables();
    let build = is_new && bounds.end.get() >= config.bulk.offsets_min;
    Ok((stop, build.then_some(bounds.end)))
}

/// Why a fold cannot continue against this log, if it cannot.
///
/// Errors: `Unavailable` if the log did not answer in time, which says nothing about its records.
async fn check_against_log(
    log: &Arc<dyn Log>,
    fold: &Fold,
    bounds: Bounds,
    executor: &Executor,
) -> Result<Option<Stop>, Error> {
    let stop = |kind, error: String| Ok(Some(Stop { offset: fold.next, kind, error }));
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
                "the index ends at offset {}, the log already at {}: this is another log, or one that lost its end",
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
    let Some(last) = progress.last.filter(|last| last.offset >= bounds.start) else { return Ok(None) };
    let (log, partition, wait) = (log.clone(), fold.partition, executor.blocking_wait(FIRST_READ));
    let topic = log.topic().to_owned();
    let read = executor.run(move || {
        let mut reader = log.reader(&[(partition, last.offset)])?;
        let found = reader.poll(1, wait)?.into_iter().next();
        // An empty poll either passed offsets without a record, or timed out.
        let is_read = found.is_some() || reader.position(partition).is_some_and(|next| next > last.offset);
        Ok::<_, runlog_log::Error>((found, is_read))
    });
    let (found, is_read) =
        read.await.map_err(|error| Error::new(ErrorKind::Internal, "reading the log").because(error))??;
    match found {
        Some(record) if record.offset == last.offset && Sha256::of(&record.value) == last.hash => Ok(None),
        None if !is_read => {
            let waited = humantime::format_duration(FIRST_READ);
            let place = format!("topic {topic}, partition {partition}, offset {}", last.offset);
            let message = format!("timed out after {waited} reading {place}, where the index ends; retry");
            let position = Position { topic, partition, offset: last.offset, index: 0 };
            Err(Error::new(ErrorKind::Unavailable, message).at(&position))
        }
        _ => stop(
            StopKind::LogDiverged,
            format!("the record at offset {} is not the one that the index was built from", last.offset),
        ),
    }
}
