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
    /// The log's end at the start (exclusive) of each, and whether the partition is stopped until a
    /// skip.
    ends: Mutex<BTreeMap<PartitionId, (Offset, bool)>>,
    /// Whether there is one, for calls that need no lock.
    some: AtomicBool,
}

impl Unread {
    /// Adds a partition of a log that ended at `end` when the server started.
    pub(super) fn add(&self, partition: PartitionId, end: Offset) {
        self.ends().insert(partition, (end, false));
        self.some.store(true, Ordering::Release);
    }

    /// Updates a partition of which all records below `applied` are applied.
    pub(super) fn report(&self, partition: PartitionId, applied: Offset, waits_for_skip: bool) {
        if !self.some.load(Ordering::Acquire) {
            return;
        }
        let mut ends = self.ends();
        if let Some((end, waits)) = ends.get_mut(&partition) {
            *waits = waits_for_skip;
            if applied >= *end {
                ends.remove(&partition);
            }
        }
        self.some.store(!ends.is_empty(), Ordering::Release);
    }

    /// Whether a home of `partition` may be in such records. A home is appended to partition 0 first. A partition
    /// that waits for a skip does not count: the skip must be appended to it.
    pub(super) fn concerns(&self, partition: PartitionId) -> bool {
        if !self.some.load(Ordering::Acquire) {
            return false;
        }
        let ends = self.ends();
        [partition, PartitionId::ZERO].iter().any(|of| ends.get(of).is_some_and(|(_, waits_for_skip)| !waits_for_skip))
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<PartitionId, (Offset, bool)>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
