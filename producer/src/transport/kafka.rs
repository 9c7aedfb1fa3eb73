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
    answer::{ErrorKind, Feature, Journal, LogRole, Position},
    codec::{self, Framing, RECORD_BYTES_MAX},
    datum::hex,
    headers,
    id::LogId,
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
    /// The log that positions name, if the server knows logs. The journal can get its home later.
    tag: Option<LogId>,
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

/// Refuses a server that reads a mirror: it would answer no read-back, and the records would be in the mirror alone.
fn check_role(server: &str, journal: &Journal) -> Result<(), Error> {
    if [LogRole::Unknown, LogRole::Home].iter().any(|role| journal.role == *role) {
        return Ok(());
    }
    let log = journal.log_id.as_ref().map_or("without an id", LogId::as_str);
    let home = journal.home.as_ref().map_or("unknown", |home| home.log.as_str());
    let message = format!(
        "the server at {server} reads a mirror: its log is {log} and the home is {home}. Nothing was appended; name a server of the \
         home, and the brokers of that server"
    );
    Err(Error::new(ErrorKind::Unavailable, Action::Operator, message))
}

/// Refuses a log that is not the server's. Its records would never be judged, or only after a mirror copied them.
fn check_log(
    server: &str,
    (brokers, topic): (&str, &str),
    journal: &Journal,
    own: Option<&LogId>,
) -> Result<(), Error> {
    let Some(read) = &journal.log_id else { return Ok(()) };
    // Without a home, brokers without ids are accepted as before.
    let has_home = journal.home.is_some();
    if own.map_or(!has_home, |own| own == read) {
        return Ok(());
    }
    let own = own.map_or("a log without an id", LogId::as_str);
    let message = format!(
        "the server at {server} reads log {read}, and topic {topic} of the brokers {brokers} is {own}. Nothing was appended; name the \
         brokers of the server"
    );
    Err(Error::new(ErrorKind::Invalid, Action::FixTheInput, message))
}

impl Kafka {
    pub(crate) async fn connect(brokers: &str, server: &str, config: &Config) -> Result<Self, Error> {
        let http = Http::connect(server, config).await?;
        let journal = http.journal().await?;
        check_role(server, &journal)?;
        // If the journal has a schema registry, the server knows its schema ids. Readers accept both framings.
        let log = match &config.log {
            Some(log) => log.clone(),
            None => opened(settings(brokers, journal.topic.clone(), config)?, journal.partitions).await?,
        };
        check_log(server, (brokers, &journal.topic), &journal, log.id())?;
        let Journal { partitions, schemas, schema_ids, .. } = journal;
        let tag = log.id().filter(|_| http.has(Feature::Logs)).cloned();
        Ok(Self { log, partitions, schemas, schema_ids, tag, http, deadline: config.deadline })
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
        let (topic, log) = (self.log.topic(), &self.tag);
        let at = |offset| Position { topic: topic.to_owned(), partition, offset, index: 0, log: log.clone() };
        Ok(offsets.into_iter().map(|offset| Appended::with_position(at(offset))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(role: &str, more: &str) -> Journal {
        let text =
            format!(r#"{{"topic": "t", "journal_id": "j", "partitions": 1, "schemas": [], "role": "{role}" {more}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_server_of_a_mirror_is_refused_and_named() {
        for role in ["home", "unknown"] {
            assert!(check_role("http://s", &journal(role, "")).is_ok(), "{role}");
        }
        for role in ["mirror", "contested", "of a later version"] {
            let more = r#", "log_id": "kafka:c:mirror", "home": {"log": "kafka:c:home", "epoch": 1}"#;
            let error = check_role("http://s", &journal(role, more)).unwrap_err();
            assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Operator), "{role}");
            for part in ["http://s", "kafka:c:mirror", "kafka:c:home"] {
                assert!(error.to_string().contains(part), "{role}: {error}");
            }
        }
    }

    #[test]
    fn only_the_log_of_the_server_is_accepted_and_a_log_without_id_only_without_a_home() {
        let [own, other] = ["own", "other"].map(|name| LogId::memory(name).unwrap());
        let (server, home) =
            (r#", "log_id": "memory:own""#, r#", "log_id": "memory:own", "home": {"log": "memory:own", "epoch": 1}"#);
        let check =
            |more: &str, log: Option<&LogId>| check_log("http://s", ("b:9092", "t"), &journal("home", more), log);
        for (more, log) in [("", None), ("", Some(&own)), (server, None), (server, Some(&own)), (home, Some(&own))] {
            assert!(check(more, log).is_ok(), "{more} {log:?}");
        }
        for (more, log) in [(server, Some(&other)), (home, Some(&other)), (home, None)] {
            let error = check(more, log).unwrap_err();
            assert_eq!((error.kind(), error.action()), (ErrorKind::Invalid, Action::FixTheInput), "{more} {log:?}");
            assert!(error.to_string().contains("b:9092") && error.to_string().contains("memory:own"), "{error}");
        }
    }
}
