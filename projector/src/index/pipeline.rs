//! The loop: the only consumer of the log and the only writer of the live indices.
//!
//! ```text
//!   Reader::poll ─▶ by partition ─▶ Fold::take (judge, project, one write batch) ─▶ progress ─▶ waiting queries
//! ```
//!
//! A stopped partition keeps its position; the loop reads on in it only to find the skip that voids the blocking
//! record. A partition whose store fails is retried from its committed offset. A record whose fold panics stops its own
//! partition. The loop itself restarts after a panic, and with a new reader after the old one has failed.

use crate::index::{
    executor::Executor,
    failpoint,
    fold::{self, Fold, Step, Stop, StopKind},
    rebuild,
    shared::Shared,
    store::{self, Rows},
};
use runlog_log::{Delivery, Kind, Log, Offset, PartitionId, Reader};
use runlog_schemas::datum::Sha256;
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// Records per poll; together with the log's own limit on bytes it bounds the loop's memory.
const POLL_RECORDS_MAX: usize = 4096;
/// How long the check of a partition's last record waits for the log.
const CHECK_WAIT: Duration = Duration::from_secs(10);
/// Folding fewer records than this is faster than starting threads.
const PARALLEL_RECORDS_MIN: usize = 256;
/// How long a poll waits for records.
const POLL_WAIT: Duration = Duration::from_millis(200);
/// The pause before a partition whose store failed is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The pause of a partition that waits for a schema, which takes milliseconds as a rule.
const AWAIT_SCHEMA: Duration = Duration::from_millis(50);

/// One partition's fold, and why it cannot continue, if it cannot.
struct PartitionWorker {
    fold: Fold,
    stopped: Option<Stop>,
    retry_at: Option<Instant>,
}

impl PartitionWorker {
    /// Folds a share up to the first record that blocks it. What is not folded is delivered again after a seek, or
    /// passed over while the partition is stopped.
    fn take<'d>(&mut self, share: Vec<&'d [Delivery]>) -> Result<StepOutcome<'d>, store::Error> {
        if self.retry_at.is_some() {
            return Ok(StepOutcome::Applied);
        }
        if let Some(stop) = self.stopped.clone() {
            return Ok(StepOutcome::Stopped { stop, rest: share });
        }
        for (index, chunk) in share.iter().enumerate() {
            match self.take_caught(chunk)? {
                Step::Applied => {}
                Step::Stopped(stop) => return Ok(StepOutcome::Stopped { stop, rest: share[index..].to_vec() }),
                Step::Waiting(failing) => return Ok(StepOutcome::Waiting(failing)),
                Step::Rebuild { at, offset, row } => {
                    return Ok(StepOutcome::Rebuild { at, offset, row, rest: share[index..].to_vec() });
                }
            }
        }
        Ok(StepOutcome::Applied)
    }
}

impl PartitionWorker {
    /// Folds a chunk. If that panics, folds its records one by one and stops at the one that panics: nothing of that
    /// record is committed, and the other partitions continue.
    fn take_caught(&mut self, chunk: &[Delivery]) -> Result<Step, store::Error> {
        if let Ok(step) = caught(|| self.fold.take(chunk)) {
            return step;
        }
        for delivery in chunk {
            match caught(|| self.fold.take(std::slice::from_ref(delivery))) {
                Ok(Ok(Step::Applied)) => {}
                Ok(step) => return step,
                Err(why) => return Ok(Step::Stopped(self.panicked(delivery.offset, &why))),
            }
        }
        Ok(Step::Applied)
    }

    fn panicked(&self, offset: Offset, why: &str) -> Stop {
        let partition = self.fold.partition;
        let error = format!("applying the record at partition {partition}, offset {offset} panicked: {why}");
        Stop { offset, kind: StopKind::Panic, error }
    }
}

/// Runs `work` and returns the message of its panic as an error.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // Sound to catch: a fold changes itself and its store only after a batch is complete.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
    })
}

/// The outcome of folding a partition's share of a poll.
enum StepOutcome<'d> {
    /// All of it was folded, or the partition waits for its retry.
    Applied,
    /// The partition is stopped; `rest` begins with or after the chunk that holds the blocking record.
    Stopped { stop: Stop, rest: Vec<&'d [Delivery]> },
    /// As [`Step::Waiting`].
    Waiting(Option<Stop>),
    /// As [`Step::Rebuild`]; `rest` as for a stop, which it becomes if the log cannot be read from its start.
    Rebuild { at: Offset, offset: Offset, row: store::meta::SkipRow, rest: Vec<&'d [Delivery]> },
}

/// A poll's records by partition, each in offset order. A partition may come in several chunks.
fn shares(batch: &[Delivery]) -> BTreeMap<PartitionId, Vec<&[Delivery]>> {
    let mut shares = BTreeMap::<_, Vec<_>>::new();
    for chunk in batch.chunk_by(|a, b| a.partition == b.partition) {
        shares.entry(chunk[0].partition).or_default().push(chunk);
    }
    shares
}

type Folded<'d> = Vec<(PartitionId, Result<StepOutcome<'d>, store::Error>)>;

