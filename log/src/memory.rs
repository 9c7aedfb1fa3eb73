//! A log in memory, for tests. It produces, on demand, the rare behaviour that a log may show.
//!
//! Clones are handles to the same log. [`MemoryOptions`] injects behaviour at regular intervals or from the start.
//! [`MemoryLog::skip`], [`MemoryLog::truncate_before`], [`MemoryLog::hold`] and [`MemoryLog::fail_next`] inject it at a chosen
//! moment. The records do not survive the process.

use std::{
    collections::VecDeque,
    future,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    Ack, Bounds, BoundsAnswer, Clock, Delivery, Entry, Error, Kind, Log, Offset, PartitionId, Reader, VALUE_BYTES_MAX,
    batch::{Limits, settled},
};

mod reader;

/// The settings of a [`MemoryLog`] and its faults from the start.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The topic's name. Default `runlog.journal`.
    pub topic: String,
    /// The partition count. Default 4.
    pub partitions: u32,
    /// The largest accepted value, bytes. Default [`VALUE_BYTES_MAX`].
    pub value_bytes_max: usize,
    /// The clock of the records' timestamps. Default the machine's clock.
    pub clock: Clock,
    /// Leaves gaps between offsets. Default none.
    pub gaps: Option<Gaps>,
    /// Delivers records repeatedly. Default never.
    pub repeats: Option<Repeats>,
    /// The most records of a partition that a reader delivers before it continues with the next partition. It returns to the
    /// partition within the same poll. Default all records.
    pub chunk: Option<usize>,
    /// Whether every partition is held (see [`MemoryLog::hold`]) from the start. Default no.
    pub held: bool,
    /// The faults of the first appends, in order. Default none.
    pub append_faults: Vec<AppendFault>,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            topic: "runlog.journal".into(),
            partitions: 4,
            value_bytes_max: VALUE_BYTES_MAX,
            clock: Clock::system(),
            gaps: None,
            repeats: None,
            chunk: None,
            held: false,
            append_faults: Vec::new(),
        }
    }
}

/// After every `every` records of a partition, leaves `width` offsets without a record.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    /// Records between two gaps.
    pub every: u64,
    /// Offsets left out.
    pub width: u64,
}

/// After every `every` records from a partition, a reader delivers the last `back` records again, like a consumer that
/// resumed at an older position. The reader's position does not move backwards.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    /// Records between two repetitions.
    pub every: u64,
    /// Records repeated.
    pub back: usize,
}

/// The fault of one append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFault {
    /// The batch does not land, and the error has this kind.
    Refused(Kind),
    /// The batch lands, but the answer is `Kind::Unknown`.
    UnknownLanded,
    /// The batch does not land, and the answer is `Kind::Unknown`.
    UnknownLost,
}

/// The log. See the module.
#[derive(Clone, Debug)]
pub struct MemoryLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: MemoryOptions,
    state: Mutex<State>,
    /// Notified when records became visible to readers, or invisible.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    partitions: Vec<Partition>,
    append_faults: VecDeque<AppendFault>,
}

#[derive(Debug, Default)]
struct Partition {
    start: Offset,
    end: Offset,
    /// Records from this offset on are invisible to readers.
    held_at: Option<Offset>,
    appended: u64,
    last_millis: i64,
    records: VecDeque<Delivery>,
}

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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a holder of the log's lock panicked")
    }

    fn limits(&self) -> Limits<'_> {
        let MemoryOptions { topic, partitions, value_bytes_max, .. } = &self.options;
        Limits { topic, partitions: *partitions, value_bytes_max: *value_bytes_max }
    }

    fn bounds(&self, partition: PartitionId) -> Result<Bounds, Error> {
        self.limits().check_partition(partition)?;
        let state = self.lock();
        let Partition { start, end, .. } = state.partitions[partition.index()];
        Ok(Bounds { start, end })
    }
}

impl Partition {
    fn push(&mut self, partition: PartitionId, entry: Entry, millis: i64, gaps: Option<Gaps>) -> Offset {
        let offset = self.end;
        self.last_millis = self.last_millis.max(millis);
        let Entry { key, value, headers } = entry;
        let timestamp_millis = self.last_millis;
        self.records.push_back(Delivery { partition, offset, timestamp_millis, key, value, headers });
        self.end = offset.next().expect("the offsets of a partition are not exhausted");
        self.appended += 1;
        if let Some(Gaps { every, width }) = gaps
            && self.appended.is_multiple_of(every)
        {
            self.end = self.end.saturating_add(width);
        }
        offset
    }

    /// The end of the records that readers get.
    fn visible_end(&self) -> Offset {
        self.held_at.unwrap_or(self.end)
    }
}

#[cfg(test)]
mod tests;
