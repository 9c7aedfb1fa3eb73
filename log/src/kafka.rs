//! The log in Kafka, through librdkafka.
//!
//! ```text
//!   append ─▶ producer (idempotent, acks=all) ──▶ topic ──▶ consumer, one per reader, on the reader's thread
//!                                                   └─────▶ bounds client, with its own thread
//! ```
//!
//! [`admin`] creates topics and reads their configuration.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Ack, BoundsAnswer, EndAnswer, Entry, Log, LogId, LogSettings, Offset, PartitionId, Reader, VALUE_BYTES_MAX,
    batch::{Limits, settled},
    clients::Clients,
    error::{Error, Kind},
};

pub mod admin;
mod bounds;
mod config;
mod contact;
mod context;
mod health;
mod identity;
mod producer;
mod properties;
mod reader;
mod waits;
mod watch;

pub use config::KafkaConfig;
pub use properties::is_secret;

use bounds::BoundsClient;
use config::Isolation;
use health::Health;
use identity::{Identity, REPLACED};
use producer::Producer;
use waits::{GONE_WAIT, MISSING_WAIT, await_topic, close, missing};

/// The log. Dropping it waits a bounded time for enqueued records.
pub struct KafkaLog {
    config: KafkaConfig,
    identity: Identity,
    id: Option<LogId>,
    partitions: u32,
    producer: Option<Producer>,
    bounds: Arc<BoundsClient>,
    health: Health,
}

impl KafkaLog {
    /// Connects to an existing topic with the topic's partition count. Blocks for the cluster's answer.
    ///
    /// Errors: `Kind::Invalid` if brokers report for 5 seconds that the topic does not exist, or if a client property is
    /// invalid. `Kind::Retry` if the cluster does not answer or the topic is not usable within 10 seconds.
    pub fn connect(config: KafkaConfig) -> Result<Self, Error> {
        Self::connect_counted(config, |live, _| Ok(live))
    }

    /// Connects with a journal's partition count; the topic may have more partitions.
    ///
    /// Errors: as in [`KafkaLog::connect`]; also `Kind::Invalid` if the topic has fewer partitions.
    pub fn connect_with_partitions(config: KafkaConfig, count: u32) -> Result<Self, Error> {
        Self::connect_counted(config, |live, topic| {
            if live >= count {
                return Ok(count);
            }
            Err(Error::new(Kind::Invalid, topic, format!("the topic has {live} partitions, not {count}")))
        })
    }

    fn connect_counted(
        config: KafkaConfig,
        count: impl FnOnce(u32, &str) -> Result<u32, Error>,
    ) -> Result<Self, Error> {
        let (identity, health) = (Identity::new(&config.topic), Health::default());
        // Before the other clients: a topic that is replaced after this is another log to them.
        let id = admin::identify(&config, &identity)?;
        if id.is_none() {
            tracing::warn!(topic = config.topic, "the brokers report no id of the topic, so the log has none");
        }
        let producer = Producer::new(&config, &identity, health.clone())?;
        let live = await_topic(&config, MISSING_WAIT, |wait| producer.topic(wait))?.ok_or_else(|| missing(&config))?;
        let partitions = count(live, &config.topic)?;
        let bounds = Arc::new(BoundsClient::new(&config, health.clone(), producer.lost())?);
        let producer = Some(producer.with_partitions(partitions));
        Ok(Self { producer, config, identity, id, partitions, bounds, health })
    }

    /// Awaits an answer about a partition, and fails if the topic was replaced meanwhile.
    async fn await_answer<T>(
        &self,
        partition: PartitionId,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.limits().check_partition(partition)?;
        self.identity.check()?;
        let answer = answer.await;
        // The answer may be about the new topic.
        self.identity.check()?;
        answer
    }

    fn limits(&self) -> Limits<'_> {
        Limits { topic: &self.config.topic, partitions: self.partitions, value_bytes_max: VALUE_BYTES_MAX }
    }
}

