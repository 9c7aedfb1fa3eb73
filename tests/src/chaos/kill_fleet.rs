//! Agents and servers on one journal in Kafka, killed with SIGKILL at every named failpoint while appends are in flight.
//!
//! ```text
//!   Slot × 4: an agent, killed and started again ─────┐               ┌─ killed-server, killed and started again
//!                                                     ├─ one topic ───┤
//!   Probe × partitions, in this process: never killed ┘               └─ killed-server
//! ```
//!
//! Each slot and each server has a thread with a plan of points. Partition 3 has no agents. Records that stop it, and
//! skips that rebuild it, let servers reach the rarer points.

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use runlog_log::{
    PartitionId,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_producer::{content::Config, failpoint as producer};
use runlog_projector::index::failpoint as projector;

use crate::{
    agent::run_in,
    agreement::witness::Witness,
    append_counter::{Appends, Counter},
    chaos::{audit::Evidence, cluster::free_ports, probes::Probe},
    hooked_log::hook,
    kafka::Broker,
    random::Random,
};

pub use agents::appends_file;

mod agents;
pub mod process_log;
mod servers;

/// A kill at no failpoint.
pub const ANYWHERE: &str = "anywhere";
/// Partitions of the journal.
pub const PARTITIONS: u32 = 4;
/// Runs that an agent works on at the same time, each on a thread of its own.
const RUNS_AT_ONCE: usize = 4;
/// Agents at a time.
const SLOTS: usize = 4;
/// Servers at a time.
const SERVERS: usize = 2;
/// The partition that has no agents.
const SICK: u16 = 3;
/// How long to wait for an append of this process in flight before a server is killed.
const IN_FLIGHT_WAIT: Duration = Duration::from_secs(30);
/// Attempts of a kill: it is repeated if no append was in flight.
const ATTEMPTS: usize = 20;
const LOOK: Duration = Duration::from_micros(200);
/// One kill in this number is reported.
const TELL_EVERY: usize = 20;

/// The points at which agents are killed.
const OF_AGENTS: [&str; 6] = [
    producer::HEAD_READ,
    producer::RECORD_NUMBERED,
    producer::CONTENT_STORED,
    producer::INTENT_ACKNOWLEDGED,
    producer::READ_BACK_ANSWERED,
    ANYWHERE,
];

/// The points at which servers are killed, without the points of a bulk build, for which their partitions are too short.
/// The model's test on disk kills at those points.
const OF_SERVERS: [&str; 11] = {
    let mut all = [ANYWHERE; 11];
    let mut at = 0;
    while at + 1 < all.len() {
        all[at] = projector::ALL[at];
        at += 1;
    }
    all
};

/// The content store of agents and servers.
pub fn content(folder: &Path) -> anyhow::Result<Config> {
    let folder = folder.join("content");
    Ok(Config::new(format!("file:{}", folder.to_str().context("a path in UTF-8")?)))
}

/// A run of this name outside of the partition without agents.
pub fn healthy_run(name: &str) -> String {
    let partitions = PartitionId::all(PARTITIONS).filter(|partition| *partition != SICK.into());
    let runs = partitions.map(|partition| run_in(partition, PARTITIONS, name));
    // The run with the smallest number.
    runs.min_by_key(|run| (run.len(), run.clone())).unwrap_or_else(|| name.to_owned())
}

/// Counts of kills, by kind of process and point.
type Kills = BTreeMap<(&'static str, &'static str), Times>;

/// Counts of kills.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    killed: usize,
    /// Kills with appends in flight; only these count.
    in_flight: usize,
}

/// A kill; it is repeated if no append was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    Counted,
    Again,
}

/// The state that all threads share.
struct Site<'a> {
    config: KafkaConfig,
    folder: &'a Path,
    ports: [u16; SERVERS],
    /// Counts the appends of this process's probes.
    counter: Arc<Counter>,
    /// Held by the thread that stops or rebuilds the partition without agents.
    sick: Mutex<()>,
    kills: Mutex<Kills>,
    wanted: usize,
    failed: AtomicBool,
    tell: &'a (dyn Fn(&str) + Sync),
}

impl Site<'_> {
    fn url(&self, server: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[server])
    }

    /// Waits until a probe has begun an append that is in flight.
    fn await_in_flight(&self) -> anyhow::Result<Appends> {
        let (begun, before) = (Instant::now(), self.counter.appends());
        loop {
            let now = self.counter.appends();
            if now.sent > before.sent && now.in_flight() > 0 {
                return Ok(now);
            }
            ensure!(begun.elapsed() < IN_FLIGHT_WAIT, "no append is in flight for {IN_FLIGHT_WAIT:?}");
            thread::sleep(LOOK);
        }
    }

    fn count(&self, who: &'static str, point: &'static str, in_flight: bool) -> Kill {
        let mut kills = self.kills.lock().unwrap_or_else(PoisonError::into_inner);
        let times = kills.entry((who, point)).or_default();
        times.killed += 1;
        if !in_flight {
            return Kill::Again;
        }
        times.in_flight += 1;
        let all: usize = kills.values().map(|times| times.in_flight).sum();
        if all.is_multiple_of(TELL_EVERY) {
            (self.tell)(&format!("{all}/{} kills", self.wanted));
        }
        Kill::Counted
    }

    /// Kills until a kill counts, or another thread has failed.
    fn until_counted(&self, mut kill: impl FnMut() -> anyhow::Result<Kill>) -> anyhow::Result<()> {
        for _ in 0..ATTEMPTS {
            if self.is_failed() || kill()? == Kill::Counted {
                return Ok(());
            }
        }
        bail!("no append was in flight at any of {ATTEMPTS} kills")
    }

    /// Runs a part of the work. If it fails, the other threads end, too, and the ends of the process logs are reported.
    fn guarded<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let done = work();
        if let Err(error) = &done
            && !self.failed.swap(true, Ordering::SeqCst)
        {
            (self.tell)(&format!("{error:#}"));
            let servers = (0..SERVERS).map(servers::name);
            for process in servers.chain((0..SLOTS).map(agents::name)) {
                (self.tell)(&process_log::tail(self.folder, &process));
            }
        }
        done
    }

    fn is_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }
}

