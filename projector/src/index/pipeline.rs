//! The loop: the only consumer of the log and the only writer of the live indices.
//!
//! ```text
//!   Reader::poll ─▶ by partition ─▶ queue of records ─▶ a worker: Job (judge, project, one write batch) ─▶ progress ─▶
//!     this thread                   (bounded)            as many as there are cores                        waiting queries
//! ```
//!
//! Partitions do not wait for each other. This thread only reads, and pauses a partition whose queue is full because its
//! store is slow. A partition whose store does not return reports `store_stalled`, and continues when the store returns.
//!
//! A stopped partition keeps its position; the loop continues to read it only to find the skip that voids the blocking
//! record. A partition whose store fails is retried from its committed offset. A record whose fold panics stops its own
//! partition. The loop itself restarts after a panic, and with a new reader after the old one has failed.

use super::{
    fold::{Fold, Stop, StopKind},
    rebuild,
    shared::Shared,
};
use job::{RETRY_AFTER, catch_panic};
use partition::{Capacity, Partition};
use pool::Pool;
use runlog_log::{Delivery, Offset, PartitionId, Reader};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

mod job;
mod partition;
mod pool;
mod stops;

/// Records per poll. With the log's own limit on bytes it bounds the memory above the queues' capacity.
const POLL_RECORDS_MAX: usize = 4096;
/// How long a poll waits for records.
const POLL_WAIT: Duration = Duration::from_millis(200);
/// How long a poll waits while jobs run: a job may end and need a seek.
const BUSY_WAIT: Duration = Duration::from_millis(20);
/// The records in one partition's queue.
const QUEUE_RECORDS: usize = 4096;
/// The bytes in the queues of all partitions, and the minimum and maximum of one partition's share.
const QUEUES_BYTES: usize = 32 << 20;
const QUEUE_BYTES_MIN: usize = 1 << 20;
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// The duration after which a job counts as stuck: it no longer delays the reader, and another thread replaces its thread.
const STUCK_AFTER: Duration = Duration::from_millis(500);
/// How long the shutdown waits for the jobs in progress.
const END_WAIT: Duration = Duration::from_secs(1);

/// A partition at the start of the loop.
#[derive(Debug)]
pub struct Start {
    /// Its fold.
    pub fold: Fold,
    /// The stop of a partition that the loop must not read.
    pub stopped: Option<Stop>,
    /// Its index is built in bulk up to this offset before it is read.
    pub build: Option<Offset>,
}

/// The loop's state.
pub struct Pipeline {
    shared: Arc<Shared>,
    reader: Box<dyn Reader>,
    pool: Pool,
    /// The reader has failed for good.
    reader_failed: bool,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// A loop over `folds`, each of which continues at its position.
    pub fn new(shared: Arc<Shared>, folds: Vec<Start>) -> Result<Self, runlog_log::Error> {
        let read = folds.iter().filter(|start| start.stopped.is_none() && start.build.is_none());
        let from: Vec<_> = read.map(|start| (start.fold.partition, start.fold.next)).collect();
        let reader = shared.log.reader(&from)?;
        let bytes = (QUEUES_BYTES / folds.len().max(1)).clamp(QUEUE_BYTES_MIN, QUEUE_BYTES_MAX);
        let capacity = Capacity { records: QUEUE_RECORDS, bytes };
        let mut partitions = BTreeMap::new();
        for Start { mut fold, stopped, build } in folds {
            shared.report(fold.partition, fold.next, stopped.clone());
            rebuild::finish_if_caught_up(&shared, &mut fold);
            partitions.insert(fold.partition, Mutex::new(Partition::new(fold, stopped, build, capacity)));
        }
        let mut pool = Pool::new(shared.clone(), partitions);
        pool.set_stuck(0);
        for id in pool.ids() {
            if pool.partition(id).is_some_and(|mut partition| partition.schedule()) {
                pool.queue(id);
            }
        }
        Ok(Self { shared, reader, pool, reader_failed: false })
    }

    /// Runs until the service ends, then waits for the jobs in progress, at most 1 s. After a panic it rereads every
    /// partition from its committed offset.
    pub fn run(mut self) {
        while !self.shared.is_ending() {
            self.poll_once(POLL_RECORDS_MAX);
        }
        self.pool.end(END_WAIT);
    }

    /// Reads the next records, at most `records_max`, and returns how many. If the caller runs everything, they are
    /// applied when this returns.
    pub(crate) fn poll_once(&mut self, records_max: usize) -> usize {
        catch_panic(|| self.poll_and_apply(records_max)).unwrap_or_else(|why| {
            tracing::error!("the projection loop panicked and restarts: {why}");
            self.retry_all(StopKind::Panic, &format!("the projection loop panicked and restarts: {why}"));
            0
        })
    }