impl Log for KafkaLog {
    fn topic(&self) -> &str {
        &self.config.topic
    }

    fn id(&self) -> Option<&LogId> {
        self.id.as_ref()
    }

    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn value_bytes_max(&self) -> usize {
        VALUE_BYTES_MAX
    }

    fn reads_committed(&self) -> bool {
        self.config.isolation() == Isolation::Committed
    }

    fn reads_uncommitted(&self) -> bool {
        !self.reads_committed()
    }

    fn committed(&self) -> Option<Result<Arc<dyn Log>, Error>> {
        if self.reads_committed() {
            return None;
        }
        let log = Self::connect_with_partitions(self.config.clone().committed(), self.partitions);
        Some(log.and_then(|log| {
            if log.id == self.id {
                return Ok(Arc::new(log) as Arc<dyn Log>);
            }
            Err(Error::new(Kind::Replaced, &self.config.topic, REPLACED))
        }))
    }

    fn settings(&self) -> Result<LogSettings, Error> {
        let gone = || Error::new(Kind::Retry, &self.config.topic, "there is no such topic any more");
        let info = admin::describe_within(&self.config, GONE_WAIT)?.ok_or_else(gone)?;
        if info.configs.is_empty() {
            let what = "this user may not read the topic's settings (DescribeConfigs)";
            return Err(Error::new(Kind::Retry, &self.config.topic, what));
        }
        Ok(admin::settings(&info))
    }

    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let bytes = match self.limits().check(partition, &batch) {
            Ok(bytes) => bytes,
            Err(refusal) => return settled(Err(refusal)),
        };
        if let Err(replaced) = self.identity.check() {
            return settled(Err(replaced.in_partition(partition)));
        }
        let Some(producer) = &self.producer else {
            return settled(Err(Error::new(Kind::Fatal, self.topic(), "the log is closed")));
        };
        if batch.is_empty() {
            return settled(Ok(Vec::new()));
        }
        match producer.send(partition, &batch, bytes) {
            Ok(acked) => {
                let lost = Error::new(Kind::Unknown, self.topic(), "the producer ended without an answer");
                Box::pin(async move { acked.await.unwrap_or(Err(lost.in_partition(partition))) })
            }
            Err(refusal) => settled(Err(refusal)),
        }
    }

    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        Box::pin(self.await_answer(partition, self.bounds.bounds(partition, deadline)))
    }

    fn end(&self, partition: PartitionId, deadline: Duration) -> EndAnswer<'_> {
        Box::pin(self.await_answer(partition, self.bounds.end(partition, deadline)))
    }

    fn clients(&self) -> Clients {
        self.health.clients()
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        let watched = (Arc::clone(&self.bounds), self.health.of_consumer());
        Ok(Box::new(reader::KafkaReader::new(&self.config, &self.identity, self.partitions, watched, from)?))
    }
}

impl Drop for KafkaLog {
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take() {
            close(&self.config.topic, "producer", || producer.close());
        }
    }
}

impl fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaLog")
            .field("config", &self.config)
            .field("id", &self.id)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};

    #[test]
    fn a_topic_has_an_id_which_it_keeps_and_another_topic_has_another_id() {
        let brokers: MockCluster<'_, DefaultProducerContext> = MockCluster::new(1).unwrap();
        let id = |topic| {
            let log = KafkaLog::connect(KafkaConfig::new(brokers.bootstrap_servers(), topic)).unwrap();
            log.id().cloned().expect("the mocked broker has topic ids")
        };
        for topic in ["t", "u"] {
            brokers.create_topic(topic, 1, 1).unwrap();
        }
        assert!(id("t") == id("t") && id("t") != id("u"));
        let text = id("t").to_string();
        let parts: Vec<&str> = text.split(':').collect();
        assert!(parts.len() == 3 && parts[0] == "kafka" && parts[2].len() == 22, "{text}");
    }
}
