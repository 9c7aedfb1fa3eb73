//! A Kafka cluster of three brokers in containers, and its faults.
//!
//! ```text
//!   we ──127.0.0.1:PORT──▶ 1 ─┐
//!   we ──127.0.0.1:PORT──▶ 2 ─┼─ a Docker network of the cluster's own: replication, and the controllers' quorum
//!   we ──127.0.0.1:PORT──▶ 3 ─┘   3's disk is a small tmpfs, which outlives its container
//! ```
//!
//! Each broker is also a controller, so any two brokers are a quorum. Blackhole routes in its network namespace cut a
//! broker off: packets are lost, and no connection is closed.
//!
//! Dropping the cluster removes its containers, disk and network. If this process is killed, a watcher removes them.

use std::{
    net::TcpListener,
    process::{ChildStdin, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
};
use uuid::Uuid;

use crate::{
    kafka::{image, suspend, watch},
    programs::output,
    random::Random,
};

pub mod broken_promises;
pub mod faults;
pub mod load;
pub mod run;
pub mod topics;

/// Brokers.
pub const BROKERS: usize = 3;
/// How long the cluster may take to start, and to recover after a fault.
pub const RECOVERY_WAIT: Duration = Duration::from_secs(180);
/// The pause between two queries of its state.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long one query of its state may take.
const ASK_WAIT: Duration = Duration::from_secs(2);
/// How often in a row all replicas must be in sync: a broker that was cut off may return old metadata.
const IN_SYNC_SEEN: u32 = 3;
/// The ports of the brokers, below the system's ephemeral ports, so that no client takes one while its broker is down.
const PORTS: std::ops::Range<u64> = 20_000..30_000;
/// The data folder of a broker.
const DATA: &str = "/var/lib/kafka/data";
/// The file that fills the small disk.
const FILLER: &str = "/disk/filler";

/// A broker, from 0. Its Kafka id is one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub usize);

/// The broker whose disk is small.
pub const SMALL_DISK: BrokerId = BrokerId(2);

/// The processes from which a broker is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// From the other brokers, in both directions.
    Brokers,
    /// Its packets to the other brokers are lost; their packets arrive.
    OneWay,
    /// From all clients.
    Clients,
    /// From brokers and clients.
    All,
}

/// The state of a partition in the cluster's metadata.
#[derive(Clone, Debug)]
pub struct PartitionState {
    /// Its leader, if it has one.
    pub leader: Option<BrokerId>,
    /// The replicas in sync.
    pub in_sync: Vec<BrokerId>,
}

/// A running cluster.
pub struct Cluster {
    /// The prefix of the names of its containers, network and disk.
    name: String,
    ports: [u16; BROKERS],
    observer: BaseConsumer,
    _watcher: ChildStdin,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).field("ports", &self.ports).finish_non_exhaustive()
    }
}

fn docker(arguments: &[&str]) -> anyhow::Result<String> {
    output(Command::new("docker").args(arguments))
}

fn from_kafka(id: i32) -> Option<BrokerId> {
    usize::try_from(id).ok()?.checked_sub(1).filter(|broker| *broker < BROKERS).map(BrokerId)
}

/// Every broker.
pub fn brokers() -> [BrokerId; BROKERS] {
    [BrokerId(0), BrokerId(1), BrokerId(2)]
}

/// Free ports that other processes rarely take.
pub(crate) fn free_ports<const N: usize>(random: &mut Random) -> anyhow::Result<[u16; N]> {
    let mut ports = Vec::new();
    for _ in 0..100 {
        let port = u16::try_from(random.between(PORTS.start, PORTS.end))?;
        if !ports.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            ports.push(port);
        }
        if let Ok(ports) = <[u16; N]>::try_from(ports.clone()) {
            return Ok(ports);
        }
    }
    bail!("no free ports in {PORTS:?}")
}

impl Cluster {
    /// Starts a cluster, and waits until all of its brokers serve. `disk` is the size of the small disk, MiB.
    pub fn start(disk: u32) -> anyhow::Result<Self> {
        let name = format!("brokers-{}", &Uuid::new_v4().simple().to_string()[..8]);
        let ports = free_ports(&mut Random::new(Uuid::new_v4().as_u64_pair().0))?;
        let bootstrap = bootstrap(&ports);
        let observer = ClientConfig::new().set("bootstrap.servers", &bootstrap).create()?;
        let watcher = watch(&removal(&name))?;
        let cluster = Self { name, ports, observer, _watcher: watcher };
        let (network, volume) = (cluster.name.as_str(), cluster.disk());
        docker(&["network", "create", network])?;
        let size = format!("o=size={disk}m,uid=1000,gid=1000");
        let tmpfs = ["--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", &size];
        docker(&[&["volume", "create", "--driver", "local"][..], &tmpfs, &[volume.as_str()]].concat())?;
        // Docker keeps a tmpfs volume only while a container uses it.
        let (mount, image) = (format!("{volume}:/disk"), image());
        docker(&["run", "-d", "--name", &volume, "--network", "none", "-v", &mount, &image, "sleep", "1000000"])?;
        for broker in brokers() {
            cluster.create(broker, &image)?;
        }
        let started = Instant::now();
        while cluster.serving().is_none_or(|serving| serving < BROKERS) {
            ensure!(started.elapsed() < RECOVERY_WAIT, "the cluster does not start");
            thread::sleep(POLL_INTERVAL);
        }
        Ok(cluster)
    }

