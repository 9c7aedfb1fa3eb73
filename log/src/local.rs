//! A durable log inside one process, on RocksDB: the embedded default of `runlog demo` and `runlog serve --local`.
//!
//! ```text
//!   append ─▶ queue (bounded) ─▶ writer thread: one WriteBatch, one fsync ─▶ acks
//!                                      │                                └──▶ ends ─▶ waiting readers
//!                                      ▼
//!                                DIR (RocksDB, one column family per partition)
//! ```
//!
//! Many appends share one fsync and are acknowledged after it. Offsets are dense. One process at a time can open the
//! directory. It is not a cluster: use Kafka for more than one machine.

use std::{
    fmt, future,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    Ack, BoundsAnswer, Entry, Log, LogId, Offset, PartitionId, Reader, VALUE_BYTES_MAX,
    batch::settled,
    clock::Clock,
    ending::within,
    error::{Error, Kind},
};

mod ends;
mod layout;
mod queue;
mod reader;
mod shared;
mod store;
mod wal;
mod writer;

use ends::Ends;
use queue::{Pending, Queue};
use shared::Shared;
use store::Store;
pub use store::{PARTITIONS_DEFAULT, PARTITIONS_MAX};

/// Time limit of the drop, which waits until the queue is written.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// The location and settings of a local log.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The directory. It is created if it is missing.
    pub dir: PathBuf,
    /// The topic's name, for positions and messages. Default `runlog.journal`.
    pub topic: String,
    /// The partition count. It cannot change after the creation; opening a log with another count is `Kind::Invalid`.
    /// Default: the log's own count, or [`PARTITIONS_DEFAULT`] for a new log.
    pub partitions: Option<u32>,
    /// The clock of the records' timestamps, which never decrease within a partition. Default the machine's clock.
    pub clock: Clock,
    /// Random texts. A log that has no id yet gets one of them, hashed. Default none: such a log then stays without an id.
    pub ids: Option<fn() -> String>,
}

impl LocalConfig {
    /// The defaults, in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), topic: "runlog.journal".into(), partitions: None, clock: Clock::system(), ids: None }
    }
}

/// The log. Dropping it writes the enqueued records and closes the directory. Its readers then fail with `Kind::Fatal`.
pub struct LocalLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl LocalLog {
    /// Opens the log in a directory, or creates a log if the directory has none.
    ///
    /// Errors: `Kind::Retry` while another process, or another handle of this one, has the directory; `Kind::Invalid`
    /// for another partition count or a layout of another version; `Kind::Damaged` for damaged data.
    pub fn open(config: LocalConfig) -> Result<Self, Error> {
        let LocalConfig { dir, topic, partitions, clock, ids } = config;
        let (store, tails) = Store::open(dir, &topic, partitions, ids)?;
        let ends = Ends::new(tails.iter().map(|tail| tail.end).collect());
        let shared =
            Shared { partitions: store.partitions(), topic, store, queue: Queue::new(), ends, clock: clock.clone() };
        let shared = Arc::new(shared);
        let writer = writer::Writer::new(Arc::clone(&shared), tails, clock);
        let thread = thread::Builder::new().name("local-log-writer".into()).spawn(move || writer.run());
        let thread = thread.map_err(|source| {
            Error::new(Kind::Retry, &shared.topic, "the log's writer thread did not start").because(source)
        })?;
        Ok(Self { shared, writer: Some(thread) })
    }
}

impl Log for LocalLog {
    fn topic(&self) -> &str {
        &self.shared.topic
    }

    fn id(&self) -> Option<&LogId> {
        self.shared.store.id()
    }

    fn partitions(&self) -> u32 {
        self.shared.partitions
    }

    fn value_bytes_max(&self) -> usize {
        VALUE_BYTES_MAX
    }

    fn clock_millis(&self) -> Option<i64> {
        Some(self.shared.clock.millis())
    }

    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let shared = &self.shared;
        let bytes = match shared.limits().check(partition, &batch) {
            Ok(bytes) => bytes,
            Err(refusal) => return settled(Err(refusal)),
        };
        if batch.is_empty() {
            return settled(Ok(Vec::new()));
        }
        let (ack, acked) = oneshot::channel();
        match shared.queue.push(Pending { partition, entries: batch, bytes, ack }) {
            Ok(()) => {}
            Err(queue::Refused::Full) => {
                let full = Error::new(Kind::Retry, &shared.topic, "the log's queue is full");
                return settled(Err(full.in_partition(partition)));
            }
            Err(queue::Refused::Closed) => return settled(Err(shared.closed().in_partition(partition))),
        }
        let lost = Error::new(Kind::Unknown, &shared.topic, "the log's writer thread ended without an answer")
            .in_partition(partition);
        Box::pin(async move { acked.await.unwrap_or(Err(lost)) })
    }

    fn bounds(&self, partition: PartitionId, _deadline: Duration) -> BoundsAnswer<'_> {
        Box::pin(future::ready(self.shared.bounds(partition)))
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        let mut reader = reader::LocalReader::new(Arc::clone(&self.shared));
        for (partition, next) in from {
            reader.seek(*partition, *next)?;
        }
        Ok(Box::new(reader))
    }
}

impl Drop for LocalLog {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.ends.close();
        let Some(writer) = self.writer.take() else { return };
        let shared = Arc::clone(&self.shared);
        let closed = within(CLOSE_WAIT, move || {
            if writer.join().is_err() {
                tracing::error!(topic = shared.topic, "the local log's writer panicked");
            }
            shared.store.close();
        });
        if !closed {
            let Shared { topic, store, .. } = &*self.shared;
            tracing::error!(topic, dir = %store.dir().display(), "the local log did not close in time; its thread is left running");
        }
    }
}

impl fmt::Debug for LocalLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { topic, partitions, store, .. } = &*self.shared;
        f.debug_struct("LocalLog")
            .field("dir", &store.dir())
            .field("topic", topic)
            .field("partitions", partitions)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
