//! Appends to Kafka, queries a server. The server names topic and partition count; the topic must exist.

use super::{
    http::Http,
    request::{AppendFailed, Appended, ToAppend, run_of, unacknowledged},
};
use crate::{
    config::Config,
    error::{Action, Error},
};
use runlog_log::{
    Entry, Kind, Log,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    codec::{self, Framing, RECORD_BYTES_MAX},
    datum::hex,
    headers,
    partition::partition_of,
    record::JournalRecord,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A topic and its query server.
#[derive(Debug)]
pub(crate) struct Kafka {
    log: Arc<dyn Log>,
    partitions: u32,
    /// Fingerprints of the schema versions that the journal's server reads.
    schemas: Vec<String>,
    /// The schema registry's ids of the schema versions, by fingerprint.
    schema_ids: BTreeMap<String, u32>,
    /// Answers the queries.
    pub(super) http: Http,
    deadline: Duration,
}

/// Converts a log's error, and determines whether the record may be in the log.
pub(crate) fn log_failed(error: &runlog_log::Error) -> AppendFailed {
    let (kind, action, untouched) = match error.kind() {
        Kind::Retry => (ErrorKind::Overloaded, Action::Retry, true),
        Kind::Invalid => (ErrorKind::Invalid, Action::FixTheInput, true),
        Kind::Unknown => (ErrorKind::Unavailable, Action::Reopen, false),
        Kind::Replaced => (ErrorKind::PartitionStopped, Action::Operator, true),
        Kind::NotHome => (ErrorKind::Unavailable, Action::Operator, true),
        Kind::OutOfRange | Kind::Fatal | Kind::Damaged => (ErrorKind::Unavailable, Action::Reopen, false),
    };
    AppendFailed { error: Error::new(kind, action, format!("log append failed: {error}")), untouched }
}

/// Encodes a record for the log. Refuses a record that is too large.
pub(crate) fn entry(record: &JournalRecord, framing: Framing, trace: Option<&str>) -> Result<Entry, AppendFailed> {
    let value = codec::encode_as(record, framing);
    let size = codec::size(&value);
    if size > RECORD_BYTES_MAX {
        let message = format!(
            "record {} is {size} bytes, more than {RECORD_BYTES_MAX}; with a content store its payload would go there",
            record.body.record_id
        );
        let error = Error::new(ErrorKind::TooLarge, Action::FixTheInput, message);
        return Err(AppendFailed { error, untouched: true });
    }
    let mut headers = headers::of(record);
    headers.extend(headers::trace(trace));
    Ok(Entry { key: record.body.run_id.as_str().into(), value, headers })
}

/// Names a file of librdkafka's properties.
const PROPERTIES: &str = "RUNLOG_KAFKA_PROPERTIES";

/// Makes the Kafka settings of the topic, from the configuration and otherwise from the environment. Blocking.
fn settings(brokers: &str, topic: String, config: &Config) -> Result<KafkaConfig, Error> {
    let mut kafka = KafkaConfig::new(brokers, topic);
    let file = std::env::var_os(PROPERTIES).filter(|file| !file.is_empty());
    match (&config.kafka, file) {
        (Some(properties), _) => kafka.properties.clone_from(&properties.0),
        (None, Some(file)) => kafka.read_properties(file.as_ref()).map_err(|error| log_failed(&error).error)?,
        (None, None) => {}
    }
    Ok(kafka)
}

#[allow(clippy::disallowed_methods, reason = "the Kafka client blocks, and has threads of its own")]
async fn opened(kafka: KafkaConfig, partitions: u32) -> Result<Arc<dyn Log>, Error> {
    let opened = tokio::task::spawn_blocking(move || KafkaLog::connect_with_partitions(kafka, partitions));
    let log = opened.await.map_err(|error| {
        Error::new(ErrorKind::Internal, Action::Operator, format!("connecting to Kafka panicked: {error}"))
    })?;
    Ok(Arc::new(log.map_err(|error| log_failed(&error).error)?))
}

impl Kafka {
    pub(crate) async fn connect(brokers: &str, server: &str, config: &Config) -> Result<Self, Error> {
        let http = Http::connect(server, config).await?;
        let journal = http.journal().await?;
        // If the journal has a schema registry, the server knows its schema ids. Readers accept both framings.
        let (schemas, schema_ids) = (journal.schemas, journal.schema_ids);
        let log = match &config.log {
            Some(log) => log.clone(),
            None => opened(settings(brokers, journal.topic, config)?, journal.partitions).await?,
        };
        Ok(Self { log, partitions: journal.partitions, schemas, schema_ids, http, deadline: config.deadline })
    }

    /// Encodes a record for the log, in the framing of the journal.
    fn entry(&self, &ToAppend { record, trace }: &ToAppend<'_>) -> Result<Entry, AppendFailed> {
        let fingerprint = hex(&record.version().fingerprint);
        if !self.schemas.contains(&fingerprint) {
            // The server would stop the partition at the record.
            let message = format!("the server does not read schema {}; upgrade it first", record.version());
            let error = Error::new(ErrorKind::Unavailable, Action::Operator, message);
            return Err(AppendFailed { error, untouched: true });
        }
        let id = self.schema_ids.get(&fingerprint).copied();
        entry(record, id.map_or(Framing::SingleObject, Framing::Confluent), trace)
    }

    pub(crate) async fn append(&self, all: &[ToAppend<'_>]) -> Result<Vec<Appended>, AppendFailed> {
        let Some(ToAppend { record: first, .. }) = all.first() else { return Ok(Vec::new()) };
        let entries = all.iter().map(|one| self.entry(one)).collect::<Result<_, _>>()?;
        let partition = partition_of(run_of(first)?, self.partitions);
        let ack = tokio::time::timeout(self.deadline, self.log.append(partition, entries)).await;
        let offsets = ack.map_err(|_| unacknowledged(first, self.deadline))?.map_err(|error| log_failed(&error))?;
        let at = |offset| Position { topic: self.log.topic().to_owned(), partition, offset, index: 0, log: None };
        Ok(offsets.into_iter().map(|offset| Appended::with_position(at(offset))).collect())
    }
}
