//! Faults by which Kafka loses or replaces acknowledged records, each on a separate topic and server. The records cannot
//! be recovered. The server must notice the loss: an index that has applied a lost record stops with its kind and keeps
//! its rows. No query at `latest` may report a lost effect as not done.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use runlog_log::{Entry, PartitionId, kafka::KafkaConfig};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{BrokerId, Cluster, PartitionState, RECOVERY_WAIT, topics};
use crate::{
    agent::{Agent, entry},
    foreign::append_kafka,
    server::{Launch, Server},
};

/// The pause between two queries of a server's state.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long one of its answers may take.
const DEADLINE: &str = "deadline_ms=2000";
/// Records that a lagging index misses, and random ids in each. Together they are larger than a batch and a fetch (1 MB
/// each), so a fetch in flight when the server stops gets only a part.
const MISSED: usize = 3000;
const MISSED_IDS: usize = 64;

/// A fault that breaks Kafka's promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say what happens")]
pub enum Breach {
    UncleanElection,
    TruncatedBehindTheIndex,
    TruncatedAheadOfTheIndex,
    TopicRecreated,
}

/// Every breach.
pub const ALL: [Breach; 4] = [
    Breach::UncleanElection,
    Breach::TruncatedBehindTheIndex,
    Breach::TruncatedAheadOfTheIndex,
    Breach::TopicRecreated,
];

impl Breach {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::UncleanElection => "unclean election (typed stop)",
            Self::TruncatedBehindTheIndex => "records deleted that the index has (continues)",
            Self::TruncatedAheadOfTheIndex => "records deleted that the index lacks (typed stop)",
            Self::TopicRecreated => "topic recreated (typed stop)",
        }
    }
}

/// A topic of one partition, its server, and the run in it.
struct Victim<'a> {
    cluster: &'a Cluster,
    config: KafkaConfig,
    launch: Launch,
    server: Server,
    agent: Agent,
}

/// The brokers that hold the topic: the first one leads.
const REPLICAS: [BrokerId; 2] = [BrokerId(0), BrokerId(1)];

/// Injects the breach and fails unless the server reacts as expected. Returns when the cluster has recovered.
pub fn inject(cluster: &Cluster, folder: &Path, breach: Breach) -> anyhow::Result<()> {
    let config = weak_topic(cluster)?;
    let launch = Launch::kafka(&folder.join(&config.topic), &config).partitions(1);
    // Only now: if the topic is created again, a start with this flag would begin another journal in it.
    let server = launch.clone().with("--new-journal").start()?;
    let mut victim = Victim { cluster, config, launch, server, agent: Agent::new("victim") };
    let start_record = victim.agent.lifecycle("started");
    victim.append(&[entry(&start_record)])?;
    victim.call("kept")?;
    match breach {
        Breach::UncleanElection => victim.unclean_election(),
        Breach::TruncatedBehindTheIndex => victim.truncated_behind(),
        Breach::TruncatedAheadOfTheIndex => victim.truncated_ahead(),
        Breach::TopicRecreated => victim.recreated(),
    }
    .with_context(|| breach.name())?;
    victim.server.kill()?;
    topics::delete(&victim.config)
}

/// Creates a topic that the first of [`REPLICAS`] leads. While that broker restarts, Kafka elects another leader for a new
/// topic and keeps it for minutes, so this tries further topics.
fn weak_topic(cluster: &Cluster) -> anyhow::Result<KafkaConfig> {
    let started = Instant::now();
    loop {
        let config = KafkaConfig::new(cluster.bootstrap(), format!("test-{}", Uuid::new_v4().simple()));
        topics::create_weak(&config, REPLICAS)?;
        cluster.await_partitions(&config.topic, "in sync", |states| {
            states.first().is_some_and(|state| state.leader.is_some() && state.in_sync.len() == REPLICAS.len())
        })?;
        if cluster.partitions(&config.topic).is_some_and(|states| led_by(&states, REPLICAS[0])) {
            return Ok(config);
        }
        ensure!(started.elapsed() < RECOVERY_WAIT, "{:?} leads no new topic after {RECOVERY_WAIT:?}", REPLICAS[0]);
    }
}

fn led_by(states: &[PartitionState], broker: BrokerId) -> bool {
    states.first().is_some_and(|state| state.leader == Some(broker))
}