    fn create(&self, broker: BrokerId, image: &str) -> anyhow::Result<()> {
        let (name, port) = (self.container(broker), format!("127.0.0.1:{}:9092", self.ports[broker.0]));
        let environment: Vec<String> =
            self.environment(broker).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        // NET_ADMIN permits routes in its network namespace.
        let network = ["--network", &self.name, "--cap-add", "NET_ADMIN", "-p", &port];
        let mut arguments = [&["run", "-d", "--name", &name][..], &network].concat();
        let disk = format!("{}:{DATA}", self.disk());
        if broker == SMALL_DISK {
            arguments.extend(["-v", &disk]);
        }
        arguments.extend(environment.iter().flat_map(|variable| ["-e", variable]));
        arguments.push(image);
        docker(&arguments).map(drop)
    }

    fn environment(&self, broker: BrokerId) -> Vec<(&'static str, String)> {
        let voters = brokers().map(|other| format!("{}@{}:9093", other.0 + 1, self.container(other))).join(",");
        let (port, internal) = (self.ports[broker.0], self.container(broker));
        let listeners = "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT";
        let settings = [
            ("KAFKA_HEAP_OPTS", "-Xms96m -Xmx320m"),
            ("KAFKA_PROCESS_ROLES", "broker,controller"),
            ("KAFKA_LISTENERS", "EXTERNAL://:9092,INTERNAL://:19092,CONTROLLER://:9093"),
            ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", listeners),
            ("KAFKA_INTER_BROKER_LISTENER_NAME", "INTERNAL"),
            ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
            ("KAFKA_LOG_DIRS", DATA),
            ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "3"),
            ("KAFKA_MIN_INSYNC_REPLICAS", "2"),
            ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
            // By default these take tens of seconds, longer than a fault.
            ("KAFKA_BROKER_SESSION_TIMEOUT_MS", "4000"),
            ("KAFKA_BROKER_HEARTBEAT_INTERVAL_MS", "500"),
            ("KAFKA_REPLICA_LAG_TIME_MAX_MS", "4000"),
            ("KAFKA_UNCLEAN_LEADER_ELECTION_INTERVAL_MS", "1000"),
            ("KAFKA_LOG_SEGMENT_BYTES", "16777216"),
            ("KAFKA_LOG_INDEX_SIZE_MAX_BYTES", "65536"),
        ];
        let mut settings: Vec<_> = settings.map(|(name, value)| (name, value.to_owned())).into();
        settings.push(("KAFKA_NODE_ID", (broker.0 + 1).to_string()));
        settings.push(("KAFKA_CONTROLLER_QUORUM_VOTERS", voters));
        let advertised = format!("EXTERNAL://127.0.0.1:{port},INTERNAL://{internal}:19092");
        settings.push(("KAFKA_ADVERTISED_LISTENERS", advertised));
        settings
    }

    fn container(&self, broker: BrokerId) -> String {
        format!("{}-{}", self.name, broker.0 + 1)
    }

    fn disk(&self) -> String {
        format!("{}-disk", self.name)
    }

    /// `HOST:PORT` of all brokers, separated by commas.
    pub fn bootstrap(&self) -> String {
        bootstrap(&self.ports)
    }

    /// The number of brokers in the cluster's metadata.
    fn serving(&self) -> Option<usize> {
        Some(self.observer.fetch_metadata(None, ASK_WAIT).ok()?.brokers().len())
    }

    /// The partitions of a topic, in order; `None` if no broker answers.
    pub fn partitions(&self, topic: &str) -> Option<Vec<PartitionState>> {
        let metadata = self.observer.fetch_metadata(Some(topic), ASK_WAIT).ok()?;
        let topic = metadata.topics().first().filter(|topic| topic.error().is_none())?;
        let state = |partition: &rdkafka::metadata::MetadataPartition| PartitionState {
            leader: from_kafka(partition.leader()),
            in_sync: partition.isr().iter().copied().filter_map(from_kafka).collect(),
        };
        let mut partitions: Vec<_> = topic.partitions().iter().map(|found| (found.id(), state(found))).collect();
        partitions.sort_unstable_by_key(|(id, _)| *id);
        Some(partitions.into_iter().map(|(_, state)| state).collect())
    }

    /// Waits until `holds` accepts the states of a topic's partitions.
    pub fn await_partitions(
        &self,
        topic: &str,
        what: &str,
        holds: impl Fn(&[PartitionState]) -> bool,
    ) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let states = self.partitions(topic);
            if states.as_deref().is_some_and(&holds) {
                return Ok(());
            }
            ensure!(started.elapsed() < RECOVERY_WAIT, "{topic}: not {what} after {RECOVERY_WAIT:?}: {states:?}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until every partition of a topic has a leader and all its replicas in sync.
    pub fn await_in_sync(&self, topic: &str) -> anyhow::Result<()> {
        for _ in 0..IN_SYNC_SEEN {
            self.await_partitions(topic, "in sync", |partitions| {
                partitions.iter().all(|state| state.leader.is_some() && state.in_sync.len() == BROKERS)
            })?;
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Kills a broker with SIGKILL.
    pub fn kill(&self, broker: BrokerId) -> anyhow::Result<()> {
        docker(&["kill", "-s", "KILL", &self.container(broker)]).map(drop)
    }

    /// Starts a broker that was killed or has ended, with its disk. Does not wait until it serves.
    pub fn restart(&self, broker: BrokerId) -> anyhow::Result<()> {
        docker(&["start", &self.container(broker)]).map(drop)
    }

    /// Suspends a broker, which then neither answers nor closes connections.
    pub fn pause(&self, broker: BrokerId) -> anyhow::Result<()> {
        suspend(&self.container(broker))
    }

    /// Ends [`Cluster::pause`].
    pub fn unpause(&self, broker: BrokerId) -> anyhow::Result<()> {
        docker(&["kill", "-s", "CONT", &self.container(broker)]).map(drop)
    }

    /// Whether a broker's process runs.
    pub fn is_running(&self, broker: BrokerId) -> anyhow::Result<bool> {
        Ok(docker(&["inspect", "-f", "{{.State.Running}}", &self.container(broker)])? == "true")
    }

    /// The address of a broker in the cluster's network, and the address of this machine.
    fn addresses(&self, broker: BrokerId) -> anyhow::Result<(String, String)> {
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.Gateway}}{{end}}";
        let printed = docker(&["inspect", "-f", format, &self.container(broker)])?;
        let (own, gateway) = printed.split_once(' ').with_context(|| format!("no address of {broker:?}: {printed}"))?;
        Ok((own.to_owned(), gateway.to_owned()))
    }

    /// Cuts a running broker off until [`Routes::restore`].
    pub fn cut(&self, broker: BrokerId, cut: Cut) -> anyhow::Result<Routes<'_>> {
        let (own, gateway) = self.addresses(broker)?;
        let mut routes = Routes { cluster: self, made: Vec::new() };
        let others = brokers().into_iter().filter(|other| *other != broker);
        if cut != Cut::Clients {
            for other in others {
                routes.block(broker, self.addresses(other)?.0)?;
                if cut != Cut::OneWay {
                    routes.block(other, own.clone())?;
                }
            }
        }
        if matches!(cut, Cut::Clients | Cut::All) {
            routes.block(broker, gateway)?;
        }
        Ok(routes)
    }

    /// Fills the disk of [`SMALL_DISK`] to its end.
    pub fn fill_disk(&self) -> anyhow::Result<()> {
        let fill = format!("dd if=/dev/zero of={FILLER} bs=1M 2>/dev/null; df /disk | grep -q ' 100% '");
        docker(&["exec", "-u", "0", &self.disk(), "sh", "-c", &fill]).map(drop)
    }

    /// Ends [`Cluster::fill_disk`].
    pub fn free_disk(&self) -> anyhow::Result<()> {
        docker(&["exec", "-u", "0", &self.disk(), "rm", "-f", FILLER]).map(drop)
    }

    /// The last lines that a broker logged.
    pub fn log(&self, broker: BrokerId) -> String {
        let log = Command::new("docker").args(["logs", "--tail", "15", &self.container(broker)]).output();
        log.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The watcher repeats a failed removal.
        let _ = Command::new("sh").args(["-c", &removal(&self.name)]).output();
    }
}

