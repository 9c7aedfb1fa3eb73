//! Detects from librdkafka's debug lines that a client has no usable broker.
//!
//! librdkafka (2.10 to 2.15) drops a broker that a metadata response does not list. A cluster whose only broker is fenced
//! lists none: after a pause of its broker, for example. librdkafka then bootstraps again, unless a race cancels that
//! (its issue 5301). Such a client stays without a broker, reports no error, and repeats only the debug line read here.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// When a client lost its last broker. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Contact(Arc<Mutex<Option<Instant>>>);

impl Contact {
    /// Reads a line of librdkafka's log.
    pub(super) fn observe(&self, line: &str) {
        if line.contains("no usable brokers") {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        } else if line.contains("===== Received metadata") {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Returns the time since which the client has no broker, or `None` if it has one.
    pub(super) fn lost_since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The producer's contact and the bounds client's verdict about it.
#[derive(Debug, Default)]
pub(super) struct LostProducer(Mutex<Watched>);

#[derive(Debug, Default)]
struct Watched {
    contact: Contact,
    /// Counts producers, so that a verdict about a replaced one does not hit its successor.
    generation: u64,
    verdict: Verdict,
}

/// Whether the producer must be replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verdict {
    #[default]
    Keep,
    Replace,
    /// Its queue is purged: it must not be used again, even if it finds a broker.
    Purged,
}

impl LostProducer {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to watch a new producer, which has its own contact.
    pub(super) fn renew(&self, contact: Contact) {
        let mut watched = self.watched();
        *watched = Watched { contact, generation: watched.generation + 1, verdict: Verdict::Keep };
    }

    /// Returns the producer's generation and the time since which it has no broker, or `None` if it has one.
    pub(super) fn lost_since(&self) -> Option<(u64, Instant)> {
        let watched = self.watched();
        Some((watched.generation, watched.contact.lost_since()?))
    }

    /// Marks the producer of `generation` for replacement.
    pub(super) fn request_replacement(&self, generation: u64) {
        let mut watched = self.watched();
        if watched.generation == generation && watched.verdict == Verdict::Keep {
            watched.verdict = Verdict::Replace;
        }
    }

    /// Keeps a producer that found a broker, unless it is already purged.
    pub(super) fn cancel_replacement(&self) {
        let mut watched = self.watched();
        if watched.verdict == Verdict::Replace {
            watched.verdict = Verdict::Keep;
        }
    }

    pub(super) fn must_replace(&self) -> bool {
        self.watched().verdict != Verdict::Keep
    }

    /// Like [`Self::must_replace`], for a caller that then purges the producer: marks it as purged.
    pub(super) fn must_purge(&self) -> bool {
        let mut watched = self.watched();
        if watched.verdict != Verdict::Keep {
            watched.verdict = Verdict::Purged;
        }
        watched.verdict == Verdict::Purged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{KafkaConfig, config::Role, context::Context};
    use rdkafka::{
        Offset, TopicPartitionList,
        consumer::{BaseConsumer, Consumer},
        error::{KafkaError, RDKafkaErrorCode},
        mocking::MockCluster,
        producer::DefaultProducerContext,
    };
    use std::time::Duration;

    const TOPIC: &str = "t";

    /// Polls until `seen` is true of an event.
    fn poll_until(consumer: &BaseConsumer<Context>, what: &str, mut seen: impl FnMut(Option<KafkaError>) -> bool) {
        let start = Instant::now();
        while !seen(consumer.poll(Duration::from_millis(50)).and_then(Result::err)) {
            assert!(start.elapsed() < Duration::from_secs(60), "no {what}");
        }
    }

    #[test]
    fn a_verdict_does_not_hit_the_next_producer_and_holds_once_it_is_purged() {
        let lost = LostProducer::default();
        lost.renew(Contact::default());
        let contact = Contact::default();
        lost.renew(contact.clone());
        contact.observe("Skipping metadata refresh of 1 topic(s): leader query: no usable brokers");
        let (generation, _) = lost.lost_since().unwrap();
        lost.request_replacement(generation - 1);
        assert!(!lost.must_replace(), "a verdict about its predecessor");
        lost.request_replacement(generation);
        lost.cancel_replacement();
        assert!(!lost.must_replace(), "it found a broker");
        lost.request_replacement(generation);
        assert!(lost.must_replace() && lost.must_purge());
        lost.cancel_replacement();
        assert!(lost.must_replace(), "it is purged");
        lost.renew(Contact::default());
        assert!(!lost.must_replace());
    }

    /// Fails if librdkafka was built with its CMake files. They (2.12) do not configure atomic exchange. librdkafka then
    /// neither reports that all brokers are down nor bootstraps again.
    #[test]
    fn a_consumer_whose_only_broker_is_down_reports_it_and_has_lost_contact_until_it_is_back() {
        let brokers: MockCluster<'static, DefaultProducerContext> = MockCluster::new(1).unwrap();
        brokers.create_topic(TOPIC, 1, 1).unwrap();
        let config = KafkaConfig::new(brokers.bootstrap_servers(), TOPIC);
        let consumer = config.client(Role::Reader).unwrap().create_with_context(Context::default());
        let consumer: BaseConsumer<Context> = consumer.unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(TOPIC, 0, Offset::Beginning).unwrap();
        consumer.incremental_assign(&list).unwrap();
        poll_until(&consumer, "end of the partition", |event| matches!(event, Some(KafkaError::PartitionEOF(0))));
        let contact = consumer.context().contact.clone();
        assert!(contact.lost_since().is_none());
        brokers.broker_down(1).unwrap();
        poll_until(&consumer, "report", |event| {
            event.and_then(|event| event.rdkafka_error_code()) == Some(RDKafkaErrorCode::AllBrokersDown)
        });
        poll_until(&consumer, "lost contact", |_| contact.lost_since().is_some());
        brokers.broker_up(1).unwrap();
        poll_until(&consumer, "contact", |_| contact.lost_since().is_none());
    }
}
