//! Finds the journal of a topic by its genesis record.
//!
//! The first genesis record in partition 0 decides. A server that finds partition 0 empty appends one and reads back the
//! first record, because another server may have been faster. Then it appends the same genesis to the empty partitions. If
//! retention has removed the genesis from the log, the indices built from it still contain the journal's id.

use super::{
    blocking_schemas::BlockingSchemas,
    config::Config,
    entry::entry,
    error::Error,
    fold, rebuild,
    store::{
        Budget, Rows,
        meta::{self, Journal},
    },
};
use runlog_log::{Log, Offset, PartitionId};
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Unreadable},
    id::RecordId,
    payload::{Genesis, Payload},
    record::JournalRecord,
};
use std::{sync::Arc, time::Duration};

/// How long opening waits for each answer of the log.
const DEADLINE: Duration = Duration::from_secs(30);
/// Memory for reading one row of an index, bytes.
const READ_BYTES: usize = 1 << 20;
/// The number of records to read for a partition's first record.
const FIRST_RECORDS: usize = 1;

/// Finds the journal of `log`, or creates one if the log is empty.
///
/// Errors: `Invalid` if `config.partitions` is not the journal's number of partitions, or if the topic has fewer. Also
/// `Invalid` if the topic does not begin with a genesis.
pub async fn open(log: &Arc<dyn Log>, config: &Config) -> Result<Journal, Error> {
    let live = log.partitions();
    let differs = |what: &str, count: u32, wanted: u32| {
        let message = format!(
            "{what} has {count} partitions, configured are {wanted}; the number of a journal's partitions cannot change"
        );
        Error::new(ErrorKind::Invalid, message)
    };
    let bounds = log.bounds(PartitionId::ZERO, DEADLINE).await?;
    if bounds.start == bounds.end && bounds.end == Offset::ZERO {
        if let Some(wanted) = config.partitions.filter(|wanted| *wanted != live) {
            return Err(differs(&format!("topic {}", log.topic()), live, wanted));
        }
        append_genesis(log, PartitionId::ZERO, &(config.ids)(), live, config).await?;
    }
    let journal = if bounds.start == Offset::ZERO {
        read_genesis(log, PartitionId::ZERO, config).await?
    } else {
        find_journal(log, config).await?
    };
    let count = journal.partitions;
    if let Some(wanted) = config.partitions.filter(|wanted| *wanted != count) {
        return Err(differs(&format!("the journal in topic {}", log.topic()), count, wanted));
    }
    // A topic that gained partitions keeps serving: a run's partition follows from the genesis, and the additional
    // partitions are ignored.
    if live < count {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "journal {} was created with {count} partitions, topic {} has {live}: this is another topic",
                journal.journal_id,
                log.topic()
            ),
        ));
    }
    for partition in PartitionId::all(count).skip(1) {
        if log.bounds(partition, DEADLINE).await?.end == Offset::ZERO {
            append_genesis(log, partition, &journal.journal_id, count, config).await?;
        }
    }
    Ok(journal)
}

async fn append_genesis(
    log: &Arc<dyn Log>,
    partition: PartitionId,
    journal_id: &str,
    partitions: u32,
    config: &Config,
) -> Result<(), Error> {
    let payload = Payload::Genesis(Genesis { journal_id: journal_id.into(), partitions });
    let mut record = JournalRecord::of_partition(RecordId::new(format!("genesis:{journal_id}"))?, "runlog", payload);
    record.place.timestamp_millis = (config.clock)();
    log.append(partition, vec![entry(&record, &*config.schemas)?]).await?;
    Ok(())
}

/// Finds the journal of a log whose partition 0 no longer starts with its genesis. Reads an existing index, or another
/// partition that still starts with it.
async fn find_journal(log: &Arc<dyn Log>, config: &Config) -> Result<Journal, Error> {
    let (index, partitions) = (config.index(), log.partitions());
    let read = config.executor.run(move || -> Result<Option<Journal>, Error> {
        let budget = Budget::new(READ_BYTES);
        for partition in PartitionId::all(partitions) {
            if !rebuild::generations(&index, partition).is_empty()
                && let Some(journal) = rebuild::open(&index, partition, &budget)?.store().get(&meta::journal())?
            {
                return Ok(Some(journal));
            }
        }
        Ok(None)
    });
    let read = read
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, "the read of the indices did not complete").because(error))?;
    if let Some(journal) = read? {
        return Ok(journal);
    }
    for partition in PartitionId::all(partitions).skip(1) {
        if log.bounds(partition, DEADLINE).await?.start == Offset::ZERO {
            return read_genesis(log, partition, config).await;
        }
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        format!(
            "no partition of topic {} begins with its genesis any more, and no index names its journal; \
             restore an index folder",
            log.topic()
        ),
    ))
}

/// The journal named by the first record of `partition`.
async fn read_genesis(log: &Arc<dyn Log>, partition: PartitionId, config: &Config) -> Result<Journal, Error> {
    let start = log.bounds(partition, DEADLINE).await?.start;
    let (shared, wait) = (log.clone(), config.executor.blocking_wait(DEADLINE));
    let read = config.executor.run(move || shared.reader(&[(partition, start)])?.poll(FIRST_RECORDS, wait));
    let records = read.await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the read of the genesis did not complete").because(error)
    })??;
    let not = |found: String| {
        Error::new(
            ErrorKind::Invalid,
            format!(
                "not_a_journal: partition {partition} of topic {} begins with {found}; \
                 name a topic that Runlog created, or a topic that does not exist yet",
                log.topic()
            ),
        )
    };
    let Some(record) = records.first() else {
        return Err(Error::new(ErrorKind::Unavailable, "the log did not deliver its first record in time; retry"));
    };
    let framed = match reframe(record.value.clone(), config).await? {
        Ok(framed) => framed,
        Err(why @ Unreadable::Unresolved { .. }) => {
            let message = format!("the first record of topic {} cannot be read yet: {why}; retry", log.topic());
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Err(error) if error.stops() => {
            let message = format!("the first record of topic {} cannot be read: {error}", log.topic());
            return Err(Error::new(ErrorKind::Invalid, format!("{message}; --registry names the registry of its ids")));
        }
        Err(error) => return Err(not(format!("an unreadable record ({error})"))),
    };
    match codec::read(&framed) {
        Ok(envelope) => fold::genesis(&envelope).ok_or_else(|| not(format!("a {} record", envelope.kind.as_str()))),
        Err(error) => Err(not(format!("an unreadable record ({error})"))),
    }
}

/// Reframes a record, waiting for the registry if it has to resolve the schema id.
async fn reframe(value: Vec<u8>, config: &Config) -> Result<Result<Vec<u8>, Unreadable>, Error> {
    let schemas = config.schemas.clone();
    let reframed = config.executor.run(move || {
        let schemas = BlockingSchemas { schemas: &*schemas, longest: DEADLINE };
        codec::reframe(&value, &schemas).map(std::borrow::Cow::into_owned)
    });
    reframed
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, "the read of the genesis did not complete").because(error))
}