fn bootstrap(ports: &[u16; BROKERS]) -> String {
    ports.map(|port| format!("127.0.0.1:{port}")).join(",")
}

/// The shell command that removes a cluster's containers, disk and network.
fn removal(name: &str) -> String {
    format!(
        "docker rm -f -v {name}-1 {name}-2 {name}-3 {name}-disk; docker volume rm {name}-disk; docker network rm {name}"
    )
}

/// The routes that cut a broker off.
#[derive(Debug)]
pub struct Routes<'a> {
    cluster: &'a Cluster,
    made: Vec<(BrokerId, String)>,
}

impl Routes<'_> {
    fn block(&mut self, at: BrokerId, address: String) -> anyhow::Result<()> {
        self.cluster.route(at, "add", &address)?;
        self.made.push((at, address));
        Ok(())
    }

    /// Removes the routes.
    pub fn restore(self) -> anyhow::Result<()> {
        self.made.iter().try_for_each(|(at, address)| self.cluster.route(*at, "del", address))
    }
}

impl Cluster {
    /// Adds or deletes a blackhole route.
    fn route(&self, at: BrokerId, change: &str, address: &str) -> anyhow::Result<()> {
        let route = ["ip", "route", change, "blackhole", address];
        docker(&[&["exec", "-u", "0", &self.container(at)][..], &route].concat()).map(drop)
    }
}
