//! One partition of the loop: its fold, its queued records, and the reason for a stop.
//!
//! ```text
//!   deliver ─▶ records (bounded) ─▶ take_job ─▶ Job::run, without a lock ─▶ apply_result: progress or stop
//! ```
//!
//! The loop delivers records and seeks the reader; a worker runs the job. Both hold the partition's lock only
//! briefly. One job at a time applies the records, in the order of delivery.

use super::job::{Job, JobResult, Next, Work};
use crate::index::{
    fold::{Fold, Stop, StopKind},
    shared::{Progress, Shared},
};
use runlog_log::{Delivery, Offset, PartitionId};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The maximum number of records of one job: one write batch.
const JOB_RECORDS_MAX: usize = 1024;
/// A job ends with the record that reaches this, bytes.
const JOB_BYTES_MAX: usize = 4 << 20;
/// How long a job may take before its partition counts as stalled.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(5);

/// The records and bytes at which a partition's queue is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// Whether the reader delivers records.
#[derive(Clone, Debug)]
enum Reading {
    Live,
    /// The reader has released the partition until its queue is drained.
    Paused,
    /// The reader rereads from `next` at this time. Until then deliveries are dropped.
    RetryAt(Instant),
    /// The log is damaged after the delivered records. The partition closes when they are applied.
    Damaged {
        error: String,
    },
    /// It is not read again before a restart.
    Closed,
}

/// Whether the partition waits for a worker, or one runs its job.
#[derive(Clone, Copy, Debug)]
enum WorkState {
    Idle,
    /// It is in the pool's queue.
    Queued,
    /// A job has the fold.
    Working(Working),
}

