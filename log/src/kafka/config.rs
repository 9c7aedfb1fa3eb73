//! The configuration of the clients, and the properties of librdkafka that users may not change.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use rdkafka::{ClientConfig, config::RDKafkaLogLevel};

use crate::{
    LABEL_BYTES_MAX, VALUE_BYTES_MAX,
    error::{Error, Kind},
};

/// The largest message that our producer sends, bytes: a value, its key and headers, and the batch's framing.
pub(super) const MESSAGE_BYTES_MAX: usize = VALUE_BYTES_MAX + 2 * LABEL_BYTES_MAX;

/// The address of the journal's topic.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaConfig {
    /// `HOST:PORT`, several separated by commas.
    pub brokers: String,
    /// The topic.
    pub topic: String,
    /// Properties of librdkafka for every client, mostly for security. Properties on which the log's guarantees depend are
    /// refused. `NAME_file`, such as `sasl.password_file`, names a file with the value of NAME. Each client reads it. Only its
    /// owner may have access.
    pub properties: BTreeMap<String, String>,
    isolation: Isolation,
}

/// Which records of foreign transactions the clients read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Isolation {
    /// All. A foreign transaction that stays open does not hold up the journal, which writes no transactions.
    #[default]
    Uncommitted,
    /// The committed records. A mirror needs it: MirrorMaker writes the records of an aborted transaction a second time.
    Committed,
}

impl Isolation {
    /// The value of `isolation.level`.
    fn level(self) -> &'static str {
        match self {
            Self::Uncommitted => "read_uncommitted",
            Self::Committed => "read_committed",
        }
    }
}

/// The task of a client.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Producer,
    Reader,
    /// Requests bounds and metadata: a consumer without assigned partitions.
    Metadata,
    /// Requests the ids of the topic and its cluster: like `Metadata`, with debug lines.
    Identity,
    /// Creates topics and reads their configuration.
    Admin,
}

/// Properties on which the log's guarantees depend.
const FIXED: [(&str, &str); 2] = [("allow.auto.create.topics", "false"), ("client.id", "runlog")];

const FIXED_PRODUCER: [(&str, &str); 5] = [
    ("enable.idempotence", "true"),
    ("acks", "all"),
    // Above the limits in producer.rs, so that librdkafka never refuses the rest of a batch.
    ("queue.buffering.max.messages", "400000"),
    ("queue.buffering.max.kbytes", "262144"),
    ("delivery.report.only.error", "false"),
];

const FIXED_READER: [(&str, &str); 5] = [
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("auto.offset.reset", "error"),
    ("check.crcs", "true"),
    ("enable.partition.eof", "true"),
];

/// Set for readers and for the bounds client, which must agree about the end of a partition: the high watermark, or the last stable
/// offset if committed records are read.
const ISOLATION: &str = "isolation.level";

/// Other names of fixed properties, and properties that users may not set.
const REFUSED: [&str; 9] = [
    ISOLATION,
    // `identity` reads a debug line about a changed topic id.
    "debug",
    "log_level",
    "bootstrap.servers",
    "metadata.broker.list",
    "request.required.acks",
    "message.max.bytes",
    "api.version.request",
    // The records of a transactional producer are not in the log before its commit, and this producer never commits.
    "transactional.id",
];

/// The two names of the property that bounds the wait for an append's acknowledgement, and its allowed range, ms. 0 means
/// no bound.
const DELIVERY_TIMEOUT: [&str; 2] = ["delivery.timeout.ms", "message.timeout.ms"];
const DELIVERY_TIMEOUT_MS: RangeInclusive<u64> = 1_000..=300_000;

const DEFAULTS: [(&str, &str); 4] = [
    ("socket.keepalive.enable", "true"),
    ("reconnect.backoff.max.ms", "2000"),
    ("retry.backoff.max.ms", "500"),
    // After this an idle client notices that the topic was deleted and created again.
    ("topic.metadata.refresh.interval.ms", "10000"),
];

const DEFAULTS_PRODUCER: [(&str, &str); 4] = [
    ("linger.ms", "0"),
    ("compression.type", "lz4"),
    // After this time every append is answered.
    ("delivery.timeout.ms", "30000"),
    ("request.timeout.ms", "10000"),
];

const DEFAULTS_READER: [(&str, &str); 7] = [
    // Only names the client to the brokers: partitions are assigned by hand, and no offsets are committed.
    ("group.id", "runlog-reader"),
    ("queued.min.messages", "100000"),
    ("queued.max.messages.kbytes", "32768"),
    ("fetch.max.bytes", "16777216"),
    // With the default, fetching pauses for a second after the queue was full.
    ("fetch.queue.backoff.ms", "5"),
    ("fetch.error.backoff.ms", "100"),
    // This also bounds the delay after which a position moves past control records at the end.
    ("fetch.wait.max.ms", "100"),
];

