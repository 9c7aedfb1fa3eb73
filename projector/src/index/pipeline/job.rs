//! The work of one partition, on a worker's thread. Folds records up to the first record that blocks the partition, and
//! decides how the partition continues.

use crate::index::{
    bulk, failpoint,
    flush::{Flush, FlushState},
    fold::{Fold, Step, Stop, StopKind},
    rebuild,
    shared::Shared,
    store::{
        self, Rows,
        meta::{self, Last},
    },
};
use runlog_log::{Delivery, Kind, Log, Offset, PartitionId};
use runlog_schemas::datum::Sha256;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};
use tokio::time::Instant;

/// The pause before a partition whose store failed is retried.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The pause of a partition that waits for a schema; resolving one usually takes milliseconds.
const AWAIT_SCHEMA: Duration = Duration::from_millis(50);
/// The pause between a build's attempts to get a permit.
const BUILD_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The time limit of a check of a partition's last record.
const CHECK_WAIT: Duration = Duration::from_secs(10);

/// A worker's job for a partition.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) fold: Fold,
    /// The partition's stop, if any: the job then searches its records for the skip that voids the blocking record.
    pub(super) stopped: Option<Stop>,
    pub(super) work: Work,
}

/// The work of a job.
#[derive(Debug)]
pub(super) enum Work {
    /// Apply these records.
    Records(Vec<Delivery>),
    /// Compare the last applied record with the log's record at the same offset.
    Check,
    /// Build the empty index in bulk up to this offset.
    Build(Offset),
    /// Only the flush check that ends each job.
    Flush,
}

/// The outcome of a job.
#[derive(Debug)]
pub(super) struct JobResult {
    pub(super) fold: Fold,
    pub(super) stopped: Option<Stop>,
    pub(super) next: Next,
}

/// How the partition continues.
#[derive(Debug)]
pub(super) enum Next {
    /// Reads the next records; a stopped partition searches them for the skip.
    Continue,
    /// Rereads from its committed offset after a pause. Meanwhile it reports the error, if there is one.
    Retry { pause: Duration, error: Option<Stop> },
    /// Builds its empty index in bulk up to this offset (exclusive).
    Build(Offset),
    /// Stops until a restart.
    Close(Stop),
}

impl Next {
    /// Rereads from the committed offset at once.
    const REREAD: Self = Self::Retry { pause: Duration::ZERO, error: None };
}

impl Job {
    /// Runs the job. After a panic the partition is read again from its committed offset.
    pub(super) fn run(mut self, shared: &Shared) -> JobResult {
        let next = catch_panic(|| self.next(shared)).unwrap_or_else(|why| {
            let error = format!("applying records of partition {} panicked: {why}", self.fold.partition);
            tracing::error!("{error}");
            self.retry(StopKind::Panic, error)
        });
        // A retry, a build or a close precedes the flush check.
        let next = match next {
            Next::Continue => self.flush(shared).err().map_or(Next::Continue, |error| self.store_failed(error)),
            next => next,
        };
        JobResult { fold: self.fold, stopped: self.stopped, next }
    }

    fn next(&mut self, shared: &Shared) -> Next {
        let records = match &mut self.work {
            Work::Records(records) => std::mem::take(records),
            Work::Check => return self.check(shared),
            Work::Build(to) => {
                let to = *to;
                return self.build(shared, to);
            }
            Work::Flush => return Next::Continue,
        };
        if let Some(stop) = self.stopped.clone() {
            return self.stop(shared, stop, &records);
        }
        match self.apply(&records) {
            Ok(Step::Applied) => {
                rebuild::finish_if_caught_up(shared, &mut self.fold);
                Next::Continue
            }
            Ok(Step::Stopped(stop)) => self.stop(shared, stop, &records),
            Ok(Step::Waiting(None)) => Next::Retry { pause: AWAIT_SCHEMA, error: None },
            Ok(Step::Waiting(error)) => Next::Retry { pause: RETRY_AFTER, error },
            Ok(Step::Rebuild { offset, row }) => self.rebuild(shared, (offset, &row), &records),
            Err(error) => self.store_failed(error),
        }
    }

    /// Flushes the index, if a flush is due. A background flush that cannot begin is retried later, without an error: RocksDB
    /// itself refuses the next write if a write is in doubt.
    fn flush(&self, shared: &Shared) -> Result<(), store::Error> {
        let (store, partition, next) = (&self.fold.store, self.fold.partition, self.fold.next);
        let state = FlushState { next, durable: store.durable()?, memtable: store.memtable() };
        // Flushes the first records at once, with the journal's id: an index without the id would accept any log.
        if state.durable == Offset::ZERO && next > Offset::ZERO {
            return store.flush();
        }
        match shared.flushes.decide(partition, state, Instant::now()) {
            None => {}
            Some(Flush::Wait) => store.flush()?,
            Some(Flush::Begin) => {
                if let Err(error) = store.begin_flush() {
                    tracing::warn!(%partition, %error, "the index cannot be flushed, will retry");
                }
            }
        }
        Ok(())
    }

