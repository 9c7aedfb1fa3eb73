//! The log: a journal's source of truth, as one trait with several adapters.
//!
//! ```text
//!   append ──▶ [ partition 0 ] 0 1 2 3 …  ──▶ Reader::poll   (projector)
//!              [ partition 1 ] 0 1 2 …                        bounds (doctor, latest)
//! ```
//!
//! A log is a fixed number of partitions; each is an ordered sequence of records, numbered by offsets that only grow.
//! Offsets are *not* dense: Kafka leaves gaps (aborted batches, control records), so callers must not expect a record at
//! the next offset. An acknowledged append survives `kill -9` of every process involved.
//!
//! Adapters: `kafka` (feature `kafka`), `local` (feature `local`, RocksDB) and [`memory`] for tests. They pass one shared
//! contract suite, `tests/tests/local/log_contract.rs`.

#![deny(missing_docs)]

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

mod batch;
mod clients;
mod clock;
#[cfg(any(feature = "kafka", feature = "local"))]
mod ending;
mod error;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "local")]
pub mod local;
pub mod memory;
pub mod private_file;

pub use clients::{Client, Clients, Replacement, Stall};
pub use clock::Clock;
pub use error::{Error, Kind};
pub use runlog_schemas::id::{LogId, Offset, PartitionId};

/// The default maximum size of `Entry::value` in every adapter, bytes: the journal's limit of a record.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// The largest sum of an entry's key, header names and header values, bytes.
pub const LABEL_BYTES_MAX: usize = 64 << 10;

/// The maximum number of entries in one batch.
pub const BATCH_ENTRIES_MAX: usize = 10_000;

/// The maximum number of bytes in one batch, keys and headers included.
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// Byte limit of one [`Reader::poll`]. The record that reaches the limit is the last one of that call.
pub const POLL_BYTES_MAX: usize = 16 << 20;

/// A record to append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The message key. Runlog uses the run id, or an empty key for a record about a whole partition.
    pub key: Vec<u8>,
    /// The framed Avro bytes. Never empty, because Kafka's readers cannot distinguish an empty value from a tombstone.
    pub value: Vec<u8>,
    /// Header names and values, in order. A name has no NUL.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// A record as a reader receives it, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The partition of the record.
    pub partition: PartitionId,
    /// The offset of the record.
    pub offset: Offset,
    /// Time of the append by the log's clock (`LogAppendTime`), milliseconds since the Unix epoch.
    pub timestamp_millis: i64,
    /// The message key.
    pub key: Vec<u8>,
    /// The bytes as appended; empty for a tombstone, which only a foreign client can write.
    pub value: Vec<u8>,
    /// Header names and values, in order.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// The first and the last offset of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that can still be read (inclusive).
    pub start: Offset,
    /// The high watermark (exclusive): the next record gets this offset or a higher one. Equal to `start` if empty. The last
    /// stable offset, at or below the high watermark, if the log reads committed records.
    pub end: Offset,
}

impl Bounds {
    /// Refuses an offset outside of these bounds. Both bounds themselves are allowed.
    fn check(self, topic: &str, partition: PartitionId, next: Offset) -> Result<(), Error> {
        let Self { start, end } = self;
        if (start..=end).contains(&next) {
            return Ok(());
        }
        let what = format!("the offset is outside of the log, whose offsets are {start} to {end}");
        Err(Error::new(Kind::OutOfRange, topic, what).in_partition(partition).at_offset(next))
    }
}

/// The current settings of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// The settings that are weaker than a journal needs.
    pub weaknesses: Vec<Weakness>,
    /// The number of partitions now, which may be more than [`Log::partitions`]. `None` if it cannot change.
    pub partitions: Option<u32>,
    /// Whether the producers choose the records' timestamps, as they do in a topic that MirrorMaker creates. `None` if it is
    /// unknown.
    pub create_time: Option<bool>,
}

/// A setting that is weaker than a journal needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weakness {
    /// The name of the setting.
    pub setting: &'static str,
    /// Whether the log deletes or loses records by this setting while all brokers work.
    pub can_lose: bool,
    /// The value and its consequence, for operators.
    pub what: String,
}

/// The acknowledgement of an append. Resolves to the offsets of the batch, in its order.
///
/// The append has started when the call returns. Dropping this future does not cancel it; only the result is lost.
pub type Ack = Pin<Box<dyn Future<Output = Result<Vec<Offset>, Error>> + Send>>;

/// The answer to a bounds query.
pub type BoundsAnswer<'a> = Pin<Box<dyn Future<Output = Result<Bounds, Error>> + Send + 'a>>;

/// The answer to a query for a partition's end.
pub type EndAnswer<'a> = Pin<Box<dyn Future<Output = Result<Offset, Error>> + Send + 'a>>;

