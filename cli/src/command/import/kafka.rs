//! Straight to Kafka, without a server: nobody says what was already there, the projector will find it.

use super::{Tally, advance};
use crate::{
    Error,
    import::{ImportedRun, records},
    output::Progress,
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use runlog_log::{
    Entry, Log,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_registry::Registry;
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Framing, NoRegistry, Unreadable},
    partition::partition_of,
    payload::{Genesis, Payload},
};
use std::time::{Duration, Instant};

/// What one append carries at the most, and how many are under way: together below the log's own bounds.
const BATCH_ENTRIES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 4 << 20;
const APPENDS_MAX: usize = 8;
/// How long the first record of the topic is waited for.
const GENESIS_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn send(
    runs: &[ImportedRun],
    config: KafkaConfig,
    registry: Option<runlog_registry::Config>,
    progress: &Progress,
) -> Result<Tally, Error> {
    let (brokers, topic) = (config.brokers.clone(), config.topic.clone());
    // Blocks for the cluster's answer: nothing else is under way.
    let log = KafkaLog::connect(config).map_err(|error| {
        let error = Error::from(error);
        let what = if error.kind() == ErrorKind::Invalid {
            format!("topic {topic} at {brokers} is not a journal; `runlog serve --brokers {brokers}` makes one")
        } else {
            format!("the log at {brokers} cannot be used; see that the broker runs, then try again")
        };
        Error::new(error.kind(), what).because(error)
    })?;
    let registry = registry.map(Registry::open).transpose()?;
    let journal = genesis(&log, registry.as_ref()).await?;
    let framing = match &registry {
        Some(registry) => Framing::Confluent(registry.register().await?),
        None => Framing::SingleObject,
    };
    if journal.partitions > log.partitions() {
        let (count, live) = (journal.partitions, log.partitions());
        let what = format!("journal {} has {count} partitions, its topic {topic} {live}", journal.journal_id);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let mut appended = 0;
    let mut acks = FuturesOrdered::new();
    for run in runs {
        let partition = partition_of(run.run_id.borrow(), journal.partitions);
        for batch in batches(run, framing) {
            if acks.len() >= APPENDS_MAX {
                appended += acked(acks.next().await, progress)?;
            }
            acks.push_back(log.append(partition, batch));
        }
    }
    while !acks.is_empty() {
        appended += acked(acks.next().await, progress)?;
    }
    Ok(Tally { appended, duplicates: None })
}

fn acked(ack: Option<Result<Vec<u64>, runlog_log::Error>>, progress: &Progress) -> Result<u64, Error> {
    let offsets = ack.transpose().map_err(|error| {
        let what = "the import stopped halfway; run it again, what is there is not written twice";
        Error::new(ErrorKind::Unavailable, what).because(error)
    })?;
    let count = offsets.map_or(0, |offsets| offsets.len());
    advance(progress, count);
    Ok(count as u64)
}

/// The run's records as entries, in appends of bounded size.
fn batches(run: &ImportedRun, framing: Framing) -> impl Iterator<Item = Vec<Entry>> {
    let mut entries = records(run)
        .map(move |record| Entry {
            key: run.run_id.as_bytes().to_vec(),
            value: codec::encode_as(&record, framing),
            headers: runlog_projector::journal::headers(&record),
        })
        .peekable();
    std::iter::from_fn(move || {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = entries.next_if(|entry| {
            let fits = batch.len() < BATCH_ENTRIES_MAX && bytes + entry.value.len() <= BATCH_BYTES_MAX;
            fits || batch.is_empty()
        }) {
            bytes += entry.value.len();
            batch.push(entry);
        }
        (!batch.is_empty()).then_some(batch)
    })
}

/// The topic's first record, which says what journal it is.
async fn genesis(log: &KafkaLog, registry: Option<&Registry>) -> Result<Genesis, Error> {
    let bounds = log.bounds(0, GENESIS_WAIT).await?;
    let not = |found: &str| {
        let what = format!(
            "topic {} {found}: it is not a journal; `runlog serve --brokers` makes one of a topic that is empty or \
             missing",
            log.topic()
        );
        Error::new(ErrorKind::Invalid, what)
    };
    if bounds.start == bounds.end {
        return Err(not("is empty"));
    }
    let mut reader = log.reader(&[(0, bounds.start)])?;
    let until = Instant::now() + GENESIS_WAIT;
    let first = loop {
        if let Some(first) = reader.poll(1, Duration::from_millis(200))?.pop() {
            break first;
        }
        if Instant::now() >= until {
            let what = format!("topic {} did not give its first record in time; try again", log.topic());
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
    };
    let framed = match registry {
        Some(registry) => registry.restate(&first.value).await,
        None => codec::restate(&first.value, &NoRegistry),
    };
    let framed = framed.map_err(|error| {
        let waits = matches!(error, Unreadable::Unresolved { .. });
        let kind = if waits { ErrorKind::Unavailable } else { ErrorKind::Invalid };
        let what = "the topic's first record cannot be read; --registry names the registry of its ids";
        Error::new(kind, what).because(error)
    })?;
    let payload = codec::read(&framed).map(|envelope| envelope.payload());
    match payload {
        Ok(Ok(Payload::Genesis(genesis))) => Ok(genesis),
        _ => Err(not("does not begin with a genesis")),
    }
}
