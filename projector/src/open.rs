//! Opening a journal where it is: a folder, or a Kafka topic.

use crate::index::{Config, Error, Projector};
use runlog_content::{self as content, Store};
use runlog_log::{
    Log,
    kafka::{KafkaConfig, KafkaLog, admin},
    local::{LocalConfig, LocalLog},
};
use runlog_schemas::answer::ErrorKind;
use std::sync::Arc;

/// Partitions of a topic that this process creates.
pub const KAFKA_PARTITIONS: u32 = 16;

/// A projector over the local log in `config.dir/log`, with its content in `config.dir/content` unless another store is
/// given. One process at a time: the folder is locked.
pub async fn local(mut config: Config) -> Result<Projector, Error> {
    if config.content.is_none() {
        let folder = config.dir.join("content");
        let url = folder.to_str().map(|folder| format!("file:{folder}")).ok_or_else(|| {
            let message = format!("the folder {} is not named in UTF-8; name a content store", folder.display());
            Error::new(ErrorKind::Usage, message)
        })?;
        config.content = Some(Store::open(&content::Config::new(url))?);
    }
    let partitions = config.partitions;
    let dir = config.dir.join("log");
    let opened =
        tokio::task::spawn_blocking(move || LocalLog::open(LocalConfig { partitions, ..LocalConfig::new(dir) }));
    let log =
        opened.await.map_err(|error| Error::new(ErrorKind::Internal, "opening the log panicked").because(error))?;
    Projector::start(config, Arc::new(log?)).await
}

/// A projector over a Kafka topic. Creates the topic if it is missing, as `docs/operate.md` ("Kafka") describes, and logs
/// each setting of an existing one that can lose records.
pub async fn kafka(config: Config, kafka: KafkaConfig) -> Result<Projector, Error> {
    let wanted = config.partitions;
    let opened = tokio::task::spawn_blocking(move || {
        match admin::describe(&kafka)? {
            Some(info) => {
                for weakness in admin::weaknesses(&info) {
                    tracing::warn!(topic = kafka.topic, "the topic is not configured for a journal: {weakness}");
                }
            }
            None => {
                let partitions = wanted.unwrap_or(KAFKA_PARTITIONS);
                tracing::info!(topic = kafka.topic, partitions, "creating the topic");
                admin::create_topic(&kafka, partitions)?;
            }
        }
        KafkaLog::connect(kafka)
    });
    let log = opened
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, "opening the topic panicked").because(error))??;
    let log: Arc<dyn Log> = Arc::new(log);
    Projector::start(config, log).await
}
