//! A mirror of a journal's topic, as MirrorMaker makes it: another topic, so another log, with the same records.
//!
//! The copier keeps partition, key, headers, value and timestamp, and reads only committed records. Offsets differ, because each
//! transaction ends with a control record. It copies when a test asks for it, so a test knows the mirror's content.

use crate::foreign::Reports;
use anyhow::{Context, anyhow, bail, ensure};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{Headers, OwnedHeaders, OwnedMessage},
    producer::{BaseProducer, BaseRecord, Producer},
};
use runlog_log::kafka::{KafkaConfig, admin};
use std::{collections::BTreeSet, future::Future, sync::mpsc, time::Duration};
use uuid::Uuid;

/// How long a call to the broker may take.
const WAIT: Duration = Duration::from_secs(30);

/// How the copier writes.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether it uses transactions, as MirrorMaker does with exactly-once support.
    pub transactional: bool,
    /// Whether it aborts a first transaction with all records, as a MirrorMaker that is killed.
    pub aborted_first: bool,
    /// Whether a transaction with the last records again stays open, also as of a killed MirrorMaker.
    pub open_at_end: bool,
}

impl Style {
    /// Exactly once, without crashes.
    pub const EXACTLY_ONCE: Self = Self { transactional: true, aborted_first: false, open_at_end: false };
    /// Exactly once, and killed in its first transaction and in its last.
    pub const KILLED: Self = Self { aborted_first: true, open_at_end: true, ..Self::EXACTLY_ONCE };
    /// MirrorMaker's default.
    pub const AT_LEAST_ONCE: Self = Self { transactional: false, ..Self::EXACTLY_ONCE };
}

