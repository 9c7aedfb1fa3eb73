//! Code that all clients share: the logging of librdkafka's messages, and the mapping of its errors.

use rdkafka::{
    ClientContext,
    client::Client,
    config::RDKafkaLogLevel,
    consumer::ConsumerContext,
    error::{KafkaError, RDKafkaErrorCode},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{contact::Contact, identity::Identity};
use crate::error::{Error, Kind};

/// The context of the clients that do not produce.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    /// The identity of the log's topic; `None` for admin and bounds clients.
    pub(super) identity: Option<Identity>,
    pub(super) contact: Contact,
    pub(super) refusals: Refusals,
}

/// The last reason that librdkafka reported for a refused connection: the cluster rejected the client, or the client did not
/// trust the cluster. librdkafka's request errors contain only that there is no connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Mutex<Option<String>>>);

impl Refusals {
    /// Adds the reported reason to an error, if there is one.
    pub(super) fn explain(&self, error: Error) -> Error {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(reason) => error.because(reason),
            None => error,
        }
    }

    fn record(&self, error: &KafkaError, reason: &str) {
        let is_refusal = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::SSL | RDKafkaErrorCode::Authentication) => true,
            // librdkafka suggests that only one side uses TLS.
            Some(RDKafkaErrorCode::BrokerTransportFailure) => reason.contains("security.protocol"),
            _ => false,
        };
        if is_refusal {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(self.identity.as_ref(), &self.contact, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_error(&self.refusals, &error, reason);
    }
}

impl ConsumerContext for Context {}

/// Forwards warnings and errors to tracing. Debug lines are enabled only because `identity` and `contact` read some of them.
pub(super) fn log(
    identity: Option<&Identity>,
    contact: &Contact,
    level: RDKafkaLogLevel,
    facility: &str,
    message: &str,
) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::error!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {}
        RDKafkaLogLevel::Debug => {
            identity.into_iter().for_each(|identity| identity.observe(message));
            contact.observe(message);
        }
    }
}

/// Records and logs an error of a client, such as a lost connection, after which the client recovers by itself.
pub(super) fn log_error(refusals: &Refusals, error: &KafkaError, reason: &str) {
    refusals.record(error, reason);
    if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
        tracing::warn!(target: "librdkafka", %error, "{reason}");
    }
}

/// The state of the topic. `Ready` contains its partition count or another answer of the cluster.
pub(super) enum Topic<T = u32> {
    Missing,
    /// A partition has no leader yet.
    Unready,
    Ready(T),
}

/// Reads the topic's metadata, which does not create the topic.
pub(super) fn read_topic<C: ClientContext>(client: &Client<C>, topic: &str, wait: Duration) -> Result<Topic, Error> {
    let metadata = client.fetch_metadata(Some(topic), wait.max(Duration::from_millis(1)));
    let metadata = metadata.map_err(|error| map_error(topic, "cannot read the metadata of the topic", error))?;
    let Some(topic_metadata) = metadata.topics().iter().find(|each| each.name() == topic) else {
        return Ok(Topic::Missing);
    };
    match topic_metadata.error().map(RDKafkaErrorCode::from) {
        None if topic_metadata.partitions().iter().any(|partition| partition.leader() < 0) => Ok(Topic::Unready),
        None => Ok(Topic::Ready(topic_metadata.partitions().len() as u32)),
        Some(RDKafkaErrorCode::UnknownTopicOrPartition) => Ok(Topic::Missing),
        Some(RDKafkaErrorCode::LeaderNotAvailable) => Ok(Topic::Unready),
        Some(code) => Err(map_error(
            topic,
            "the cluster refuses access to the metadata of the topic",
            KafkaError::MetadataFetch(code),
        )),
    }
}

/// Maps the error of a call that has no effect.
pub(super) fn map_error(topic: &str, what: &str, source: KafkaError) -> Error {
    let kind = match source.rdkafka_error_code() {
        Some(RDKafkaErrorCode::Fatal) => Kind::Fatal,
        Some(code) if is_forbidden(code) => Kind::Fatal,
        Some(RDKafkaErrorCode::InvalidTopic) => Kind::Invalid,
        _ => Kind::Retry,
    };
    Error::new(kind, topic, what).because(source)
}

/// Maps the error of a failed client creation. Only the client's properties can cause it.
pub(super) fn map_creation_error(topic: &str, source: KafkaError) -> Error {
    Error::new(Kind::Invalid, topic, "the kafka client's configuration is invalid").because(source)
}

/// Whether an operator must grant a permission. A failed authentication is not included: a restarting broker can cause it,
/// and librdkafka retries.
pub(super) fn is_forbidden(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed)
}
