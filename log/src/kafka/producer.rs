//! Appends. A batch enters librdkafka's queue as a whole. Its acknowledgement resolves with the delivery of its last record.
//!
//! librdkafka's idempotent producer can fail for good. The next append then replaces the client, after all records of the
//! failed client are answered. So appends stay in order, and the callers of records in flight get `Kind::Unknown`. A client
//! that lost all brokers (see `contact`) is replaced in the same way, after a purge of its queue.

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread,
    time::Duration,
};

use rdkafka::{
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, Producer as _, PurgeConfig, ThreadedProducer},
};
use tokio::sync::oneshot;

use super::{
    config::{KafkaConfig, Role},
    contact::{Contact, LostProducer},
    context::{self, Refusals, Topic},
    health::Health,
    identity::Identity,
};
use crate::{
    Entry, PartitionId,
    error::{Error, Kind},
};
use delivery::{Batch, DeliveryContext, InFlight, Outcome, RecordOpaque};

mod delivery;

/// Time limit of the flush at the close.
const FLUSH_WAIT: Duration = Duration::from_secs(5);

type Client = ThreadedProducer<DeliveryContext>;

pub(super) struct Producer {
    config: KafkaConfig,
    identity: Identity,
    /// Locked for reading while a batch is enqueued, and for writing while a failed client is replaced.
    client: RwLock<Client>,
    topic: String,
    in_flight: Arc<InFlight>,
    lost: Arc<LostProducer>,
    health: Health,
    /// One per partition: keeps the records of a batch together.
    partition_locks: Vec<Mutex<()>>,
}

impl Producer {
    pub(super) fn new(config: &KafkaConfig, identity: &Identity, health: Health) -> Result<Self, Error> {
        let (in_flight, identity) = (Arc::<InFlight>::default(), identity.clone());
        let client = client(config, &identity, &in_flight)?;
        let lost = Arc::<LostProducer>::default();
        lost.renew(client.client().context().contact.clone());
        let (client, topic) = (RwLock::new(client), config.topic.clone());
        Ok(Self {
            config: config.clone(),
            identity,
            client,
            topic,
            in_flight,
            lost,
            health,
            partition_locks: Vec::new(),
        })
    }

    /// Returns the bounds client's verdict about this producer's contact with brokers.
    pub(super) fn lost(&self) -> Arc<LostProducer> {
        Arc::clone(&self.lost)
    }

    pub(super) fn with_partitions(self, partitions: u32) -> Self {
        Self { partition_locks: (0..partitions).map(|_| Mutex::new(())).collect(), ..self }
    }