/// A copier and its topic.
pub struct Mirror {
    /// The mirror.
    pub config: KafkaConfig,
    from: KafkaConfig,
    style: Style,
    /// The next offset of each partition of the source.
    next: Vec<i64>,
    producer: BaseProducer<Reports>,
    reports: mpsc::Receiver<(usize, Result<runlog_log::Offset, String>)>,
    /// Holds the transaction that stays open.
    hanging: Option<BaseProducer>,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("config", &self.config).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Mirror {
    /// Creates the mirror's topic beside the source, with another name and without records. The settings are the ones that
    /// MirrorMaker makes and copies.
    pub fn create(from: &KafkaConfig, style: Style) -> anyhow::Result<Self> {
        let source = admin::describe(from)?.context("the source exists")?;
        let config =
            KafkaConfig::new(from.brokers.clone(), format!("{}-mirror-{}", from.topic, Uuid::new_v4().simple()));
        let client: AdminClient<DefaultClientContext> = client(&config).create()?;
        let topic = NewTopic::new(&config.topic, i32::try_from(source.partitions)?, TopicReplication::Fixed(1))
            .set("retention.ms", "-1")
            .set("retention.bytes", "-1")
            .set("cleanup.policy", "delete")
            .set("max.message.bytes", "2097152")
            .set("message.timestamp.type", "CreateTime");
        let options = AdminOptions::new().operation_timeout(Some(WAIT));
        for created in wait(client.create_topics([&topic], &options))?? {
            created.map_err(|(topic, error)| anyhow!("{topic}: {error}"))?;
        }
        let (send, reports) = mpsc::channel();
        let mut producer = client_of(&config, style.transactional);
        producer.set("message.max.bytes", "2097152");
        let producer: BaseProducer<Reports> = producer.create_with_context(Reports(send))?;
        if style.transactional {
            producer.init_transactions(WAIT)?;
        }
        let next = vec![0; usize::try_from(source.partitions)?];
        Ok(Self { config, from: from.clone(), style, next, producer, reports, hanging: None })
    }

    /// Creates a mirror, and copies all records of the source.
    pub fn start(from: &KafkaConfig, style: Style) -> anyhow::Result<Self> {
        let mut mirror = Self::create(from, style)?;
        mirror.copy()?;
        Ok(mirror)
    }

    /// Copies the records that the source has and the mirror has not. Returns their number.
    pub fn copy(&mut self) -> anyhow::Result<usize> {
        self.end_transaction()?;
        let (records, next) = self.read()?;
        if self.style.aborted_first && self.next.iter().all(|next| *next == 0) {
            self.producer.begin_transaction()?;
            self.send(&records)?;
            self.producer.abort_transaction(WAIT)?;
        }
        if self.style.transactional {
            self.producer.begin_transaction()?;
        }
        self.send(&records)?;
        if self.style.transactional {
            self.producer.commit_transaction(WAIT)?;
        }
        self.next = next;
        if self.style.open_at_end {
            self.leave_open(&records)?;
        }
        Ok(records.len())
    }

    /// Aborts the transaction that stays open, as the broker does after a time.
    pub fn end_transaction(&mut self) -> anyhow::Result<()> {
        if let Some(hanging) = self.hanging.take() {
            hanging.abort_transaction(WAIT)?;
        }
        Ok(())
    }

    /// Reads the source from the next offsets to its end. Returns the records, and the next offsets after them.
    fn read(&self) -> anyhow::Result<(Vec<OwnedMessage>, Vec<i64>)> {
        let mut config = client(&self.from);
        // Only an assignment is made, and offsets are never stored.
        config.set("group.id", "mirror").set("enable.auto.commit", "false");
        config.set("isolation.level", "read_committed").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.create()?;
        let mut from = TopicPartitionList::new();
        let mut unread = BTreeSet::new();
        for (partition, next) in (0..).zip(&self.next) {
            from.add_partition_offset(&self.from.topic, partition, Offset::Offset(*next))?;
            unread.insert(partition);
        }
        consumer.assign(&from)?;
        let (mut records, mut after) = (Vec::new(), self.next.clone());
        while !unread.is_empty() {
            match consumer.poll(WAIT).context("the source answers")? {
                Ok(message) => {
                    after[usize::try_from(message.partition())?] = message.offset() + 1;
                    records.push(message.detach());
                }
                Err(KafkaError::PartitionEOF(partition)) => {
                    unread.remove(&partition);
                }
                Err(error) => bail!("the source: {error}"),
            }
        }
        Ok((records, after))
    }

    /// Sends the records, and waits for the acknowledgement of each.
    fn send(&self, records: &[OwnedMessage]) -> anyhow::Result<()> {
        for (number, record) in records.iter().enumerate() {
            let copy = copy_of(record, BaseRecord::with_opaque_to(&self.config.topic, number));
            self.producer.send(copy).map_err(|(error, _)| error)?;
            self.producer.poll(Duration::ZERO);
        }
        self.producer.flush(WAIT)?;
        let failed: Vec<_> = self.reports.try_iter().filter_map(|(_, report)| report.err()).collect();
        ensure!(failed.is_empty(), "the mirror refuses records: {failed:?}");
        Ok(())
    }

    /// Sends the last record of each partition again, in a transaction that stays open.
    fn leave_open(&mut self, records: &[OwnedMessage]) -> anyhow::Result<()> {
        let producer: BaseProducer = client_of(&self.config, true).set("message.max.bytes", "2097152").create()?;
        producer.init_transactions(WAIT)?;
        producer.begin_transaction()?;
        let mut partitions = BTreeSet::new();
        for record in records.iter().rev().filter(|record| partitions.insert(record.partition())) {
            producer.send(copy_of(record, BaseRecord::to(&self.config.topic))).map_err(|(error, _)| error)?;
        }
        producer.flush(WAIT)?;
        self.hanging = Some(producer);
        Ok(())
    }
}

/// The high watermark of each partition of a topic.
pub fn ends(config: &KafkaConfig) -> anyhow::Result<Vec<i64>> {
    let consumer: BaseConsumer = client(config).set("group.id", "mirror").create()?;
    let partitions = admin::describe(config)?.context("the topic exists")?.partitions;
    let end = |partition| Ok(consumer.fetch_watermarks(&config.topic, partition, WAIT)?.1);
    (0..i32::try_from(partitions)?).map(end).collect()
}

fn client(config: &KafkaConfig) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &config.brokers);
    client
}

fn client_of(config: &KafkaConfig, transactional: bool) -> ClientConfig {
    let mut client = client(config);
    client.set("enable.idempotence", "true");
    if transactional {
        client.set("transactional.id", Uuid::new_v4().to_string());
    }
    client
}

/// Fills a record for the mirror. An absent key and absent headers stay absent.
fn copy_of<'a, D: rdkafka::util::IntoOpaque>(
    record: &'a OwnedMessage,
    copy: BaseRecord<'a, [u8], [u8], D>,
) -> BaseRecord<'a, [u8], [u8], D> {
    let mut copy = copy.partition(record.partition());
    copy.key = record.key();
    copy.payload = record.payload();
    copy.timestamp = record.timestamp().to_millis();
    copy.headers = record.headers().map(|headers| headers.iter().fold(OwnedHeaders::new(), OwnedHeaders::insert));
    copy
}

/// Waits on a new runtime; must not be called inside another one.
fn wait<F: Future>(future: F) -> anyhow::Result<F::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}
