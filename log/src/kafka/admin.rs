//! The topic: creates it, reads its configuration, and checks it. All calls block for the cluster's answer.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::Arc,
    task::{Context as TaskContext, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use runlog_schemas::shell;

use rdkafka::{
    admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
};

use super::{
    config::{KafkaConfig, MESSAGE_BYTES_MAX, Role},
    context::{self, Context, Topic},
    identity::Identity,
    waits::{MISSING_WAIT, REQUEST_WAIT, await_topic, missing},
};
use crate::{
    LogId, LogSettings, Weakness,
    error::{Error, Kind},
};

/// `max.message.bytes` of the topics that [`create_topic`] creates. A foreign client's record may be larger than Runlog's.
/// Such a record becomes a dead letter; its producer gets no error.
pub const TOPIC_MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Number of messages of a client's queue that are searched for the cause of a failure.
const EVENTS_MAX: usize = 64;

/// Number of messages of a client's queue that are searched for the topic's id. One metadata answer causes a few debug lines per
/// broker and partition.
const LINES_MAX: usize = 100_000;

/// The size and configuration of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// The partition count.
    pub partitions: u32,
    /// The smallest number of replicas of a partition.
    pub replication: u32,
    /// The number of brokers of the cluster.
    pub brokers: u32,
    /// The topic's configuration, defaults included. Empty if this user may not read it.
    pub configs: BTreeMap<String, String>,
}

/// Returns the replicas and the `min.insync.replicas` for a cluster of this size.
fn replica_counts(brokers: u32) -> (u32, u32) {
    if brokers >= 3 { (3, 2) } else { (1, 1) }
}

/// Settings with one correct value: name, value, and consequence of another value.
const SETTINGS: [(&str, &str, &str); 5] = [
    ("retention.ms", "-1", "records would be deleted by age"),
    ("retention.bytes", "-1", "records would be deleted by size"),
    ("cleanup.policy", "delete", "records with an equal key would be deleted"),
    ("unclean.leader.election.enable", "false", "acknowledged records could be lost"),
    (TIMESTAMPS, "LogAppendTime", "clients would choose the records' timestamps"),
];

const TIMESTAMPS: &str = "message.timestamp.type";
const INSYNC: &str = "min.insync.replicas";
const MESSAGE_BYTES: &str = "max.message.bytes";

/// Not a setting of the topic, but of its creation.
const REPLICAS: &str = "replication.factor";

/// The number of [`SETTINGS`], from the first, that can lose records of the journal.
const LOSSY: usize = 4;

/// A setting with which a topic can lose records of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossySetting {
    /// The name of the setting.
    pub name: &'static str,
    /// The current value.
    pub value: String,
    /// The correct value.
    pub wanted: &'static str,
    /// The consequence of another value.
    pub consequence: &'static str,
}

/// Returns the settings with which the topic can lose records of a journal: compaction, finite retention, unclean
/// elections. Settings that could not be read are left out.
pub fn lossy(info: &TopicInfo) -> Vec<LossySetting> {
    let setting = |(name, wanted, consequence): &(&'static str, &'static str, &'static str)| {
        let value = info.configs.get(*name).filter(|value| value != wanted)?.clone();
        Some(LossySetting { name, value, wanted, consequence })
    };
    SETTINGS[..LOSSY].iter().filter_map(setting).collect()
}

/// Returns the Kafka command that corrects these settings of the topic.
pub fn correction(config: &KafkaConfig, lossy: &[LossySetting]) -> String {
    let settings: Vec<String> = lossy.iter().map(|setting| format!("{}={}", setting.name, setting.wanted)).collect();
    let flags = [
        shell::flag("--bootstrap-server", &config.brokers),
        "--alter --entity-type topics".to_owned(),
        shell::flag("--entity-name", &config.topic),
        shell::flag("--add-config", &settings.join(",")),
    ];
    shell::command("kafka-configs.sh", &[], &flags.join(" "))
}

/// Describes the topic, or returns `None` if the answering broker does not know it. Does not create the topic. `configs` is
/// empty if this user may not read the settings (`DescribeConfigs`).
pub fn describe(config: &KafkaConfig) -> Result<Option<TopicInfo>, Error> {
    describe_within(config, Duration::ZERO)
}

/// Like [`describe`], for a topic that should exist: `None` only after brokers have reported it missing for 5 seconds.
pub fn describe_existing(config: &KafkaConfig) -> Result<Option<TopicInfo>, Error> {
    describe_within(config, MISSING_WAIT)
}

