//! A log in memory, for tests. It produces, on demand, the rare behaviour that a log may show.
//!
//! Clones are handles to the same log. [`MemoryOptions`] injects behaviour at regular intervals or from the start.
//! [`MemoryLog::skip`], [`MemoryLog::truncate_before`], [`MemoryLog::hold`] and [`MemoryLog::fail_next`] inject it at a chosen
//! moment. The records do not survive the process.

use std::{
    future,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use crate::{
    Ack, BoundsAnswer, Entry, Log, LogId, Offset, PartitionId, Reader,
    batch::settled,
    error::{Error, Kind},
};

mod options;
mod reader;
mod state;

pub use options::{AppendFault, Gaps, MemoryOptions, Repeats};
use state::{Partition, Shared, State};

/// The log. See the module.
#[derive(Clone, Debug)]
pub struct MemoryLog(Arc<Shared>);

impl MemoryLog {
    /// Creates a log without faults.
    pub fn new(partitions: u32) -> Self {
        Self::with(MemoryOptions { partitions, ..MemoryOptions::default() })
    }

    /// Creates a log with these options.
    pub fn with(options: MemoryOptions) -> Self {
        let held_at = options.held.then_some(Offset::ZERO);
        let partitions = (0..options.partitions).map(|_| Partition { held_at, ..Partition::default() }).collect();
        let state = State { partitions, append_faults: options.append_faults.iter().copied().collect() };
        Self(Arc::new(Shared { options, state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// Leaves the next `count` offsets of a partition without a record, like Kafka's control records. The end moves, and
    /// readers skip these offsets.
    pub fn skip(&self, partition: PartitionId, count: u64) {
        self.change(partition, |partition| partition.end = partition.end.saturating_add(count));
    }

    /// Moves the partition's start up to `start`, at most to its end. A reader whose next record is below it gets
    /// `Kind::OutOfRange`.
    pub fn truncate_before(&self, partition: PartitionId, start: Offset) {
        self.change(partition, |partition| {
            partition.start = partition.start.max(start.min(partition.end));
            let deleted_count = partition.records.partition_point(|record| record.offset < partition.start);
            partition.records.drain(..deleted_count);
        });
    }

    /// Hides later appends from readers. They are still acknowledged and move the bounds.
    pub fn hold(&self, partition: PartitionId) {
        self.change(partition, |partition| partition.held_at = partition.held_at.or(Some(partition.end)));
    }

    /// Ends [`MemoryLog::hold`]: readers get the hidden records.
    pub fn release(&self, partition: PartitionId) {
        self.change(partition, |partition| partition.held_at = None);
    }

    /// Queues a fault. It applies to the first append, to any partition, that has no earlier fault.
    pub fn fail_next(&self, fault: AppendFault) {
        self.0.lock().append_faults.push_back(fault);
    }

    fn change(&self, partition: PartitionId, change: impl FnOnce(&mut Partition)) {
        change(&mut self.0.lock().partitions[partition.index()]);
        self.0.changed.notify_all();
    }
}

impl Log for MemoryLog {
    fn topic(&self) -> &str {
        &self.0.options.topic
    }

    fn id(&self) -> Option<&LogId> {
        self.0.options.id.as_ref()
    }

    fn partitions(&self) -> u32 {
        self.0.options.partitions
    }

    fn value_bytes_max(&self) -> usize {
        self.0.options.value_bytes_max
    }

    fn clock_millis(&self) -> Option<i64> {
        Some(self.0.options.clock.millis())
    }

    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        if let Err(refusal) = self.0.limits().check(partition, &batch) {
            return settled(Err(refusal));
        }
        let mut state = self.0.lock();
        let fault = state.append_faults.pop_front();
        let failed = |kind| settled(Err(Error::new(kind, self.topic(), "an injected failure").in_partition(partition)));
        match fault {
            Some(AppendFault::Refused(kind)) => return failed(kind),
            Some(AppendFault::UnknownLost) => return failed(Kind::Unknown),
            Some(AppendFault::UnknownLanded) | None => {}
        }
        let millis = self.0.options.clock.millis();
        let partition_state = &mut state.partitions[partition.index()];
        let offsets =
            batch.into_iter().map(|entry| partition_state.push(partition, entry, millis, self.0.options.gaps));
        let offsets = offsets.collect();
        self.0.changed.notify_all();
        if fault.is_some() { failed(Kind::Unknown) } else { settled(Ok(offsets)) }
    }

    fn bounds(&self, partition: PartitionId, _deadline: Duration) -> BoundsAnswer<'_> {
        Box::pin(future::ready(self.0.bounds(partition)))
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        let mut reader = reader::MemoryReader::new(Arc::clone(&self.0));
        for (partition, next) in from {
            reader.seek(*partition, *next)?;
        }
        Ok(Box::new(reader))
    }
}

#[cfg(test)]
mod tests;