    /// Folds the records. After a panic folds them one by one, and stops at the record that panics without writing any of
    /// its rows. The other partitions continue.
    fn apply(&mut self, records: &[Delivery]) -> Result<Step, store::Error> {
        if let Ok(step) = catch_panic(|| self.fold.apply_batch(records)) {
            return step;
        }
        for delivery in records {
            match catch_panic(|| self.fold.apply_batch(std::slice::from_ref(delivery))) {
                Ok(Ok(Step::Applied)) => {}
                Ok(step) => return step,
                Err(why) => return Ok(Step::Stopped(self.panic_stop(delivery.offset, &why))),
            }
        }
        Ok(Step::Applied)
    }

    fn panic_stop(&self, offset: Offset, why: &str) -> Stop {
        let partition = self.fold.partition;
        let error = format!("applying the record at partition {partition}, offset {offset} panicked: {why}");
        Stop { offset, kind: StopKind::Panic, error }
    }

    /// Stops at a record, unless the records after it include the skip that voids it.
    fn stop(&mut self, shared: &Shared, stop: Stop, records: &[Delivery]) -> Next {
        let (partition, offset) = (self.fold.partition, stop.offset);
        let row = match self.fold.skip_for(offset, records) {
            Ok(Some(row)) => row,
            other => {
                // A stopped rebuild replaces the live store if it has reached that store's offset.
                rebuild::finish_if_caught_up(shared, &mut self.fold);
                self.stopped = Some(stop);
                return match other {
                    Ok(_) => Next::Continue,
                    // A record with an unresolved schema may be the skip.
                    Err(_) => Next::Retry { pause: RETRY_AFTER, error: None },
                };
            }
        };
        tracing::warn!(%partition, %offset, who = row.who, why = row.why, "record skipped, partition continues");
        // Flushes the skip before the partition continues: a client that sees progress may rely on the skip.
        if let Err(error) = self.fold.void(offset, &row).and_then(|()| self.fold.store.flush()) {
            return self.store_failed(error);
        }
        self.stopped = None;
        shared.config.failpoints.reach(failpoint::SKIP_VOIDED);
        Next::REREAD
    }

    /// Begins a rebuild in which the skip `row` voids the record at `offset`. If the log no longer starts at offset 0, the partition
    /// stops at the skip instead and keeps its rows.
    fn rebuild(&mut self, shared: &Shared, (offset, row): (Offset, &meta::SkipRow), records: &[Delivery]) -> Next {
        let (partition, at) = (self.fold.partition, row.at);
        match shared.log.reader(&[(partition, Offset::ZERO)]) {
            Ok(_) => match rebuild::begin(shared, &mut self.fold, offset, row) {
                Ok(()) if at.get() >= shared.config.bulk.offsets_min => Next::Build(at.saturating_add(1)),
                Ok(()) => Next::REREAD,
                Err(error) => self.store_failed(error),
            },
            Err(error) if error.kind() == Kind::OutOfRange => {
                let error = format!(
                    "cannot rebuild: the log no longer starts at offset 0 ({error}). The skip at partition {partition}, offset \
                     {at} voids the applied record at offset {offset}; skip that skip to keep the record and continue"
                );
                // The skip that voids this skip may be among the later records.
                self.stop(shared, Stop { offset: at, kind: StopKind::CannotRebuild, error }, records)
            }
            Err(error) => self.retry(StopKind::Log, error.to_string()),
        }
    }

    /// Builds the index in bulk. After a failure the store is unchanged, and the loop applies the records one by one. The
    /// loop then fails at the same record and reports it.
    fn build(&mut self, shared: &Shared, to: Offset) -> Next {
        let partition = self.fold.partition;
        let permit = loop {
            match shared.builds.try_acquire() {
                Ok(permit) => break permit,
                Err(_) if shared.is_ending() => return Next::Continue,
                Err(_) => shared.config.executor.block(BUILD_RETRY_PAUSE),
            }
        };
        let built = catch_panic(|| bulk::build(shared, &self.fold, to));
        drop(permit);
        match built {
            Ok(Ok(true)) => tracing::info!(%partition, "the index is built"),
            Ok(Ok(false)) => {}
            Ok(Err(_)) if shared.is_ending() => return Next::Continue,
            Ok(Err(error)) => {
                let error = error.problem().detail;
                tracing::warn!(%partition, %error, "the index was not built in bulk, its records are applied one by one");
            }
            Err(why) => {
                tracing::error!(%partition, "building the index in bulk panicked, its records are applied one by one: {why}");
            }
        }
        // Reads the position from the store, after a failure too.
        match self.fold.reload() {
            Ok(fold) => {
                self.fold = fold;
                rebuild::finish_if_caught_up(shared, &mut self.fold);
                Next::REREAD
            }
            Err(error) => {
                tracing::error!(%partition, %error, "cannot read the index's position after a bulk build, will retry");
                shared.config.executor.block(RETRY_AFTER);
                Next::Build(to)
            }
        }
    }

