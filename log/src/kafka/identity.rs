//! The topic's identity. A topic that was deleted and created again has the same name, another id, and other records at the
//! same offsets.
//!
//! librdkafka (2.12) fetches by the topic's id. When the metadata contains a new id, it continues at the same offset of the
//! new topic. It does not expose the id to the application. But it logs a debug line about the change before it uses the new
//! id. The line is in the queue of fetched records, before the new topic's records. So this module reads the line from the
//! producer and from every consumer of a log. Brokers without topic ids
//! (before Kafka 3.1) cause no such line: the log then notices the new topic by its end offset, or at a restart.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use crate::error::{Error, Kind};

/// The topic id of brokers without topic ids: 16 zero bytes.
const NO_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// The message about a topic that another topic replaced.
pub(super) const REPLACED: &str = "the topic was deleted and created again, so it is no longer the opened log";

/// The topic id of a log at its opening, and whether the id has changed since. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Identity(Arc<State>);

#[derive(Debug)]
struct State {
    topic: String,
    /// The first id that a client logged, in the form of Kafka's own tools.
    id: OnceLock<String>,
    replaced: AtomicBool,
}

impl Identity {
    pub(super) fn new(topic: &str) -> Self {
        Self(Arc::new(State { topic: topic.to_owned(), id: OnceLock::new(), replaced: AtomicBool::new(false) }))
    }

    /// Reads a log line of librdkafka, and marks the topic as replaced if its id has changed.
    pub(super) fn observe(&self, line: &str) {
        let State { topic, id, replaced } = &*self.0;
        let Some((_, change)) = line.split_once(&format!("Topic {topic} changed id from ")) else { return };
        let Some((_, new_id)) = change.split_once(" to ") else { return };
        if new_id == NO_ID {
            return;
        }
        let new_id = url_safe(new_id);
        let old_id = id.get_or_init(|| new_id.clone());
        if *old_id != new_id && !replaced.swap(true, Ordering::SeqCst) {
            tracing::error!(topic, old_id, new_id, "{REPLACED}");
        }
    }

    /// Returns the topic's id at the opening, as Kafka's own tools print it. `None` if no client has logged an id.
    pub(super) fn id(&self) -> Option<&str> {
        self.0.id.get().map(String::as_str)
    }

    /// Fails if the topic was replaced since the log was opened.
    pub(super) fn check(&self) -> Result<(), Error> {
        if !self.0.replaced.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::new(Kind::Replaced, &self.0.topic, REPLACED))
    }
}

/// Converts a topic id. librdkafka logs base64 in the standard alphabet, and Kafka's own tools print the URL-safe alphabet.
fn url_safe(id: &str) -> String {
    id.replace('+', "-").replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_topic_id_makes_it_another_log() {
        let identity = Identity::new("t");
        let tell = |from: &str, to: &str, topic: &str| {
            identity.observe(&format!("[thrd:main]: Topic {topic} changed id from {from} to {to}"));
            identity.check().is_ok()
        };
        assert!(tell("AAAAAAAAAAAAAAAAAAAAAA", "one", "t"), "the first id");
        assert!(tell("AAAAAAAAAAAAAAAAAAAAAA", "one", "t"), "another client logs the same id");
        assert!(tell("one", "two", "other") && tell("one", "two", "tt"), "other topics");
        assert!(!tell("one", "two", "t"));
        assert!(!tell("two", "one", "t"), "the topic stays replaced");
        assert_eq!(identity.check().unwrap_err().kind(), Kind::Replaced);
    }
    #[test]
    fn the_first_id_is_kept_in_the_form_of_kafkas_own_tools() {
        let identity = Identity::new("t");
        let tell =
            |from: &str, to: &str| identity.observe(&format!("[thrd:main]: Topic t changed id from {from} to {to}"));
        assert_eq!(identity.id(), None);
        tell(NO_ID, NO_ID);
        assert_eq!(identity.id(), None, "brokers without topic ids");
        tell(NO_ID, "XvNFJqY8S9+aPtxsJ/VgvA");
        assert_eq!(identity.id(), Some("XvNFJqY8S9-aPtxsJ_VgvA"));
        tell("XvNFJqY8S9+aPtxsJ/VgvA", "other");
        assert_eq!(identity.id(), Some("XvNFJqY8S9-aPtxsJ_VgvA"), "the opened log");
        assert!(identity.check().is_err());
    }
}
