//! The parts of a log that its handle, its writer and its readers share.

use super::{ends::Ends, queue::Queue, store::Store};
use crate::{
    Bounds, Offset, PartitionId, VALUE_BYTES_MAX,
    batch::Limits,
    clock::Clock,
    error::{Error, Kind},
};

pub(super) struct Shared {
    pub(super) topic: String,
    pub(super) partitions: u32,
    pub(super) store: Store,
    pub(super) queue: Queue,
    pub(super) ends: Ends,
    pub(super) clock: Clock,
}

impl Shared {
    pub(super) fn limits(&self) -> Limits<'_> {
        Limits { topic: &self.topic, partitions: self.partitions, value_bytes_max: VALUE_BYTES_MAX }
    }

    pub(super) fn bounds(&self, partition: PartitionId) -> Result<Bounds, Error> {
        self.limits().check_partition(partition)?;
        Ok(Bounds { start: Offset::ZERO, end: self.ends.end(partition) })
    }

    pub(super) fn closed(&self) -> Error {
        Error::new(Kind::Fatal, &self.topic, "the log is closed")
    }
}