    fn poll_and_apply(&mut self, records_max: usize) -> usize {
        if self.reader_failed {
            self.reconnect();
            return 0;
        }
        self.drain_full_queues();
        let wait = self.shared.config.executor.blocking_wait(self.poll_wait());
        let read = match self.reader.poll(records_max, wait) {
            Ok(batch) => {
                let read = batch.len();
                self.route(batch);
                read
            }
            Err(error) => {
                self.handle_log_error(error);
                0
            }
        };
        // Must precede `run_all`. Otherwise the next poll would run the flush before the jobs of that poll's records. The
        // duration of the flush would then change the order in which the caller's tasks wake.
        self.schedule_flush_checks();
        self.pool.run_all();
        self.report_stalled_jobs();
        self.update_reader();
        read
    }

    /// How long the next poll may wait for records.
    fn poll_wait(&self) -> Duration {
        let now = Instant::now();
        let wait = |partition: &Partition| match partition.retry_at() {
            _ if partition.is_busy() => BUSY_WAIT,
            Some(at) => at.saturating_duration_since(now),
            None => POLL_WAIT,
        };
        let waits = self.pool.ids().filter_map(|id| Some(wait(&*self.pool.partition(id)?)));
        waits.min().unwrap_or(POLL_WAIT).min(POLL_WAIT)
    }

    /// Hands each partition its records, in order.
    fn route(&mut self, batch: Vec<Delivery>) {
        let mut shares = BTreeMap::<PartitionId, Vec<Delivery>>::new();
        for delivery in batch {
            shares.entry(delivery.partition).or_default().push(delivery);
        }
        for id in self.pool.ids() {
            let records = shares.remove(&id).unwrap_or_default();
            let position = self.reader.position(id);
            let queue = self.pool.partition(id).is_some_and(|mut at| at.deliver(&self.shared, records, position));
            if queue {
                self.pool.queue(id);
            }
        }
    }

    /// Waits until no partition is full, so that the queues stay bounded. Does not wait for a partition whose job is stuck;
    /// that partition is paused until its queue is half empty.
    fn drain_full_queues(&mut self) {
        loop {
            let jobs = self.pool.jobs();
            let mut waiting = false;
            for id in self.pool.ids() {
                let Some(mut partition) = self.pool.partition(id).filter(|partition| partition.is_full()) else {
                    continue;
                };
                if !partition.is_slow(STUCK_AFTER) {
                    waiting = true;
                    continue;
                }
                tracing::warn!(partition = %id, next = %partition.next(), "the partition's index is slow, pausing its reads");
                partition.pause();
                drop(partition);
                if let Err(error) = self.reader.release(id) {
                    self.retry_partition(id, &error);
                }
            }
            if !waiting || self.shared.is_ending() {
                return;
            }
            self.pool.wait_for_job(jobs, BUSY_WAIT);
            self.report_stalled_jobs();
        }
    }

    /// Reports jobs that do not return, and replaces their threads.
    fn report_stalled_jobs(&mut self) {
        let mut stuck = 0;
        for id in self.pool.ids() {
            let Some(mut partition) = self.pool.partition(id) else { continue };
            partition.report_stall(&self.shared);
            stuck += usize::from(partition.is_slow(STUCK_AFTER));
        }
        self.pool.set_stuck(stuck);
    }

    /// Schedules a flush check for idle partitions, which no record would trigger.
    fn schedule_flush_checks(&mut self) {
        let now = Instant::now();
        for id in self.pool.ids() {
            let due = self.shared.flushes.is_due(id, now);
            if due && self.pool.partition(id).is_some_and(|mut partition| partition.flush()) {
                self.pool.queue(id);
            }
        }
    }

    /// Seeks partitions whose retry is due, resumes drained partitions, and releases closed partitions and partitions
    /// that are built in bulk.
    fn update_reader(&mut self) {
        let now = Instant::now();
        for id in self.pool.ids() {
            let Some(mut partition) = self.pool.partition(id) else { continue };
            if partition.take_release() {
                self.reader.release(id).ok();
            }
            let (again, drained) = (partition.take_reread_offset(now), partition.is_drained());
            let from = again.or(drained.then(|| partition.read_position()));
            drop(partition);
            let Some(from) = from else { continue };
            match self.reader.seek(id, from) {
                Ok(()) => self.pool.partition(id).into_iter().for_each(|mut partition| partition.resume()),
                Err(error) => self.retry_partition(id, &error),
            }
        }
    }

    /// Retries the partition after a pause, from its committed offset.
    fn retry_partition(&mut self, id: PartitionId, error: &runlog_log::Error) {
        if let Some(mut partition) = self.pool.partition(id) {
            partition.retry_after(RETRY_AFTER);
            // A stopped partition keeps its reason.
            if !partition.is_stopped() {
                partition.report_error(&self.shared, StopKind::Log, error.to_string());
            }
        }
    }
}