/// Folds every share, on as many threads as there are cores if that pays. Returns when all are done.
fn fold_all<'d>(
    executor: &Executor,
    workers: &mut BTreeMap<PartitionId, PartitionWorker>,
    mut shares: BTreeMap<PartitionId, Vec<&'d [Delivery]>>,
) -> Folded<'d> {
    let records: usize = shares.values().flatten().map(|chunk| chunk.len()).sum();
    let jobs: Vec<_> = workers
        .iter_mut()
        .filter_map(|(partition, worker)| shares.remove(partition).map(|share| (*partition, worker, share)))
        .collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    if threads < 2 || records < PARALLEL_RECORDS_MIN || executor.is_caller() {
        return jobs.into_iter().map(|(partition, worker, share)| (partition, worker.take(share))).collect();
    }
    let jobs = Mutex::new(jobs.into_iter());
    let work = || {
        let mut done = Vec::new();
        loop {
            // A statement of its own: the lock must not be held while folding.
            let job = jobs.lock().expect("a fold panicked").next();
            let Some((partition, worker, share)) = job else { return done };
            done.push((partition, worker.take(share)));
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        done.extend(others.into_iter().flat_map(|other| other.join().expect("a fold panicked")));
        done
    })
}

/// The reason for a fold that cannot continue: the log no longer has the last record that it applied.
fn lost_end(log: &dyn Log, fold: &Fold, wait: Duration) -> Result<Option<Stop>, runlog_log::Error> {
    let progress: Option<store::meta::Progress> = fold.store.get(&store::meta::progress()).unwrap_or_default();
    let Some(last) = progress.and_then(|progress| progress.last) else { return Ok(None) };
    let found = match log.reader(&[(fold.partition, last.offset)]).and_then(|mut reader| reader.poll(1, wait)) {
        Ok(found) => found,
        Err(error) if error.kind() == Kind::OutOfRange => Vec::new(),
        Err(error) => return Err(error),
    };
    let same =
        found.first().is_some_and(|record| record.offset == last.offset && Sha256::of(&record.value) == last.hash);
    let stop = || Stop {
        offset: fold.next,
        kind: StopKind::LogDiverged,
        error: format!("the log lost the record at offset {} that the index was built from", last.offset),
    };
    Ok((!same).then(stop))
}

