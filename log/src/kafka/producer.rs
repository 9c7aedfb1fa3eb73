//! Appends. A batch enters librdkafka's queue as a whole. Its acknowledgement resolves with the delivery of its last record.
//!
//! librdkafka's idempotent producer can fail for good. The next append then replaces the client, after all records of the
//! failed client are answered. So appends stay in order, and the callers of records in flight get `Kind::Unknown`. A client
//! that lost all brokers (see `contact`) is replaced in the same way, after a purge of its queue.

use std::{
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rdkafka::{
    ClientContext, Message,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer},
};
use tokio::sync::oneshot;

use super::{
    KafkaConfig,
    config::Role,
    contact::{Contact, LostProducer},
    context::{self, Refusals, Topic},
    health::Health,
    identity::Identity,
};
use crate::{BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, Entry, Error, Kind, Offset, PartitionId};

/// The records and bytes that may be in flight; further appends are refused. librdkafka's own limits are far higher, so that
/// it never refuses a part of a batch.
const ENTRIES_MAX: usize = 100_000;
const BYTES_MAX: usize = 64 << 20;
const _: () = assert!(ENTRIES_MAX >= BATCH_ENTRIES_MAX && BYTES_MAX >= BATCH_BYTES_MAX);

/// Time limit of the flush at the close.
const FLUSH_WAIT: Duration = Duration::from_secs(5);

