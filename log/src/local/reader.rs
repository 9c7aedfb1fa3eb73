//! Reads the local log. A waiting reader holds no lock or iterator of the database.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{shared::Shared, store::Remaining};
use crate::{Delivery, Offset, POLL_BYTES_MAX, PartitionId, Reader, error::Error};

pub(super) struct LocalReader {
    shared: Arc<Shared>,
    /// The next offset of each partition.
    places: BTreeMap<PartitionId, Offset>,
    /// Index of the partition that is served first. Each call begins with the next one.
    turn: usize,
}

impl LocalReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, places: BTreeMap::new(), turn: 0 }
    }

    /// Waits until a partition has records after the reader's position. Returns (partition, position, end) of all such
    /// partitions.
    fn wait(&self, timeout: Duration) -> Result<Vec<(PartitionId, Offset, Offset)>, Error> {
        let start = Instant::now();
        let mut state = self.shared.ends.lock();
        loop {
            let ahead = self.places.iter().map(|(partition, next)| (*partition, *next, state.ends[partition.index()]));
            let ahead: Vec<_> = ahead.filter(|(_, next, end)| next < end).collect();
            if state.closed {
                return Err(self.shared.closed());
            }
            let left = timeout.saturating_sub(start.elapsed());
            if !ahead.is_empty() || left.is_zero() {
                return Ok(ahead);
            }
            state = self.shared.ends.wait(state, left);
        }
    }
}

impl Reader for LocalReader {
    fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut ahead = self.wait(timeout)?;
        if !ahead.is_empty() {
            let first = self.turn % ahead.len();
            ahead.rotate_left(first);
            self.turn = self.turn.wrapping_add(1);
        }
        let mut remaining = Remaining { records: max, bytes: POLL_BYTES_MAX };
        let mut records = Vec::new();
        for (partition, next, end) in ahead {
            match self.shared.store.read(partition, next, end, &mut remaining) {
                Ok(read) => {
                    if let Some(last) = read.last() {
                        self.places.insert(partition, last.offset.saturating_add(1));
                    }
                    records.extend(read);
                }
                // The next call gets the same error, without records before it.
                Err(_) if !records.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.places.get(&partition).copied()
    }

    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error> {
        self.shared.bounds(partition)?.check(&self.shared.topic, partition, next)?;
        self.places.insert(partition, next);
        Ok(())
    }

    fn release(&mut self, partition: PartitionId) -> Result<(), Error> {
        self.places.remove(&partition);
        Ok(())
    }
}
