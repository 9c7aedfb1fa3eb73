//! Faults that Kafka must survive: one of three brokers at a time. Each fault is injected, held for a while and ended;
//! the cluster must recover by itself.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use super::{BrokerId, Cluster, Cut, RECOVERY_WAIT, SMALL_DISK, brokers};
use crate::random::Random;

/// How long a fault lasts, ms: some end before the cluster notices, others after an election.
const HOLD_MS: std::ops::Range<u64> = 500..6_500;
/// The pause between two checks of a broker whose disk is full.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long a broker may take to notice that its disk is full.
const NOTICE_WAIT: Duration = Duration::from_secs(20);

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say what happens")]
pub enum Fault {
    LeaderKilled,
    FollowerKilled,
    LeaderPaused,
    FollowerPaused,
    LeaderCutFromBrokers,
    LeaderCutOneWay,
    LeaderCutFromClients,
    LeaderCutFromAll,
    FollowerDiskFull,
}

/// Every fault.
pub const ALL: [Fault; 9] = [
    Fault::LeaderKilled,
    Fault::FollowerKilled,
    Fault::LeaderPaused,
    Fault::FollowerPaused,
    Fault::LeaderCutFromBrokers,
    Fault::LeaderCutOneWay,
    Fault::LeaderCutFromClients,
    Fault::LeaderCutFromAll,
    Fault::FollowerDiskFull,
];

impl Fault {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::LeaderKilled => "leader killed",
            Self::FollowerKilled => "follower killed",
            Self::LeaderPaused => "leader paused",
            Self::FollowerPaused => "follower paused",
            Self::LeaderCutFromBrokers => "leader cut off from the brokers",
            Self::LeaderCutOneWay => "leader cut off, one way",
            Self::LeaderCutFromClients => "leader cut off from the clients",
            Self::LeaderCutFromAll => "leader cut off from brokers and clients",
            Self::FollowerDiskFull => "a follower's disk full",
        }
    }
}

/// The leader of some partition of the topic, and another broker.
fn leader_and_follower(cluster: &Cluster, topic: &str, random: &mut Random) -> anyhow::Result<(BrokerId, BrokerId)> {
    let started = Instant::now();
    loop {
        let leaders = cluster.partitions(topic).unwrap_or_default();
        let leaders: Vec<BrokerId> = leaders.iter().filter_map(|partition| partition.leader).collect();
        if !leaders.is_empty() {
            let leader = leaders[usize::try_from(random.between(0, leaders.len() as u64))?];
            let mut others: Vec<BrokerId> = brokers().into_iter().filter(|broker| *broker != leader).collect();
            random.shuffle(&mut others);
            return Ok((leader, *others.first().context("another broker")?));
        }
        ensure!(started.elapsed() < RECOVERY_WAIT, "{topic} has no leader");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Injects a fault and ends it. Returns when the fault has ended; the cluster may still recover.
pub fn inject(cluster: &Cluster, topic: &str, fault: Fault, random: &mut Random) -> anyhow::Result<()> {
    let (leader, follower) = leader_and_follower(cluster, topic, random)?;
    let hold = Duration::from_millis(random.between(HOLD_MS.start, HOLD_MS.end));
    match fault {
        Fault::LeaderKilled => kill_broker(cluster, leader, hold),
        Fault::FollowerKilled => kill_broker(cluster, follower, hold),
        Fault::LeaderPaused => pause_broker(cluster, leader, hold),
        Fault::FollowerPaused => pause_broker(cluster, follower, hold),
        Fault::LeaderCutFromBrokers => cut(cluster, leader, Cut::Brokers, hold),
        Fault::LeaderCutOneWay => cut(cluster, leader, Cut::OneWay, hold),
        Fault::LeaderCutFromClients => cut(cluster, leader, Cut::Clients, hold),
        Fault::LeaderCutFromAll => cut(cluster, leader, Cut::All, hold),
        Fault::FollowerDiskFull => disk_full(cluster, hold),
    }
}

fn kill_broker(cluster: &Cluster, broker: BrokerId, hold: Duration) -> anyhow::Result<()> {
    cluster.kill(broker)?;
    thread::sleep(hold);
    cluster.restart(broker)
}

fn pause_broker(cluster: &Cluster, broker: BrokerId, hold: Duration) -> anyhow::Result<()> {
    cluster.pause(broker)?;
    thread::sleep(hold);
    cluster.unpause(broker)
}

fn cut(cluster: &Cluster, broker: BrokerId, cut: Cut, hold: Duration) -> anyhow::Result<()> {
    let routes = cluster.cut(broker, cut)?;
    thread::sleep(hold);
    routes.restore()
}

/// The broker exits when it notices the full disk. It is started again when there is space.
fn disk_full(cluster: &Cluster, hold: Duration) -> anyhow::Result<()> {
    cluster.fill_disk()?;
    let started = Instant::now();
    while cluster.is_running(SMALL_DISK)? && started.elapsed() < NOTICE_WAIT {
        thread::sleep(POLL_INTERVAL);
    }
    thread::sleep(hold);
    cluster.free_disk()?;
    if cluster.is_running(SMALL_DISK)? {
        // It may still be running.
        cluster.kill(SMALL_DISK)?;
    }
    cluster.restart(SMALL_DISK)
}