/// The counts of the kills and of the checks.
#[derive(Clone, Debug)]
pub struct Report {
    kills: Kills,
    acknowledged: usize,
    answers: usize,
    calls: usize,
    effects: usize,
    met: BTreeMap<String, usize>,
    lasted: Duration,
}

/// A plan of points for each of `threads`, with each point equally often.
fn plans(points: &[&'static str], kills: usize, threads: usize, random: &mut Random) -> Vec<Vec<&'static str>> {
    let mut all: Vec<&'static str> = (0..kills).map(|at| points[at % points.len()]).collect();
    random.shuffle(&mut all);
    let mut plans = vec![Vec::new(); threads];
    for (at, point) in all.into_iter().enumerate() {
        plans[at % threads].push(point);
    }
    plans
}

/// Kills `kills` processes on a new topic of the broker and checks everything. Calls `tell` with the progress.
pub fn run(broker: &Broker, kills: usize, seed: u64, tell: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Report> {
    let (folder, begun, mut random) = (tempfile::tempdir()?, Instant::now(), Random::new(seed));
    let of_servers = kills * 2 / 5;
    let agents = plans(&OF_AGENTS, kills - of_servers, SLOTS, &mut random);
    let servers = plans(&OF_SERVERS, of_servers, SERVERS, &mut random);
    let counter = Arc::<Counter>::default();
    let site = Site {
        config: broker.unique_topic(),
        folder: folder.path(),
        ports: free_ports(&mut random)?,
        counter: counter.clone(),
        sick: Mutex::default(),
        kills: Mutex::default(),
        wanted: kills,
        failed: AtomicBool::new(false),
        tell,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (ending, ports) = (Arc::new(AtomicBool::new(false)), site.ports);
    // The first server creates the topic.
    let alive = (0..ports.len()).map(|server| site.start(server, None)).collect::<anyhow::Result<Vec<_>>>()?;
    let log = hook(KafkaLog::connect(site.config.clone())?, &counter);
    let probes: Vec<_> =
        PartitionId::all(PARTITIONS).map(|partition| Arc::new(Probe::new(partition, PARTITIONS))).collect();
    let probing: Vec<_> =
        probes.iter().map(|probe| runtime.spawn(probe.clone().run(log.clone(), ending.clone()))).collect();
    let agents: Vec<_> = agents.into_iter().map(|plan| (plan, random.number())).collect();
    let alive = thread::scope(|scope| -> anyhow::Result<Vec<_>> {
        let site = &site;
        let slots: Vec<_> = agents
            .into_iter()
            .enumerate()
            .map(|(slot, (plan, seed))| scope.spawn(move || site.guarded(|| site.kill_agents(slot, &plan, seed))))
            .collect();
        let served: Vec<_> = servers
            .into_iter()
            .zip(alive)
            .enumerate()
            .map(|(server, (plan, process))| {
                scope.spawn(move || site.guarded(|| site.kill_servers(server, process, &plan)))
            })
            .collect();
        for slot in slots {
            slot.join().ok().context("a thread panicked")??;
        }
        served.into_iter().map(|server| server.join().ok().context("a thread panicked")?).collect()
    })?;
    ending.store(true, Ordering::SeqCst);
    probing.into_iter().try_for_each(|probe| runtime.block_on(probe)?)?;
    let report = site.guarded(|| site.check(&probes, begun))?;
    drop(alive);
    Ok(report)
}

impl Site<'_> {
    /// Fails unless acknowledgements, ledger and journal agree, on both servers.
    fn check(&self, probes: &[Arc<Probe>], begun: Instant) -> anyhow::Result<Report> {
        let (evidence, topic) = (Evidence::read(self.folder)?, Witness::new(&self.config, PARTITIONS)?.read()?);
        let mut calls = 0;
        for server in 0..SERVERS {
            let url = self.url(server);
            calls = evidence.check(&url)?;
            probes.iter().try_for_each(|probe| probe.check(&url, &topic))?;
        }
        let probed: usize = probes.iter().map(|probe| probe.count()).sum();
        Ok(Report {
            kills: self.kills.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            acknowledged: probed + evidence.acknowledged(),
            answers: evidence.lines("answer").count(),
            calls,
            effects: evidence.effects(),
            met: evidence.count("met", "class"),
            lasted: begun.elapsed(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<10} {:<24} {:>5} {:>16}", "KILLED", "AT", "TIMES", "APPENDS IN FLIGHT")?;
        for ((who, point), Times { killed, in_flight }) in &self.kills {
            writeln!(f, "{who:<10} {point:<24} {killed:>5} {in_flight:>16}")?;
        }
        let kills: usize = self.kills.values().map(|times| times.in_flight).sum();
        let Self { acknowledged, answers, calls, effects, met, lasted, .. } = self;
        write!(
            f,
            "{kills} kills while appends were in flight, in {} s: {acknowledged} acknowledged records and {answers} answers, all found; {effects} effects \
             of {calls} calls agree with the journal, none without a key happened twice; pending when a run was taken over: \
             {met:?}; both servers verify equal",
            lasted.as_secs()
        )
    }
}
