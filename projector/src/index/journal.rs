//! Finds the journal of a topic by its genesis record.
//!
//! The first genesis record in partition 0 decides. A server that finds partition 0 empty appends one and reads back the
//! first record, because another server may have been faster. Then it appends the same genesis to the empty partitions. If
//! retention has removed the genesis from the log, the indices built from it still contain the journal's id.
//!
//! A server that did not create its topic appends no genesis ([`Writes::Await`]), and a mirror none to any partition: the
//! records of a mirror come from its home. The genesis of a new journal names its log as the journal's home.

use super::{
    blocking_schemas::BlockingSchemas,
    config::{Config, Genesis as Writes},
    entry::entry,
    error::Error,
    failpoint, fold,
    home::{self, Carried, Home, HomeState, Role},
    store::meta::{HomeRow, Journal},
    stored_journal::stored_journal,
};
use runlog_log::{Bounds, Delivery, Entry, Log, LogId, Offset, PartitionId};
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Unreadable},
    id::RecordId,
    payload::{Genesis, Payload},
    record::JournalRecord,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long opening waits for each answer of the log.
const DEADLINE: Duration = Duration::from_secs(30);
/// The number of records to read for a partition's first record.
const FIRST_RECORDS: usize = 1;

/// How long a server that did not create its topic waits for the genesis.
const GENESIS_WAIT: Duration = Duration::from_secs(10);
/// The pause between two looks for the genesis.
const GENESIS_PAUSE: Duration = Duration::from_millis(200);

/// The journal of a log.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The journal.
    pub journal: Journal,
    /// The home that its genesis names.
    pub home: Option<HomeRow>,
    /// Whether the log has the genesis, or had it: an index can be all that is left of a topic that was deleted and created
    /// again.
    has_genesis: bool,
}

/// Finds the journal of `log`, or creates one if the log is empty.
///
/// Errors: `Invalid` if `config.partitions` is not the journal's number of partitions, or if the topic has fewer. Also
/// `Invalid` if the topic does not begin with a genesis, or is empty and another server must write it.
pub async fn open(log: &Arc<dyn Log>, config: &Config) -> Result<Opened, Error> {
    let live = log.partitions();
    let differs = |what: &str, count: u32, wanted: u32| {
        let message = format!(
            "{what} has {count} partitions, configured are {wanted}; the number of a journal's partitions cannot change"
        );
        Error::new(ErrorKind::Invalid, message)
    };
    let mut bounds = log.bounds(PartitionId::ZERO, DEADLINE).await?;
    let mut of_index = None;
    if is_empty(bounds) && config.genesis == Writes::Write {
        if let Some(wanted) = config.partitions.filter(|wanted| *wanted != live) {
            return Err(differs(&format!("topic {}", log.topic()), live, wanted));
        }
        check_no_copy(log).await?;
        let home = log.id().map(first_home);
        let journal = Journal { journal_id: (config.ids)(), partitions: live };
        append_genesis(log, PartitionId::ZERO, &journal, home, config).await?;
        config.failpoints.reach(failpoint::GENESIS_APPENDED);
    } else if is_empty(bounds) {
        of_index = journal_of_index(config).await?;
        if of_index.is_none() {
            bounds = await_genesis(log).await?;
        }
    }
    let opened = match of_index {
        Some(journal) => Opened { journal, home: None, has_genesis: false },
        None if bounds.start == Offset::ZERO => read_genesis(log, PartitionId::ZERO, config).await?,
        None => find_journal(log, config).await?,
    };
    let count = opened.journal.partitions;
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
                opened.journal.journal_id,
                log.topic()
            ),
        ));
    }
    Ok(opened)
}

/// Appends the journal's genesis to the partitions without a record, with the journal's home. Does nothing on a mirror, or while a server
/// of some partitions knows no home: another partition may have it.
pub async fn complete(log: &Arc<dyn Log>, opened: &Opened, home: &HomeState, config: &Config) -> Result<(), Error> {
    let appends = match home.role() {
        Role::Home => true,
        Role::Unknown => !home.lacks_partitions(),
        _ => false,
    };
    if !opened.has_genesis || !appends {
        return Ok(());
    }
    for partition in PartitionId::all(opened.journal.partitions).skip(1) {
        if log.bounds(partition, DEADLINE).await?.end == Offset::ZERO {
            let home = home.known().and_then(|row| row.home());
            append_genesis(log, partition, &opened.journal, home, config).await?;
        }
    }
    Ok(())
}

fn is_empty(bounds: Bounds) -> bool {
    bounds.start == bounds.end && bounds.end == Offset::ZERO
}

