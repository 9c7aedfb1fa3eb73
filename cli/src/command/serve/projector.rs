//! The projector over the log that was named.

use super::{Log, Settings};
use crate::Error;
use runlog_log::{
    kafka::{KafkaConfig, KafkaLog, admin},
    local::{LocalConfig, LocalLog},
};
use runlog_projector::{Config, Projector};
use runlog_schemas::answer::ErrorKind;
use std::{sync::Arc, time::SystemTime};

/// RocksDB's cache and memtables, all partitions together.
const MEMORY_BYTES: usize = 128 << 20;
/// The partitions of a topic that is created without a count.
const KAFKA_PARTITIONS: u32 = 16;

/// Opens the log, creates the topic where it is missing, and starts the loop.
pub(super) async fn start(settings: &Settings) -> Result<Projector, Error> {
    let opening = settings.clone();
    let opened = tokio::task::spawn_blocking(move || open(&opening)).await;
    let (log, weaknesses) =
        opened.map_err(|error| Error::new(ErrorKind::Internal, "opening the log").because(error))??;
    let config = Config {
        dir: settings.data.clone(),
        memory_bytes: MEMORY_BYTES,
        paused: settings.paused,
        partitions: settings.partitions,
        ids: || uuid::Uuid::new_v4().to_string(),
        weaknesses,
        clock: now_millis,
    };
    Ok(Projector::start(config, log).await?)
}

type Opened = (Arc<dyn runlog_log::Log>, Vec<String>);

/// The log, and what is weak about its configuration. Blocks.
fn open(settings: &Settings) -> Result<Opened, Error> {
    match &settings.log {
        Log::Local => {
            let config = LocalConfig {
                topic: settings.topic.clone(),
                partitions: settings.partitions,
                ..LocalConfig::new(settings.data.join("log"))
            };
            Ok((Arc::new(LocalLog::open(config)?), Vec::new()))
        }
        Log::Brokers(brokers) => {
            let mut config = KafkaConfig::new(brokers, &settings.topic);
            config.properties.clone_from(&settings.kafka);
            if admin::describe(&config)?.is_none() {
                admin::create_topic(&config, settings.partitions.unwrap_or(KAFKA_PARTITIONS))?;
            }
            let weaknesses = admin::describe(&config)?.map(|info| admin::weaknesses(&info)).unwrap_or_default();
            Ok((Arc::new(KafkaLog::connect(config)?), weaknesses))
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "this is where the clock comes from")]
fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
