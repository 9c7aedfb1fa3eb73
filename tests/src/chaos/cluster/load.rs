//! The load during the faults: gates, contended runs, imports and probes, on two servers.
//!
//! ```text
//!   GateWorker × 6 ─┐                ┌─ runlog serve (1) ─┐
//!   Group × 2 ──────┼─ kafka: ───────┤                    ├─ checked at the end, never restarted
//!   runlog import ──┘  and queries   └─ runlog serve (2) ─┘
//!   Probe × partitions ── straight to the topic
//! ```

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use runlog_log::{
    Log, PartitionId,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_producer::{Config, Journal, Runlog};
use uuid::Uuid;

use super::{Cluster, RECOVERY_WAIT};
use crate::{
    agreement::witness::Witness,
    chaos::{
        audit::Evidence,
        contended_runs::{Group, Histories},
        effect_desk::EffectDesk,
        gate_worker::{AckedList, GateWorker},
        importer::{self, Imported},
        probes::Probe,
    },
    server::{self, Launch, Server},
};

/// Partitions of the journal.
pub const PARTITIONS: u32 = 4;
/// Agents that work on a run each.
const WORKERS: usize = 6;
/// Groups of clients that compete for a run.
const GROUPS: usize = 2;
/// How long an agent waits for its intent to be read back: longer than a fault, so that most calls survive one.
const READ_BACK: Duration = Duration::from_secs(20);
/// The pause between two looks at the probes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The load, until it is ended.
pub struct Load {
    ending: Arc<AtomicBool>,
    tasks: Vec<Task>,
    importer: thread::JoinHandle<anyhow::Result<Imported>>,
    probes: Vec<Arc<Probe>>,
    world: Arc<World>,
    servers: [Server; 2],
    config: KafkaConfig,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A thread of the load.
type Task = thread::JoinHandle<anyhow::Result<Histories>>;

/// Runs an agent or a client on its own thread and runtime.
fn spawn<F: Future<Output = anyhow::Result<Histories>>>(task: impl FnOnce() -> F + Send + 'static) -> Task {
    thread::spawn(move || tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(task()))
}

/// The shared state of the workers.
#[derive(Debug)]
struct World {
    folder: PathBuf,
    desk: EffectDesk,
    contended: EffectDesk,
    answered: AtomicU64,
    /// Always false: no record is too large here.
    large: AtomicBool,
}

/// The counts of the load, and its histories.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Acknowledged records, all of them found.
    pub acknowledged: usize,
    /// Records that were sent more than once.
    pub repeated: u64,
    /// Calls of agents that work alone.
    pub calls: usize,
    /// Their effects.
    pub effects: usize,
    /// Effects of runs that several clients compete for.
    pub contended: usize,
    /// Records of imports, and imports that were run again.
    pub imported: (u64, u64),
    /// The histories.
    pub histories: Histories,
}

async fn connect(config: &KafkaConfig, server: &str) -> anyhow::Result<Runlog> {
    let journal = Journal::Kafka { brokers: config.brokers.clone(), server: server.to_owned() };
    let config = Config { read_back: READ_BACK, ..Config::new(journal, "load") };
    Ok(Runlog::connect(config).await?)
}

/// Works on one run after the other, until `ending`.
async fn work(world: &World, worker: usize, runlog: &Runlog, server: &str, ending: &AtomicBool) -> anyhow::Result<()> {
    let acked = AckedList::open(&world.folder, &worker.to_string())?;
    let World { desk, answered, large, .. } = world;
    let worker_of = GateWorker { runlog, http: server::client()?, server, desk, acked: &acked, large, answered };
    let mut number = 0;
    while !ending.load(Ordering::Relaxed) {
        worker_of.live(&format!("gate-{worker}-{number}")).await?;
        number += 1;
    }
    Ok(())
}

impl Load {
    /// Starts two servers on a new topic of the cluster, and the load.
    pub fn start(cluster: &Cluster, folder: &Path, seed: u64) -> anyhow::Result<Self> {
        let config = KafkaConfig::new(cluster.bootstrap(), format!("test-{}", Uuid::new_v4().simple()));
        let launch = |name: &str| Launch::kafka(&folder.join(name), &config).partitions(PARTITIONS).start();
        let servers = [launch("one")?, launch("two")?];
        cluster.await_in_sync(&config.topic)?;
        let (desk, contended) = (EffectDesk::in_folder(folder), EffectDesk::new(folder.join("contended")));
        let (answered, large) = (AtomicU64::new(0), AtomicBool::new(false));
        let world = Arc::new(World { folder: folder.to_owned(), desk, contended, answered, large });
        let ending = Arc::new(AtomicBool::new(false));
        let urls = [servers[0].url.clone(), servers[1].url.clone()];
        let mut tasks = Vec::new();
        for worker in 0..WORKERS {
            let (world, config, server) = (world.clone(), config.clone(), urls[worker % urls.len()].clone());
            let ending = ending.clone();
            tasks.push(spawn(move || async move {
                let runlog = connect(&config, &server).await?;
                work(&world, worker, &runlog, &server, &ending).await.map(|()| Histories::default())
            }));
        }
        for group in 0..GROUPS {
            let (world, config, urls, ending) = (world.clone(), config.clone(), urls.clone(), ending.clone());
            tasks.push(spawn(move || async move {
                let [one, other] = [connect(&config, &urls[0]).await?, connect(&config, &urls[1]).await?];
                let http = server::client()?;
                let clients = Group { writers: [&one, &other], servers: &urls, http, desk: &world.contended };
                clients.live(&group.to_string(), seed ^ group as u64, &ending).await
            }));
        }
        let log: Arc<dyn Log> = Arc::new(KafkaLog::connect(config.clone())?);
        let probes: Vec<_> =
            PartitionId::all(PARTITIONS).map(|partition| Arc::new(Probe::new(partition, PARTITIONS))).collect();
        for probe in &probes {
            let running = probe.clone().run(log.clone(), ending.clone());
            tasks.push(spawn(move || async move { running.await.map(|()| Histories::default()) }));
        }
        let (path, ended) = (folder.to_owned(), ending.clone());
        let commands = urls.iter().map(|url| crate::command::Runlog::for_server(url)).collect::<Vec<_>>();
        let importer = thread::spawn(move || importer::run(&path, &commands, &ended));
        Ok(Self { ending, tasks, importer, probes, world, servers, config })
    }

    /// The journal's topic.
    pub fn topic(&self) -> &str {
        &self.config.topic
    }

    /// Calls that were answered so far.
    pub fn answered(&self) -> u64 {
        self.world.answered.load(Ordering::Relaxed)
    }

    /// Fails if a task has failed or ended early.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        let Some(ended) = self.tasks.iter().position(thread::JoinHandle::is_finished) else { return Ok(()) };
        self.tasks.swap_remove(ended).join().ok().context("a task panicked")??;
        anyhow::bail!("a task ended before the load did")
    }

    /// Waits until every partition accepts appends again.
    pub fn await_appends(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        while !self.probes.iter().all(|probe| probe.acked_since(started)) {
            ensure!(started.elapsed() < RECOVERY_WAIT, "a partition accepts no appends for {RECOVERY_WAIT:?}");
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The longest time without an acknowledgement in any partition that overlaps with a fault.
    pub fn longest_gap(&self, begun: Instant, ended: Instant) -> Duration {
        self.probes.iter().map(|probe| probe.longest_gap(begun, ended)).max().unwrap_or_default()
    }

    /// Waits until all tasks have finished, and checks everything: acknowledged records against topic and journal, effects
    /// against the journal, histories, and the indices of both servers.
    pub fn finish(self, cluster: &Cluster) -> anyhow::Result<Figures> {
        self.ending.store(true, Ordering::Relaxed);
        let mut histories = Histories::default();
        for task in self.tasks {
            let of_task = task.join().ok().context("a task panicked")??;
            histories.runs += of_task.runs;
            histories.events += of_task.events;
            histories.uncertain += of_task.uncertain;
            histories.undecided += of_task.undecided;
        }
        let imported = self.importer.join().ok().context("the importer panicked")??;
        cluster.await_in_sync(&self.config.topic)?;
        let (evidence, topic) = (Evidence::read(&self.world.folder)?, Witness::new(&self.config, PARTITIONS)?.read()?);
        let mut calls = 0;
        for server in &self.servers {
            calls = evidence.check(&server.url)?;
            self.probes.iter().try_for_each(|probe| probe.check(&server.url, &topic))?;
            importer::check(&self.world.folder, &server.runlog(), &imported)?;
        }
        let contended = contended_effects(&self.world.contended)?;
        for server in self.servers {
            server.runlog().verified()?;
            let (code, _) = server.terminate()?;
            ensure!(code == Some(0), "a server ended with {code:?}");
        }
        let probed: usize = self.probes.iter().map(|probe| probe.count()).sum();
        Ok(Figures {
            acknowledged: probed + evidence.acknowledged() + usize::try_from(imported.records)?,
            repeated: self.probes.iter().map(|probe| probe.repeated()).sum(),
            calls,
            effects: evidence.effects(),
            contended,
            imported: (imported.records, imported.repeated),
            histories,
        })
    }
}

/// Counts the effects of contended runs; fails if one happened twice. No effect has a key.
fn contended_effects(desk: &EffectDesk) -> anyhow::Result<usize> {
    let mut happened = BTreeMap::new();
    for line in desk.effects()? {
        *happened.entry(format!("{} {}", line["run"], line["args"])).or_insert(0) += 1;
    }
    let twice: Vec<_> = happened.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "happened twice: {twice:?}");
    Ok(happened.len())
}
