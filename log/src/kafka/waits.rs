//! Waits of bounded length: for a topic that becomes usable, and for the end of a client.

use super::{config::KafkaConfig, context::Topic};
use crate::{
    ending::within,
    error::{Error, Kind},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Time limit of one exchange with the cluster if the caller gives no deadline.
pub(super) const REQUEST_WAIT: Duration = Duration::from_secs(10);

/// After brokers have reported a topic as unknown for this time, it counts as missing. A broker may learn of a new topic
/// later than the others.
pub(super) const MISSING_WAIT: Duration = Duration::from_secs(5);

/// Like [`MISSING_WAIT`], for an operator's query about an existing topic: the whole answer may take 5 seconds.
pub(super) const GONE_WAIT: Duration = Duration::from_secs(2);

/// Time limit for closing a client. After it, the client's thread is left running.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// Reads the topic's metadata until the topic can be used. Returns `None` after brokers have reported for `missing_wait` that it
/// does not exist: the metadata of a new topic reaches brokers at different times.
pub(super) fn await_topic<T>(
    config: &KafkaConfig,
    missing_wait: Duration,
    ask: impl Fn(Duration) -> Result<Topic<T>, Error>,
) -> Result<Option<T>, Error> {
    let (start, mut missing) = (Instant::now(), None);
    loop {
        let unready = match ask(REQUEST_WAIT.saturating_sub(start.elapsed()))? {
            Topic::Ready(answer) => return Ok(Some(answer)),
            Topic::Missing => {
                if missing.get_or_insert_with(Instant::now).elapsed() >= missing_wait {
                    return Ok(None);
                }
                "the queried broker does not know the topic yet"
            }
            Topic::Unready => {
                missing = None;
                "some of the topic's partitions have no leader"
            }
        };
        thread::sleep(Duration::from_millis(50));
        if start.elapsed() >= REQUEST_WAIT {
            return Err(Error::new(Kind::Retry, &config.topic, unready));
        }
    }
}

/// The error for a topic that does not exist.
pub(super) fn missing(config: &KafkaConfig) -> Error {
    Error::new(Kind::Invalid, &config.topic, format!("there is no such topic at {}", config.brokers))
}

/// Closes a client within [`CLOSE_WAIT`]. The close can hang in librdkafka.
pub(super) fn close(topic: &str, what: &'static str, end: impl FnOnce() + Send + 'static) {
    if !within(CLOSE_WAIT, end) {
        tracing::error!(topic, "a kafka {what} did not close in time; its thread is left running");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Topic::{Missing, Ready, Unready};
    use std::cell::RefCell;

    /// Returns the result of [`await_topic`] for these answers of brokers, in order.
    fn awaited(answers: Vec<Topic<()>>, missing_wait: Duration) -> Option<()> {
        let answers = RefCell::new(answers.into_iter());
        let ask = |_| Ok(answers.borrow_mut().next().unwrap());
        await_topic(&KafkaConfig::new("localhost:1", "t"), missing_wait, ask).unwrap()
    }

    #[test]
    fn a_topic_counts_as_missing_only_after_brokers_have_said_so_for_a_while() {
        let wait = Duration::from_millis(20);
        assert_eq!(awaited(vec![Missing], Duration::ZERO), None);
        assert_eq!(awaited(vec![Missing, Missing], wait), None);
        assert_eq!(awaited(vec![Missing, Ready(())], wait), Some(()));
        assert_eq!(awaited(vec![Missing, Unready, Missing, Ready(())], wait), Some(()));
    }
}
