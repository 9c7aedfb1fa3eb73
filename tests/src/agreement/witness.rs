//! Reads a topic with a separate client: the records that every reader must get, including the records of aborted
//! transactions.

use anyhow::{Context, ensure};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
};
use runlog_log::kafka::KafkaConfig;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// How long one read may take.
const READ_WAIT: Duration = Duration::from_secs(60);
/// The timeout of one poll.
const POLL_WAIT: Duration = Duration::from_millis(200);

/// A record of the topic.
#[derive(Clone, Debug)]
pub struct TopicRecord {
    /// The partition.
    pub partition: u32,
    /// The offset. Control records take offsets and are left out.
    pub offset: u64,
    /// The broker's timestamp, milliseconds since the Unix epoch.
    pub millis: i64,
    /// The key of the message.
    pub key: Vec<u8>,
    /// The bytes.
    pub value: Vec<u8>,
}

/// Reads a topic from its beginning; each read returns the new records.
pub struct Witness {
    consumer: BaseConsumer,
    topic: String,
    /// The next offset of each partition.
    next: Vec<i64>,
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").field("topic", &self.topic).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Witness {
    /// A witness at the start of each partition.
    pub fn new(config: &KafkaConfig, partitions: u32) -> anyhow::Result<Self> {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &config.brokers).set("group.id", "witness");
        client.set("enable.auto.commit", "false").set("auto.offset.reset", "error");
        client.set("isolation.level", "read_uncommitted").set("enable.partition.eof", "true");
        client.set("fetch.wait.max.ms", "10").set("fetch.queue.backoff.ms", "5");
        Ok(Self { consumer: client.create()?, topic: config.topic.clone(), next: vec![0; partitions as usize] })
    }

    /// The records since the last read, up to the current end of each partition; in order within a partition.
    pub fn read(&mut self) -> anyhow::Result<Vec<TopicRecord>> {
        let mut from = TopicPartitionList::new();
        for (partition, next) in (0..).zip(&self.next) {
            from.add_partition_offset(&self.topic, partition, Offset::Offset(*next))?;
        }
        // Assigned again, so that each partition reports its end once more.
        self.consumer.assign(&from)?;
        let (mut stood, begun) = (Vec::new(), Instant::now());
        let mut left: BTreeSet<i32> = (0..).take(self.next.len()).collect();
        while !left.is_empty() {
            ensure!(begun.elapsed() < READ_WAIT, "partitions {left:?} of {} did not report their end", self.topic);
            match self.consumer.poll(POLL_WAIT) {
                None => {}
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(left.remove(&partition)),
                Some(Err(error)) => return Err(error).context("reading the topic"),
                Some(Ok(message)) => {
                    let partition = u32::try_from(message.partition())?;
                    self.next[partition as usize] = message.offset() + 1;
                    stood.push(TopicRecord {
                        partition,
                        offset: message.offset().try_into()?,
                        millis: message.timestamp().to_millis().context("a stamp")?,
                        key: message.key().unwrap_or_default().to_vec(),
                        value: message.payload().unwrap_or_default().to_vec(),
                    });
                }
            }
        }
        self.consumer.unassign()?;
        Ok(stood)
    }
}