/// Refuses a log that has records, but none in partition 0: MirrorMaker copies partitions in any order.
async fn check_no_copy(log: &Arc<dyn Log>) -> Result<(), Error> {
    for partition in PartitionId::all(log.partitions()).skip(1) {
        if log.bounds(partition, DEADLINE).await?.end > Offset::ZERO {
            let message = format!(
                "partition {partition} of topic {} has records, and partition 0 has none: the topic may be a mirror that \
                 MirrorMaker fills. No genesis was written; start again without --new-journal after the first record of \
                 partition 0",
                log.topic()
            );
            return Err(Error::new(ErrorKind::Invalid, message).in_partition(partition));
        }
    }
    Ok(())
}

/// The home of a new journal.
fn first_home(log: &LogId) -> Home {
    Home { epoch: 1, log: log.clone(), from: None, who: String::new(), why: String::new() }
}

/// Waits until partition 0 has a record.
///
/// Errors: `Invalid` after [`GENESIS_WAIT`].
async fn await_genesis(log: &Arc<dyn Log>) -> Result<Bounds, Error> {
    let until = Instant::now() + GENESIS_WAIT;
    tracing::info!(topic = log.topic(), "the topic is empty, and this server waits for its genesis");
    loop {
        let bounds = log.bounds(PartitionId::ZERO, DEADLINE).await?;
        if !is_empty(bounds) {
            return Ok(bounds);
        }
        if Instant::now() >= until {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "topic {} is empty, and this server did not create it; no other server wrote a genesis within {}. If \
                     you created the topic for a new journal, start once with --new-journal. If MirrorMaker fills it, start \
                     again after its first record: a mirror must not get a genesis of its own",
                    log.topic(),
                    humantime::format_duration(GENESIS_WAIT)
                ),
            ));
        }
        tokio::time::sleep(GENESIS_PAUSE).await;
    }
}

async fn append_genesis(
    log: &Arc<dyn Log>,
    partition: PartitionId,
    journal: &Journal,
    home: Option<Home>,
    config: &Config,
) -> Result<(), Error> {
    let record_id = RecordId::new(format!("genesis:{}", journal.journal_id))?;
    let entry = genesis_entry(config, journal, record_id, home.map(Carried::Home).as_ref(), &|_| {})?;
    log.append(partition, vec![entry]).await?;
    Ok(())
}

/// A genesis record of the journal, with a header if it carries something. `sign` sets its principal and the proof of it.
pub(super) fn genesis_entry(
    config: &Config,
    journal: &Journal,
    record_id: RecordId,
    carried: Option<&Carried>,
    sign: &(dyn Fn(&mut JournalRecord) + Send + Sync),
) -> Result<Entry, Error> {
    let Journal { journal_id, partitions } = journal.clone();
    let payload = Payload::Genesis(Genesis { journal_id, partitions });
    let mut record = JournalRecord::of_partition(record_id, "runlog", payload);
    record.place.timestamp_millis = (config.clock)();
    sign(&mut record);
    let mut entry = entry(&record, &*config.schemas)?;
    entry.headers.extend(carried.map(home::header));
    Ok(entry)
}

/// The journal that an index in the data folder was built from.
async fn journal_of_index(config: &Config) -> Result<Option<Journal>, Error> {
    let index = config.index();
    let read = config.executor.run(move || stored_journal(&index)).await;
    read.map_err(|error| Error::new(ErrorKind::Internal, "the read of the indices did not complete").because(error))?
}

/// Finds the journal of a log whose partition 0 no longer starts with its genesis. Reads an existing index, or another
/// partition that still starts with it.
async fn find_journal(log: &Arc<dyn Log>, config: &Config) -> Result<Opened, Error> {
    if let Some(journal) = journal_of_index(config).await? {
        return Ok(Opened { journal, home: None, has_genesis: true });
    }
    for partition in PartitionId::all(log.partitions()).skip(1) {
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

/// The journal and the home that the first record of `partition` names.
async fn read_genesis(log: &Arc<dyn Log>, partition: PartitionId, config: &Config) -> Result<Opened, Error> {
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
    let envelope = codec::read(&framed).map_err(|error| not(format!("an unreadable record ({error})")))?;
    let journal = fold::genesis(&envelope).ok_or_else(|| not(format!("a {} record", envelope.kind.as_str())))?;
    Ok(Opened { journal, home: home_of(record, log.topic()), has_genesis: true })
}

/// The home that a genesis names.
fn home_of(genesis: &Delivery, topic: &str) -> Option<HomeRow> {
    let Delivery { partition, offset, timestamp_millis, headers, .. } = genesis;
    match home::carried(headers) {
        Ok(Some(Carried::Home(home))) => home::advance(None, &home, *offset, *timestamp_millis),
        Ok(_) => None,
        Err(malformed) => {
            tracing::warn!(topic, %partition, %offset, "{malformed}");
            None
        }
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
