//! Creates topics with a replica placement, and weakens, truncates and deletes them.

use anyhow::{Context, anyhow};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication},
    client::DefaultClientContext,
};
use runlog_log::kafka::KafkaConfig;
use std::{future::Future, time::Duration};

use super::BrokerId;

/// How long a change may take.
const CHANGE_WAIT: Duration = Duration::from_secs(30);

/// The settings of a journal's topic with two replicas, of which one suffices to acknowledge.
const WEAK: [(&str, &str); 6] = [
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("cleanup.policy", "delete"),
    ("message.timestamp.type", "LogAppendTime"),
    ("max.message.bytes", "2097152"),
    ("min.insync.replicas", "1"),
];

fn admin(config: &KafkaConfig) -> anyhow::Result<AdminClient<DefaultClientContext>> {
    Ok(ClientConfig::new().set("bootstrap.servers", &config.brokers).create()?)
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(CHANGE_WAIT)).operation_timeout(Some(CHANGE_WAIT))
}

/// Waits on a new runtime; must not be called inside another one.
fn wait<F: Future>(future: F) -> anyhow::Result<F::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}

/// Creates a topic of one partition on these brokers; the first is the leader. One replica suffices to acknowledge.
pub fn create_weak(config: &KafkaConfig, replicas: [BrokerId; 2]) -> anyhow::Result<()> {
    let replicas = replicas.map(|broker| broker.0 as i32 + 1);
    let assignment: [&[i32]; 1] = [&replicas];
    let topic = NewTopic::new(&config.topic, 1, TopicReplication::Variable(&assignment));
    let topic = WEAK.iter().fold(topic, |topic, (name, value)| topic.set(name, value));
    let created = wait(admin(config)?.create_topics([&topic], &options()))??;
    created.into_iter().next().context("an answer")?.map_err(|(_, code)| anyhow!("{}: {code}", config.topic))?;
    Ok(())
}

/// Allows an unclean election in a topic that [`create_weak`] made.
pub fn allow_unclean_election(config: &KafkaConfig) -> anyhow::Result<()> {
    let weaker = AlterConfig::new(ResourceSpecifier::Topic(&config.topic));
    let weaker = WEAK.iter().fold(weaker, |weaker, (name, value)| weaker.set(name, value));
    let weaker = weaker.set("unclean.leader.election.enable", "true");
    let altered = wait(admin(config)?.alter_configs([&weaker], &options()))??;
    altered.into_iter().next().context("an answer")?.map_err(|(_, code)| anyhow!("{}: {code}", config.topic))?;
    Ok(())
}

/// Deletes the records of partition 0 below an offset.
pub fn truncate(config: &KafkaConfig, before: u64) -> anyhow::Result<()> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&config.topic, 0, Offset::Offset(before.try_into()?))?;
    let deleted = wait(admin(config)?.delete_records(&list, &options()))??;
    deleted.elements().iter().try_for_each(|element| element.error())?;
    Ok(())
}

/// Deletes a topic.
pub fn delete(config: &KafkaConfig) -> anyhow::Result<()> {
    let deleted = wait(admin(config)?.delete_topics(&[&config.topic], &options()))??;
    deleted.into_iter().next().context("an answer")?.map_err(|(_, code)| anyhow!("{}: {code}", config.topic))?;
    Ok(())
}
