//! A log in Kafka that counts its appends in flight, and can hold their acknowledgements back.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context;
use runlog_log::{Ack, BoundsAnswer, EndAnswer, Entry, Error, Log, Offset, PartitionId, Reader, kafka::KafkaLog};
use tokio::sync::watch;

/// Counts of appends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appends {
    /// Appends that were sent.
    pub sent: u64,
    /// Sent appends that were acknowledged, have failed, or whose future was dropped.
    pub ended: u64,
}

impl Appends {
    /// Appends that were sent and have not ended.
    pub fn in_flight(self) -> u64 {
        self.sent - self.ended
    }

    /// The counts in the file of a process, which may be dead; zero if it made no append.
    pub fn left_in(path: &Path) -> anyhow::Result<Self> {
        let mut bytes = [0; 16];
        let read = File::open(path)?.read_at(&mut bytes, 0)?;
        if read == 0 {
            return Ok(Self::default());
        }
        let (sent, ended) = bytes.split_first_chunk().filter(|_| read == bytes.len()).context("two numbers")?;
        let ended = ended.try_into().context("a number")?;
        Ok(Self { sent: u64::from_le_bytes(*sent), ended: u64::from_le_bytes(ended) })
    }
}

/// Counts appends, optionally also in a file. The file keeps the counts of a killed process.
#[derive(Debug, Default)]
pub struct Counter {
    appends: Mutex<Appends>,
    file: Option<File>,
    held: watch::Sender<bool>,
}

impl Counter {
    /// A counter that also writes a new file.
    pub fn in_file(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { file: Some(File::create(path)?), ..Self::default() })
    }

    /// Starts or stops to hold acknowledgements back.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// The counts now.
    pub fn appends(&self) -> Appends {
        *self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, Appends> {
        self.appends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file under the lock, so that the counts are written in order.
    fn count(&self, change: impl FnOnce(&mut Appends)) {
        let mut appends = self.locked();
        change(&mut appends);
        let bytes: Vec<u8> = [appends.sent, appends.ended].into_iter().flat_map(u64::to_le_bytes).collect();
        let written = self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(&bytes, 0));
        drop(appends);
        written.unwrap_or_else(|error| panic!("the counts of appends are not written: {error}"));
    }
}

/// The log.
#[derive(Debug)]
pub struct CountingLog {
    log: KafkaLog,
    counter: Arc<Counter>,
}

struct InFlight(Arc<Counter>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.count(|appends| appends.ended += 1);
    }
}

impl CountingLog {
    /// Counts the appends to `log`. An append whose future is dropped counts as ended.
    pub fn new(log: KafkaLog, counter: Arc<Counter>) -> Self {
        Self { log, counter }
    }
}

impl Log for CountingLog {
    fn topic(&self) -> &str {
        self.log.topic()
    }

    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn value_bytes_max(&self) -> usize {
        self.log.value_bytes_max()
    }

    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        self.counter.count(|appends| appends.sent += 1);
        let counted = InFlight(self.counter.clone());
        let ack = self.log.append(partition, batch);
        Box::pin(async move {
            // The counter is its sender.
            drop(counted.0.held.subscribe().wait_for(|held| !held).await);
            ack.await
        })
    }

    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        self.log.bounds(partition, deadline)
    }

    fn end(&self, partition: PartitionId, deadline: Duration) -> EndAnswer<'_> {
        self.log.end(partition, deadline)
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        self.log.reader(from)
    }
}
