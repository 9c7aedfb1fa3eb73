//! One partition of the loop: its fold, the records that wait for it, and why it does not continue, if it does not.
//!
//! ```text
//!   deliver ─▶ records (bounded) ─▶ begin: Job ─▶ Job::run, without a lock ─▶ settle: progress or stop
//! ```
//!
//! The loop delivers and reads again, a worker runs the job; each holds the partition's lock for moments only. Records
//! are applied in the order of delivery, by one job at a time.

use crate::index::{
    fold::{Fold, Stop, StopKind},
    pipeline::job::{Done, Job, Next, Work},
    shared::Shared,
};
use runlog_log::{Delivery, Offset, PartitionId};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The most records of one job: one write batch.
const JOB_RECORDS_MAX: usize = 1024;
/// A job ends with the record that reaches this, bytes.
const JOB_BYTES_MAX: usize = 4 << 20;
/// How long a job may take before its partition counts as stalled.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(5);

/// How much may wait for a partition before it is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Partition {
    id: PartitionId,
    /// `None` while a job has it.
    fold: Option<Fold>,
    /// The next offset to apply, as of the end of the last job.
    next: Offset,
    /// Delivered, in order, and in no job yet.
    records: VecDeque<Delivery>,
    bytes: usize,
    capacity: Capacity,
    /// Everything below is in `records`, in a job or applied: the reader's position.
    read: Offset,
    /// Why it does not continue. If it is read on nevertheless, its jobs look for the skip that voids the record.
    stopped: Option<Stop>,
    /// When it is read again from `next`. Until then deliveries are dropped.
    retry_at: Option<Instant>,
    /// It is not read again before a restart.
    closed: bool,
    /// The reader is to release it.
    release: bool,
    /// The reader has released it until what waits is applied.
    paused: bool,
    /// Its last record is to be compared with the log's.
    check: bool,
    /// Its index is to be built in bulk up to this offset.
    build: Option<Offset>,
    /// A job builds it.
    building: bool,
    /// A job is to see whether its rows are to be flushed.
    flush: bool,
    /// It is in the pool's queue or in a job.
    scheduled: bool,
    /// When the job began that has its fold.
    working_since: Option<Instant>,
    /// The job writes the index.
    writing: bool,
    /// The job takes so long that this is reported.
    stalled: bool,
}

impl Partition {
    /// A partition at its fold's position. With a stop it is not read.
    pub(super) fn new(fold: Fold, stopped: Option<Stop>, build: Option<Offset>, capacity: Capacity) -> Self {
        let (id, next, closed) = (fold.partition, fold.next, stopped.is_some());
        Self {
            id,
            fold: Some(fold),
            next,
            records: VecDeque::new(),
            bytes: 0,
            capacity,
            read: next,
            stopped,
            retry_at: None,
            closed,
            release: false,
            paused: false,
            check: false,
            build,
            building: false,
            flush: false,
            scheduled: false,
            working_since: None,
            writing: false,
            stalled: false,
        }
    }

    /// The next offset to apply.
    pub(super) fn next(&self) -> Offset {
        self.next
    }