/// The loop's state.
pub struct Pipeline {
    shared: Arc<Shared>,
    reader: Box<dyn Reader>,
    workers: BTreeMap<PartitionId, PartitionWorker>,
    /// The reader has failed for good.
    lost: bool,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("partitions", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// A loop over `folds`, each of which continues at its position. A partition with a stop is not read.
    pub fn new(shared: Arc<Shared>, folds: Vec<(Fold, Option<Stop>)>) -> Result<Self, runlog_log::Error> {
        let from: Vec<_> =
            folds.iter().filter(|(_, stop)| stop.is_none()).map(|(fold, _)| (fold.partition, fold.next)).collect();
        let reader = shared.log.reader(&from)?;
        let mut workers = BTreeMap::new();
        for (mut fold, stopped) in folds {
            shared.report(fold.partition, fold.next, stopped.clone());
            rebuild::caught_up(&shared, &mut fold);
            workers.insert(fold.partition, PartitionWorker { fold, stopped, retry_at: None });
        }
        Ok(Self { shared, reader, workers, lost: false })
    }

    /// Runs until the service ends. After a panic every partition is read again from its committed offset.
    pub fn run(mut self) {
        while !self.shared.is_ending() {
            self.turn(POLL_RECORDS_MAX);
        }
    }

    /// Applies the next records, at most `records_max`, and returns how many it read.
    pub(crate) fn turn(&mut self, records_max: usize) -> usize {
        caught(|| self.turn_uncaught(records_max)).unwrap_or_else(|why| {
            tracing::error!("the projection loop panicked and begins again: {why}");
            self.all_again(StopKind::Panic, &format!("the projection loop panicked and begins again: {why}"));
            0
        })
    }

    fn turn_uncaught(&mut self, records_max: usize) -> usize {
        if self.lost {
            self.reconnect();
            return 0;
        }
        let read = match self.reader.poll(records_max, self.shared.config.executor.blocking_wait(POLL_WAIT)) {
            Ok(batch) => {
                self.route(&batch);
                batch.len()
            }
            Err(error) => {
                self.log_failed(error);
                0
            }
        };
        self.retry();
        read
    }

    /// Reports an error on every partition that is not stopped. Every partition that is read, stopped or not, is read
    /// again later from its committed offset.
    fn all_again(&mut self, kind: StopKind, error: &str) {
        for (partition, worker) in &mut self.workers {
            if worker.stopped.is_none() {
                let stop = Stop { offset: worker.fold.next, kind, error: error.to_owned() };
                self.shared.report(*partition, worker.fold.next, Some(stop));
            } else if self.reader.position(*partition).is_none() {
                continue;
            }
            worker.retry_at = Some(Instant::now() + RETRY_AFTER);
        }
    }

    /// Replaces a reader that has failed for good. Until a new one can be opened, the partitions keep reporting the
    /// error.
    fn reconnect(&mut self) {
        self.shared.config.executor.block(RETRY_AFTER);
        match self.shared.log.reader(&[]) {
            Ok(reader) => {
                tracing::warn!("reading the log again with a new reader");
                (self.reader, self.lost) = (reader, false);
            }
            Err(error) => tracing::error!("the log cannot be read: {error}"),
        }
    }

    /// Hands each partition its share, in order, and acts on the outcome. Partitions are independent, so the cores
    /// share them.
    fn route(&mut self, batch: &[Delivery]) {
        for (partition, outcome) in fold_all(&self.shared.config.executor, &mut self.workers, shares(batch)) {
            self.settle(partition, outcome);
        }
        for (partition, worker) in &mut self.workers {
            // A store that is being rebuilt does not answer yet: nothing to report until it takes over.
            let live = Arc::ptr_eq(&self.shared.store(*partition), &worker.fold.store);
            if live && worker.stopped.is_none() && worker.retry_at.is_none() {
                // The reader skips offsets that are never delivered, so its position may be ahead of the last record.
                let position = self.reader.position(*partition).unwrap_or(worker.fold.next);
                self.shared.report(*partition, position.max(worker.fold.next), None);
            }
        }
    }

    fn settle(&mut self, partition: PartitionId, outcome: Result<StepOutcome<'_>, store::Error>) {
        let Some(worker) = self.workers.get_mut(&partition) else { return };
        match outcome {
            Ok(StepOutcome::Applied) => rebuild::caught_up(&self.shared, &mut worker.fold),
            Ok(StepOutcome::Stopped { stop, rest }) => {
                let offset = stop.offset;
                // The records after the stop may include the skip: then the stop need not be reported.
                let found =
                    rest.iter().find_map(|chunk| fold::skip_for(offset, chunk, &*worker.fold.schemas).transpose());
                let Some(Ok(row)) = found else {
                    if found.is_some() {
                        // It may be the skip: the partition is read again from where it stopped.
                        worker.retry_at = Some(Instant::now() + RETRY_AFTER);
                    }
                    // A rebuild that stops takes over with what it has.
                    rebuild::caught_up(&self.shared, &mut worker.fold);
                    return self.stop(partition, stop);
                };
                tracing::warn!(%partition, %offset, who = row.who, why = row.why, "record skipped, partition goes on");
                match worker.fold.void(offset, &row) {
                    Ok(()) => worker.stopped = None,
                    Err(error) => return self.store_failed(partition, error),
                }
                self.shared.config.failpoints.at(failpoint::SKIP_VOIDED);
                self.seek_back(partition);
            }
            Ok(StepOutcome::Waiting(failing)) => {
                let pause = if failing.is_some() { RETRY_AFTER } else { AWAIT_SCHEMA };
                worker.retry_at = Some(Instant::now() + pause);
                if failing.is_some() {
                    self.shared.report(partition, worker.fold.next, failing);
                }
            }
            Ok(StepOutcome::Rebuild { at, offset, row, rest }) => {
                if let Some(stop) = self.rebuild(partition, at, offset, &row) {
                    // The skip of this partition's blocking record may be among the rest.
                    self.settle(partition, Ok(StepOutcome::Stopped { stop, rest }));
                }
            }
            Err(error) => self.store_failed(partition, error),
        }
    }

    /// Begins a rebuild in which the skip at `at` voids the record at `offset`. If the log no longer starts at offset
    /// 0, the partition stops at the skip instead and keeps its rows.
    fn rebuild(
        &mut self,
        partition: PartitionId,
        at: Offset,
        offset: Offset,
        row: &store::meta::SkipRow,
    ) -> Option<Stop> {
        let worker = self.workers.get_mut(&partition)?;
        match self.reader.seek(partition, Offset::ZERO) {
            Ok(()) => {
                if let Err(error) = rebuild::begin(&self.shared, &mut worker.fold, offset, row) {
                    self.store_failed(partition, error);
                }
            }
            Err(error) if error.kind() == Kind::OutOfRange => {
                let error = format!(
                    "cannot rebuild: the log no longer starts at offset 0 ({error}). The skip at partition {partition}, offset \
                     {at} voids the applied record at offset {offset}; skip that skip to keep the record and go on"
                );
                return Some(Stop { offset: at, kind: StopKind::CannotRebuild, error });
            }
            Err(error) => self.unread(partition, &error),
        }
        None
    }

    /// Stops the partition, and reports that once.
    fn stop(&mut self, partition: PartitionId, stop: Stop) {
        let Some(worker) = self.workers.get_mut(&partition) else { return };
        if worker.stopped.as_ref() != Some(&stop) {
            tracing::error!(%partition, offset = %stop.offset, kind = stop.kind.as_str(), "{}", stop.error);
            self.shared.report(partition, worker.fold.next, Some(stop.clone()));
            worker.stopped = Some(stop);
            self.shared.config.failpoints.at(failpoint::STOP_TOLD);
        }
    }

    /// Reads the partition again from its committed offset.
    fn seek_back(&mut self, partition: PartitionId) {
        let Some(worker) = self.workers.get_mut(&partition) else { return };
        if let Err(error) = self.reader.seek(partition, worker.fold.next) {
            self.unread(partition, &error);
        }
    }

    /// Retries the partition after a pause, from its committed offset.
    fn unread(&mut self, partition: PartitionId, error: &runlog_log::Error) {
        let Some(worker) = self.workers.get_mut(&partition) else { return };
        let stop = Stop { offset: worker.fold.next, kind: StopKind::Log, error: error.to_string() };
        self.shared.report(partition, worker.fold.next, Some(stop));
        worker.retry_at = Some(Instant::now() + RETRY_AFTER);
    }

    fn store_failed(&mut self, partition: PartitionId, error: store::Error) {
        let Some(worker) = self.workers.get_mut(&partition) else { return };
        let kind = if error.damaged() { StopKind::IndexDamaged } else { StopKind::Store };
        let error = crate::index::Error::from(error).problem().detail;
        tracing::error!(%partition, next = %worker.fold.next, "{error}");
        let stop = Stop { offset: worker.fold.next, kind, error };
        self.shared.report(partition, worker.fold.next, Some(stop));
        worker.retry_at = Some(Instant::now() + RETRY_AFTER);
    }

    fn retry(&mut self) {
        let now = Instant::now();
        let due: Vec<PartitionId> = self
            .workers
            .iter_mut()
            .filter(|(_, worker)| worker.retry_at.is_some_and(|at| at <= now))
            .map(|(partition, worker)| {
                worker.retry_at = None;
                *partition
            })
            .collect();
        for partition in due {
            self.seek_back(partition);
        }
    }

    /// Stops the partition that the log names. If it names none, stops those whose last record is no longer in the log.
    fn log_failed(&mut self, error: runlog_log::Error) {
        let at = error.subject().partition;
        match error.kind() {
            Kind::OutOfRange if at.is_none() => self.check_all(&error),
            Kind::OutOfRange | Kind::Damaged => {
                let kind = if error.kind() == Kind::Damaged { StopKind::LogDamaged } else { StopKind::LogTruncated };
                let told = crate::index::Error::from(error).problem().detail;
                for (partition, worker) in &mut self.workers {
                    if at.is_none_or(|at| at == *partition) {
                        let stop = Stop { offset: worker.fold.next, kind, error: told.clone() };
                        tracing::error!(%partition, "{told}");
                        self.shared.report(*partition, worker.fold.next, Some(stop.clone()));
                        worker.stopped = Some(stop);
                        self.reader.release(*partition).ok();
                    }
                }
            }
            Kind::Fatal => {
                tracing::error!("the log's reader has failed, a new one takes its place: {error}");
                self.all_again(StopKind::Log, &error.to_string());
                self.lost = true;
            }
            Kind::Retry | Kind::Invalid | Kind::Unknown => {
                tracing::warn!("reading the log failed, trying again: {error}");
                self.shared.config.executor.block(POLL_WAIT);
            }
        }
    }

    /// Compares each partition's last record with the log's, stops those that differ, and reads the others again.
    fn check_all(&mut self, error: &runlog_log::Error) {
        tracing::error!("the log lost records; looking which partitions are affected: {error}");
        let partitions: Vec<PartitionId> = self.workers.keys().copied().collect();
        for partition in partitions {
            let Some(worker) = self.workers.get_mut(&partition).filter(|worker| worker.stopped.is_none()) else {
                continue;
            };
            match lost_end(&*self.shared.log, &worker.fold, self.shared.config.executor.blocking_wait(CHECK_WAIT)) {
                Ok(None) => self.seek_back(partition),
                Ok(Some(stop)) => {
                    self.reader.release(partition).ok();
                    self.stop(partition, stop);
                }
                // Unknown for now: asked again when the partition is read again.
                Err(error) => self.unread(partition, &error),
            }
        }
    }
}
