//! A log in memory, for tests: it does at will what a log may do and rarely does.
//!
//! Clones are handles to the same log. What [`MemoryOptions`] injects happens by itself; [`MemoryLog::skip`],
//! [`MemoryLog::truncate_before`], [`MemoryLog::hold`] and [`MemoryLog::fail_next`] make it happen at a chosen moment.
//! Nothing survives the process.

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

/// What a [`MemoryLog`] is and which faults it has from the start.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The topic's name. Default `runlog.journal`.
    pub topic: String,
    /// How many partitions. Default 4.
    pub partitions: u32,
    /// The largest value taken, bytes. Default [`VALUE_BYTES_MAX`].
    pub value_bytes_max: usize,
    /// What records are stamped with. Default the machine's clock.
    pub clock: Clock,
    /// Leaves gaps between offsets. Default none.
    pub gaps: Option<Gaps>,
    /// Delivers records again. Default never.
    pub repeats: Option<Repeats>,
    /// A reader takes so many records of a partition before it turns to the next one, and comes back within the same
    /// poll. Default as many as there are.
    pub chunk: Option<usize>,
    /// Whether every partition is held (see [`MemoryLog::hold`]) from the start. Default no.
    pub held: bool,
    /// What happens to the first appends, in order. Default nothing.
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

/// After every `every` records of a partition, `width` offsets are given to nothing.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    /// Records between two gaps.
    pub every: u64,
    /// Offsets left out.
    pub width: u64,
}

/// After every `every` records that a reader delivered from a partition, it delivers the last `back` of them again, as
/// a consumer does that went on from an older position. The reader's position does not go back.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    /// Records between two repetitions.
    pub every: u64,
    /// Records repeated.
    pub back: usize,
}

/// What becomes of one append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFault {
    /// Nothing lands, and the error has this kind.
    Refused(Kind),
    /// It lands, but the answer is `Kind::Unknown`.
    UnknownLanded,
    /// Nothing lands, and the answer is `Kind::Unknown`.
    UnknownLost,
}

/// The log. See the module.
#[derive(Clone, Debug)]
pub struct MemoryLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: MemoryOptions,
    state: Mutex<State>,
    /// Something became readable, or stopped being so.
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
    /// Readers see nothing from here on.
    held_at: Option<Offset>,
    appended: u64,
    last_millis: i64,
    records: VecDeque<Delivery>,
}

impl MemoryLog {
    /// A log without faults.
    pub fn new(partitions: u32) -> Self {
        Self::with(MemoryOptions { partitions, ..MemoryOptions::default() })
    }

    /// A log with the faults that `options` name.
    pub fn with(options: MemoryOptions) -> Self {
        let held_at = options.held.then_some(Offset::ZERO);
        let partitions = (0..options.partitions).map(|_| Partition { held_at, ..Partition::default() }).collect();
        let state = State { partitions, append_faults: options.append_faults.iter().copied().collect() };
        Self(Arc::new(Shared { options, state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// Gives the next `count` offsets of a partition to nothing, as Kafka does to control records: the end moves, and
    /// readers step over them.
    pub fn skip(&self, partition: PartitionId, count: u64) {
        self.change(partition, |partition| partition.end = partition.end.saturating_add(count));
    }

    /// Moves the partition's start up to `start`, at most to its end. A reader that was to deliver a record below it
    /// gets `Kind::OutOfRange`.
    pub fn truncate_before(&self, partition: PartitionId, start: Offset) {
        self.change(partition, |partition| {
            partition.start = partition.start.max(start.min(partition.end));
            let kept = partition.records.partition_point(|record| record.offset < partition.start);
            partition.records.drain(..kept);
        });
    }

    /// From now on appends are acknowledged and move the bounds, but readers do not see them yet.
    pub fn hold(&self, partition: PartitionId) {
        self.change(partition, |partition| partition.held_at = partition.held_at.or(Some(partition.end)));
    }

    /// Ends [`MemoryLog::hold`].
    pub fn release(&self, partition: PartitionId) {
        self.change(partition, |partition| partition.held_at = None);
    }

    /// Does this to the next append that has no fault waiting for it yet, whatever its partition.
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
        let failed = |kind| settled(Err(Error::new(kind, self.topic(), "an injected failure").at(partition)));
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
        self.end = offset.next().expect("a partition ends before its offsets do");
        self.appended += 1;
        if let Some(Gaps { every, width }) = gaps
            && self.appended.is_multiple_of(every)
        {
            self.end = self.end.saturating_add(width);
        }
        offset
    }

    /// Where readers stop for now.
    fn visible_end(&self) -> Offset {
        self.held_at.unwrap_or(self.end)
    }
}

#[cfg(test)]
mod tests;
