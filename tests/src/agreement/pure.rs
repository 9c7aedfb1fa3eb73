//! The product's fold over rows in memory: what the loop does with a partition, without its threads and its disk.

use super::in_process::{InProcess, Part};
use anyhow::ensure;
use runlog_log::{Delivery, Offset, PartitionId};
use runlog_model::History;
use runlog_projector::index::{
    fold::{self, Fold, Step, Stop, StopKind},
    store::{Memory, meta},
};
use runlog_schemas::codec::NoRegistry;
use std::sync::Arc;

/// How often one batch may be begun anew, for skips that it brings.
const TURNS_MAX: usize = 10_000;

/// All partitions of a journal.
#[derive(Debug)]
pub struct Product {
    topic: String,
    lanes: Vec<Lane>,
    /// What was delivered and not yet folded is folded once there is so much of it, so that batches have many sizes.
    batch: usize,
}

#[derive(Debug)]
struct Lane {
    fold: Fold<Memory>,
    stopped: Option<Stop>,
    /// Everything that was delivered, once each.
    log: Vec<Delivery>,
    waiting: Vec<Delivery>,
    /// Where the log starts.
    start: Offset,
}

impl Product {
    /// Empty.
    pub fn new(history: &History) -> Self {
        let journal = &history.journal;
        let identity = meta::Journal { journal_id: journal.journal_id.clone(), partitions: journal.partitions };
        let lanes = PartitionId::all(journal.partitions).map(|partition| Lane::new(partition, &identity)).collect();
        Self { topic: journal.topic.clone(), lanes, batch: usize::try_from(history.seed % 7).unwrap_or(0) + 1 }
    }

    /// Takes in the next delivery of a partition, or keeps it until a batch is full.
    pub fn deliver(&mut self, delivery: Delivery) -> anyhow::Result<()> {
        let (lane, batch) = (&mut self.lanes[delivery.partition.index()], self.batch);
        lane.waiting.push(delivery);
        if lane.waiting.len() >= batch { lane.settle() } else { Ok(()) }
    }

    /// The log of a partition starts later from now on: a reader that is behind is stopped, as the loop does it.
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

    /// Takes in what is kept.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.lanes.iter_mut().try_for_each(Lane::settle)
    }

    /// By partition, what of the log is folded.
    pub fn folded(&self) -> impl Iterator<Item = &[Delivery]> {
        let folded = |lane: &'_ Lane| lane.log.partition_point(|delivery| delivery.offset < lane.fold.next);
        self.lanes.iter().map(move |lane| &lane.log[..folded(lane)])
    }

    /// For questions.
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
    fn new(partition: PartitionId, journal: &meta::Journal) -> Self {
        Self {
            fold: empty(partition, journal),
            stopped: None,
            log: Vec::new(),
            waiting: Vec::new(),
            start: Offset::ZERO,
        }
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.waiting);
        for delivery in &batch {
            if self.log.last().is_none_or(|last| last.offset < delivery.offset) {
                self.log.push(delivery.clone());
            }
        }
        // As they came, repeated ones too; then again from the log, for as long as something was in the way.
        let mut again = self.stopped.is_some() || self.took(&batch)?;
        for _ in 0..TURNS_MAX {
            if let Some(stop) = &self.stopped {
                let Some(row) = self.skip(stop)? else { return Ok(()) };
                self.fold.void(stop.offset, &row)?;
                self.stopped = None;
                again = true;
            }
            if !again {
                return Ok(());
            }
            let rest = self.log.partition_point(|delivery| delivery.offset < self.fold.next);
            let rest = self.log[rest..].to_vec();
            again = self.took(&rest)?;
        }
        anyhow::bail!("partition {} does not come to an end", self.fold.partition)
    }

    /// The skip of the record that the partition stands at.
    fn skip(&self, stop: &Stop) -> anyhow::Result<Option<meta::SkipRow>> {
        if stop.kind == StopKind::LogTruncated {
            return Ok(None);
        }
        Ok(fold::skip_for(stop.offset, &self.log, &NoRegistry)?)
    }

    /// Folds a batch; says whether the partition is to be read again from where it is.
    fn took(&mut self, batch: &[Delivery]) -> anyhow::Result<bool> {
        match self.fold.take(batch)? {
            Step::Applied => return Ok(false),
            Step::Stopped(stop) => {
                ensure!(stop.offset >= self.fold.next, "stopped at {} behind {}", stop.offset, self.fold.next);
                self.stopped = Some(stop);
            }
            Step::Waiting(_) => anyhow::bail!("nothing is asked of a registry here"),
            Step::Rebuild { at, .. } if self.start > Offset::ZERO => {
                self.stopped = Some(Stop { offset: at, kind: StopKind::CannotRebuild, error: String::new() });
            }
            Step::Rebuild { offset, row, .. } => {
                let mut fresh = empty(self.fold.partition, &self.fold.journal);
                fresh.know_skips_of(&self.fold)?;
                fresh.void(offset, &row)?;
                self.fold = fresh;
            }
        }
        Ok(true)
    }
}

fn empty(partition: PartitionId, journal: &meta::Journal) -> Fold<Memory> {
    Fold::resume(partition, journal.clone(), Arc::new(Memory::default()), Arc::new(NoRegistry)).expect("rows in memory")
}
