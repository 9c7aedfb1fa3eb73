//! The state of a log's own clients, for operators.

use runlog_schemas::id::{Offset, PartitionId};
use std::{collections::BTreeMap, time::Instant};

/// A client of the log, by its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// Reads records.
    Consumer,
    /// Appends records.
    Producer,
    /// Queries the bounds of partitions.
    Bounds,
}

impl Client {
    /// Every client.
    pub const ALL: [Self; 3] = [Self::Consumer, Self::Producer, Self::Bounds];

    /// Returns the name for metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Consumer => "consumer",
            Self::Producer => "producer",
            Self::Bounds => "bounds",
        }
    }
}

/// Replaced clients and consumers that deliver nothing.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// The number of replacements since the log was opened, by client.
    pub replaced: BTreeMap<Client, u64>,
    /// The last replacement of a consumer or producer.
    pub last: Option<Replacement>,
    /// Partitions whose consumer delivers nothing although the brokers have more, by consumer.
    pub stalls: Vec<Stall>,
}

/// A client was replaced.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The replaced client.
    pub client: Client,
    /// The reason, as a clause for operators.
    pub reason: String,
    /// The time of the replacement.
    pub at: Instant,
}

/// A partition whose consumer delivers nothing.
#[derive(Clone, Debug)]
pub struct Stall {
    /// The partition.
    pub partition: PartitionId,
    /// The next offset to deliver.
    pub next: Offset,
    /// The end offset at the brokers (exclusive).
    pub end: Offset,
    /// The time at which the consumer was first found stopped at `next`.
    pub since: Instant,
}
