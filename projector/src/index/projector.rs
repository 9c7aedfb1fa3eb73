//! The projector: owns the indices, runs the loop on its own threads, and answers queries.

use super::{
    config::Config,
    content::Contents,
    entry::entry,
    error::Error,
    executor::{Executor, NoResult},
    fold::Stop,
    held::NotHere,
    home::HomeState,
    pipeline::Pipeline,
    query::{self, TopicPartition},
    shared::{Progress, Shared},
    store::{Store, meta},
};
use runlog_log::{Bounds, Entry, Log};
use runlog_schemas::{
    answer::{ErrorKind, Feature, Position},
    id::{Offset, PartitionId, RunId, split_log},
    partition::partition_of,
    record::JournalRecord,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering, mpsc},
    thread::JoinHandle,
    time::Duration,
};
use tokio::time::Instant;

mod continuing;
mod homes;
mod landed;
mod start;

pub use super::doubt::Author;
pub use continuing::NotAppended;
pub use homes::{Decision, HomePlan, Sign, Taken};

/// How long [`Projector::end`] waits for the flush of all rows.
const END_FLUSH_WAIT: Duration = Duration::from_secs(5);

/// The freshness of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// All records applied so far.
    Eventual,
    /// All records of this partition up to this offset (inclusive).
    AtLeast(PartitionId, Offset),
    /// All records that the log contained when the query arrived.
    Latest,
}

impl Consistency {
    /// Parses `eventual`, `latest`, `at-least=P:O` or `at-least=P:O@LOG`. The caller compares the log.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "eventual" => Some(Self::Eventual),
            "latest" => Some(Self::Latest),
            _ => {
                let (partition, offset) = split_log(text.strip_prefix("at-least=")?).0.split_once(':')?;
                Some(Self::AtLeast(query::number(partition)?, query::number(offset)?))
            }
        }
    }

    /// The freshness that a list of all partitions needs in `partition`.
    pub fn in_partition(self, partition: PartitionId) -> Self {
        match self {
            Self::AtLeast(named, _) if named != partition => Self::Eventual,
            same => same,
        }
    }
}

/// The thread that runs the loop.
#[derive(Debug)]
enum Runner {
    /// A thread of the projector.
    Thread(JoinHandle<()>),
    /// The caller's thread, in [`Projector::step`].
    Caller(Box<Pipeline>),
    /// None: the projector is paused, holds no partition, or has ended.
    Nobody,
}

/// A running projector. Dropping it ends it, as [`Projector::end`] does.
#[derive(Debug)]
pub struct Projector {
    pub(crate) shared: Arc<Shared>,
    runner: Mutex<Runner>,
}

impl Projector {
    /// Ends the loop and waits for it: at most one poll's wait, and one second for the writes in progress. A write that
    /// does not return in time stays with its thread. Then flushes the indices, for at most 5 s. The next start applies the
    /// records again whose rows are not on disk.
    pub fn end(&self) {
        self.shared.ending.store(true, Ordering::Release);
        let runner = std::mem::replace(&mut *self.runner(), Runner::Nobody);
        match runner {
            Runner::Nobody => return,
            Runner::Caller(_) => {}
            Runner::Thread(thread) => {
                if thread.join().is_err() {
                    tracing::error!("the projection loop panicked earlier; its committed state is intact");
                }
            }
        }
        self.flush_all();
    }

