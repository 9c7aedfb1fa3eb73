//! Reads a [`MemoryLog`](super::MemoryLog), with the repeated deliveries that its options ask for.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    options::Repeats,
    state::{Shared, State},
};
use crate::{
    Delivery, Offset, POLL_BYTES_MAX, PartitionId, Reader,
    error::{Error, Kind},
};

pub(super) struct MemoryReader {
    shared: Arc<Shared>,
    positions: BTreeMap<PartitionId, Position>,
    /// Index of the partition that is served first. Each call begins with the next one.
    first_partition: usize,
}

struct Position {
    next: Offset,
    delivered: u64,
}

/// The records of one pass over the log.
#[derive(Default)]
struct Polled {
    records: Vec<Delivery>,
    bytes: usize,
    moved: bool,
}

impl MemoryReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, positions: BTreeMap::new(), first_partition: 0 }
    }

    fn poll_once(&mut self, state: &State, max: usize) -> Result<Polled, Error> {
        let mut polled = Polled::default();
        let mut order: Vec<PartitionId> = self.positions.keys().copied().collect();
        if order.is_empty() {
            return Ok(polled);
        }
        let first = self.first_partition % order.len();
        order.rotate_left(first);
        self.first_partition = self.first_partition.wrapping_add(1);
        let mut last_count = None;
        // Repeats until a round yields no more records.
        while last_count.replace(polled.records.len()) != Some(polled.records.len()) && polled.records.len() < max {
            self.poll_partitions(&order, state, max, &mut polled)?;
        }
        Ok(polled)
    }

    fn poll_partitions(
        &mut self,
        order: &[PartitionId],
        state: &State,
        max: usize,
        polled: &mut Polled,
    ) -> Result<(), Error> {
        let chunk = self.shared.options.chunk.unwrap_or(max);
        for &partition in order {
            let Some(position) = self.positions.get_mut(&partition) else { continue };
            if position.next < state.partitions[partition.index()].start {
                if polled.records.is_empty() && !polled.moved {
                    let what = "the log's start has moved past the reader";
                    let error = Error::new(Kind::OutOfRange, &self.shared.options.topic, what);
                    return Err(error.in_partition(partition).at_offset(position.next));
                }
                continue;
            }
            let max = max.min(polled.records.len().saturating_add(chunk));
            position.poll_partition(partition, state, self.shared.options.repeats, max, polled);
        }
        Ok(())
    }
}

impl Position {
    fn poll_partition(
        &mut self,
        partition: PartitionId,
        state: &State,
        repeats: Option<Repeats>,
        max: usize,
        polled: &mut Polled,
    ) {
        let partition = &state.partitions[partition.index()];
        let end = partition.visible_end();
        let first = partition.records.partition_point(|record| record.offset < self.next);
        for (index, record) in partition.records.iter().enumerate().skip(first) {
            if record.offset >= end {
                break;
            }
            if polled.records.len() >= max || polled.bytes >= POLL_BYTES_MAX {
                return;
            }
            polled.bytes += record.value.len();
            polled.records.push(record.clone());
            self.next = record.offset.saturating_add(1);
            self.delivered += 1;
            if let Some(Repeats { every, back }) = repeats
                && self.delivered.is_multiple_of(every)
            {
                let repeated = partition.records.range((index + 1).saturating_sub(back)..=index);
                polled.records.extend(repeated.cloned());
            }
        }
        if self.next < end {
            self.next = end;
            polled.moved = true;
        }
    }
}

impl Reader for MemoryReader {
    fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        let start = Instant::now();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            let polled = self.poll_once(&state, max)?;
            let left = timeout.saturating_sub(start.elapsed());
            if !polled.records.is_empty() || polled.moved || max == 0 || left.is_zero() {
                return Ok(polled.records);
            }
            let woken = shared.changed.wait_timeout(state, left);
            state = woken.expect("a holder of the log's lock panicked").0;
        }
    }

    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.positions.get(&partition).map(|position| position.next)
    }

    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error> {
        self.shared.bounds(partition)?.check(&self.shared.options.topic, partition, next)?;
        self.positions.insert(partition, Position { next, delivered: 0 });
        Ok(())
    }

    fn release(&mut self, partition: PartitionId) -> Result<(), Error> {
        self.positions.remove(&partition);
        Ok(())
    }
}