impl KafkaConfig {
    /// A topic on a cluster without further client properties.
    pub fn new(brokers: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: topic.into(),
            properties: BTreeMap::new(),
            isolation: Isolation::default(),
        }
    }

    /// The same topic, read committed.
    pub(super) fn committed(self) -> Self {
        Self { isolation: Isolation::Committed, ..self }
    }

    pub(super) fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Sets a property of librdkafka for every client.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Returns librdkafka's configuration for a client of this role.
    pub(super) fn client(&self, role: Role) -> Result<ClientConfig, Error> {
        let properties = self.resolved()?;
        self.refuse_fixed(&properties)?;
        let (defaults, fixed): (&[_], &[_]) = match role {
            Role::Producer => (&DEFAULTS_PRODUCER, &FIXED_PRODUCER),
            Role::Reader => (&DEFAULTS_READER, &FIXED_READER),
            Role::Metadata | Role::Identity | Role::Admin => (&[], &[]),
        };
        let mut client = ClientConfig::new();
        // Producer and readers are polled all the time, which removes the debug lines from their queues. `Identity` is
        // short-lived.
        let identifies = matches!(role, Role::Producer | Role::Reader | Role::Identity);
        client.set_log_level(if identifies { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Warning });
        for (name, value) in DEFAULTS.iter().chain(defaults) {
            client.set(*name, *value);
        }
        client.extend(properties);
        for (name, value) in FIXED.iter().chain(fixed) {
            client.set(*name, *value);
        }
        if matches!(role, Role::Reader | Role::Metadata | Role::Identity) {
            client.set(ISOLATION, self.isolation.level());
        }
        client.set("bootstrap.servers", &self.brokers);
        if identifies {
            // See `identity.rs`.
            client.set("debug", "metadata");
        }
        match role {
            Role::Producer => client.set("message.max.bytes", MESSAGE_BYTES_MAX.to_string()),
            Role::Reader => &mut client,
            // With a group, the client would be a group consumer, which must be polled and closed as such.
            Role::Metadata | Role::Identity | Role::Admin => client.remove("group.id"),
        };
        Ok(client)
    }

    fn refuse_fixed(&self, properties: &BTreeMap<String, String>) -> Result<(), Error> {
        let fixed = FIXED.iter().chain(&FIXED_PRODUCER).chain(&FIXED_READER).map(|(name, _)| *name);
        let mut fixed = fixed.chain(REFUSED);
        for name in DELIVERY_TIMEOUT {
            let Some(value) = properties.get(name) else { continue };
            if !value.parse().is_ok_and(|millis| DELIVERY_TIMEOUT_MS.contains(&millis)) {
                let (min, max) = (DELIVERY_TIMEOUT_MS.start(), DELIVERY_TIMEOUT_MS.end());
                let what = format!("the client property {name} is {value}, not within {min} to {max}");
                return Err(Error::new(Kind::Invalid, &self.topic, what));
            }
        }
        match fixed.find(|name| properties.contains_key(*name)) {
            Some(name) => {
                let what = format!(
                    "the client property {name} cannot be set, because the log's guarantees depend on it; remove it"
                );
                Err(Error::new(Kind::Invalid, &self.topic, what))
            }
            None => Ok(()),
        }
    }
}

/// Properties hold passwords: only their names are shown.
impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("properties", &self.properties.keys())
            .field("isolation", &self.isolation)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_on_which_a_guarantee_depends_is_refused_by_name() {
        for name in ["acks", "auto.offset.reset", "bootstrap.servers", "isolation.level"] {
            let error = KafkaConfig::new("b:1", "t").with(name, "x").client(Role::Reader).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn an_append_is_neither_transactional_nor_unbounded() {
        let made = |name: &str, value: &str| KafkaConfig::new("b:1", "t").with(name, value).client(Role::Producer);
        assert_eq!(made("transactional.id", "x").unwrap_err().kind(), Kind::Invalid);
        for name in DELIVERY_TIMEOUT {
            for value in ["0", "-1", "86400000", "x"] {
                let error = made(name, value).unwrap_err();
                assert!(error.kind() == Kind::Invalid && error.to_string().contains(name), "{error}");
            }
            made(name, "60000").unwrap();
        }
    }

    #[test]
    fn passwords_are_not_printed() {
        let config = KafkaConfig::new("b:1", "t").with("sasl.password", "secret");
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn librdkafka_knows_every_property_that_is_set() {
        for role in [Role::Producer, Role::Reader, Role::Metadata, Role::Identity, Role::Admin] {
            KafkaConfig::new("b:1", "t").client(role).unwrap().create_native_config().unwrap();
        }
    }
}
