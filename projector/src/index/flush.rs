//! Decides when a partition's rows are flushed to disk.
//!
//! ```text
//!   commit ─▶ memtable ─▶ flush, in the background ─▶ table          kill -9: the fold resumes at the offset of the tables
//!                          at records, bytes or an age
//! ```
//!
//! RocksDB writes no write-ahead log ([`store`](super::store)). After a crash the fold applies the lost records again from
//! the log, which results in the same rows. So no answer depends on a flush. Only `eventual` shows the difference: after a
//! crash its answers may lack up to [`Limits::records_max`] records until the fold has applied them again.
//!
//! These writes wait for a flush, because a removal or the partition's progress depends on them:
//!
//! * the first records of an index, with the id of its journal (`pipeline::job`);
//! * the skip of the record that stopped a partition (`pipeline::job`);
//! * the mark of a rebuilt store that replaces the live store or a store of an older layout (`rebuild`): the replaced store
//!   is removed next;
//! * all rows of a store before tables are added to it (`Store::ingest`).
//!
//! The shutdown flushes too, so that the next start has no records to apply again.

use super::store::Memtable;
use runlog_schemas::id::{Offset, PartitionId};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// A memtable below this part of the memtables' memory is not flushed for its size. Otherwise many idle memtables, each with
/// a filter and a first block, would make the others flush at every commit.
const SMALL_PART: u64 = 32;
/// The part of [`Limits::age_max`] after which rows are flushed if the log's retention may soon delete their records.
const NEAR_START_PART: u32 = 10;
/// How long a reported start offset of the log counts as current.
const LOG_START_AGE: Duration = Duration::from_secs(1);
/// How long after the start of a flush its partition is checked again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The limits of applied records whose rows are only in memory. After a crash the fold applies these records again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Offsets of all partitions together that are applied and not on disk. At three fifths of it the largest partitions
    /// begin to flush; at all of it their folds wait for the flush.
    pub records_max: u64,
    /// The age of an applied record at which its partition begins to flush.
    pub age_max: Duration,
}

impl Default for Limits {
    /// 50,000 records: at 40,000 records a second on one core, applying them again takes little more than a second.
    fn default() -> Self {
        Self { records_max: 50_000, age_max: Duration::from_secs(10) }
    }
}

/// A partition's store after a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushState {
    /// Everything below is applied.
    pub(crate) next: Offset,
    /// Everything below is on disk.
    pub(crate) durable: Offset,
    pub(crate) memtable: Memtable,
}

/// The flush that a partition must do after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Flush in the background.
    Begin,
    /// Flush, and continue afterwards.
    Wait,
}

/// The unflushed offsets and memtables of all partitions.
#[derive(Debug)]
pub(crate) struct Flushes {
    limits: Limits,
    /// The limit of all active memtables together, bytes.
    bytes_max: u64,
    /// By their ids.
    partitions: Vec<Mutex<Unflushed>>,
    /// The number of held partitions, which share the limits.
    held: u64,
}

/// The unflushed offsets and the memtable of a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Unflushed {
    /// Offsets that are not on disk (`records`), and the part of them whose flush has not begun (`active`).
    records: u64,
    active: u64,
    /// The size of the active memtable, bytes.
    bytes: u64,
    durable: Offset,
    /// When the oldest unflushed record was applied, or earlier.
    since: Option<Instant>,
    /// The flush in progress: up to this offset (exclusive), and when it began.
    flush_in_progress: Option<(Offset, Instant)>,
    /// The next offset after the previous job, and when that job ended.
    last: Option<(Offset, Instant)>,
    /// The last known start offset of the log, and when the log reported it.
    log_start: Offset,
    log_start_at: Option<Instant>,
}

impl Unflushed {
    fn update(&mut self, state: FlushState, now: Instant) {
        let FlushState { next, durable, memtable } = state;
        // The flush has ended, or a rebuilt store starts from an earlier offset.
        if let Some((to, when)) = self.flush_in_progress.filter(|(to, _)| durable >= *to || next < *to) {
            (self.since, self.flush_in_progress) = (Some(when).filter(|_| durable >= to), None);
        }
        // RocksDB flushes a full memtable by itself, before the write that does not fit.
        if memtable.flushing && self.flush_in_progress.is_none() {
            self.flush_in_progress = self.last.filter(|(to, _)| (durable..=next).contains(to));
        }
        self.last = Some((next, now));
        let flush_end = self.flush_in_progress.map_or(durable, |(to, _)| to.max(durable));
        self.records = next.get().saturating_sub(durable.get());
        self.active = next.get().saturating_sub(flush_end.get());
        self.bytes = memtable.bytes as u64;
        self.durable = durable;
        self.since = (self.records > 0).then(|| self.since.unwrap_or(now));
    }

