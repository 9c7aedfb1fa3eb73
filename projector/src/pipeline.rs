//! The loop: the only consumer of the log and the only writer of the live indices.
//!
//! ```text
//!   Reader::poll ─▶ by partition ─▶ Fold::take (judge, project, one write batch) ─▶ progress ─▶ waiting queries
//! ```
//!
//! A partition that stops keeps its place; the loop goes on reading it for one thing, the skip that voids the record in
//! the way. A partition whose store fails is tried again from its committed offset.

use crate::{
    fold::{self, Fold, Step, Stop},
    replace,
    service::Shared,
    store,
};
use runlog_log::{Delivery, Kind, Reader};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// Records taken by one poll; with the log's own bound on bytes it bounds the loop's memory.
const POLL_RECORDS_MAX: usize = 4096;
/// How long a poll waits for records.
const POLL_WAIT: Duration = Duration::from_millis(200);
/// How long a partition whose store failed is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a partition is left alone that waits for a schema, which mostly takes milliseconds.
const AWAIT_SCHEMA: Duration = Duration::from_millis(50);

/// Where a partition is, for whoever waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Every record below this offset is reflected in the index.
    pub applied: u64,
    /// Why it stands still, if it does.
    pub stopped: Option<Stop>,
}

struct Lane {
    fold: Fold,
    stopped: Option<Stop>,
    retry_at: Option<Instant>,
}