/// Like [`describe`]: `None` only after brokers have reported the topic missing for `missing_wait`.
pub(super) fn describe_within(config: &KafkaConfig, missing_wait: Duration) -> Result<Option<TopicInfo>, Error> {
    let topic = &config.topic;
    let client = metadata_client(config)?;
    if await_topic(config, missing_wait, |wait| read_topic(&client, topic, wait))?.is_none() {
        return Ok(None);
    }
    // This request may reach another broker, which does not know the topic yet.
    let admin = admin(config)?;
    await_topic(config, MISSING_WAIT, |_| describe_by_one_broker(topic, &client, &admin))
}

/// Describes the topic by the answers of one broker.
fn describe_by_one_broker(
    topic: &str,
    client: &BaseConsumer<Context>,
    admin: &AdminClient<Context>,
) -> Result<Topic<TopicInfo>, Error> {
    let map_error = |error| context::map_error(topic, "cannot read the metadata of the topic", error);
    let is_unknown = |code: RDKafkaErrorCode| code == RDKafkaErrorCode::UnknownTopicOrPartition;
    let metadata = client.fetch_metadata(Some(topic), REQUEST_WAIT).map_err(map_error)?;
    let Some(topic_metadata) = metadata.topics().iter().find(|each| each.name() == topic) else {
        return Ok(Topic::Missing);
    };
    if topic_metadata.error().map(RDKafkaErrorCode::from).is_some_and(is_unknown) {
        return Ok(Topic::Missing);
    }
    let replicas = topic_metadata.partitions().iter().map(|partition| partition.replicas().len() as u32);
    let described = wait_for(admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options()));
    let described = described
        .and_then(|mut described| described.pop().ok_or(KafkaError::NoMessageReceived)?.map_err(KafkaError::AdminOp));
    let entries = match described {
        Ok(described) => described.entries,
        Err(error) if error.rdkafka_error_code().is_some_and(context::is_forbidden) => Vec::new(),
        Err(error) if error.rdkafka_error_code().is_some_and(is_unknown) => return Ok(Topic::Missing),
        Err(error) => return Err(map_error(error)),
    };
    Ok(Topic::Ready(TopicInfo {
        partitions: topic_metadata.partitions().len() as u32,
        replication: replicas.min().unwrap_or(0),
        brokers: metadata.brokers().len() as u32,
        configs: entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect(),
    }))
}

/// Creates the topic with the settings of a journal and waits until it can be used. Returns false if the topic already
/// exists, and does not change it.
pub fn create_topic(config: &KafkaConfig, partitions: u32) -> Result<bool, Error> {
    let topic = &config.topic;
    let map_error = |error| context::map_error(topic, "the topic cannot be created", error);
    let count = i32::try_from(partitions)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| Error::new(Kind::Invalid, topic, format!("a topic cannot have {partitions} partitions")))?;
    let client = metadata_client(config)?;
    let brokers = client.fetch_metadata(None, REQUEST_WAIT).map_err(map_error)?.brokers().len() as u32;
    let (replicas, insync) = replica_counts(brokers);
    let (insync, message_bytes_max) = (insync.to_string(), TOPIC_MESSAGE_BYTES_MAX.to_string());
    let mut wanted = NewTopic::new(topic, count, TopicReplication::Fixed(replicas as i32))
        .set(INSYNC, &insync)
        .set(MESSAGE_BYTES, &message_bytes_max);
    for (name, value, _) in SETTINGS {
        wanted = wanted.set(name, value);
    }
    let created = wait_for(admin(config)?.create_topics([&wanted], &options())).map_err(map_error)?;
    let created = match created.into_iter().next() {
        Some(Ok(_)) => true,
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => false,
        Some(Err((_, code))) if is_refusal(code) => {
            let what = "the cluster refuses to create the topic";
            return Err(Error::new(Kind::Invalid, topic, what).because(KafkaError::AdminOp(code)));
        }
        Some(Err((_, code))) => return Err(map_error(KafkaError::AdminOp(code))),
        None => return Err(map_error(KafkaError::NoMessageReceived)),
    };
    await_topic(config, Duration::MAX, |wait| read_topic(&client, topic, wait))?;
    Ok(created)
}

/// Returns whether the topic has the settings and the partition count with which [`create_topic`] creates a topic. False if this
/// user may not read the settings.
pub fn is_as_created(info: &TopicInfo, partitions: u32) -> bool {
    let has = |name: &str, value: &str| info.configs.get(name).is_some_and(|found| found == value);
    info.partitions == partitions
        && SETTINGS.iter().all(|(name, value, _)| has(name, value))
        && has(MESSAGE_BYTES, &TOPIC_MESSAGE_BYTES_MAX.to_string())
}