    pub(super) fn topic(&self, wait: Duration) -> Result<Topic, Error> {
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner);
        let topic = context::read_topic(client.client(), &self.topic, wait);
        topic.map_err(|error| client.client().context().refusals.explain(error))
    }

    /// Enqueues a batch that was checked and is not empty.
    pub(super) fn send(
        &self,
        partition: PartitionId,
        entries: &[Entry],
        bytes: usize,
    ) -> Result<oneshot::Receiver<Outcome>, Error> {
        let _lock = self.partition_locks[partition.index()].lock().expect("a sender panicked");
        if self.lost.must_replace() {
            self.replace_lost_client(partition)?;
        }
        match self.enqueue(partition, entries, bytes) {
            Err(error) if error.kind() == Kind::Fatal => {
                self.replace_failed_client(partition, error)?;
                self.enqueue(partition, entries, bytes)
            }
            enqueued => enqueued,
        }
    }

    fn enqueue(
        &self,
        partition: PartitionId,
        entries: &[Entry],
        bytes: usize,
    ) -> Result<oneshot::Receiver<Outcome>, Error> {
        let (batch, acked) = Batch::new(entries.len());
        let batch = Arc::new(batch);
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner);
        if !self.in_flight.reserve(entries.len(), bytes) {
            return Err(self.refusal(partition, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)));
        }
        // Assigns each record a share of the batch's bytes, so that the sum of the shares equals the bytes added above.
        let share = bytes / entries.len();
        for (index, entry) in entries.iter().enumerate() {
            let rest = if index == 0 { bytes - share * (entries.len() - 1) } else { share };
            let opaque = Box::new(RecordOpaque { batch: Arc::clone(&batch), partition, index, bytes: rest });
            let Err((error, record)) = client.send(record(&self.topic, partition, entry, opaque)) else { continue };
            self.in_flight.release(1, record.delivery_opaque.bytes);
            self.in_flight.release(entries.len() - index - 1, share * (entries.len() - index - 1));
            if index == 0 {
                return Err(self.refusal(partition, error));
            }
            batch.abandon(entries.len() - index, self.refusal(partition, error));
            break;
        }
        Ok(acked)
    }

    /// Replaces a client that has failed for good; does nothing if another append has replaced it.
    ///
    /// Errors: `Retry` with `cause` while records of the failed client are unanswered: they could land after newer records.
    fn replace_failed_client(&self, partition: PartitionId, cause: Error) -> Result<(), Error> {
        let mut current = self.client.write().unwrap_or_else(PoisonError::into_inner);
        let Some((code, reason)) = current.client().fatal_error() else { return Ok(()) };
        self.check_answered(partition).map_err(|error| error.because(cause))?;
        tracing::error!(topic = self.topic, %code, reason, "the producer failed permanently; a new one replaces it");
        self.replace_client(&mut current, format!("it failed permanently: {reason}"))
    }

    /// Replaces a client that lost all brokers, and answers its records with `Kind::Unknown`.
    ///
    /// Errors: `Retry` until all of them are answered.
    fn replace_lost_client(&self, partition: PartitionId) -> Result<(), Error> {
        let mut current = self.client.write().unwrap_or_else(PoisonError::into_inner);
        if !self.lost.must_purge() {
            return Ok(());
        }
        // Waits for no broker thread, which may be in a host lookup.
        current.purge(PurgeConfig::default().queue().inflight().non_blocking());
        self.check_answered(partition)?;
        let reason = "it lost all brokers, although they answer other clients";
        tracing::warn!(topic = self.topic, "the producer is replaced: {reason}");
        self.replace_client(&mut current, reason.to_owned())
    }

    /// Fails while records of the old client are unanswered: they could land after records of a new client. Purged records
    /// are answered at once. They can no longer land: their connections were closed seconds ago.
    fn check_answered(&self, partition: PartitionId) -> Result<(), Error> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let what = "the producer failed; its replacement waits until the records in flight are answered";
        Err(Error::new(Kind::Retry, &self.topic, what).in_partition(partition))
    }

    fn replace_client(&self, current: &mut Client, reason: String) -> Result<(), Error> {
        let fresh =
            client(&self.config, &self.identity, &self.in_flight).map_err(|error| error.with_kind(Kind::Retry))?;
        self.lost.renew(fresh.client().context().contact.clone());
        let old = std::mem::replace(current, fresh);
        self.health.count_replacement(crate::Client::Producer, reason);
        // The drop waits for the client's thread, so it runs on another thread, or here if none can be started.
        let _ = thread::Builder::new().name("closing".into()).spawn(move || drop(old));
        Ok(())
    }

    /// Flushes for at most [`FLUSH_WAIT`], then ends the client; records still in flight are answered with `Kind::Unknown`.
    pub(super) fn close(self) {
        let client = self.client.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = client.flush(FLUSH_WAIT) {
            tracing::warn!(topic = self.topic, %error, "appends are still in flight at the close; their outcome is unknown");
        }
    }

    /// The error for a record that librdkafka did not enqueue.
    fn refusal(&self, partition: PartitionId, error: KafkaError) -> Error {
        let (kind, what) = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => (Kind::Retry, "the producer's queue is full"),
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => (Kind::Invalid, "the record is too large"),
            Some(RDKafkaErrorCode::Fatal) => (Kind::Fatal, "the producer has failed permanently"),
            _ => (Kind::Retry, "the producer refuses the record"),
        };
        Error::new(kind, &self.topic, what).in_partition(partition).because(error)
    }
}

fn client(config: &KafkaConfig, identity: &Identity, in_flight: &Arc<InFlight>) -> Result<Client, Error> {
    let (topic, identity) = (config.topic.clone(), identity.clone());
    let context = DeliveryContext {
        topic,
        identity,
        contact: Contact::default(),
        refusals: Refusals::default(),
        in_flight: Arc::clone(in_flight),
    };
    let client = config.client(Role::Producer)?.create_with_context(context);
    client.map_err(|error| context::map_creation_error(&config.topic, error))
}

