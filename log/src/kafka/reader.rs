//! Reads the topic with a consumer of its own, on the caller's thread.
//!
//! Partitions are assigned by hand, with explicit offsets; the consumer never chooses an offset by itself. librdkafka
//! numbers each assignment of a partition and drops records of older assignments. So a new position unassigns the partition
//! and assigns it again, because a seek races with fetches in flight.
//!
//! **Positions.** A record moves its partition's position to the next offset. Control records (the markers of foreign
//! transactions) are never delivered; librdkafka moves its own position past them. When a fetch from the end of the
//! partition returns no records, librdkafka queues an end event after all fetched records. The reader then adopts
//! librdkafka's position, which equals the high watermark of that fetch.
//!
//! **Damaged batches.** librdkafka reports a batch whose checksum is wrong, does not name its partition, and continues after
//! it. So another consumer reads each partition from its position. The partition that fails again is withheld, and the
//! others keep their fetched records. If no partition fails, the batch was damaged in transit, and all are fetched again.
//!
//! **Stalls.** A consumer that delivers nothing although the brokers have more is replaced (see `watch`); the positions
//! stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    Message, Offset as KafkaOffset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    message::{BorrowedMessage, Headers},
};

use super::{
    bounds::{self, BoundsClient},
    config::{KafkaConfig, Role},
    context::{self, Context},
    health::ConsumerHealth,
    identity::Identity,
    waits::{REQUEST_WAIT, close},
    watch::{PATIENCE, Positions, Suspicion, Watch},
};
use crate::{
    Delivery, Offset, POLL_BYTES_MAX, PartitionId, Reader,
    batch::Limits,
    clients::Stall,
    error::{Error, Kind},
};

const TAKEN: &str = "only drop takes the consumer";

/// Time limit of the search for a damaged batch, per partition: until its first record or its end.
const PROBE_WAIT: Duration = Duration::from_secs(5);

pub(super) struct KafkaReader {
    config: KafkaConfig,
    identity: Identity,
    /// `None` only during the drop.
    consumer: Option<BaseConsumer<Context>>,
    topic: String,
    partitions: u32,
    positions: BTreeMap<PartitionId, Offset>,
    /// Partitions whose next batch is damaged: they are not assigned until the caller seeks them.
    withheld: BTreeSet<PartitionId>,
    /// An error that followed records of the previous poll; the next poll returns it.
    deferred_error: Option<Error>,
    watch: Watch,
    bounds: Arc<BoundsClient>,
    health: ConsumerHealth,
    /// The partitions for which the consumer was replaced and which have not moved since.
    stalls: BTreeMap<PartitionId, Stall>,
}

/// The records of one poll so far.
#[derive(Default)]
struct PolledRecords {
    records: Vec<Delivery>,
    bytes: usize,
    /// Whether a position moved without a record.
    moved: bool,
}

impl PolledRecords {
    fn push(
        &mut self,
        message: &BorrowedMessage<'_>,
        topic: &str,
        positions: &mut BTreeMap<PartitionId, Offset>,
    ) -> Result<(), Error> {
        let invalid_position = |why| {
            Error::new(Kind::Fatal, topic, "the consumer delivered a record with an invalid partition or offset")
                .because(why)
        };
        let partition = PartitionId::from_signed(message.partition()).map_err(invalid_position)?;
        let Some(next) = positions.get_mut(&partition) else { return Ok(()) };
        let offset =
            Offset::from_signed(message.offset()).map_err(|why| invalid_position(why).in_partition(partition))?;
        if offset < *next {
            let what = format!("the consumer moved backwards: expected at least offset {next}");
            return Err(Error::new(Kind::Fatal, topic, what).in_partition(partition).at_offset(offset));
        }
        *next = offset.saturating_add(1);
        let value = message.payload().unwrap_or_default().to_vec();
        self.bytes += value.len();
        self.records.push(Delivery {
            partition,
            offset,
            timestamp_millis: message.timestamp().to_millis().unwrap_or(-1),
            key: message.key().unwrap_or_default().to_vec(),
            value,
            headers: headers(message),
        });
        Ok(())
    }
}

impl KafkaReader {
    pub(super) fn new(
        config: &KafkaConfig,
        identity: &Identity,
        partitions: u32,
        (bounds, health): (Arc<BoundsClient>, ConsumerHealth),
        from: &[(PartitionId, Offset)],
    ) -> Result<Self, Error> {
        identity.check()?;
        let (config, identity, topic) = (config.clone(), identity.clone(), config.topic.clone());
        let consumer = Some(consumer(&config, &identity)?);
        let mut reader = Self {
            config,
            identity,
            consumer,
            topic,
            partitions,
            positions: BTreeMap::new(),
            withheld: BTreeSet::new(),
            deferred_error: None,
            watch: Watch::new(Instant::now()),
            bounds,
            health,
            stalls: BTreeMap::new(),
        };
        let from: BTreeMap<PartitionId, Offset> = from.iter().copied().collect();
        reader.check_in_log(&from)?;
        reader.assign(&from)?;
        reader.positions = from;
        Ok(reader)
    }

