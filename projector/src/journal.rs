//! Which journal a topic holds: its genesis.
//!
//! The first genesis in partition 0 decides. The server that finds partition 0 empty appends one, reads back what stands
//! there first (another server may have been faster), and copies that into the partitions that are empty.

use crate::{Error, fold, store::meta::Journal};
use runlog_log::{Entry, Log, PartitionId};
use runlog_schemas::{
    answer::ErrorKind,
    codec,
    payload::{Genesis, Payload},
    record::JournalRecord,
    schema,
};
use std::{sync::Arc, time::Duration};

/// How long opening waits for each answer of the log.
const DEADLINE: Duration = Duration::from_secs(30);
/// Records read to find the first one that a partition delivers.
const FIRST_RECORDS: usize = 1;

/// The headers that go with a record, by DESIGN's wire format: kind and schema version.
pub fn headers(record: &JournalRecord) -> Vec<(String, Vec<u8>)> {
    vec![
        ("runlog-record-kind".into(), record.body.record_kind.as_str().into()),
        ("runlog-schema-version".into(), schema::VERSION.into()),
    ]
}

/// Finds the journal of `log`, or makes one with `journal_id` where the log is empty.
///
/// Errors: `Invalid` where `partitions` is not the journal's count, or where the topic holds something else.
pub async fn open(
    log: &Arc<dyn Log>,
    journal_id: &str,
    partitions: Option<u32>,
    timestamp_millis: u64,
) -> Result<Journal, Error> {
    let count = log.partitions();
    if let Some(wanted) = partitions.filter(|wanted| *wanted != count) {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "topic {} has {count} partitions, asked for {wanted}; a journal keeps its count for ever",
                log.topic()
            ),
        ));
    }
    let bounds = log.bounds(0, DEADLINE).await?;
    if bounds.start == bounds.end && bounds.end == 0 {
        append(log, 0, journal_id, count, timestamp_millis).await?;
    }
    let journal = first(log, 0).await?;
    if journal.partitions != count {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "journal {} was created with {} partitions, topic {} has {count}; a run's partition would change",
                journal.journal_id,
                journal.partitions,
                log.topic()
            ),
        ));
    }
    for partition in 1..count {
        if log.bounds(partition, DEADLINE).await?.end == 0 {
            append(log, partition, &journal.journal_id, count, timestamp_millis).await?;
        }
    }
    Ok(journal)
}

async fn append(
    log: &Arc<dyn Log>,
    partition: PartitionId,
    journal_id: &str,
    partitions: u32,
    timestamp_millis: u64,
) -> Result<(), Error> {
    let payload = Payload::Genesis(Genesis { journal_id: journal_id.into(), partitions });
    let mut record = JournalRecord::new("", format!("genesis:{journal_id}"), "runlog", payload);
    record.place.timestamp_millis = timestamp_millis;
    let entry = Entry { key: Vec::new(), value: codec::encode(&record), headers: headers(&record) };
    log.append(partition, vec![entry]).await?;
    Ok(())
}

/// The journal named by the first record of `partition`.
async fn first(log: &Arc<dyn Log>, partition: PartitionId) -> Result<Journal, Error> {
    let start = log.bounds(partition, DEADLINE).await?.start;
    let shared = log.clone();
    let read = tokio::task::spawn_blocking(move || shared.reader(&[(partition, start)])?.poll(FIRST_RECORDS, DEADLINE));
    let records =
        read.await.map_err(|error| Error::new(ErrorKind::Internal, "reading the genesis").because(error))??;
    let not = |found: String| {
        Error::new(
            ErrorKind::Invalid,
            format!(
                "not_a_journal: partition {partition} of topic {} begins with {found}; \
                 name a topic that Runlog created, or one that does not exist yet",
                log.topic()
            ),
        )
    };
    let Some(record) = records.first() else {
        return Err(Error::new(ErrorKind::Unavailable, "the log did not give its first record in time; retry"));
    };
    match codec::read(&record.value) {
        Ok(envelope) => fold::genesis(&envelope).ok_or_else(|| not(format!("a {} record", envelope.kind.as_str()))),
        Err(error) => Err(not(format!("an unreadable record ({error})"))),
    }
}
