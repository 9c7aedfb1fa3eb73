//! The product's fold over rows in memory: the work of the loop on a partition, without its threads and its disk.

use super::{
    encoding,
    in_process::{InProcess, Part},
};
use anyhow::ensure;
use runlog_log::{Delivery, Offset, PartitionId};
use runlog_model::History;
use runlog_projector::index::{
    fold::{Fold, Step, Stop, StopKind},
    home::HomeState,
    store::{Memory, meta},
};
use runlog_schemas::codec::NoRegistry;
use std::sync::Arc;

/// How often one batch may be folded again because of skips in it.
const RETRIES_MAX: usize = 10_000;

/// All partitions of a journal.
#[derive(Debug)]
pub struct Product {
    topic: String,
    lanes: Vec<Lane>,
    /// Deliveries in a batch. It depends on the seed, so batches have many sizes.
    batch: usize,
}

#[derive(Debug)]
struct Lane {
    fold: Fold<Memory>,
    stopped: Option<Stop>,
    /// All deliveries, without repeats.
    log: Vec<Delivery>,
    waiting: Vec<Delivery>,
    /// The start offset of the log.
    start: Offset,
    /// Whether the journal has a home: the own log.
    has_home: bool,
}

impl Product {
    /// A product without records, whose journal has no home.
    pub fn new(history: &History) -> Self {
        Self::with_home(history, false)
    }

    /// A product without records. Its journal may have a home.
    pub fn with_home(history: &History, has_home: bool) -> Self {
        let journal = &history.journal;
        let identity = meta::Journal { journal_id: journal.journal_id.clone(), partitions: journal.partitions };
        let lane = |partition| Lane::new(partition, &identity, has_home);
        let lanes = PartitionId::all(journal.partitions).map(lane).collect();
        Self { topic: journal.topic.clone(), lanes, batch: usize::try_from(history.seed % 7).unwrap_or(0) + 1 }
    }

    /// Adds the next delivery of a partition to its batch, and folds a full batch.
    pub fn deliver(&mut self, mut delivery: Delivery) -> anyhow::Result<()> {
        let (lane, batch) = (&mut self.lanes[delivery.partition.index()], self.batch);
        if lane.has_home {
            encoding::name_home(&mut delivery);
        }
        lane.waiting.push(delivery);
        if lane.waiting.len() >= batch { lane.settle() } else { Ok(()) }
    }

    /// Moves the log start of a partition. Stops the partition if its position is before the start, as the loop does.
    pub fn start_moved(&mut self, partition: u32, start: u64) -> anyhow::Result<()> {
        let (partition, start) = (PartitionId::new(partition)?, Offset::new(start)?);
        let lane = &mut self.lanes[partition.index()];
        lane.settle()?;
        lane.start = start;
        if lane.fold.next < start && lane.stopped.is_none() {
            lane.stopped = Some(Stop { offset: lane.fold.next, kind: StopKind::LogTruncated, error: String::new() });
        }
        Ok(())
    }

    /// Folds the incomplete batches.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.lanes.iter_mut().try_for_each(Lane::settle)
    }

    /// The folded deliveries of each partition.
    pub fn folded(&self) -> impl Iterator<Item = &[Delivery]> {
        let folded = |lane: &'_ Lane| lane.log.partition_point(|delivery| delivery.offset < lane.fold.next);
        self.lanes.iter().map(move |lane| &lane.log[..folded(lane)])
    }

    /// The queries over the current rows.
    pub fn queries(&self) -> InProcess<'_, Memory> {
        let part = |lane: &'_ Lane| Part { applied: Some(lane.fold.next), stopped: lane.stopped.clone() };
        InProcess {
            topic: &self.topic,
            rows: self.lanes.iter().map(|lane| &*lane.fold.store).collect(),
            parts: self.lanes.iter().map(part).collect(),
        }
    }
}

impl Lane {
    fn new(partition: PartitionId, journal: &meta::Journal, has_home: bool) -> Self {
        Self {
            fold: empty(partition, journal, has_home),
            stopped: None,
            log: Vec::new(),
            waiting: Vec::new(),
            start: Offset::ZERO,
            has_home,
        }
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.waiting);
        for delivery in &batch {
            if self.log.last().is_none_or(|last| last.offset < delivery.offset) {
                self.log.push(delivery.clone());
            }
        }
        // Folds the batch as delivered, with its repeats. Then folds from the log again after each voided stop or rebuild.
        let mut again = self.stopped.is_some() || self.fold_batch(&batch)?;
        for _ in 0..RETRIES_MAX {
            if let Some(stop) = self.stopped.clone() {
                let Some(row) = self.skip(&stop)? else { return Ok(()) };
                self.fold.void(stop.offset, &row)?;
                self.stopped = None;
                again = true;
            }
            if !again {
                return Ok(());
            }
            let rest = self.log.partition_point(|delivery| delivery.offset < self.fold.next);
            let rest = self.log[rest..].to_vec();
            again = self.fold_batch(&rest)?;
        }
        anyhow::bail!("partition {}: not folded after {RETRIES_MAX} retries", self.fold.partition)
    }

    /// The skip of the record at which the partition is stopped.
    fn skip(&mut self, stop: &Stop) -> anyhow::Result<Option<meta::SkipRow>> {
        if stop.kind == StopKind::LogTruncated {
            return Ok(None);
        }
        Ok(self.fold.skip_for(stop.offset, &self.log)?)
    }

    /// Folds a batch; returns whether the partition must be read again from its position.
    fn fold_batch(&mut self, batch: &[Delivery]) -> anyhow::Result<bool> {
        match self.fold.apply_batch(batch)? {
            Step::Applied => return Ok(false),
            Step::Stopped(stop) => {
                ensure!(
                    stop.offset >= self.fold.next,
                    "stopped at {}, before position {}",
                    stop.offset,
                    self.fold.next
                );
                self.stopped = Some(stop);
            }
            Step::Waiting(_) => anyhow::bail!("waits for a schema registry, which this test does not have"),
            Step::Rebuild { row, .. } if self.start > Offset::ZERO => {
                self.stopped = Some(Stop { offset: row.at, kind: StopKind::CannotRebuild, error: String::new() });
            }
            Step::Rebuild { offset, row } => {
                let mut fresh = empty(self.fold.partition, &self.fold.journal, self.has_home);
                fresh.copy_skips_from(&self.fold)?;
                fresh.void(offset, &row)?;
                self.fold = fresh;
            }
        }
        Ok(true)
    }
}

fn empty(partition: PartitionId, journal: &meta::Journal, has_home: bool) -> Fold<Memory> {
    let fold = Fold::resume(partition, journal.clone(), Arc::new(Memory::default()), Arc::new(NoRegistry));
    let own = encoding::own_log().filter(|_| has_home);
    fold.expect("rows in memory").with_home(HomeState::new(own, None))
}
