//! A data folder on a Kafka topic that an older version wrote.
//!
//! The fixture is a data folder on a local log, because the index is the same on every log. Already in commit 696bf14, both
//! logs use the same `Projector::start`, which writes the same rows under `index/`. A folder on Kafka has no `log/`
//! (`open.rs` and `store/meta.rs` of that commit). The test appends the records of the local log to a topic: the same
//! bytes, keys, headers and times at the same offsets. The topic keeps the records' times, because the index has them.

use anyhow::{Context, ensure};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use runlog_log::{
    Log, Offset, PartitionId,
    kafka::KafkaConfig,
    local::{LocalConfig, LocalLog},
};
use runlog_tests::{foreign::Reports, kafka::Broker, older_version, server::Launch};
use serde_json::Value;
use std::{path::Path, sync::mpsc, time::Duration};
use tempfile::tempdir;
use tokio::runtime::Runtime;

const WAIT: Duration = Duration::from_secs(30);
/// The topic of the fixture's answers.
const LOCAL_TOPIC: &str = "runlog.journal";

/// Creates a journal's topic.
fn create(runtime: &Runtime, config: &KafkaConfig, partitions: u32, timestamps: &str) -> anyhow::Result<()> {
    let client: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &config.brokers).create()?;
    let topic = NewTopic::new(&config.topic, i32::try_from(partitions)?, TopicReplication::Fixed(1))
        .set("retention.ms", "-1")
        .set("retention.bytes", "-1")
        .set("cleanup.policy", "delete")
        .set("unclean.leader.election.enable", "false")
        .set("message.timestamp.type", timestamps);
    let options = AdminOptions::new().operation_timeout(Some(WAIT));
    for created in runtime.block_on(client.create_topics([&topic], &options))? {
        created.map_err(|(topic, error)| anyhow::anyhow!("{topic}: {error}"))?;
    }
    Ok(())
}

/// Appends all records of a local log to a new topic, each at its offset. With the timestamps `CreateTime` the records keep their
/// times.
pub(super) fn replay(dir: &Path, config: &KafkaConfig, timestamps: &str) -> anyhow::Result<u64> {
    let runtime = Runtime::new()?;
    let log = LocalLog::open(LocalConfig::new(dir.to_owned()))?;
    create(&runtime, config, log.partitions(), timestamps)?;
    let (send, reports) = mpsc::channel();
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &config.brokers).set("enable.idempotence", "true");
    let producer: BaseProducer<Reports> = client.create_with_context(Reports(send))?;
    let mut appended = 0;
    for partition in PartitionId::all(log.partitions()) {
        let end = runtime.block_on(log.bounds(partition, WAIT))?.end;
        let mut reader = log.reader(&[(partition, Offset::ZERO)])?;
        let mut next = Offset::ZERO;
        while next < end {
            for delivery in reader.poll(1, WAIT)? {
                let headers = delivery.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                    headers.insert(Header { key, value: Some(value) })
                });
                let record = BaseRecord::with_opaque_to(&config.topic, 0)
                    .partition(partition.signed())
                    .key(&delivery.key)
                    .payload(&delivery.value)
                    .timestamp(delivery.timestamp_millis)
                    .headers(headers);
                producer.send(record).map_err(|(error, _)| error)?;
                producer.flush(WAIT)?;
                let (_, landed) = reports.try_recv()?;
                ensure!(landed == Ok(delivery.offset) && delivery.offset == next, "{landed:?} is not {next}");
                next = next.saturating_add(1);
                appended += 1;
            }
        }
    }
    Ok(appended)
}

/// The same answer with another topic.
fn with_topic(answer: Value, topic: &str) -> Value {
    match answer {
        Value::Object(members) => {
            let member = |(name, value): (String, Value)| {
                let moved = name == "topic" && value == LOCAL_TOPIC;
                let value = if moved { topic.into() } else { with_topic(value, topic) };
                (name, value)
            };
            Value::Object(members.into_iter().map(member).collect())
        }
        Value::Array(items) => items.into_iter().map(|item| with_topic(item, topic)).collect(),
        other => other,
    }
}

#[test]
fn a_folder_of_an_older_version_opens_on_its_topic_and_answers_as_that_version_did() -> anyhow::Result<()> {
    for version in ["696bf14"] {
        let (folder, log) = (tempdir()?, tempdir()?);
        let config = Broker::shared().unique_topic();
        older_version::copy(&older_version::data(version).join("log"), log.path())?;
        ensure!(replay(log.path(), &config, "CreateTime")? > 50, "{version}: there is a journal");
        older_version::copy(&older_version::data(version).join("index"), &folder.path().join("index"))?;
        let server = Launch::kafka(folder.path(), &config).start()?;
        for (path, old) in older_version::answers(version)? {
            let old = with_topic(old, &config.topic);
            let (status, new) = server.get(&format!("{path}?consistency=latest"))?;
            ensure!(status == 200 && older_version::says(&new, &old), "{version} {path}:\n{new}\nand it was\n{old}");
        }
        server.runlog().verified()?;
        server.terminate()?;
    }
    Ok(())
}

#[test]
fn a_folder_of_an_older_version_is_refused_with_the_topic_of_another_journal() -> anyhow::Result<()> {
    let (folder, other) = (tempdir()?, tempdir()?);
    let config = Broker::shared().unique_topic();
    Launch::kafka(other.path(), &config).partitions(2).start()?.terminate()?;
    older_version::copy(&older_version::data("696bf14").join("index"), &folder.path().join("index"))?;
    let refused = Launch::kafka(folder.path(), &config).start().err().context("it is refused")?;
    ensure!(format!("{refused:?}").contains("it belongs to journal"), "{refused:?}");
    Ok(())
}
