//! Records that a server has not applied since its start. One of them may name a home, so a server that knows no home appends
//! nothing to their partition: its log may be a mirror.

use runlog_schemas::id::{Offset, PartitionId};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The partitions with such records.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// The log's end at the start (exclusive) of each.
    ends: Mutex<BTreeMap<PartitionId, Offset>>,
    /// Whether there is one, for calls that need no lock.
    some: AtomicBool,
}

impl Unread {
    /// Adds a partition of a log that ended at `end` when the server started.
    pub(super) fn add(&self, partition: PartitionId, end: Offset) {
        self.ends().insert(partition, end);
        self.some.store(true, Ordering::Release);
    }

    /// Removes a partition if all its records below `applied` are applied, or if it applies no more.
    pub(super) fn report(&self, partition: PartitionId, applied: Offset, is_stopped: bool) {
        if !self.some.load(Ordering::Acquire) {
            return;
        }
        let mut ends = self.ends();
        ends.retain(|of, end| *of != partition || (applied < *end && !is_stopped));
        self.some.store(!ends.is_empty(), Ordering::Release);
    }

    /// Whether `partition` has such records.
    pub(super) fn contains(&self, partition: PartitionId) -> bool {
        self.some.load(Ordering::Acquire) && self.ends().contains_key(&partition)
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Offset>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
