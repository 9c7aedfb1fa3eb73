//! The state of a log in memory, which its handles and readers share.

use super::options::{AppendFault, Gaps, MemoryOptions};
use crate::{Bounds, Delivery, Entry, Offset, PartitionId, batch::Limits, error::Error};
use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard},
};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: MemoryOptions,
    pub(super) state: Mutex<State>,
    /// Notified when records became visible to readers, or invisible.
    pub(super) changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) partitions: Vec<Partition>,
    pub(super) append_faults: VecDeque<AppendFault>,
}

#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) start: Offset,
    pub(super) end: Offset,
    /// Records from this offset on are invisible to readers.
    pub(super) held_at: Option<Offset>,
    pub(super) appended: u64,
    pub(super) last_millis: i64,
    pub(super) records: VecDeque<Delivery>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a holder of the log's lock panicked")
    }

    pub(super) fn limits(&self) -> Limits<'_> {
        let MemoryOptions { topic, partitions, value_bytes_max, .. } = &self.options;
        Limits { topic, partitions: *partitions, value_bytes_max: *value_bytes_max }
    }

    pub(super) fn bounds(&self, partition: PartitionId) -> Result<Bounds, Error> {
        self.limits().check_partition(partition)?;
        let state = self.lock();
        let Partition { start, end, .. } = state.partitions[partition.index()];
        Ok(Bounds { start, end })
    }
}

impl Partition {
    pub(super) fn push(&mut self, partition: PartitionId, entry: Entry, millis: i64, gaps: Option<Gaps>) -> Offset {
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
    pub(super) fn visible_end(&self) -> Offset {
        self.held_at.unwrap_or(self.end)
    }
}