    fn check(&self, shared: &Shared) -> Next {
        match lost_end(&*shared.log, &self.fold, shared.config.executor.blocking_wait(CHECK_WAIT)) {
            Ok(None) => Next::REREAD,
            Ok(Some(stop)) => Next::Close(stop),
            // The result is unknown for now: reads the partition again after a pause.
            Err(error) => self.retry(StopKind::Log, error.to_string()),
        }
    }

    fn store_failed(&self, error: store::Error) -> Next {
        let kind = if error.damaged() { StopKind::IndexDamaged } else { StopKind::Store };
        let error = crate::index::error::Error::from(error).problem().detail;
        tracing::error!(partition = %self.fold.partition, next = %self.fold.next, "{error}");
        self.retry(kind, error)
    }

    fn retry(&self, kind: StopKind, error: String) -> Next {
        Next::Retry { pause: RETRY_AFTER, error: Some(Stop { offset: self.fold.next, kind, error }) }
    }
}

/// Runs `work`. Returns a panic's message as an error.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // Catching the panic is sound: a fold changes itself and its store only after a batch is complete.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
    })
}

/// Returns the stop of a fold whose last applied record is no longer in the log.
fn lost_end(log: &dyn Log, fold: &Fold, wait: Duration) -> Result<Option<Stop>, runlog_log::Error> {
    let progress: Option<meta::Progress> = fold.store.get(&meta::progress()).unwrap_or_default();
    let Some(last) = progress.and_then(|progress| progress.last) else { return Ok(None) };
    let stop = || Stop {
        offset: fold.next,
        kind: StopKind::LogDiverged,
        error: format!("the log lost the record at offset {} that the index was built from", last.offset),
    };
    Ok((!contains_record(log, fold.partition, &last, wait)?).then(stop))
}

/// Whether the log still has an applied record, at its offset and with its bytes.
///
/// Errors: `Kind::Retry` if the read timed out; the record may exist.
fn contains_record(
    log: &dyn Log,
    partition: PartitionId,
    last: &Last,
    wait: Duration,
) -> Result<bool, runlog_log::Error> {
    let Some(after) = last.offset.next() else { return Ok(false) };
    // Opens the reader at the offset after the record: that fails with `OutOfRange` if the log ends earlier. A reader at
    // the record's own offset would wait if the log ends there.
    let read = log.reader(&[(partition, after)]).and_then(|mut reader| {
        reader.seek(partition, last.offset)?;
        let record = reader.poll(1, wait)?.into_iter().next();
        // An empty poll either passed offsets without a record, or timed out.
        let is_read = record.is_some() || reader.position(partition).is_some_and(|next| next > last.offset);
        Ok((record, is_read))
    });
    match read {
        Ok((Some(record), _)) => Ok(record.offset == last.offset && Sha256::of(&record.value) == last.hash),
        Ok((None, true)) => Ok(false),
        Ok((None, false)) => {
            let late = "timed out reading the record where the index ends";
            Err(runlog_log::Error::new(Kind::Retry, log.topic(), late).in_partition(partition).at_offset(last.offset))
        }
        Err(error) if error.kind() == Kind::OutOfRange => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_log::{Entry, memory::MemoryLog};

    const ZERO: PartitionId = PartitionId::ZERO;

    fn append(log: &MemoryLog, value: &str) {
        let ack = log.append(ZERO, vec![Entry { value: value.into(), ..Entry::default() }]);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(ack).unwrap();
    }

    fn last(offset: u32, value: &str) -> Last {
        Last { offset: offset.into(), hash: Sha256::of(value.as_bytes()) }
    }

    #[test]
    fn a_record_that_is_delivered_late_does_not_count_as_lost() {
        let log = MemoryLog::new(1);
        append(&log, "first");
        log.hold(ZERO);
        append(&log, "last");
        let late = contains_record(&log, ZERO, &last(1, "last"), Duration::ZERO).unwrap_err();
        assert_eq!(late.kind(), Kind::Retry, "{late}");
        log.release(ZERO);
        let is_in_log = |last: &Last| contains_record(&log, ZERO, last, Duration::ZERO).unwrap();
        assert!(is_in_log(&last(1, "last")));
        assert!(!is_in_log(&last(1, "another")));
        assert!(!is_in_log(&last(2, "after the end")), "the log ends before it");
        log.truncate_before(ZERO, 1.into());
        assert!(!is_in_log(&last(0, "first")), "the log starts after it");
    }
}