    fn flush_all(&self) {
        let shared = self.shared.clone();
        let flush = move || {
            let flush = |partition| -> Result<(), Error> { Ok(shared.store(partition)?.flush()?) };
            shared.config.executor.each(shared.held_partitions().collect(), shared.builds_max, |partition: PartitionId| {
                if let Err(error) = flush(partition) {
                    tracing::error!(%partition, %error, "the index is not flushed; the next start applies its last records again");
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
            // Drops the stores before the caller continues: the caller may close them next, which must not happen later on
            // this thread.
            drop(flush);
            done.send(()).ok();
        });
        if thread.is_err() || ended.recv_timeout(END_FLUSH_WAIT).is_err() {
            tracing::error!("the indices are not flushed in time; the next start applies their last records again");
        }
    }

    /// Runs one iteration of the loop on this thread, for a caller that runs the projector itself ([`Executor::Caller`]).
    /// Reads at most `records_max` records that are in the log, applies and commits them, and wakes the queries that wait
    /// for them. Does not block. Partitions with a temporary failure are retried in the first iteration after their pause.
    ///
    /// Returns how many records it read; 0 if there are none, if the log failed, and if no loop runs or a thread runs
    /// it.
    pub fn step(&self, records_max: usize) -> usize {
        match &mut *self.runner() {
            Runner::Caller(pipeline) if !self.shared.is_ending() => pipeline.poll_once(records_max),
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

    /// The home of the journal and the id of the log.
    pub fn home(&self) -> &HomeState {
        &self.shared.home
    }

    /// Whether clients may use a feature: not every schema version that is written can express all.
    pub fn has(&self, feature: Feature) -> bool {
        self.shared.config.writes_basis() || !feature.needs_basis()
    }

    /// The log's time now, milliseconds since the Unix epoch: by the log's own clock, or by the projector's if another
    /// machine timestamps the log's records.
    pub fn log_now(&self) -> i64 {
        let own_clock = || i64::try_from((self.shared.config.clock)()).unwrap_or(i64::MAX);
        self.shared.log.clock_millis().unwrap_or_else(own_clock)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The bytes of RocksDB's cache and of its memtables in use, of all partitions.
    pub fn memory_in_use(&self) -> (usize, usize) {
        self.shared.budget.in_use()
    }

    /// Whether the index of `partition` answers no query yet, also at `eventual`: it is built again and has not reached the offset of
    /// the older layout's index, or it has not reached the log's end of the start ([`Holds`](super::held::Holds)).
    pub fn is_rebuilding(&self, partition: PartitionId) -> Result<bool, NotHere> {
        Ok(self.shared.awaited(partition)?.is_some())
    }

    /// Runs a read that may block a thread, as soon as there is a permit.
    pub async fn read<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> Result<T, NoResult> {
        self.shared.read(read).await
    }

    /// The executor of its reads.
    pub fn executor(&self) -> &Executor {
        &self.shared.config.executor
    }

    /// Whether the projector is paused: it reads no records.
    pub fn paused(&self) -> bool {
        self.shared.config.paused
    }

    /// The store of payloads that are too large for a record.
    pub fn content(&self) -> Option<&runlog_content::Store> {
        self.shared.config.content.as_ref()
    }

    /// Access to the content for one query, which may wait this long in all.
    pub fn contents(&self, wait: Duration) -> Contents {
        Contents::new(self.content().cloned(), wait)
    }

    /// A run's partition.
    pub fn partition_of(&self, run_id: RunId<&str>) -> PartitionId {
        partition_of(run_id, self.shared.journal.partitions)
    }

    /// The partitions that this server holds, in order.
    pub fn held_partitions(&self) -> impl Iterator<Item = PartitionId> + Clone {
        self.shared.held_partitions()
    }

    /// The partitions of the journal that this server does not hold, in order.
    pub fn absent(&self) -> impl Iterator<Item = PartitionId> + Clone {
        PartitionId::all(self.shared.journal.partitions).filter(|partition| self.check_held(*partition).is_err())
    }

    /// Whether this server holds all partitions of the journal.
    pub fn holds_all(&self) -> bool {
        self.shared.holds_all
    }

    /// Checks that this server holds all partitions of the journal. The error names the first partition that it does not hold.
    pub fn check_all_held(&self) -> Result<(), NotHere> {
        self.absent().next().map_or(Ok(()), |partition| Err(NotHere { partition }))
    }

    /// Checks that this server holds `partition`, which must be a partition of the journal.
    pub fn check_held(&self, partition: PartitionId) -> Result<(), NotHere> {
        self.shared.check_held(partition)
    }

    /// The progress of `partition`.
    pub fn progress(&self, partition: PartitionId) -> Result<Progress, NotHere> {
        self.shared.progress(partition)
    }

    /// Waits until `reached` holds for the progress of `partition`, and returns that progress. Never returns if it never
    /// holds. The waiters of a partition wake in the order in which they began to wait.
    pub async fn wait_until(
        &self,
        partition: PartitionId,
        reached: impl Fn(&Progress) -> bool,
    ) -> Result<Progress, NotHere> {
        self.shared.wait_until(partition, reached).await
    }

    /// The store that answers queries of `partition`. Each view of it shows one log position.
    pub fn store(&self, partition: PartitionId) -> Result<Arc<Store>, NotHere> {
        self.shared.store(partition)
    }

    /// A position of this journal.
    pub fn position(&self, partition: PartitionId, offset: Offset, index: u32) -> Position {
        self.place(partition).position(offset, index)
    }

    /// The topic and partition of an answer's positions.
    pub fn place(&self, partition: PartitionId) -> TopicPartition<'_> {
        TopicPartition { topic: self.shared.log.topic(), partition, log: self.shared.home.tag() }
    }

    /// Requests the partition's bounds from the log.
    pub async fn bounds(&self, partition: PartitionId, deadline: Duration) -> Result<Bounds, Error> {
        let bounds = self.shared.log.bounds(partition, deadline).await?;
        self.shared.flushes.saw_log_start(partition, bounds.start, Instant::now());
        Ok(bounds)
    }

    /// Requests the partition's end offset from the log. Also requests its start offset if the last answer is older than a
    /// second.
    async fn log_end(&self, partition: PartitionId, deadline: Duration) -> Result<Offset, Error> {
        if self.shared.flushes.knows_log_start(partition, Instant::now()) {
            return Ok(self.shared.log.end(partition, deadline).await?);
        }
        Ok(self.bounds(partition, deadline).await?.end)
    }

    /// Checks the partition that `consistency` names.
    ///
    /// Errors: `Usage` if the journal does not have it.
    pub fn check_partition_of(&self, consistency: Consistency) -> Result<(), Error> {
        match consistency {
            Consistency::AtLeast(partition, _) if partition.get() >= self.shared.journal.partitions => {
                let message = format!("the journal has no partition {partition}");
                Err(Error::new(ErrorKind::Usage, message).in_partition(partition))
            }
            _ => Ok(()),
        }
    }

    /// Waits until `partition` is as fresh as `consistency` requires. `latest` requests the log's end offset after this
    /// call began. `eventual` waits only for an index that is being rebuilt, until it has reached the offset of the older
    /// layout's index, and for an index of [`Holds::Chosen`](super::held::Holds::Chosen) partitions, until it has reached the end that
    /// the log had at the start.
    ///
    /// Errors: `Stale` with the lag, after the deadline; `PartitionStopped` at once on a stopped partition, except at
    /// `eventual` without such a wait. A stopped partition may have applied enough records, but of another log. At `latest`
    /// `Unavailable` with the reason `mirror` if the log is not the journal's home: the home may have more records.
    pub async fn wait(
        &self,
        partition: PartitionId,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<(), Error> {
        self.wait_at_home(partition, Offset::ZERO, consistency, deadline).await
    }

    /// Waits until `partition` has applied all records that the log contained when this call began, also on a mirror.
    ///
    /// Errors: as [`Projector::wait`] at `latest`, except that a mirror is no error.
    pub async fn caught_up(&self, partition: PartitionId, deadline: Duration) -> Result<(), Error> {
        self.wait_knowing(partition, Offset::ZERO, Consistency::Latest, deadline).await
    }

    /// Waits until the record at `offset`, which the log has acknowledged, is applied, and `partition` is as fresh as
    /// `consistency` requires. Both waits run concurrently: the request for the log's end needs only the acknowledgement.
    /// At `latest`, an end offset that does not include the record is `Unavailable`, because a deposed leader reported it.
    pub async fn wait_past(
        &self,
        partition: PartitionId,
        offset: Offset,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<(), Error> {
        let applied = self.wait(partition, Consistency::AtLeast(partition, offset), deadline);
        let fresh = self.wait_at_home(partition, offset.saturating_add(1), consistency, deadline);
        tokio::try_join!(applied, fresh).map(drop)
    }

    /// Like [`Projector::wait_knowing`], and refuses `latest` on a mirror.
    async fn wait_at_home(
        &self,
        partition: PartitionId,
        known: Offset,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<(), Error> {
        self.check_held(partition)?;
        let check = || match consistency {
            Consistency::Latest => self.shared.home.check_home("a read at latest"),
            Consistency::Eventual | Consistency::AtLeast(..) => Ok(()),
        };
        check()?;
        let until = Instant::now() + deadline;
        self.wait_knowing(partition, known, consistency, deadline).await?;
        // The records that were applied meanwhile may have made the log a mirror.
        check()?;
        if consistency != Consistency::Latest || !self.shared.home.can_be_mirror(partition) {
            return Ok(());
        }
        let home = &self.shared.home;
        let is_read = async {
            if !self.holds_all() {
                home.await_known().await;
                return Ok(());
            }
            // A home is appended to partition 0 first.
            self.wait_until(PartitionId::ZERO, |_| !home.can_be_mirror(partition)).await.map(drop)
        };
        let left = until.saturating_duration_since(Instant::now());
        let Ok(read) = tokio::time::timeout(left, is_read).await else {
            let message = format!("{}; retry", home.why_unknown());
            return Err(Error::new(ErrorKind::Unavailable, message).in_partition(partition));
        };
        read?;
        check()
    }

    /// Like [`Projector::wait`], on any log. It is known to have all offsets below `known`.
    async fn wait_knowing(
        &self,
        partition: PartitionId,
        known: Offset,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<(), Error> {
        self.check_held(partition)?;
        let until = Instant::now() + deadline;
        let (partition, target) = match consistency {
            Consistency::Eventual => match self.shared.awaited(partition)? {
                None => return Ok(()),
                // An answer from fewer records would be a wrong "not done yet".
                Some(until) => (partition, until),
            },
            Consistency::AtLeast(partition, offset) => {
                self.check_partition_of(consistency)?;
                (partition, offset.saturating_add(1))
            }
            Consistency::Latest => {
                let least = self.progress(partition)?.applied.max(known);
                let end = self.log_end(partition, deadline).await?;
                if end < least {
                    // A stop says more than the end.
                    self.running(partition)?;
                    let error = Error::new(ErrorKind::Unavailable, moved_back(partition, end, least));
                    return Err(error.at(&self.position(partition, end, 0)));
                }
                (partition, end)
            }
        };
        let left = until.saturating_duration_since(Instant::now());
        let fresh = |progress: &Progress| progress.applied >= target || progress.stopped.is_some();
        match tokio::time::timeout(left, self.wait_until(partition, fresh)).await {
            Ok(progress) => match &progress?.stopped {
                None => Ok(()),
                Some(stop) => Err(self.stopped(partition, stop)),
            },
            Err(_) => Err(Error::stale(self.progress(partition)?.applied, &self.position(partition, target, 0))),
        }
    }

    /// Returns `PartitionStopped` for a stopped partition.
    pub fn running(&self, partition: PartitionId) -> Result<(), Error> {
        self.progress(partition)?.stopped.as_ref().map_or(Ok(()), |stop| Err(self.stopped(partition, stop)))
    }

    /// Encodes a record for the log.
    ///
    /// Errors: `TooLarge`; `Unavailable` while the schema registry has not assigned an id to the schema.
    pub fn entry(&self, record: &JournalRecord) -> Result<Entry, Error> {
        entry(record, &*self.shared.config.schemas)
    }

    fn stopped(&self, partition: PartitionId, stop: &Stop) -> Error {
        let answers = match self.shared.awaited(partition) {
            Ok(None) => "`eventual` still answers",
            _ => "its index is not complete, so no query is answered",
        };
        let why = &stop.error;
        Error::new(
            ErrorKind::PartitionStopped,
            format!("partition {partition} is stopped: {why}; `runlog doctor` names the remedy, {answers}"),
        )
        .at(&self.position(partition, stop.offset, 0))
    }
}

impl Drop for Projector {
    fn drop(&mut self) {
        self.end();
    }
}

/// The message for a log whose end offset is below the applied offset.
pub fn moved_back(partition: PartitionId, end: Offset, applied: Offset) -> String {
    format!(
        "the log of partition {partition} ends at offset {end}, and records up to {applied} were applied from it: a deposed \
         leader answered, or the topic was deleted and created again; retry; if the error persists, restart the server"
    )
}