    /// Where the reader continues after a pause.
    pub(super) fn read(&self) -> Offset {
        self.read
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it cannot continue by itself.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// When it is read again from `next`, if it is.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Whether it has work, now or in a queue.
    pub(super) fn is_busy(&self) -> bool {
        self.scheduled
    }

    /// Whether its job has taken longer than `wait`.
    pub(super) fn is_slow(&self, wait: Duration) -> bool {
        self.working_since.is_some_and(|since| since.elapsed() >= wait)
    }

    fn waits_to_be_read(&self) -> bool {
        self.retry_at.is_some() || self.check || self.closed || self.build.is_some() || self.building
    }

    /// Takes what the reader delivered, and its position. Says whether the partition is to be queued for a worker.
    pub(super) fn deliver(&mut self, shared: &Shared, records: Vec<Delivery>, position: Option<Offset>) -> bool {
        if self.waits_to_be_read() || self.paused {
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

    /// Whether the partition is to be queued for a worker now; it is queued once.
    pub(super) fn schedule(&mut self) -> bool {
        let wanted = !self.scheduled && self.has_work();
        self.scheduled |= wanted;
        wanted
    }

    fn has_work(&self) -> bool {
        self.check || self.flush || self.build.is_some() || (!self.records.is_empty() && self.retry_at.is_none())
    }

    /// Whether no more should be delivered for now.
    pub(super) fn is_full(&self) -> bool {
        !self.paused && (self.records.len() >= self.capacity.records || self.bytes >= self.capacity.bytes)
    }

    /// Stops delivery, and keeps no more records than its capacity: the rest is read again.
    pub(super) fn pause(&mut self) {
        let mut kept = 0;
        let mut room = |record: &Delivery| {
            kept += bytes_of(record);
            kept <= self.capacity.bytes
        };
        let count = self.records.iter().take(self.capacity.records).take_while(|record| room(record)).count().max(1);
        if let Some(first) = self.records.get(count) {
            self.read = first.offset;
        }
        self.records.truncate(count);
        self.bytes = self.records.iter().map(bytes_of).sum();
        self.paused = true;
    }

    /// Whether so little is left of what waited before the pause that it is to be read on.
    pub(super) fn is_drained(&self) -> bool {
        let Capacity { records, bytes } = self.capacity;
        self.paused && !self.waits_to_be_read() && self.records.len() <= records / 2 && self.bytes <= bytes / 2
    }

    /// The reader delivers again, from [`Self::read`] on.
    pub(super) fn resumed(&mut self) {
        self.paused = false;
    }

    /// The reader delivers again from `next`, which is returned, if it is time. Not while a job has the fold.
    pub(super) fn read_again(&mut self, now: Instant) -> Option<Offset> {
        let due = self.fold.is_some() && !self.closed && self.retry_at.is_some_and(|at| at <= now);
        if !due {
            return None;
        }
        self.drop_records();
        (self.retry_at, self.paused, self.read) = (None, false, self.next);
        Some(self.next)
    }

    /// Has it read again from its committed offset after `pause`.
    pub(super) fn retry_after(&mut self, pause: Duration) {
        if !self.closed {
            self.retry_at = Some(Instant::now() + pause);
            self.drop_records();
        }
    }

    /// Reports an error that passes.
    pub(super) fn report_error(&self, shared: &Shared, kind: StopKind, error: String) {
        shared.report(self.id, self.next, Some(Stop { offset: self.next, kind, error }));
    }

    /// Has its last record compared with the log's. Says whether it is to be queued for a worker.
    pub(super) fn check(&mut self) -> bool {
        self.check = true;
        self.drop_records();
        self.schedule()
    }

    /// Has a job see whether its rows are to be flushed. Says whether it is to be queued for a worker.
    pub(super) fn flush(&mut self) -> bool {
        self.flush = true;
        self.schedule()
    }

    /// Stops it for good, and reports that. It is not read again before a restart.
    pub(super) fn close(&mut self, shared: &Shared, stop: Stop) {
        tracing::error!(partition = %self.id, offset = %stop.offset, kind = stop.kind.as_str(), "{}", stop.error);
        shared.report(self.id, self.next, Some(stop.clone()));
        self.drop_records();
        (self.stopped, self.closed, self.release) = (Some(stop), true, true);
        (self.retry_at, self.check, self.build) = (None, false, None);
    }

    /// Whether the reader is to release it; once.
    pub(super) fn take_release(&mut self) -> bool {
        std::mem::take(&mut self.release)
    }

    fn drop_records(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }

    /// The work for a worker, if there still is any. It has the fold until [`Self::settle`].
    pub(super) fn begin(&mut self) -> Option<Job> {
        let fold = if self.has_work() { self.fold.take() } else { None };
        let Some(fold) = fold else {
            self.scheduled = false;
            return None;
        };
        self.working_since = Some(Instant::now());
        let work = if std::mem::take(&mut self.check) {
            Work::Check
        } else if let Some(to) = self.build.take() {
            self.building = true;
            Work::Build(to)
        } else if self.retry_at.is_none() && !self.records.is_empty() {
            Work::Records(self.take_records())
        } else {
            Work::Flush
        };
        // Each job does it.
        self.flush = false;
        self.writing = matches!(work, Work::Records(_) | Work::Flush);
        Some(Job { fold, stopped: self.stopped.clone(), work })
    }

    fn take_records(&mut self) -> Vec<Delivery> {
        let mut taken = 0;
        let mut room = |record: &Delivery| {
            let fits = taken < JOB_BYTES_MAX;
            taken += bytes_of(record);
            fits
        };
        let count = self.records.iter().take(JOB_RECORDS_MAX).take_while(|record| room(record)).count();
        let records: Vec<_> = self.records.drain(..count).collect();
        self.bytes -= records.iter().map(bytes_of).sum::<usize>();
        records
    }

    /// Takes the fold back and reports what became of the job.
    pub(super) fn settle(&mut self, shared: &Shared, done: Done) -> Settled {
        let Done { fold, stopped, next } = done;
        self.next = fold.next;
        self.fold = Some(fold);
        (self.working_since, self.building) = (None, false);
        let was_stalled = std::mem::take(&mut self.stalled);
        let mut told = false;
        if !self.closed {
            if was_stalled {
                tracing::warn!(partition = %self.id, next = %self.next, "the index's write returned, the partition goes on");
            }
            told = stopped.is_some() && stopped != self.stopped;
            self.stopped = stopped;
            match next {
                Next::Continue => {}
                Next::Retry { pause, error } => {
                    self.retry_after(pause);
                    if let Some(stop) = error {
                        shared.report(self.id, self.next, Some(stop));
                    }
                }
                Next::Build(to) => {
                    self.drop_records();
                    (self.build, self.release) = (Some(to), true);
                }
                Next::Close(stop) => {
                    self.close(shared, stop);
                    told = true;
                }
            }
            if let Some(stop) = self.stopped.as_ref().filter(|_| (told || was_stalled) && !self.closed) {
                tracing::error!(partition = %self.id, offset = %stop.offset, kind = stop.kind.as_str(), "{}", stop.error);
                shared.report(self.id, self.next, Some(stop.clone()));
            }
            self.report_progress(shared);
        }
        self.scheduled = self.has_work();
        Settled { again: self.scheduled, told }
    }

    /// Reports how far it has come, unless it has stopped or is to be read again.
    fn report_progress(&self, shared: &Shared) {
        let Some(fold) = &self.fold else { return };
        // A store that is being rebuilt does not answer yet: nothing to report until it takes over.
        if self.stopped.is_some() || self.waits_to_be_read() || !Arc::ptr_eq(&shared.store(self.id), &fold.store) {
            return;
        }
        // The reader skips offsets that are never delivered, so its position may be ahead of the last record.
        let applied = if self.records.is_empty() { self.read.max(self.next) } else { self.next };
        shared.report(self.id, applied, None);
    }

    /// Reports a job that has taken [`STALLED_AFTER`], once. It stays so until the job ends.
    pub(super) fn report_stall(&mut self, shared: &Shared) {
        if self.stalled || self.closed || !self.writing || !self.is_slow(STALLED_AFTER) {
            return;
        }
        self.stalled = true;
        let error = format!(
            "applying records of partition {} from offset {} on has taken more than {}: a write of the index in {} does not \
             return",
            self.id,
            self.next,
            humantime::format_duration(STALLED_AFTER),
            shared.config.index().path().display(),
        );
        tracing::error!(partition = %self.id, "{error}");
        let applied = shared.progress(self.id).applied;
        shared.report(self.id, applied, Some(Stop { offset: self.next, kind: StopKind::StoreStalled, error }));
    }
}

/// What a worker does after a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    /// The partition has more work and is to be queued again.
    pub(super) again: bool,
    /// It stopped, and waiters are notified.
    pub(super) told: bool,
}

fn bytes_of(record: &Delivery) -> usize {
    record.key.len() + record.value.len()
}