    fn consumer(&self) -> &BaseConsumer<Context> {
        self.consumer.as_ref().expect(TAKEN)
    }

    /// Refuses positions outside of the log.
    fn check_in_log(&self, positions: &BTreeMap<PartitionId, Offset>) -> Result<(), Error> {
        let limits = Limits { topic: &self.topic, partitions: self.partitions, value_bytes_max: 0 };
        positions.keys().try_for_each(|partition| limits.check_partition(*partition))?;
        let partitions: BTreeSet<PartitionId> = positions.keys().copied().collect();
        if partitions.is_empty() {
            return Ok(());
        }
        let bounds = bounds::fetch_within(self.consumer(), &self.topic, &partitions, REQUEST_WAIT)?;
        for (partition, next) in positions {
            let missing = || {
                Error::new(Kind::Retry, &self.topic, "cannot read the bounds from the brokers").in_partition(*partition)
            };
            let bounds = bounds.get(partition).ok_or_else(missing)?;
            bounds.check(&self.topic, *partition, *next)?;
        }
        Ok(())
    }

    fn assign(&self, positions: &BTreeMap<PartitionId, Offset>) -> Result<(), Error> {
        assign(self.consumer(), &self.topic, positions)
    }

    fn unassign(&self, partitions: impl IntoIterator<Item = PartitionId>) -> Result<(), Error> {
        let partitions = partitions.into_iter().filter(|partition| !self.withheld.contains(partition));
        unassign(self.consumer(), &self.topic, partitions)
    }

    /// Drops the fetched records and fetches again from the reader's positions.
    fn refetch(&self) -> Result<(), Error> {
        self.unassign(self.positions.keys().copied())?;
        self.assign(&self.assigned())
    }

    /// The positions of the partitions that the consumer has.
    fn assigned(&self) -> Positions {
        let mut positions = self.positions.clone();
        positions.retain(|partition, _| !self.withheld.contains(partition));
        positions
    }

    /// Checks a consumer without records, and replaces it if the brokers have records for it.
    fn watch_consumer(&mut self) -> Result<(), Error> {
        let lost = self.consumer().context().contact.lost_since().is_some();
        let (now, assigned) = (Instant::now(), self.assigned());
        let bounds = &self.bounds;
        let suspicion =
            self.watch.check(now, &assigned, lost, |partition| bounds.request_end(partition, PATIENCE).ok());
        let before = self.stalls.len();
        self.stalls.retain(|partition, stall| assigned.get(partition) == Some(&stall.next));
        if let Some(suspicion) = suspicion {
            self.replace_consumer(&suspicion)?;
        } else if self.stalls.len() < before {
            self.health.set_stalls(self.stalls.values().cloned().collect());
        }
        Ok(())
    }

    fn replace_consumer(&mut self, Suspicion { lost, lagging, since }: &Suspicion) -> Result<(), Error> {
        let reason = match lagging.first_key_value() {
            Some((partition, (next, end))) => {
                let more = if lagging.len() > 1 { format!(" and {} more", lagging.len() - 1) } else { String::new() };
                format!(
                    "it delivered nothing from partition {partition}{more} at offset {next}, although the log ends at {end}"
                )
            }
            None => "it lost all brokers, although they answer other clients".to_owned(),
        };
        tracing::warn!(topic = self.topic, lost, "the consumer is replaced: {reason}");
        let assigned = self.assigned();
        let fresh = consumer(&self.config, &self.identity).and_then(|fresh| {
            assign(&fresh, &self.topic, &assigned)?;
            Ok(fresh)
        });
        let fresh = fresh.map_err(|error| error.with_kind(Kind::Retry))?;
        for (partition, (next, end)) in lagging {
            let stall = Stall { partition: *partition, next: *next, end: *end, since: *since };
            self.stalls.entry(*partition).or_insert(stall).end = *end;
        }
        self.health.set_stalls(self.stalls.values().cloned().collect());
        self.health.count_replacement(reason);
        if let Some(stalled) = self.consumer.replace(fresh) {
            // Closing takes time. Without a thread for it, the consumer is closed here.
            let _ = thread::Builder::new().name("closing".into()).spawn(move || drop(stalled));
        }
        Ok(())
    }