fn record<'a>(
    topic: &'a str,
    partition: PartitionId,
    entry: &'a Entry,
    opaque: Box<RecordOpaque>,
) -> BaseRecord<'a, [u8], [u8], Box<RecordOpaque>> {
    let mut record = BaseRecord::with_opaque_to(topic, opaque).partition(partition.signed()).payload(&entry.value[..]);
    if !entry.key.is_empty() {
        record = record.key(&entry.key[..]);
    }
    if entry.headers.is_empty() {
        return record;
    }
    let headers = OwnedHeaders::new_with_capacity(entry.headers.len());
    let headers = entry
        .headers
        .iter()
        .fold(headers, |headers, (name, value)| headers.insert(Header { key: name, value: Some(&value[..]) }));
    record.headers(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Log, kafka::KafkaLog};
    use rdkafka::{
        mocking::MockCluster,
        producer::DefaultProducerContext,
        types::{RDKafkaApiKey, RDKafkaRespErr},
    };

    const TOPIC: &str = "t";

    /// A broker within librdkafka, with a topic of one partition, and a log on it.
    fn mocked() -> (MockCluster<'static, DefaultProducerContext>, KafkaLog) {
        let brokers = MockCluster::new(1).unwrap();
        brokers.create_topic(TOPIC, 1, 1).unwrap();
        let log = KafkaLog::connect(KafkaConfig::new(brokers.bootstrap_servers(), TOPIC)).unwrap();
        (brokers, log)
    }

    fn append(log: &KafkaLog) -> crate::Ack {
        let entry = Entry { value: b"v".to_vec(), ..Entry::default() };
        log.append(PartitionId::ZERO, vec![entry])
    }

    #[tokio::test]
    async fn an_append_that_is_refused_after_a_lost_acknowledgement_is_unknown() {
        let (brokers, log) = mocked();
        for refusal in [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        ] {
            let lost = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND;
            brokers.request_errors(RDKafkaApiKey::Produce, &[lost, refusal]);
            let error = append(&log).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Unknown, "{refusal:?}: {error}");
        }
    }

    #[tokio::test]
    async fn appends_continue_after_the_producer_failed_permanently() {
        let (brokers, log) = mocked();
        let fatal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        for expected in 0..3 {
            brokers.request_errors(RDKafkaApiKey::Produce, &[fatal]);
            let failed = append(&log).await.unwrap_err();
            assert_eq!(failed.kind(), Kind::Unknown, "it was in flight: {failed}");
            let offsets = append(&log).await.expect("a new producer");
            assert_eq!(offsets.iter().map(|offset| offset.get()).collect::<Vec<_>>(), [expected]);
        }
    }

    #[tokio::test]
    async fn a_new_producer_waits_for_the_records_in_flight_of_the_failed_producer() {
        let (brokers, log) = mocked();
        let fatal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        brokers.request_errors(RDKafkaApiKey::Produce, &[fatal]);
        append(&log).await.unwrap_err();
        let producer = log.producer.as_ref().unwrap();
        assert!(producer.in_flight.reserve(1, 1));
        let refused = append(&log).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Retry, "nothing happened: {refused}");
        producer.in_flight.release(1, 1);
        append(&log).await.unwrap();
    }

    #[tokio::test]
    async fn a_producer_that_lost_all_brokers_is_replaced_and_its_appends_are_unknown() {
        let (brokers, log) = mocked();
        append(&log).await.unwrap();
        brokers.broker_down(1).unwrap();
        let in_flight = append(&log);
        let lost = log.producer.as_ref().unwrap().lost();
        let start = std::time::Instant::now();
        let generation = loop {
            if let Some((generation, _)) = lost.lost_since() {
                break generation;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "contact is not lost");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        lost.request_replacement(generation);
        assert_eq!(in_flight.await.unwrap_err().kind(), Kind::Unknown);
        brokers.broker_up(1).unwrap();
        append(&log).await.expect("a new producer");
        assert_eq!(log.clients().replaced.get(&crate::Client::Producer), Some(&1));
    }
}