/// A job in progress.
#[derive(Clone, Copy, Debug)]
struct Working {
    since: Instant,
    kind: JobKind,
    /// The job has exceeded [`STALLED_AFTER`], which is reported.
    stalled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobKind {
    /// Writes the index.
    Writes,
    /// Builds the index in bulk.
    Builds,
    /// Compares the last applied record with the log's.
    Checks,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Partition {
    id: PartitionId,
    /// `None` while a job has it.
    fold: Option<Fold>,
    /// The next offset to apply, as of the end of the last job.
    next: Offset,
    /// Delivered records in order, without the records of the current job.
    records: VecDeque<Delivery>,
    bytes: usize,
    capacity: Capacity,
    /// The reader's position: all records below it are in `records`, in a job or applied.
    read: Offset,
    /// The reason for a stop. Unless the partition is closed, its jobs search later records for the skip that voids this
    /// record.
    stopped: Option<Stop>,
    reading: Reading,
    /// The reader must release it.
    release: bool,
    /// The next job compares the last applied record with the log's.
    check: bool,
    /// A job must build its index in bulk up to this offset (exclusive).
    build: Option<Offset>,
    /// A job must check whether a flush is due.
    flush: bool,
    work: WorkState,
}

impl Partition {
    /// A partition at its fold's position. With a stop it is not read.
    pub(super) fn new(fold: Fold, stopped: Option<Stop>, build: Option<Offset>, capacity: Capacity) -> Self {
        let (id, next) = (fold.partition, fold.next);
        let reading = if stopped.is_some() { Reading::Closed } else { Reading::Live };
        Self {
            id,
            fold: Some(fold),
            next,
            records: VecDeque::new(),
            bytes: 0,
            capacity,
            read: next,
            stopped,
            reading,
            release: false,
            check: false,
            build,
            flush: false,
            work: WorkState::Idle,
        }
    }

    /// The next offset to apply.
    pub(super) fn next(&self) -> Offset {
        self.next
    }

    /// Where the reader continues after a pause.
    pub(super) fn read_position(&self) -> Offset {
        self.read
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.reading, Reading::Closed)
    }

    /// Whether it cannot continue by itself.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The time of the reread from `next`, if one is planned.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        match self.reading {
            Reading::RetryAt(at) => Some(at),
            Reading::Live | Reading::Paused | Reading::Damaged { .. } | Reading::Closed => None,
        }
    }

    /// Whether it has work, now or in a queue.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.work, WorkState::Idle)
    }

    /// Whether its job has taken longer than `wait`.
    pub(super) fn is_slow(&self, wait: Duration) -> bool {
        self.working().is_some_and(|job| job.since.elapsed() >= wait)
    }

    fn working(&self) -> Option<Working> {
        match self.work {
            WorkState::Working(job) => Some(job),
            WorkState::Idle | WorkState::Queued => None,
        }
    }

    fn is_paused(&self) -> bool {
        matches!(self.reading, Reading::Paused)
    }

    fn waits_to_be_read(&self) -> bool {
        let is_building = || self.working().is_some_and(|job| job.kind == JobKind::Builds);
        let is_read = matches!(self.reading, Reading::Live | Reading::Paused);
        !is_read || self.check || self.build.is_some() || is_building()
    }

    /// Queues delivered records and updates the reader's position. Returns whether the caller must queue the partition for a
    /// worker.
    pub(super) fn deliver(&mut self, shared: &Shared, records: Vec<Delivery>, position: Option<Offset>) -> bool {
        if self.waits_to_be_read() || self.is_paused() {
            return false;
        }
        self.read = self.read.max(position.unwrap_or(self.read));
        self.bytes += records.iter().map(bytes_of).sum::<usize>();
        self.records.extend(records);
        if self.records.is_empty() && self.fold.is_some() {
            self.report_progress(shared);
        }
        self.schedule()
    }

    /// Marks the partition as scheduled if it has work. Returns whether the caller must queue it for a worker: it is queued
    /// once.
    pub(super) fn schedule(&mut self) -> bool {
        let wanted = !self.is_busy() && self.has_work();
        if wanted {
            self.work = WorkState::Queued;
        }
        wanted
    }

    fn has_work(&self) -> bool {
        self.check || self.flush || self.build.is_some() || (!self.records.is_empty() && self.retry_at().is_none())
    }

    /// Whether the queue has reached its capacity.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.reading, Reading::Live)
            && (self.records.len() >= self.capacity.records || self.bytes >= self.capacity.bytes)
    }

    /// Stops delivery. Drops the records above the capacity (it keeps at least one), which the reader delivers again later.
    pub(super) fn pause(&mut self) {
        let mut kept_bytes = 0;
        let mut fits = |record: &Delivery| {
            kept_bytes += bytes_of(record);
            kept_bytes <= self.capacity.bytes
        };
        let count = self.records.iter().take(self.capacity.records).take_while(|record| fits(record)).count().max(1);
        if let Some(first) = self.records.get(count) {
            self.read = first.offset;
        }
        self.records.truncate(count);
        self.bytes = self.records.iter().map(bytes_of).sum();
        if matches!(self.reading, Reading::Live) {
            self.reading = Reading::Paused;
        }
    }

    /// Whether a paused partition may be read again: its queue is at most half full.
    pub(super) fn is_drained(&self) -> bool {
        let Capacity { records, bytes } = self.capacity;
        self.is_paused() && !self.waits_to_be_read() && self.records.len() <= records / 2 && self.bytes <= bytes / 2
    }

    /// Accepts deliveries again, from [`Self::read_position`] on.
    pub(super) fn resume(&mut self) {
        if self.is_paused() {
            self.reading = Reading::Live;
        }
    }

    /// Returns the offset for the reader's seek, `next`, if a retry is due and no job has the fold. Drops the queue.
    pub(super) fn take_reread_offset(&mut self, now: Instant) -> Option<Offset> {
        let due = self.fold.is_some() && self.retry_at().is_some_and(|at| at <= now);
        if !due {
            return None;
        }
        self.drop_records();
        (self.reading, self.read) = (Reading::Live, self.next);
        Some(self.next)
    }

    /// Schedules a reread from its committed offset after `pause`.
    pub(super) fn retry_after(&mut self, pause: Duration) {
        if !self.is_closed() {
            self.reading = Reading::RetryAt(Instant::now() + pause);
            self.drop_records();
        }
    }

    /// Reports a temporary error.
    pub(super) fn report_error(&self, shared: &Shared, kind: StopKind, error: String) {
        shared.report(self.id, self.next, Some(Stop { offset: self.next, kind, error }));
    }

    /// Requests a comparison of its last record with the log's. Returns whether the caller must queue the partition.
    pub(super) fn check(&mut self) -> bool {
        self.check = true;
        self.drop_records();
        self.schedule()
    }

    /// Requests a flush check by a job. Returns whether the caller must queue the partition.
    pub(super) fn flush(&mut self) -> bool {
        self.flush = true;
        self.schedule()
    }

    /// Stops it at a damage of the log that follows the delivered records, after these are applied. The reader releases it now. If it
    /// waits for a reread, that finds the damage again.
    pub(super) fn close_at_damage(&mut self, shared: &Shared, error: String) {
        self.release = true;
        if self.retry_at().is_none() && !self.check && self.build.is_none() {
            self.reading = Reading::Damaged { error };
            self.close_if_drained(shared);
        }
    }

    /// Closes a partition with a damaged log if no delivered record is left. Returns whether it does.
    fn close_if_drained(&mut self, shared: &Shared) -> bool {
        let is_drained = self.records.is_empty() && self.fold.is_some();
        let Reading::Damaged { error } = &self.reading else { return false };
        if is_drained {
            let stop = Stop { offset: self.next, kind: StopKind::LogDamaged, error: error.clone() };
            self.close(shared, stop);
        }
        is_drained
    }

    /// Stops it for good, and reports that. It is not read again before a restart.
    pub(super) fn close(&mut self, shared: &Shared, stop: Stop) {
        tracing::error!(partition = %self.id, offset = %stop.offset, kind = stop.kind.as_str(), "{}", stop.error);
        shared.report(self.id, self.next, Some(stop.clone()));
        self.drop_records();
        (self.stopped, self.reading, self.release) = (Some(stop), Reading::Closed, true);
        (self.check, self.build) = (false, None);
    }

    /// Whether the reader must release it; true once.
    pub(super) fn take_release(&mut self) -> bool {
        std::mem::take(&mut self.release)
    }

    fn drop_records(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }

    /// Takes the next job for a worker, if there is work. The job owns the fold until [`Self::apply_result`].
    pub(super) fn take_job(&mut self) -> Option<Job> {
        let fold = if self.has_work() { self.fold.take() } else { None };
        let Some(fold) = fold else {
            self.work = WorkState::Idle;
            return None;
        };
        let (work, kind) = if std::mem::take(&mut self.check) {
            (Work::Check, JobKind::Checks)
        } else if let Some(to) = self.build.take() {
            (Work::Build(to), JobKind::Builds)
        } else if self.retry_at().is_none() && !self.records.is_empty() {
            (Work::Records(self.take_records()), JobKind::Writes)
        } else {
            (Work::Flush, JobKind::Writes)
        };
        // Every job that continues makes the flush check.
        self.flush = false;
        self.work = WorkState::Working(Working { since: Instant::now(), kind, stalled: false });
        Some(Job { fold, stopped: self.stopped.clone(), work })
    }

    fn take_records(&mut self) -> Vec<Delivery> {
        let mut bytes = 0;
        let mut fits = |record: &Delivery| {
            let fits = bytes < JOB_BYTES_MAX;
            bytes += bytes_of(record);
            fits
        };
        let count = self.records.iter().take(JOB_RECORDS_MAX).take_while(|record| fits(record)).count();
        let records: Vec<_> = self.records.drain(..count).collect();
        self.bytes -= records.iter().map(bytes_of).sum::<usize>();
        records
    }

    /// Takes the fold back, applies the job's outcome and reports it.
    pub(super) fn apply_result(&mut self, shared: &Shared, result: JobResult) -> AfterJob {
        let JobResult { fold, stopped, next } = result;
        self.next = fold.next;
        self.fold = Some(fold);
        let was_stalled = self.working().is_some_and(|job| job.stalled);
        self.work = WorkState::Idle;
        let mut reported = false;
        if !self.is_closed() {
            if was_stalled {
                tracing::warn!(partition = %self.id, next = %self.next, "the index's write returned, the partition continues");
            }
            reported = stopped.is_some() && stopped != self.stopped;
            self.stopped = stopped;
            match next {
                Next::Continue => reported |= self.close_if_drained(shared),
                Next::Retry { pause, error } => {
                    self.retry_after(pause);
                    if let Some(stop) = error {
                        shared.report(self.id, self.next, Some(stop));
                    }
                }
                Next::Build(to) => {
                    self.drop_records();
                    (self.build, self.release, self.reading) = (Some(to), true, Reading::Live);
                }
                Next::Close(stop) => {
                    self.close(shared, stop);
                    reported = true;
                }
            }
            if let Some(stop) = self.stopped.as_ref().filter(|_| (reported || was_stalled) && !self.is_closed()) {
                tracing::error!(partition = %self.id, offset = %stop.offset, kind = stop.kind.as_str(), "{}", stop.error);
                shared.report(self.id, self.next, Some(stop.clone()));
            }
            self.report_progress(shared);
        }
        AfterJob { again: self.schedule(), reported }
    }

    /// Reports the applied offset, unless the partition is stopped or must be read again.
    fn report_progress(&self, shared: &Shared) {
        let Some(fold) = &self.fold else { return };
        // A store that is being rebuilt does not answer queries yet, so there is no progress to report.
        let is_live = shared.store(self.id).is_ok_and(|live| Arc::ptr_eq(&live, &fold.store));
        let is_closing = matches!(self.reading, Reading::Damaged { .. });
        if self.stopped.is_some() || (self.waits_to_be_read() && !is_closing) || !is_live {
            return;
        }
        // The reader skips offsets that are never delivered, so its position may be ahead of the last record.
        let applied = if self.records.is_empty() { self.read.max(self.next) } else { self.next };
        shared.report(self.id, applied, None);
    }

    /// Reports a job that has taken [`STALLED_AFTER`], once. The partition stays stalled until the job ends.
    pub(super) fn report_stall(&mut self, shared: &Shared) {
        let WorkState::Working(job) = &mut self.work else { return };
        let is_slow = job.since.elapsed() >= STALLED_AFTER;
        if job.stalled || job.kind != JobKind::Writes || !is_slow || matches!(self.reading, Reading::Closed) {
            return;
        }
        job.stalled = true;
        let error = format!(
            "applying records of partition {} from offset {} on has taken more than {}: a write of the index in {} does not \
             return",
            self.id,
            self.next,
            humantime::format_duration(STALLED_AFTER),
            shared.config.index().path().display(),
        );
        tracing::error!(partition = %self.id, "{error}");
        let Ok(Progress { applied, .. }) = shared.progress(self.id) else { return };
        shared.report(self.id, applied, Some(Stop { offset: self.next, kind: StopKind::StoreStalled, error }));
    }
}

/// The worker's duties after a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct AfterJob {
    /// The partition has more work and must be queued again.
    pub(super) again: bool,
    /// Its stop was reported: the waiters are notified.
    pub(super) reported: bool,
}

fn bytes_of(record: &Delivery) -> usize {
    record.key.len() + record.value.len()
}
