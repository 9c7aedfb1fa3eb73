//! Reads a [`MemoryLog`](super::MemoryLog), with the repeated deliveries that its options ask for.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Repeats, Shared, State};
use crate::{Delivery, Error, Kind, Offset, POLL_BYTES_MAX, PartitionId, Reader};

pub(super) struct MemoryReader {
    shared: Arc<Shared>,
    places: BTreeMap<PartitionId, Place>,
    /// Index of the partition that is served first. Each call begins with the next one.
    turn: usize,
}

struct Place {
    next: Offset,
    delivered: u64,
}

/// The records of one pass over the log.
#[derive(Default)]
struct Taken {
    records: Vec<Delivery>,
    bytes: usize,
    moved: bool,
}

impl MemoryReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, places: BTreeMap::new(), turn: 0 }
    }

    fn take(&mut self, state: &State, max: usize) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        let mut order: Vec<PartitionId> = self.places.keys().copied().collect();
        if order.is_empty() {
            return Ok(taken);
        }
        let first = self.turn % order.len();
        order.rotate_left(first);
        self.turn = self.turn.wrapping_add(1);
        let mut before = None;
        // Repeats until a round yields no more records.
        while before.replace(taken.records.len()) != Some(taken.records.len()) && taken.records.len() < max {
            self.round(&order, state, max, &mut taken)?;
        }
        Ok(taken)
    }

    fn round(&mut self, order: &[PartitionId], state: &State, max: usize, taken: &mut Taken) -> Result<(), Error> {
        let chunk = self.shared.options.chunk.unwrap_or(max);
        for &partition in order {
            let Some(place) = self.places.get_mut(&partition) else { continue };
            if place.next < state.partitions[partition.index()].start {
                if taken.records.is_empty() && !taken.moved {
                    let what = "the log's start has moved past the reader";
                    let error = Error::new(Kind::OutOfRange, &self.shared.options.topic, what);
                    return Err(error.in_partition(partition).at_offset(place.next));
                }
                continue;
            }
            let max = max.min(taken.records.len().saturating_add(chunk));
            place.take(partition, state, self.shared.options.repeats, max, taken);
        }
        Ok(())
    }
}

impl Place {
    fn take(&mut self, partition: PartitionId, state: &State, repeats: Option<Repeats>, max: usize, taken: &mut Taken) {
        let partition = &state.partitions[partition.index()];
        let end = partition.visible_end();
        let first = partition.records.partition_point(|record| record.offset < self.next);
        for (index, record) in partition.records.iter().enumerate().skip(first) {
            if record.offset >= end {
                break;
            }
            if taken.records.len() >= max || taken.bytes >= POLL_BYTES_MAX {
                return;
            }
            taken.bytes += record.value.len();
            taken.records.push(record.clone());
            self.next = record.offset.saturating_add(1);
            self.delivered += 1;
            if let Some(Repeats { every, back }) = repeats
                && self.delivered.is_multiple_of(every)
            {
                let again = partition.records.range((index + 1).saturating_sub(back)..=index);
                taken.records.extend(again.cloned());
            }
        }
        if self.next < end {
            self.next = end;
            taken.moved = true;
        }
    }
}

impl Reader for MemoryReader {
    fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        let start = Instant::now();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            let taken = self.take(&state, max)?;
            let left = timeout.saturating_sub(start.elapsed());
            if !taken.records.is_empty() || taken.moved || max == 0 || left.is_zero() {
                return Ok(taken.records);
            }
            let woken = shared.changed.wait_timeout(state, left);
            state = woken.expect("a holder of the log's lock panicked").0;
        }
    }

    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.places.get(&partition).map(|place| place.next)
    }

    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error> {
        self.shared.bounds(partition)?.check(&self.shared.options.topic, partition, next)?;
        self.places.insert(partition, Place { next, delivered: 0 });
        Ok(())
    }

    fn release(&mut self, partition: PartitionId) -> Result<(), Error> {
        self.places.remove(&partition);
        Ok(())
    }
}