    /// Searches the partition of a damaged batch. Withholds it and returns an error that names it, or fetches all partitions
    /// again if the search finds none.
    fn withhold_damaged(&mut self, error: KafkaError) -> Error {
        let withheld = self.find_damaged().and_then(|damaged| match damaged {
            Some(partition) => self.unassign([partition]).map(|()| Some(partition)),
            None => self.refetch().map(|()| None),
        });
        match withheld {
            Ok(Some(partition)) => {
                self.withheld.insert(partition);
                let what = "the broker returned a damaged batch twice";
                let next = self.positions.get(&partition).copied().unwrap_or_default();
                Error::new(Kind::Damaged, &self.topic, what).in_partition(partition).at_offset(next).because(error)
            }
            Ok(None) => context::map_error(&self.topic, "a fetched batch was damaged", error),
            Err(failed) => failed,
        }
    }

    /// Finds the first partition whose next batch is damaged, with a separate consumer, so that the reader's own consumer
    /// keeps its fetched records.
    fn find_damaged(&self) -> Result<Option<PartitionId>, Error> {
        let probe = consumer(&self.config, &self.identity)?;
        let mut damaged = None;
        for (partition, next) in &self.positions {
            if self.withheld.contains(partition) {
                continue;
            }
            assign(&probe, &self.topic, &BTreeMap::from([(*partition, *next)]))?;
            let start = Instant::now();
            // Ignores other errors, such as lost connections.
            let event = loop {
                match probe.poll(PROBE_WAIT.saturating_sub(start.elapsed())) {
                    Some(Err(error)) if !is_damage(&error) && !matches!(error, KafkaError::PartitionEOF(_)) => {}
                    event => break event,
                }
            };
            if matches!(event, Some(Err(error)) if is_damage(&error)) {
                damaged = Some(*partition);
                break;
            }
            unassign(&probe, &self.topic, [*partition])?;
        }
        let topic = self.topic.clone();
        close(&topic, "consumer", move || drop(probe));
        Ok(damaged)
    }

    /// Adopts librdkafka's position at a partition's end, if it is ahead: all fetched records of the partition are gathered.
    fn adopt_position(&mut self, partition: PartitionId) -> Result<bool, Error> {
        let map_error = |error| context::map_error(&self.topic, "cannot read the consumer's position", error);
        let positions = self.consumer().position().map_err(map_error)?;
        let Some(element) = positions.find_partition(&self.topic, partition.signed()) else { return Ok(false) };
        let (KafkaOffset::Offset(position), Some(next)) = (element.offset(), self.positions.get_mut(&partition)) else {
            // The partition has had no fetch since it was assigned.
            return Ok(false);
        };
        let Ok(position) = Offset::from_signed(position) else {
            let what = format!("the consumer reports the invalid position {position}");
            return Err(Error::new(Kind::Fatal, &self.topic, what).in_partition(partition));
        };
        let moved = position > *next;
        *next = position.max(*next);
        Ok(moved)
    }

    /// Maps an error of the consumer to an error of the reader; `None` if the consumer recovers by itself.
    fn handle_error(&mut self, error: KafkaError) -> Option<Error> {
        let code = error.rdkafka_error_code();
        match code {
            _ if is_damage(&error) => Some(self.withhold_damaged(error)),
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                Some(self.find_out_of_range(error))
            }
            Some(
                RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::TimedOutQueue,
            ) => None,
            Some(RDKafkaErrorCode::AllBrokersDown) => {
                Some(context::map_error(&self.topic, "no broker is reachable", error))
            }
            Some(RDKafkaErrorCode::LogTruncation) => {
                // librdkafka does not name the partition.
                let what = "the cluster lost records that were already delivered";
                let lost = |error| Error::new(Kind::OutOfRange, &self.topic, what).because(error);
                let bounds_error =
                    self.check_in_log(&self.positions).err().filter(|error| error.kind() == Kind::OutOfRange);
                Some(bounds_error.unwrap_or_else(|| lost(error)))
            }
            Some(_) if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                Some(Error::new(Kind::Fatal, &self.topic, "the consumer has failed permanently").because(error))
            }
            _ => {
                let failure = context::map_error(&self.topic, "the fetch failed", error);
                self.refetch().err().or(Some(failure))
            }
        }
    }

    /// Finds the partition whose position is not in the log. librdkafka does not name it.
    fn find_out_of_range(&self, error: KafkaError) -> Error {
        if let Err(out_of_range) = self.check_in_log(&self.positions) {
            return out_of_range;
        }
        let failure = context::map_error(&self.topic, "a position was out of range for a moment", error);
        self.refetch().err().unwrap_or(failure)
    }

    /// Handles one event of the consumer. Returns true if the poll must return.
    fn poll_event(&mut self, wait: Duration, max: usize, polled: &mut PolledRecords) -> Result<bool, Error> {
        let consumer = self.consumer.as_ref().expect(TAKEN);
        match consumer.poll(wait) {
            Some(Ok(message)) => {
                self.identity.check()?;
                polled.push(&message, &self.topic, &mut self.positions)?;
                Ok(polled.records.len() >= max || polled.bytes >= POLL_BYTES_MAX)
            }
            Some(Err(error)) => {
                self.identity.check()?;
                self.handle_error_event(error, polled)
            }
            None => {
                self.watch_consumer()?;
                Ok(!polled.records.is_empty() || polled.moved || wait.is_zero())
            }
        }
    }

    fn handle_error_event(&mut self, error: KafkaError, polled: &mut PolledRecords) -> Result<bool, Error> {
        if let KafkaError::PartitionEOF(partition) = error {
            let unknown = |why| {
                Error::new(Kind::Fatal, &self.topic, "the consumer reported the end of an invalid partition")
                    .because(why)
            };
            polled.moved |= self.adopt_position(PartitionId::from_signed(partition).map_err(unknown)?)?;
            return Ok(false);
        }
        self.handle_error(error).map_or(Ok(false), Err)
    }
}