/// Returns the id of the cluster, or `None` if its brokers report none within 10 seconds.
pub fn cluster_id(config: &KafkaConfig) -> Result<Option<String>, Error> {
    Ok(metadata_client(config)?.client().fetch_cluster_id(REQUEST_WAIT))
}

/// Returns the settings of a log on this topic.
pub(super) fn settings(info: &TopicInfo) -> LogSettings {
    let stamps = info.configs.get(TIMESTAMPS);
    LogSettings {
        weaknesses: weaknesses(info),
        partitions: Some(info.partitions),
        create_time: stamps.map(|stamps| stamps == "CreateTime"),
    }
}

/// Returns the settings that are weaker than the settings of [`create_topic`].
pub fn weaknesses(info: &TopicInfo) -> Vec<Weakness> {
    let setting = |name: &str| info.configs.get(name).map_or("unknown", String::as_str);
    let number = |name: &str| setting(name).parse::<u64>().unwrap_or(0);
    let (replicas, insync) = replica_counts(info.brokers);
    let mut weaknesses = Vec::new();
    for (at, (name, wanted, consequence)) in SETTINGS.into_iter().enumerate() {
        let value = setting(name);
        if value != wanted {
            let what = format!("{name} is {value}, not {wanted}: {consequence}");
            weaknesses.push(Weakness { setting: name, can_lose: at < LOSSY, what });
        }
    }
    let mut add = |setting, what| weaknesses.push(Weakness { setting, can_lose: false, what });
    if info.replication < replicas {
        let (has, brokers) = (info.replication, info.brokers);
        add(REPLICAS, format!("the topic has {has} replicas, but {brokers} brokers can hold {replicas}"));
    }
    if number(INSYNC) < u64::from(insync) {
        let value = setting(INSYNC);
        add(INSYNC, format!("{INSYNC} is {value}, not {insync}: one broker's loss could lose records"));
    }
    if number(MESSAGE_BYTES) < MESSAGE_BYTES_MAX as u64 {
        let value = setting(MESSAGE_BYTES);
        add(
            MESSAGE_BYTES,
            format!("{MESSAGE_BYTES} is {value}, below the {MESSAGE_BYTES_MAX} that the largest record needs"),
        );
    }
    weaknesses
}

fn is_refusal(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::InvalidTopic
            | RDKafkaErrorCode::InvalidPartitions
            | RDKafkaErrorCode::InvalidReplicationFactor
            | RDKafkaErrorCode::InvalidConfig
            | RDKafkaErrorCode::PolicyViolation
    )
}

/// Creates a consumer, because a producer's metadata request for a topic may create the topic.
fn metadata_client(config: &KafkaConfig) -> Result<BaseConsumer<Context>, Error> {
    config
        .client(Role::Metadata)?
        .create_with_context(Context::default())
        .map_err(|error| context::map_creation_error(&config.topic, error))
}

/// Reads the topic's metadata. An error contains the reason why the cluster refused the client.
fn read_topic(client: &BaseConsumer<Context>, topic: &str, wait: Duration) -> Result<Topic, Error> {
    context::read_topic(client.client(), topic, wait).map_err(|error| {
        // The reason is in the client's event queue, which only this loop serves.
        for _ in 0..EVENTS_MAX {
            client.poll(Duration::ZERO);
        }
        client.context().refusals.explain(error)
    })
}

/// Reads the ids of the topic and of its cluster, for the id of a log. `identity` gets the topic's id. Returns `None` if the brokers
/// have no ids.
///
/// Errors: as in [`super::KafkaLog::connect`]. No answer is an error, never a log without an id.
///
/// librdkafka logs the topic's id before the metadata call returns. So this thread finds the line in the queue without waiting.
pub(super) fn identify(config: &KafkaConfig, identity: &Identity) -> Result<Option<LogId>, Error> {
    let context = Context { identity: Some(identity.clone()), ..Context::default() };
    let client: BaseConsumer<Context> = config
        .client(Role::Identity)?
        .create_with_context(context)
        .map_err(|error| context::map_creation_error(&config.topic, error))?;
    let topic = await_topic(config, MISSING_WAIT, |wait| read_topic(&client, &config.topic, wait))?;
    topic.ok_or_else(|| missing(config))?;
    for _ in 0..LINES_MAX {
        if identity.id().is_some() {
            break;
        }
        client.poll(Duration::ZERO);
    }
    let Some(topic_id) = identity.id() else { return Ok(None) };
    let cluster = client.client().fetch_cluster_id(REQUEST_WAIT);
    let unknown =
        || Error::new(Kind::Retry, &config.topic, "the brokers did not report the id of their cluster in time");
    let cluster = cluster.ok_or_else(unknown)?;
    Ok(LogId::kafka(&cluster, topic_id))
}

