//! A foreign client: appends arbitrary bytes to a log.

use std::{
    future::Future,
    path::Path,
    sync::mpsc::{self, Sender},
    time::Duration,
};

use anyhow::{Context, anyhow, ensure};
use rdkafka::{
    ClientConfig, ClientContext, Message,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext},
};
use runlog_log::{
    Entry, Log, Offset, PartitionId,
    kafka::KafkaConfig,
    local::{LocalConfig, LocalLog},
};

/// How long an append may take.
const APPEND_WAIT: Duration = Duration::from_secs(30);

/// Appends to the local log under a server's folder; no server may run on it. Returns the offsets, in order.
pub fn append_local(dir: &Path, records: &[(PartitionId, Entry)]) -> anyhow::Result<Vec<Offset>> {
    let log = LocalLog::open(LocalConfig::new(dir.join("log")))?;
    let mut offsets = Vec::new();
    // Appends that are queued together share writes to disk.
    for chunk in records.chunks(2000) {
        let acks: Vec<_> = chunk.iter().map(|(partition, entry)| log.append(*partition, vec![entry.clone()])).collect();
        for ack in acks {
            offsets.extend(wait(ack)??);
        }
    }
    Ok(offsets)
}

/// Appends to a topic with a plain Kafka producer. Returns the offsets, in order.
pub fn append_kafka(config: &KafkaConfig, records: &[(PartitionId, Entry)]) -> anyhow::Result<Vec<Offset>> {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &config.brokers).set("message.max.bytes", "2000000");
    let (send, receive) = mpsc::channel();
    let producer: BaseProducer<Reports> = client.create_with_context(Reports(send))?;
    for (number, (partition, entry)) in records.iter().enumerate() {
        let mut record = BaseRecord::with_opaque_to(&config.topic, number);
        record = record.partition(partition.signed()).key(&entry.key).headers(headers(entry));
        // A record without a value is a tombstone.
        if !entry.value.is_empty() {
            record = record.payload(&entry.value);
        }
        producer.send(record).map_err(|(error, _)| error).context("the client refuses it")?;
    }
    producer.flush(APPEND_WAIT)?;
    let mut reports: Vec<(usize, Result<Offset, String>)> = receive.try_iter().collect();
    reports.sort_unstable_by_key(|(number, _)| *number);
    ensure!(reports.len() == records.len(), "{} of {} records were answered", reports.len(), records.len());
    let offset = |(number, report): (usize, Result<Offset, String>)| {
        report.map_err(|error| anyhow!("the broker refuses record {number}: {error}"))
    };
    reports.into_iter().map(offset).collect()
}

/// The headers of an entry.
pub fn headers(entry: &Entry) -> OwnedHeaders {
    entry
        .headers
        .iter()
        .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(value) }))
}

/// Sends the offset or the error of each record.
pub struct Reports(pub Sender<(usize, Result<Offset, String>)>);

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reports")
    }
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let report = match result {
            Ok(message) => Offset::from_signed(message.offset()).map_err(|error| error.to_string()),
            Err((error, _)) => Err(error.to_string()),
        };
        self.0.send((number, report)).ok();
    }
}

/// Waits on a new runtime; must not be called inside another one.
fn wait<F: Future>(future: F) -> anyhow::Result<F::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}
