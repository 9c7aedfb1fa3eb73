//! Opens a journal in a folder or a Kafka topic.

use crate::index::{Config, Error, Projector};
use creation::Topic;
use runlog_content::{self as content, Store};
use runlog_log::{
    Log, Offset, PartitionId,
    kafka::{
        KafkaConfig, KafkaLog,
        admin::{self, LossySetting, TopicInfo},
    },
    local::{LocalConfig, LocalLog},
};
use runlog_schemas::answer::ErrorKind;
use std::{path::Path, sync::Arc, time::Duration};

mod creation;

/// Partitions of a topic that this process creates, unless the configuration names another number.
pub const KAFKA_PARTITIONS: u32 = 16;

/// A file in the data folder: the topic's settings that can lose records and were accepted, one `TOPIC NAME=VALUE` a line.
const ACCEPTED: &str = "accepted-topic-settings";

/// How long an answer of the log may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Opens a projector over the local log in `config.dir/log`. Its content is in `config.dir/content`, unless the
/// configuration names another store. Locks the folder: only one process can open it.
pub async fn local(mut config: Config) -> Result<Projector, Error> {
    if config.content.is_none() {
        let folder = config.dir.join("content");
        let url = folder.to_str().map(|folder| format!("file:{folder}")).ok_or_else(|| {
            let message = format!(
                "the path {} is not UTF-8, so it cannot be the content store's URL; configure a content store",
                folder.display()
            );
            Error::new(ErrorKind::Usage, message)
        })?;
        config.content = Some(Store::open(&content::Config::new(url))?);
    }
    let (partitions, ids) = (config.partitions, Some(config.ids));
    let dir = config.dir.join("log");
    let opened = config.executor.run(move || LocalLog::open(LocalConfig { partitions, ids, ..LocalConfig::new(dir) }));
    let log =
        opened.await.map_err(|error| Error::new(ErrorKind::Internal, "opening the log panicked").because(error))?;
    Projector::start(config, Arc::new(log?)).await
}

/// Opens a projector over a Kafka topic. Creates a missing topic as `docs/operate.md` ("Kafka") describes, and logs each
/// weaker setting of an existing topic. Decides `config.genesis` by the rules of `open/creation.rs`.
///
/// Errors: `Invalid` for a topic that can lose records of the journal. No error if `config.accept_lossy_topic` is set, or
/// if an earlier start with the same folder accepted the same settings. `Invalid` for an empty topic that this process did not
/// create, if no other server writes its genesis within 10 seconds. No error if `config.new_journal` is set.
pub async fn kafka(mut config: Config, kafka: KafkaConfig) -> Result<Projector, Error> {
    let (settings, dir) = (config.clone(), config.dir.clone());
    let opened = config.executor.run(move || -> Result<_, Error> {
        let topic = creation::find_or_create(&settings, &kafka)?;
        if let Topic::Existing(info) = &topic {
            check_settings(&settings, &kafka, info)?;
        }
        let log = KafkaLog::connect(kafka.clone())?;
        let genesis = topic.genesis(&log, &settings, &kafka)?;
        Ok((log, genesis))
    });
    let (log, genesis) = opened
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, "opening the topic panicked").because(error))??;
    config.genesis = genesis;
    let needless = config.new_journal && log.bounds(PartitionId::ZERO, DEADLINE).await?.end > Offset::ZERO;
    let executor = config.executor.clone();
    let projector = Projector::start(config, Arc::new(log)).await?;
    if needless {
        let (topic, journal_id) = (projector.log().topic(), &projector.journal().journal_id);
        tracing::warn!(topic, journal_id, "the topic has a journal, so --new-journal has no effect; remove it");
    }
    let removed = executor.run(move || creation::remove_note(&dir)).await;
    removed.map_err(|error| Error::new(ErrorKind::Internal, "the end of the start panicked").because(error))?;
    Ok(projector)
}

/// Refuses a topic that can lose records of the journal, and logs each other setting that is weaker than a journal needs.
fn check_settings(config: &Config, kafka: &KafkaConfig, info: &TopicInfo) -> Result<(), Error> {
    if info.configs.is_empty() {
        tracing::warn!(
            topic = kafka.topic,
            "cannot read the topic's settings, which may lose records: allow this user DescribeConfigs"
        );
        return Ok(());
    }
    refuse_lossy(&config.dir, config.accept_lossy_topic, kafka, info)?;
    for weakness in admin::weaknesses(info) {
        tracing::warn!(topic = kafka.topic, "the topic is not configured for a journal: {}", weakness.what);
    }
    Ok(())
}

/// Refuses a topic that can lose records of the journal, unless its settings are accepted now or were accepted earlier.
fn refuse_lossy(dir: &Path, accept: bool, kafka: &KafkaConfig, info: &TopicInfo) -> Result<(), Error> {
    let lossy = admin::lossy(info);
    let lines = lossy.iter().map(|setting| format!("{} {}={}", kafka.topic, setting.name, setting.value));
    let (file, lines) = (dir.join(ACCEPTED), lines.collect::<Vec<_>>());
    let accepted = std::fs::read_to_string(&file).unwrap_or_default();
    if lines.iter().all(|line| accepted.lines().any(|accepted| accepted == line)) {
        return Ok(());
    }
    if accept {
        return std::fs::write(&file, lines.join("\n") + "\n").map_err(|error| {
            let message = format!("cannot write the accepted topic settings to {}", file.display());
            Error::new(ErrorKind::Unavailable, message).because(error)
        });
    }
    let reasons = lossy.iter().map(|setting| {
        let LossySetting { name, value, wanted, consequence } = setting;
        format!("{name} is {value}, not {wanted}: {consequence}")
    });
    Err(Error::new(
        ErrorKind::Invalid,
        format!(
            "topic {} can lose records of the journal ({}). Correct it: {}; or start once with --accept-lossy-topic, \
             which is remembered for these settings",
            kafka.topic,
            reasons.collect::<Vec<_>>().join("; "),
            admin::correction(kafka, &lossy)
        ),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_topic_that_can_lose_the_journal_is_refused_until_its_settings_are_accepted() {
        let (dir, kafka) = (tempfile::tempdir().unwrap(), KafkaConfig::new("b:1", "t"));
        let configs = [("retention.ms".to_owned(), "1000".to_owned())].into();
        let mut info = TopicInfo { partitions: 1, replication: 1, brokers: 1, configs };
        let refused = refuse_lossy(dir.path(), false, &kafka, &info).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        for part in ["retention.ms is 1000", "kafka-configs.sh", "retention.ms=-1", "--accept-lossy-topic"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
        refuse_lossy(dir.path(), true, &kafka, &info).unwrap();
        refuse_lossy(dir.path(), false, &kafka, &info).expect("it is remembered");
        info.configs.insert("retention.ms".to_owned(), "500".to_owned());
        refuse_lossy(dir.path(), false, &kafka, &info).expect_err("another value");
        info.configs = [("retention.ms".to_owned(), "-1".to_owned())].into();
        refuse_lossy(dir.path(), false, &kafka, &info).unwrap();
    }
}