fn admin(config: &KafkaConfig) -> Result<AdminClient<Context>, Error> {
    config
        .client(Role::Admin)?
        .create_with_context(Context::default())
        .map_err(|error| context::map_creation_error(&config.topic, error))
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST_WAIT)).operation_timeout(Some(REQUEST_WAIT))
}

/// Waits for a future of the admin client, whose own thread completes it. Works with and without a runtime.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strong(brokers: u32) -> TopicInfo {
        let (replication, insync) = replica_counts(brokers);
        let mut configs: BTreeMap<String, String> =
            SETTINGS.iter().map(|(name, value, _)| ((*name).into(), (*value).into())).collect();
        configs.insert("min.insync.replicas".into(), insync.to_string());
        configs.insert("max.message.bytes".into(), TOPIC_MESSAGE_BYTES_MAX.to_string());
        TopicInfo { partitions: 16, replication, brokers, configs }
    }

    #[test]
    fn a_topic_is_as_created_only_with_all_settings_and_the_partition_count() {
        let info = strong(3);
        assert!(is_as_created(&info, 16) && !is_as_created(&info, 4));
        for (name, value) in [(TIMESTAMPS, "CreateTime"), ("retention.ms", "604800000"), (MESSAGE_BYTES, "1048588")] {
            let configs = info.configs.iter().map(|(key, value)| (key.clone(), value.clone()));
            let configs = configs.chain([(name.to_owned(), value.to_owned())]).collect();
            assert!(!is_as_created(&TopicInfo { configs, ..info.clone() }, 16), "{name}");
        }
        assert!(!is_as_created(&TopicInfo { configs: BTreeMap::new(), ..info }, 16), "the settings may not be read");
    }

    #[test]
    fn a_topic_that_we_create_has_no_weak_setting() {
        for brokers in [1, 2, 3, 9] {
            let settings = settings(&strong(brokers));
            assert_eq!(
                settings,
                LogSettings { weaknesses: Vec::new(), partitions: Some(16), create_time: Some(false) }
            );
        }
    }

    #[test]
    fn every_setting_that_is_weaker_is_found() {
        for (name, weaker) in [
            ("retention.ms", "604800000"),
            ("retention.bytes", "1"),
            ("cleanup.policy", "compact,delete"),
            ("unclean.leader.election.enable", "true"),
            ("message.timestamp.type", "CreateTime"),
            ("min.insync.replicas", "1"),
            ("max.message.bytes", "1048588"),
        ] {
            let mut info = strong(3);
            info.configs.insert(name.into(), weaker.into());
            let weak_settings = weaknesses(&info);
            let [Weakness { setting, can_lose, what }] = &weak_settings[..] else {
                panic!("{name}: {weak_settings:?}")
            };
            assert!(*setting == name && what.starts_with(name), "{name}: {what}");
            assert_eq!(*can_lose, !lossy(&info).is_empty(), "{name}");
            assert_eq!(settings(&info).create_time, Some(weaker == "CreateTime"));
            info.configs.remove(name);
            assert_eq!(weaknesses(&info).len(), 1, "{name} is not known");
            assert_eq!(settings(&info).create_time.is_none(), name == TIMESTAMPS);
        }
        let few = weaknesses(&TopicInfo { replication: 2, ..strong(3) });
        assert!(few.len() == 1 && !few[0].can_lose, "{few:?}");
    }

    #[test]
    fn settings_that_can_lose_the_journal_are_reported_with_the_command_that_corrects_them() {
        assert_eq!(lossy(&strong(3)), []);
        let mut info = strong(3);
        info.configs.insert("cleanup.policy".into(), "compact".into());
        info.configs.insert("retention.ms".into(), "604800000".into());
        info.configs.insert("message.timestamp.type".into(), "CreateTime".into());
        let settings = lossy(&info);
        assert_eq!(settings.iter().map(|setting| setting.name).collect::<Vec<_>>(), ["retention.ms", "cleanup.policy"]);
        let command = correction(&KafkaConfig::new("b:1", "t"), &settings);
        assert!(command.ends_with("--entity-name t --add-config retention.ms=-1,cleanup.policy=delete"), "{command}");
        info.configs.clear();
        assert_eq!(lossy(&info), [], "a setting that may not be read");
    }
}