impl Reader for KafkaReader {
    fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        self.identity.check()?;
        if let Some(error) = self.deferred_error.take() {
            return Err(error);
        }
        if max == 0 {
            return Ok(Vec::new());
        }
        let start = Instant::now();
        let mut polled = PolledRecords::default();
        loop {
            let idle = polled.records.is_empty() && !polled.moved;
            let wait = if idle { timeout.saturating_sub(start.elapsed()) } else { Duration::ZERO };
            match self.poll_event(wait, max, &mut polled) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if polled.records.is_empty() => return Err(error),
                Err(error) => {
                    self.deferred_error = Some(error);
                    break;
                }
            }
        }
        Ok(polled.records)
    }

    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.positions.get(&partition).copied()
    }

    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error> {
        self.identity.check()?;
        let position = BTreeMap::from([(partition, next)]);
        self.check_in_log(&position)?;
        self.release(partition)?;
        self.assign(&position)?;
        self.positions.insert(partition, next);
        Ok(())
    }

    fn release(&mut self, partition: PartitionId) -> Result<(), Error> {
        // The pending error of a released partition is obsolete.
        self.deferred_error.take_if(|error| error.subject().partition == Some(partition));
        if self.positions.contains_key(&partition) {
            self.unassign([partition])?;
            self.withheld.remove(&partition);
            self.positions.remove(&partition);
        }
        Ok(())
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            close(&self.topic, "consumer", move || drop(consumer));
        }
    }
}

fn consumer(config: &KafkaConfig, identity: &Identity) -> Result<BaseConsumer<Context>, Error> {
    let context = Context { identity: Some(identity.clone()), ..Context::default() };
    let consumer = config.client(Role::Reader)?.create_with_context(context);
    consumer.map_err(|error| context::map_creation_error(&config.topic, error))
}

fn assign(
    consumer: &BaseConsumer<Context>,
    topic: &str,
    positions: &BTreeMap<PartitionId, Offset>,
) -> Result<(), Error> {
    let mut list = TopicPartitionList::new();
    let added = positions.iter().try_for_each(|(partition, next)| {
        list.add_partition_offset(topic, partition.signed(), KafkaOffset::Offset(next.signed()))
    });
    let assigned = added.and_then(|()| consumer.incremental_assign(&list));
    assigned.map_err(|error| context::map_error(topic, "cannot assign partitions to the consumer", error))
}

fn unassign(
    consumer: &BaseConsumer<Context>,
    topic: &str,
    partitions: impl IntoIterator<Item = PartitionId>,
) -> Result<(), Error> {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition(topic, partition.signed());
    }
    let unassigned = consumer.incremental_unassign(&list);
    unassigned.map_err(|error| context::map_error(topic, "cannot unassign partitions from the consumer", error))
}

/// Whether librdkafka found a batch that it cannot read, and continues after it.
fn is_damage(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{BadCompression, BadMessage, NotImplemented};
    matches!(error.rdkafka_error_code(), Some(BadMessage | BadCompression | NotImplemented))
}

/// Returns the record's headers. An absent value becomes an empty one.
fn headers(message: &BorrowedMessage<'_>) -> Vec<(String, Vec<u8>)> {
    let Some(headers) = message.headers() else { return Vec::new() };
    // rust-rdkafka panics on a name that is not UTF-8, which a foreign client can write. The closure only borrows, so the
    // panic leaves no broken state.
    let pairs = panic::catch_unwind(AssertUnwindSafe(|| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec())).collect()
    }));
    pairs.unwrap_or_else(|_| {
        tracing::warn!(
            partition = message.partition(),
            offset = message.offset(),
            "the record's headers are not readable and are dropped"
        );
        Vec::new()
    })
}
