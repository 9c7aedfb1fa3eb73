//! Imports directly to Kafka, without a server. Existing records are appended again; the projector ignores them.

use super::progress::{Steps, Tally};
use crate::{
    error::Error,
    import::{ImportedRun, records},
    registry,
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use runlog_log::{
    Ack, Entry, Log, LogId,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_producer::content::Store;
use runlog_projector::index::home::{Carried, carried};
use runlog_registry::Registry;
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Framing, NoRegistry, Unreadable},
    depth, headers,
    id::PartitionId,
    partition::partition_of,
    payload::{Genesis, Payload},
    schema, shell,
};
use std::time::{Duration, Instant};

/// Largest append and largest number of appends in flight. Together they are below the log's own limits.
const BATCH_ENTRIES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 4 << 20;
const APPENDS_MAX: usize = 8;
/// Time limit for reading the first record of the topic.
const GENESIS_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn send(
    runs: &[ImportedRun],
    config: KafkaConfig,
    registry: Option<registry::Settings>,
    content: Option<&Store>,
    steps: &Steps<'_>,
) -> Result<Tally, Error> {
    let (brokers, topic) = (config.brokers.clone(), config.topic.clone());
    // Blocks until the cluster answers: no other task runs yet.
    let log = KafkaLog::connect(config).map_err(|error| {
        let error = Error::from(error);
        let what = if error.kind() == ErrorKind::Invalid {
            let serve = shell::command("runlog serve", &[], &shell::flag("--brokers", &brokers));
            format!("topic {topic} at {brokers} is not a journal; `{serve}` creates one")
        } else {
            format!("cannot use topic {topic} at {brokers}; check that the brokers run, then try again")
        };
        Error::new(error.kind(), what).because(error)
    })?;
    let registry = registry.map(registry::Settings::open).transpose()?;
    let journal = genesis(&log, registry.as_ref()).await?;
    let framing = match &registry {
        Some(registry) => Framing::Confluent(registry.register(schema::lowest()).await?),
        None => Framing::SingleObject,
    };
    if journal.partitions > log.partitions() {
        let (count, live) = (journal.partitions, log.partitions());
        let what = format!("journal {} has {count} partitions, but its topic {topic} has {live}", journal.journal_id);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let mut appends = Appends { log: &log, steps, under_way: FuturesOrdered::new(), appended: 0 };
    for run in runs {
        let partition = partition_of(run.run_id.borrow(), journal.partitions);
        let mut batch = Batch::default();
        for record in records(run) {
            depth::check(&record).map_err(|deep| {
                let what =
                    format!("run {}, from {}, has a record that nests too deep to be read", run.run_id, run.origin);
                Error::new(ErrorKind::Invalid, what).because(deep)
            })?;
            let record = match content {
                Some(store) => store.stow(record).await?,
                None => record,
            };
            let entry = Entry {
                key: run.run_id.as_bytes().to_vec(),
                value: codec::encode_as(&record, framing),
                headers: headers::of(&record),
            };
            if !batch.has_room(&entry) {
                appends.add(partition, std::mem::take(&mut batch)).await?;
            }
            batch.push(entry);
        }
        appends.add(partition, batch).await?;
    }
    Ok(Tally { appended: appends.end().await?, duplicates: None })
}

/// The records of one append.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    bytes: usize,
}

impl Batch {
    /// Returns whether the entry fits too. The first entry always fits.
    fn has_room(&self, entry: &Entry) -> bool {
        let fits = self.entries.len() < BATCH_ENTRIES_MAX && self.bytes + entry.value.len() <= BATCH_BYTES_MAX;
        fits || self.entries.is_empty()
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += entry.value.len();
        self.entries.push(entry);
    }
}

/// Appends in flight, acknowledged in their order.
struct Appends<'a> {
    log: &'a KafkaLog,
    steps: &'a Steps<'a>,
    under_way: FuturesOrdered<Ack>,
    appended: u64,
}

impl Appends<'_> {
    async fn add(&mut self, partition: PartitionId, batch: Batch) -> Result<(), Error> {
        while self.under_way.len() >= APPENDS_MAX {
            self.acked().await?;
        }
        self.under_way.push_back(self.log.append(partition, batch.entries));
        Ok(())
    }

    /// Waits for all appends. Returns the number of appended records.
    async fn end(mut self) -> Result<u64, Error> {
        while !self.under_way.is_empty() {
            self.acked().await?;
        }
        Ok(self.appended)
    }

    async fn acked(&mut self) -> Result<(), Error> {
        let offsets = self.under_way.next().await.transpose().map_err(|error| {
            let what = "the import is incomplete; run it again, records are not written twice";
            Error::new(ErrorKind::Unavailable, what).because(error)
        })?;
        let count = offsets.map_or(0, |offsets| offsets.len());
        self.steps.advance(count, count as u64);
        self.appended += count as u64;
        Ok(())
    }
}

/// Reads the topic's first record, which identifies the journal. Refuses a mirror.
async fn genesis(log: &KafkaLog, registry: Option<&Registry>) -> Result<Genesis, Error> {
    let bounds = log.bounds(PartitionId::ZERO, GENESIS_WAIT).await?;
    let not = |found: &str| {
        let what = format!(
            "topic {} {found}: it is not a journal; `runlog serve --brokers` creates one in an empty or missing topic",
            log.topic()
        );
        Error::new(ErrorKind::Invalid, what)
    };
    if bounds.start == bounds.end {
        return Err(not("is empty"));
    }
    let mut reader = log.reader(&[(PartitionId::ZERO, bounds.start)])?;
    let until = Instant::now() + GENESIS_WAIT;
    let first = loop {
        if let Some(first) = reader.poll(1, Duration::from_millis(200))?.pop() {
            break first;
        }
        if Instant::now() >= until {
            let what = format!("timed out reading the first record of topic {}; try again", log.topic());
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
    };
    let framed = match registry {
        Some(registry) => registry.reframe(&first.value).await,
        None => codec::reframe(&first.value, &NoRegistry),
    };
    let framed = framed.map_err(|error| {
        let waits = matches!(error, Unreadable::Unresolved { .. });
        let kind = if waits { ErrorKind::Unavailable } else { ErrorKind::Invalid };
        let what = "cannot read the topic's first record; name the schema registry of its ids with --registry";
        Error::new(kind, what).because(error)
    })?;
    let payload = codec::read(&framed).map(|envelope| envelope.payload());
    let Ok(Ok(Payload::Genesis(genesis))) = payload else { return Err(not("does not begin with a genesis")) };
    check_home(log, &first.headers)?;
    Ok(genesis)
}

/// Refuses a mirror, as far as the headers of the genesis name the home. A home that was set later is not seen here.
fn check_home(log: &dyn Log, headers: &[(String, Vec<u8>)]) -> Result<(), Error> {
    let home = match carried(headers) {
        Ok(Some(Carried::Home(home))) => home.log,
        // A server ignores these headers too.
        Ok(Some(Carried::Accept(_)) | None) | Err(_) => return Ok(()),
    };
    match log.id() {
        Some(own) if *own == home => Ok(()),
        own => {
            let own = own.map_or("without an id", LogId::as_str);
            let what = format!(
                "topic {} is a mirror: its log is {own} and the home is {home}. An import is possible at the home only; nothing was \
                 appended",
                log.topic()
            );
            Err(Error::new(ErrorKind::Unavailable, what))
        }
    }
}
