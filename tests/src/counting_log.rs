//! A log in Kafka that counts its appends in flight.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use runlog_log::{Ack, BoundsAnswer, Entry, Error, Log, Offset, PartitionId, Reader, kafka::KafkaLog};

/// The log.
#[derive(Debug)]
pub struct CountingLog {
    log: KafkaLog,
    in_flight: Arc<AtomicUsize>,
}

struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CountingLog {
    /// Counts the appends to `log` in `in_flight`: those that were sent and are not acknowledged, as far as somebody waits
    /// for it.
    pub fn new(log: KafkaLog, in_flight: Arc<AtomicUsize>) -> Self {
        Self { log, in_flight }
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
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let counted = InFlight(self.in_flight.clone());
        let ack = self.log.append(partition, batch);
        Box::pin(async move {
            let _counted = counted;
            ack.await
        })
    }

    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        self.log.bounds(partition, deadline)
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        self.log.reader(from)
    }
}