type Outcome = Result<Vec<Offset>, Error>;

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
        if self.in_flight.entries.load(Ordering::Acquire) == 0 {
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

/// The opaque value of a record in librdkafka: the target of its delivery report.
struct RecordOpaque {
    batch: Arc<Batch>,
    partition: PartitionId,
    index: usize,
    bytes: usize,
}

/// The records and bytes in flight.
#[derive(Default)]
struct InFlight {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

impl InFlight {
    /// Adds a batch unless it would exceed the limits. Returns whether it was added.
    fn reserve(&self, entries: usize, bytes: usize) -> bool {
        let fits = self.entries.fetch_add(entries, Ordering::Relaxed) + entries <= ENTRIES_MAX;
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= BYTES_MAX && fits;
        if !fits {
            self.release(entries, bytes);
        }
        fits
    }

    fn release(&self, entries: usize, bytes: usize) {
        self.entries.fetch_sub(entries, Ordering::Release);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Collects the delivery reports of a batch's records.
struct Batch(Mutex<DeliveryReports>);

struct DeliveryReports {
    offsets: Vec<Offset>,
    pending: usize,
    landed: bool,
    failure: Option<Error>,
    ack: Option<oneshot::Sender<Outcome>>,
}

impl Batch {
    fn new(entries: usize) -> (Self, oneshot::Receiver<Outcome>) {
        let (ack, acked) = oneshot::channel();
        let reports = DeliveryReports {
            offsets: vec![Offset::ZERO; entries],
            pending: entries,
            landed: false,
            failure: None,
            ack: Some(ack),
        };
        (Self(Mutex::new(reports)), acked)
    }

    fn answer(&self, index: usize, answer: Result<Offset, Error>) {
        let mut reports = self.0.lock().expect("a delivery panicked");
        match answer {
            Ok(offset) => {
                reports.offsets[index] = offset;
                reports.landed = true;
            }
            Err(error) => reports.record_failure(error),
        }
        reports.pending -= 1;
        reports.resolve();
    }

    /// Records that the last `count` records were not enqueued.
    fn abandon(&self, count: usize, error: Error) {
        let mut reports = self.0.lock().expect("a delivery panicked");
        reports.record_failure(error);
        reports.pending -= count;
        reports.resolve();
    }
}

impl DeliveryReports {
    /// Keeps the first failure. A later failure of kind `Unknown` replaces it: then the outcome of the batch is unknown too.
    fn record_failure(&mut self, error: Error) {
        let first_is_certain = self.failure.as_ref().is_some_and(|first| !may_have_landed(first));
        if self.failure.is_none() || (first_is_certain && may_have_landed(&error)) {
            self.failure = Some(error);
        }
    }

    fn resolve(&mut self) {
        if self.pending > 0 {
            return;
        }
        let Some(ack) = self.ack.take() else { return };
        let outcome = match self.failure.take() {
            None => Ok(std::mem::take(&mut self.offsets)),
            Some(error) if self.landed => Err(error.with_kind(Kind::Unknown)),
            Some(error) => Err(error),
        };
        // The send fails if the caller has dropped the acknowledgement.
        let _ = ack.send(outcome);
    }
}

/// Whether the record may have landed.
fn may_have_landed(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unknown)
}

/// Receives librdkafka's delivery reports, on the producer's own thread.
struct DeliveryContext {
    topic: String,
    identity: Identity,
    contact: Contact,
    refusals: Refusals,
    in_flight: Arc<InFlight>,
}

impl DeliveryContext {
    /// Returns the outcome of one record. Every error is of kind `Unknown`: librdkafka reports the error of its last try, and
    /// an earlier try, whose acknowledgement was lost, may have landed.
    fn answer(&self, partition: PartitionId, result: &DeliveryResult<'_>) -> Result<Offset, Error> {
        match result {
            Ok(message) => Offset::from_signed(message.offset()).map_err(|why| {
                let what = "the record landed, but its offset is unknown";
                Error::new(Kind::Unknown, &self.topic, what).in_partition(partition).because(why)
            }),
            Err((error, _)) => {
                let what = match error.rdkafka_error_code() {
                    Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge) => {
                        "the brokers refuse a record of this size, and an earlier try may have landed"
                    }
                    Some(RDKafkaErrorCode::InvalidRecord) => {
                        "the brokers refuse the record, and an earlier try may have landed"
                    }
                    Some(code) if context::is_forbidden(code) => {
                        "the brokers do not allow appends, and an earlier try may have landed"
                    }
                    Some(RDKafkaErrorCode::MessageTimedOut) => {
                        "the append was not acknowledged in time and may have landed"
                    }
                    _ => "the append failed and may have landed",
                };
                Err(Error::new(Kind::Unknown, &self.topic, what).in_partition(partition).because(error.clone()))
            }
        }
    }
}

impl ClientContext for DeliveryContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        context::log(Some(&self.identity), &self.contact, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        context::log_error(&self.refusals, &error, reason);
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = Box<RecordOpaque>;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: Box<RecordOpaque>) {
        self.in_flight.release(1, opaque.bytes);
        opaque.batch.answer(opaque.index, self.answer(opaque.partition, result));
    }
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

    fn error(kind: Kind) -> Error {
        Error::new(kind, "t", "it failed")
    }

    #[tokio::test]
    async fn appends_go_on_after_the_producer_failed_for_good() {
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
    async fn a_new_producer_waits_for_what_the_failed_one_has_in_flight() {
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

    #[tokio::test]
    async fn a_batch_of_which_any_record_may_have_landed_is_unknown() {
        for first in [Kind::Invalid, Kind::Retry, Kind::Fatal] {
            let (batch, acked) = Batch::new(2);
            batch.answer(0, Err(error(first)));
            batch.answer(1, Err(error(Kind::Unknown)));
            assert_eq!(acked.await.unwrap().unwrap_err().kind(), Kind::Unknown, "{first:?}, then unknown");

            let (batch, acked) = Batch::new(3);
            batch.abandon(2, error(first));
            batch.answer(0, Err(error(Kind::Unknown)));
            assert_eq!(acked.await.unwrap().unwrap_err().kind(), Kind::Unknown, "{first:?} of the rest");

            let (batch, acked) = Batch::new(2);
            batch.answer(0, Err(error(first)));
            batch.answer(1, Ok(Offset::ZERO));
            assert_eq!(acked.await.unwrap().unwrap_err().kind(), Kind::Unknown, "{first:?}, and one landed");
        }
    }

    #[tokio::test]
    async fn a_batch_of_which_nothing_can_have_landed_says_why() {
        let (batch, acked) = Batch::new(2);
        batch.answer(0, Err(error(Kind::Invalid)));
        batch.answer(1, Err(error(Kind::Retry)));
        assert_eq!(acked.await.unwrap().unwrap_err().kind(), Kind::Invalid);
    }
}