/// Waits until `attempt` succeeds. Its last refusal is the error.
fn until(mut attempt: impl FnMut() -> anyhow::Result<Result<(), String>>) -> anyhow::Result<()> {
    let started = Instant::now();
    while let Err(refusal) = attempt()? {
        ensure!(started.elapsed() < RECOVERY_WAIT, "{refusal}");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

impl Victim<'_> {
    /// Appends records, and returns the offset after the last.
    fn append(&self, records: &[Entry]) -> anyhow::Result<u64> {
        let records: Vec<_> = records.iter().map(|entry| (PartitionId::ZERO, entry.clone())).collect();
        let offsets = append_kafka(&self.config, &records)?;
        Ok(offsets.last().context("an offset")?.get() + 1)
    }

    /// Appends a call and its result, and waits until both are applied.
    fn call(&mut self, tool: &str) -> anyhow::Result<()> {
        let request = self.agent.request(tool, &json!({}));
        let result = self.agent.complete(&request.body.record_id, &json!("done"));
        self.append(&[entry(&request), entry(&result)])?;
        // The first answers may be stale.
        until(|| {
            let (_, said) = self.looked_up(tool, "latest")?;
            Ok(if said["status"] == "completed" { Ok(()) } else { Err(format!("{tool} is not applied: {said}")) })
        })
    }

    fn looked_up(&self, tool: &str, consistency: &str) -> anyhow::Result<(u16, Value)> {
        let path = format!("/v1/runs/victim/lookup?tool={tool}&args=%7B%7D&consistency={consistency}&{DEADLINE}");
        self.server.get(&path)
    }

    /// Waits until the server refuses the call with one of these errors, and the partition is stopped. Before and after the
    /// stop, no answer at `latest` may report the call as not done.
    fn stops(&self, tool: &str, says: &[&str]) -> anyhow::Result<()> {
        until(|| {
            let (status, said) = self.looked_up(tool, "latest")?;
            let undone = status == 404 || said["status"] == "unknown" || said["status"] == "pending";
            ensure!(!undone, "a completed call is reported as not done: {status} {said}");
            // Before the final stop, the partition may stop temporarily because the log is unreadable.
            let detail = said["detail"].as_str().unwrap_or_default();
            let refuses = said["kind"] == "partition_stopped" || said["reason"] == "mirror";
            if refuses && says.iter().any(|says| detail.contains(says)) {
                return Ok(Ok(()));
            }
            Ok(Err(format!("the partition does not stop: {status} {said}")))
        })?;
        self.is_stopped_and_kept(tool)
    }

    /// Queries at `eventual` still get the rows, and the doctor reports the stop.
    fn is_stopped_and_kept(&self, tool: &str) -> anyhow::Result<()> {
        let (status, said) = self.looked_up(tool, "eventual")?;
        ensure!(status == 200 && said["status"] == "completed", "the state is kept: {status} {said}");
        // A mirror refuses before its partition is read.
        until(|| {
            let doctor = self.server.runlog().json(&["doctor"])?.exits(1)?.json()?;
            Ok(if doctor["partitions"][0]["state"] == "stopped" { Ok(()) } else { Err(doctor.to_string()) })
        })
    }

    /// Checks [`Victim::stops`] after a restart of the server. A killed server would lose rows that it can only read from the
    /// log again.
    fn stays_stopped(&mut self, tool: &str, says: &[&str]) -> anyhow::Result<()> {
        self.server.restart_whole(&self.launch)?;
        self.stops(tool, says).context("after a restart")
    }

    /// Only the leader has the last call. It is killed, and the replica without the call is elected.
    fn unclean_election(&mut self) -> anyhow::Result<()> {
        let (topic, [leader, follower]) = (self.config.topic.clone(), REPLICAS);
        self.cluster.kill(follower)?;
        self.cluster.await_partitions(&topic, "without its follower", |states| states[0].in_sync == [leader])?;
        self.call("lost")?;
        topics::allow_unclean_election(&self.config)?;
        self.cluster.kill(leader)?;
        self.cluster.restart(follower)?;
        self.cluster.await_partitions(&topic, "led by the follower", |states| led_by(states, follower))?;
        self.stops("lost", &LOST).context("while the old leader stays down")?;
        self.cluster.restart(leader)?;
        self.stops("lost", &LOST)?;
        // Other records get the offsets of the lost records.
        let other: Vec<Entry> = (0..10).map(|_| Agent::new("other").turn("instead")).map(|turn| entry(&turn)).collect();
        self.append(&other)?;
        self.stops("lost", &LOST)?;
        self.cluster.await_partitions(&topic, "in sync", |states| states[0].in_sync.len() == 2)
    }

    /// The index has every deleted record: it continues, and cannot be rebuilt.
    fn truncated_behind(&mut self) -> anyhow::Result<()> {
        let last = entry(&self.agent.turn("the last that stays"));
        let end = self.append(&[last])?;
        topics::truncate(&self.config, end - 1)?;
        self.call("after")?;
        let (status, said) = self.looked_up("kept", "latest")?;
        ensure!(status == 200 && said["status"] == "completed", "{status} {said}");
        let verified = self.server.runlog().json(&["verify"])?;
        ensure!(verified.code != Some(0), "an index that cannot be rebuilt is verified: {}", verified.stdout);
        Ok(())
    }

    /// The server is paused while records that its index lacks are appended and deleted.
    fn truncated_ahead(&mut self) -> anyhow::Result<()> {
        self.server.stop()?;
        let text = || (0..MISSED_IDS).map(|_| Uuid::new_v4().simple().to_string()).collect::<String>();
        let missed: Vec<Entry> = (0..MISSED).map(|_| entry(&self.agent.turn(&text()))).collect();
        let end = self.append(&missed)?;
        topics::truncate(&self.config, end)?;
        self.server.resume()?;
        self.stops("kept", &LOST)
    }

    /// The topic is deleted and created again, without its records.
    fn recreated(&mut self) -> anyhow::Result<()> {
        topics::delete(&self.config)?;
        until(|| {
            let created = topics::create_weak(&self.config, REPLICAS);
            Ok(created.map_err(|error| format!("the topic is not created again: {error}")))
        })?;
        self.stops("kept", &RECREATED)?;
        self.stays_stopped("kept", &RECREATED)
    }
}

/// Parts of the errors of a stop because the log lost records.
const LOST: [&str; 3] = ["lost the record", "outside of the log", "lost records"];

/// Parts of the errors after the topic was created again. The server may notice it by the topic id, by missing records, or at its start
/// by the end offset. After a restart it takes the new topic for a mirror.
const RECREATED: [&str; 9] = [
    "deleted and created again",
    LOST[0],
    LOST[1],
    LOST[2],
    "this is another log",
    "the index was built from log",
    "the index is of journal",
    "a mirror of the home",
    "differs from the record that the index was built from",
];
