//! Appends to Kafka, queries a server. The server names topic and partition count; nothing is created here.

use super::{
    http::Http,
    request::{AppendFailed, Appended, RecordFilter, RecoveryQuery, run_of},
};
use crate::{
    config::Config,
    error::{Action, Error},
};
use runlog_content::Store;
use runlog_log::{
    Entry, Kind, Log,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_schemas::{
    answer::{Checkpoint, ErrorKind, Lines, Lookup, Position, ReadBack, Recovery, Run},
    codec::{self, Framing, RECORD_BYTES_MAX},
    datum::hex,
    id::{JournalSeq, RecordId, RunId},
    partition::partition_of,
    record::JournalRecord,
    schema,
    trace::TRACEPARENT,
};
use std::time::Duration;

/// A topic and its query server.
#[derive(Debug)]
pub(crate) struct Kafka {
    log: KafkaLog,
    partitions: u32,
    framing: Framing,
    http: Http,
    deadline: Duration,
}

/// Converts a log's error, and tells whether the record may be in the log.
pub(crate) fn log_failed(error: &runlog_log::Error) -> AppendFailed {
    let (kind, action, untouched) = match error.kind() {
        Kind::Retry => (ErrorKind::Unavailable, Action::Retry, true),
        Kind::Invalid => (ErrorKind::Invalid, Action::FixTheInput, true),
        Kind::Unknown => (ErrorKind::Unavailable, Action::Reopen, false),
        Kind::OutOfRange | Kind::Fatal | Kind::Damaged => (ErrorKind::Unavailable, Action::Reopen, false),
    };
    AppendFailed { error: Error::new(kind, action, format!("log append failed: {error}")), untouched }
}

/// The log's entry for a record. Refuses a record that is too large.
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
    let mut headers = vec![
        ("runlog-record-kind".into(), record.body.record_kind.as_str().into()),
        ("runlog-schema-version".into(), schema::VERSION.into()),
    ];
    headers.extend(trace.map(|trace| (TRACEPARENT.into(), trace.into())));
    Ok(Entry { key: record.body.run_id.as_str().into(), value, headers })
}

impl Kafka {
    pub(crate) async fn connect(brokers: &str, server: &str, config: &Config) -> Result<Self, Error> {
        let http = Http::connect(server, config.deadline, config.content_store()?).await?;
        let journal = http.journal().await?;
        // If the journal has a schema registry, the server knows the schema id. Readers accept both framings.
        let id = journal.schema_ids.get(&hex(&schema::fingerprint())).copied();
        let framing = id.map_or(Framing::SingleObject, Framing::Confluent);
        let kafka = KafkaConfig::new(brokers, journal.topic);
        let opened = tokio::task::spawn_blocking(move || KafkaLog::connect_with_partitions(kafka, journal.partitions));
        let log = opened.await.map_err(|error| {
            Error::new(ErrorKind::Internal, Action::Operator, format!("connecting to Kafka panicked: {error}"))
        })?;
        let log = log.map_err(|error| log_failed(&error).error)?;
        Ok(Self { log, partitions: journal.partitions, framing, http, deadline: config.deadline })
    }

    pub(crate) fn content(&self) -> Option<&Store> {
        self.http.content()
    }

    pub(crate) async fn append(&self, record: &JournalRecord, trace: Option<&str>) -> Result<Appended, AppendFailed> {
        let entry = entry(record, self.framing, trace)?;
        let partition = partition_of(run_of(record)?, self.partitions);
        let ack = self.log.append(partition, vec![entry]);
        let late = || AppendFailed {
            error: Error::new(
                ErrorKind::Unavailable,
                Action::Reopen,
                format!(
                    "timed out after {:?} waiting for the acknowledgement; the record may be in the log",
                    self.deadline
                ),
            ),
            untouched: false,
        };
        let offsets = tokio::time::timeout(self.deadline, ack).await.map_err(|_| late())?;
        let offsets = offsets.map_err(|error| log_failed(&error))?;
        let offset = offsets.first().copied().ok_or_else(late)?;
        let position = Position { topic: self.log.topic().to_owned(), partition, offset, index: 0 };
        Ok(Appended { position, outcome: None })
    }

    pub(crate) async fn read_back(
        &self,
        run_id: RunId<&str>,
        position: &Position,
        record_id: Option<RecordId<&str>>,
        deadline: Duration,
    ) -> Result<ReadBack, Error> {
        self.http.read_back(run_id, position, record_id, deadline).await
    }

    pub(crate) async fn landed(
        &self,
        run_id: RunId<&str>,
        record_id: RecordId<&str>,
    ) -> Result<Option<ReadBack>, Error> {
        self.http.landed(run_id, record_id).await
    }

    pub(crate) async fn run(&self, run_id: RunId<&str>) -> Result<Option<Run>, Error> {
        self.http.run(run_id).await
    }

    pub(crate) async fn recovery(
        &self,
        run_id: RunId<&str>,
        query: RecoveryQuery,
        cursor: Option<&str>,
    ) -> Result<Option<Recovery>, Error> {
        self.http.recovery(run_id, query, cursor).await
    }

    pub(crate) async fn records(
        &self,
        run_id: RunId<&str>,
        which: &RecordFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Option<Lines>, Error> {
        self.http.records(run_id, which, cursor, limit).await
    }

    pub(crate) async fn checkpoint(
        &self,
        run_id: RunId<&str>,
        at_or_before: Option<JournalSeq>,
    ) -> Result<Option<Checkpoint>, Error> {
        self.http.checkpoint(run_id, at_or_before).await
    }

    pub(crate) async fn call(&self, run_id: RunId<&str>, id: RecordId<&str>) -> Result<Lookup, Error> {
        self.http.call(run_id, id).await
    }
}