/// A journal's log. Share it in an `Arc`.
pub trait Log: Send + Sync + fmt::Debug {
    /// The topic's name, for positions and messages.
    fn topic(&self) -> &str;

    /// The log's id, which it keeps when it is opened again. Another log has another id, also one with the same topic name and
    /// the same records. `None` if the adapter cannot learn it, such as from brokers without topic ids.
    fn id(&self) -> Option<&LogId> {
        None
    }

    /// The partition count, which does not change while this value exists.
    fn partitions(&self) -> u32;

    /// The largest `Entry::value` that can be appended, bytes.
    fn value_bytes_max(&self) -> usize;

    /// The clock that stamps records, milliseconds since the Unix epoch; `None` if it is not this process's (Kafka).
    fn clock_millis(&self) -> Option<i64> {
        None
    }

    /// Whether readers leave out the records of aborted transactions, and readers and bounds end before the first open transaction.
    fn reads_committed(&self) -> bool {
        false
    }

    /// Whether readers also get records of open and aborted transactions, which foreign producers write.
    fn reads_uncommitted(&self) -> bool {
        false
    }

    /// Connects to the same log, to read committed records only. `None` if this makes no difference: the log reads only committed
    /// records, or contains no foreign transactions. Blocks for requests to the brokers (Kafka).
    ///
    /// Errors: as at the first connection; also `Kind::Replaced` if it is another log now.
    fn committed(&self) -> Option<Result<Arc<dyn Log>, Error>> {
        None
    }

    /// Reads the log's current settings. Blocks until the brokers answer (Kafka), for some seconds at most.
    fn settings(&self) -> Result<LogSettings, Error> {
        Ok(LogSettings::default())
    }

    /// The state of the log's own clients (Kafka).
    fn clients(&self) -> Clients {
        Clients::default()
    }

    /// Appends `batch` to `partition`.
    ///
    /// Ordering: appends to one partition land in the order of the calls.
    ///
    /// All or none: an invalid batch (above this crate's limits, to an unknown partition, to a closed log) is refused as a
    /// whole before any record is enqueued, and so is an append to a replaced log (`Kind::Replaced`). Kafka without
    /// transactions can fail halfway: a prefix may have landed, and the error's kind is [`Kind::Unknown`]. Data that must be
    /// atomic in spite of that must be one record.
    ///
    /// Never blocks: a full queue is an error of kind `Retry`. An empty batch resolves to no offsets.
    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack;

    /// Reads the partition's bounds. The read begins after this call, never from a cache.
    ///
    /// Concurrent callers may share one request to the broker, if it is sent after all of them called. `deadline` bounds the
    /// wait; after it the error is of kind `Retry`. Await the answer in a Tokio runtime with time enabled.
    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_>;

    /// Reads [`Bounds::end`] alone, like [`Log::bounds`]. With Kafka this takes one request to the leader instead of two.
    fn end(&self, partition: PartitionId, deadline: Duration) -> EndAnswer<'_> {
        Box::pin(async move { Ok(self.bounds(partition, deadline).await?.end) })
    }

    /// Creates a reader of `from`: pairs of a partition and the next offset to deliver (inclusive).
    ///
    /// Errors: `Kind::OutOfRange` when an offset lies below the partition's start or beyond its end; an offset equal to
    /// either is legal. The reader never resets by itself. Blocks for a request to the broker (Kafka).
    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error>;
}

/// A forward-only reader of a set of partitions. Its calls block, so it needs a thread of its own.
pub trait Reader: Send {
    /// Waits at most `timeout` for records and returns up to `max` of them (or [`POLL_BYTES_MAX`]), each partition's in
    /// offset order.
    ///
    /// Returns as soon as records are available. The result is empty after `timeout`, or earlier when a
    /// [`Reader::position`] moved without a record.
    ///
    /// An error leaves the reader's positions unchanged: a later call delivers the remaining records. Exceptions: after
    /// `Kind::Fatal` and `Kind::Replaced` no later call needs to deliver them. After `OutOfRange` or `Damaged` the named partition (all
    /// partitions if the error names none) must be sought or released first. An error that follows records in the same call is
    /// returned by the next call.
    fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error>;

    /// The offset from which the next delivery of `partition` is read (inclusive); `None` if the reader does not have it.
    ///
    /// It is at least one past the last delivered record. It passes offsets that are never delivered (Kafka's control
    /// records), and so reaches [`Bounds::end`] after the delivery of all records below. It moves in `poll`, forward only,
    /// and in `seek`.
    fn position(&self, partition: PartitionId) -> Option<Offset>;

    /// Replaces the position of one partition: its next delivery is the first record at or after `next`. Adds the partition
    /// if the reader does not have it. Errors: as in [`Log::reader`]; `OutOfRange` leaves the position unchanged.
    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error>;

    /// Stops delivering from a partition and forgets its position.
    fn release(&mut self, partition: PartitionId) -> Result<(), Error>;
}
