//! Checks that all adapters share. They run before any record of a batch is enqueued.

use std::future;

use crate::{
    Ack, BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, Entry, LABEL_BYTES_MAX, Offset, PartitionId,
    error::{Error, Kind},
};

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partitions: u32,
    pub(crate) value_bytes_max: usize,
}

impl Limits<'_> {
    /// Returns the size of the batch in bytes, or the reason to refuse it as a whole.
    pub(crate) fn check(&self, partition: PartitionId, batch: &[Entry]) -> Result<usize, Error> {
        let invalid = |what: String| Err(Error::new(Kind::Invalid, self.topic, what).in_partition(partition));
        self.check_partition(partition)?;
        if batch.len() > BATCH_ENTRIES_MAX {
            return invalid(format!("a batch of {} records is over the limit of {BATCH_ENTRIES_MAX}", batch.len()));
        }
        let mut bytes = 0;
        for entry in batch {
            if entry.value.is_empty() {
                return invalid("a record without a value is a tombstone".into());
            }
            if entry.value.len() > self.value_bytes_max {
                let (length, limit) = (entry.value.len(), self.value_bytes_max);
                return invalid(format!("a value of {length} bytes is over the limit of {limit}"));
            }
            if entry.headers.iter().any(|(name, _)| name.contains('\0')) {
                return invalid("a header's name contains NUL".into());
            }
            let labels = label_bytes(entry);
            if labels > LABEL_BYTES_MAX {
                return invalid(format!("key and headers of {labels} bytes are over the limit of {LABEL_BYTES_MAX}"));
            }
            bytes += labels + entry.value.len();
        }
        if bytes > BATCH_BYTES_MAX {
            return invalid(format!("a batch of {bytes} bytes is over the limit of {BATCH_BYTES_MAX}"));
        }
        Ok(bytes)
    }

    /// Refuses a partition that the log does not have.
    pub(crate) fn check_partition(&self, partition: PartitionId) -> Result<(), Error> {
        if partition.get() < self.partitions {
            return Ok(());
        }
        let what = format!("the partition does not exist: the log has {} partitions", self.partitions);
        Err(Error::new(Kind::Invalid, self.topic, what).in_partition(partition))
    }
}

fn label_bytes(entry: &Entry) -> usize {
    let headers = entry.headers.iter().map(|(name, value)| name.len() + value.len());
    entry.key.len() + headers.sum::<usize>()
}

/// Returns an acknowledgement that is already resolved.
pub(crate) fn settled(result: Result<Vec<Offset>, Error>) -> Ack {
    Box::pin(future::ready(result))
}