/// The loop's state.
pub struct Pipeline {
    shared: Arc<Shared>,
    reader: Box<dyn Reader>,
    lanes: BTreeMap<u32, Lane>,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("partitions", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// A loop over `folds`, each of which goes on where it is. A partition with a stop is not read.
    pub fn new(shared: Arc<Shared>, folds: Vec<(Fold, Option<Stop>)>) -> Result<Self, runlog_log::Error> {
        let from: Vec<_> =
            folds.iter().filter(|(_, stop)| stop.is_none()).map(|(fold, _)| (fold.partition, fold.next)).collect();
        let reader = shared.log.reader(&from)?;
        let mut lanes = BTreeMap::new();
        for (fold, stopped) in folds {
            shared.report(fold.partition, fold.next, stopped.clone());
            lanes.insert(fold.partition, Lane { fold, stopped, retry_at: None });
        }
        Ok(Self { shared, reader, lanes })
    }

    /// Runs until the service ends or the log is lost for good.
    pub fn run(mut self) {
        while !self.shared.ending.load(Ordering::Acquire) {
            match self.reader.poll(POLL_RECORDS_MAX, POLL_WAIT) {
                Ok(batch) => self.route(&batch),
                Err(error) => {
                    if !self.log_failed(&error) {
                        return;
                    }
                }
            }
            self.retry();
        }
    }

    /// Hands each partition its share, in order.
    fn route(&mut self, batch: &[Delivery]) {
        let mut from = 0;
        while let Some(first) = batch.get(from) {
            let length = batch[from..].iter().take_while(|delivery| delivery.partition == first.partition).count();
            self.take(first.partition, &batch[from..from + length]);
            from += length;
        }
        for (partition, lane) in &mut self.lanes {
            // A store that is being rebuilt is behind the one that answers: nothing to report until it takes over.
            let live = Arc::ptr_eq(&self.shared.store(*partition), &lane.fold.store);
            if live && lane.stopped.is_none() && lane.retry_at.is_none() {
                // The reader steps over what is never delivered, so its position may be ahead of the last record.
                let position = self.reader.position(*partition).unwrap_or(lane.fold.next);
                self.shared.report(*partition, position.max(lane.fold.next), None);
            }
        }
    }

    fn take(&mut self, partition: u32, batch: &[Delivery]) {
        let Some(lane) = self.lanes.get_mut(&partition) else { return };
        if lane.retry_at.is_some() {
            return;
        }
        if let Some(stop) = &lane.stopped {
            let offset = stop.offset;
            match fold::skip_for(offset, batch, &*lane.fold.schemas) {
                Ok(None) => {}
                // It could be the skip: the partition is read again from where it stopped.
                Err(_) => lane.retry_at = Some(Instant::now() + RETRY_AFTER),
                Ok(Some(row)) => {
                    tracing::warn!(
                        partition,
                        offset,
                        who = row.who,
                        why = row.why,
                        "record skipped, partition goes on"
                    );
                    match lane.fold.void(offset, &row) {
                        Ok(()) => lane.stopped = None,
                        Err(error) => return self.store_failed(partition, error),
                    }
                    self.seek_back(partition);
                }
            }
            return;
        }
        match lane.fold.take(batch) {
            Ok(Step::Went) => {
                if let Some(done) = replace::caught_up(&self.shared, &mut lane.fold) {
                    tracing::warn!(partition, next = lane.fold.next, done, "partition rebuilt");
                }
            }
            Ok(Step::Stopped(stop)) => {
                tracing::error!(partition, offset = stop.offset, kind = stop.kind, "{}", stop.error);
                self.shared.report(partition, lane.fold.next, Some(stop.clone()));
                lane.stopped = Some(stop);
                // The rest of the batch may hold the skip already.
                self.take(partition, batch);
            }
            Ok(Step::Waiting(failing)) => {
                let pause = if failing.is_some() { RETRY_AFTER } else { AWAIT_SCHEMA };
                lane.retry_at = Some(Instant::now() + pause);
                let next = lane.fold.next;
                if failing.is_some() {
                    self.shared.report(partition, next, failing);
                }
            }
            Ok(Step::Rebuild { offset, row }) => match replace::begin(&self.shared, &mut lane.fold, offset, &row) {
                Ok(()) => self.seek_back(partition),
                Err(error) => self.store_failed(partition, error),
            },
            Err(error) => self.store_failed(partition, error),
        }
    }

    /// Reads the partition again from what is committed.
    fn seek_back(&mut self, partition: u32) {
        let Some(lane) = self.lanes.get_mut(&partition) else { return };
        if let Err(error) = self.reader.seek(partition, lane.fold.next) {
            let stop = Stop { offset: lane.fold.next, kind: "log", error: error.to_string() };
            self.shared.report(partition, lane.fold.next, Some(stop));
            lane.retry_at = Some(Instant::now() + RETRY_AFTER);
        }
    }

    fn store_failed(&mut self, partition: u32, error: store::Error) {
        let Some(lane) = self.lanes.get_mut(&partition) else { return };
        let error = crate::Error::from(error).problem().detail;
        tracing::error!(partition, next = lane.fold.next, "{error}");
        let stop = Stop { offset: lane.fold.next, kind: "store", error };
        self.shared.report(partition, lane.fold.next, Some(stop));
        lane.retry_at = Some(Instant::now() + RETRY_AFTER);
    }

    fn retry(&mut self) {
        let now = Instant::now();
        let due: Vec<u32> = self
            .lanes
            .iter_mut()
            .filter(|(_, lane)| lane.retry_at.is_some_and(|at| at <= now))
            .map(|(partition, lane)| {
                lane.retry_at = None;
                *partition
            })
            .collect();
        for partition in due {
            self.seek_back(partition);
        }
    }

    /// Whether the loop can go on.
    fn log_failed(&mut self, error: &runlog_log::Error) -> bool {
        match error.kind() {
            Kind::OutOfRange => {
                for (partition, lane) in &mut self.lanes {
                    if error.partition().is_none_or(|at| at == *partition) {
                        let stop = Stop { offset: lane.fold.next, kind: "log_truncated", error: error.to_string() };
                        tracing::error!(partition, "{error}");
                        self.shared.report(*partition, lane.fold.next, Some(stop.clone()));
                        lane.stopped = Some(stop);
                        self.reader.release(*partition).ok();
                    }
                }
                true
            }
            Kind::Fatal => {
                tracing::error!("the log is lost to this process, start it again: {error}");
                for (partition, lane) in &self.lanes {
                    let stop = Stop { offset: lane.fold.next, kind: "log", error: error.to_string() };
                    self.shared.report(*partition, lane.fold.next, Some(stop));
                }
                false
            }
            Kind::Retry | Kind::Invalid | Kind::Unknown => {
                tracing::warn!("reading the log failed, trying again: {error}");
                std::thread::park_timeout(POLL_WAIT);
                true
            }
        }
    }
}