    /// When the age of the oldest unflushed record requires a flush; `None` if all records are on disk.
    fn due_at(&self, limits: Limits) -> Option<Instant> {
        let left = self.durable.get().saturating_sub(self.log_start.get());
        let is_near = self.log_start > Offset::ZERO && left < limits.records_max;
        Some(self.since? + if is_near { limits.age_max / NEAR_START_PART } else { limits.age_max })
    }
}

impl Flushes {
    /// The state of `partitions` partitions. Of these `held` are held, whose active memtables together may use `bytes_max`.
    pub(crate) fn new(limits: Limits, bytes_max: usize, partitions: usize, held: usize) -> Self {
        let partitions = (0..partitions).map(|_| Mutex::default()).collect();
        Self { limits, bytes_max: bytes_max as u64, partitions, held: held.max(1) as u64 }
    }

    fn lock(&self, partition: PartitionId) -> MutexGuard<'_, Unflushed> {
        self.partitions[partition.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the log of `partition` starts at `start`.
    pub(crate) fn saw_log_start(&self, partition: PartitionId, start: Offset, now: Instant) {
        let mut unflushed = self.lock(partition);
        (unflushed.log_start, unflushed.log_start_at) = (start, Some(now));
    }

    /// Whether the log reported the start of `partition` less than a second ago.
    pub(crate) fn knows_log_start(&self, partition: PartitionId, now: Instant) -> bool {
        self.lock(partition).log_start_at.is_some_and(|at| now.saturating_duration_since(at) < LOG_START_AGE)
    }

    /// Whether and how `partition` must flush now. Counts a returned flush as begun.
    pub(crate) fn decide(&self, partition: PartitionId, state: FlushState, now: Instant) -> Option<Flush> {
        let own = {
            let mut own = self.lock(partition);
            own.update(state, now);
            *own
        };
        if own.records == 0 {
            return None;
        }
        let (mut records, mut active, mut bytes) = (0, 0, 0);
        for partition in &self.partitions {
            let other = partition.lock().unwrap_or_else(PoisonError::into_inner);
            (records, active, bytes) = (records + other.records, active + other.active, bytes + other.bytes);
        }
        let count = self.held;
        let (records_max, bytes_max) = (self.limits.records_max, self.bytes_max / 8 * 7);
        let active_max = records_max / 5 * 3;
        // If the sum exceeds its limit, at least one partition exceeds its share.
        let of_bytes = bytes > bytes_max && own.bytes >= (bytes_max / count).max(self.bytes_max / SMALL_PART);
        let of_records = active > active_max && own.active >= active_max / count;
        let of_age = own.due_at(self.limits).is_some_and(|due| due <= now);
        let flush = match state.memtable.flushing {
            // Records arrive faster than flushes complete.
            true if of_bytes => Flush::Wait,
            _ if records > records_max && own.records >= records_max / count => Flush::Wait,
            false if of_bytes || of_records || of_age => Flush::Begin,
            _ => return None,
        };
        let mut own = self.lock(partition);
        (own.flush_in_progress, own.active) = (Some((state.next, now)), 0);
        Some(flush)
    }

    /// Whether an idle partition needs a flush check: to begin a flush, or to notice that a flush has ended.
    pub(crate) fn is_due(&self, partition: PartitionId, now: Instant) -> bool {
        let own = *self.lock(partition);
        let looked = own.flush_in_progress.is_none_or(|(_, when)| when + LOOK_AGAIN <= now);
        looked && own.due_at(self.limits).is_some_and(|due| due <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { records_max: 1000, age_max: Duration::from_secs(10) };
    const ONE: PartitionId = PartitionId::ZERO;

    fn state(next: u32, durable: u32, bytes: usize) -> FlushState {
        FlushState { next: next.into(), durable: durable.into(), memtable: Memtable { bytes, flushing: false } }
    }

    fn flushing(state: FlushState) -> FlushState {
        FlushState { memtable: Memtable { flushing: true, ..state.memtable }, ..state }
    }

    #[test]
    fn the_largest_part_is_flushed_at_three_fifths_of_the_limit_and_the_fold_waits_at_the_limit() {
        let (flushes, now, other) = (Flushes::new(LIMITS, 1 << 20, 2, 2), Instant::now(), PartitionId::from(1));
        assert_eq!(flushes.decide(other, state(200, 0, 0), now), None);
        assert_eq!(flushes.decide(ONE, state(400, 0, 0), now), None);
        assert_eq!(flushes.decide(other, state(220, 0, 0), now), None, "the other partition is larger");
        assert_eq!(flushes.decide(ONE, state(410, 0, 0), now), Some(Flush::Begin));
        assert_eq!(flushes.decide(other, state(590, 0, 0), now), None, "enough is being flushed");
        assert_eq!(flushes.decide(ONE, flushing(state(411, 0, 0)), now), None, "its flush is in progress");
        assert_eq!(flushes.decide(other, state(591, 0, 0), now), Some(Flush::Wait), "1002 could be lost");
        assert_eq!(flushes.decide(other, state(591, 591, 0), now), None);
        assert_eq!(flushes.decide(ONE, state(420, 410, 0), now), None);
    }

    #[test]
    fn held_partitions_share_the_limits_however_many_the_journal_has() {
        let (flushes, now, other) = (Flushes::new(LIMITS, 1 << 20, 100, 2), Instant::now(), PartitionId::from(99));
        assert_eq!(flushes.decide(ONE, state(550, 0, 0), now), None);
        assert_eq!(flushes.decide(other, state(60, 0, 0), now), None, "the other partition is larger");
        assert_eq!(flushes.decide(ONE, state(551, 0, 0), now), Some(Flush::Begin));
    }

    #[test]
    fn the_largest_memtables_are_flushed_when_all_together_are_full() {
        let (flushes, now, other) = (Flushes::new(LIMITS, 1000, 2, 2), Instant::now(), PartitionId::from(1));
        assert_eq!(flushes.decide(ONE, state(1, 0, 850), now), None);
        assert_eq!(flushes.decide(other, state(1, 0, 30), now), None, "it is small");
        assert_eq!(flushes.decide(ONE, state(2, 0, 860), now), Some(Flush::Begin));
        assert_eq!(flushes.decide(ONE, flushing(state(3, 0, 500)), now), None);
        assert_eq!(flushes.decide(ONE, flushing(state(3, 0, 900)), now), Some(Flush::Wait), "flushes are too slow");
    }

    #[test]
    fn no_record_waits_longer_than_the_age_and_a_tenth_of_it_near_the_start_of_the_log() {
        let (flushes, start) = (Flushes::new(LIMITS, 1 << 20, 1, 1), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        assert_eq!(flushes.decide(ONE, state(5001, 5000, 0), start), None);
        assert!(!flushes.is_due(ONE, after(9_999)) && flushes.is_due(ONE, after(10_000)));
        // Later records do not postpone the flush.
        assert_eq!(flushes.decide(ONE, state(5010, 5000, 0), after(9_999)), None);
        assert_eq!(flushes.decide(ONE, state(5020, 5000, 0), after(10_000)), Some(Flush::Begin));
        assert!(
            !flushes.is_due(ONE, after(10_999)) && flushes.is_due(ONE, after(11_000)),
            "checks for the end of the flush"
        );
        assert_eq!(flushes.decide(ONE, state(5030, 5020, 0), after(11_000)), None);
        assert!(!flushes.is_due(ONE, after(19_999)) && flushes.is_due(ONE, after(20_000)), "since the flush began");
        assert!(!flushes.knows_log_start(ONE, start));
        flushes.saw_log_start(ONE, 4000.into(), start);
        assert!(flushes.knows_log_start(ONE, after(999)) && !flushes.knows_log_start(ONE, after(1_000)));
        assert!(!flushes.is_due(ONE, after(19_999)), "far enough");
        flushes.saw_log_start(ONE, 4021.into(), start);
        assert!(!flushes.is_due(ONE, after(10_999)) && flushes.is_due(ONE, after(11_000)));
        assert_eq!(flushes.decide(ONE, state(5030, 5030, 0), after(12_000)), None);
        assert!(!flushes.is_due(ONE, after(1_000_000)), "there is nothing to flush");
    }
}
