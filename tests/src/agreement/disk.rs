//! Compares the real projector with the model over a seed's history, with its loop and RocksDB on disk. The log has gaps,
//! duplicates, a moving start and delayed records. The projector is killed at named points.
//!
//! A simulated kill has the effect of SIGKILL. The thread that reaches the point copies the index folder, and a new
//! projector continues from the copy, which lacks unflushed data. Later writes of the old projector are deleted with its
//! folder. A simulated power cut also leaves half a flush in each store of the copy.
//!
//! Every step is awaited, so a seed is killed at the same point each time.

use super::{
    EARLIER_EVERY, LOOKS,
    difference::{Difference, Found},
    encoding::{self, history},
    in_process::{InProcess, Part},
    model,
};
use crate::disk::{cut_flush, files, killed};
use anyhow::{Context, ensure};
use runlog_log::{
    Clock, Entry, Log, Offset, PartitionId,
    memory::{AppendFault, MemoryLog, MemoryOptions, Repeats},
};
use runlog_model::{Event, History, Model, Step};
use runlog_projector::{
    Config, Projector,
    index::{
        bulk::Limits,
        failpoint::{self, Failpoints},
        flush,
        fold::Stop,
        shared::Progress,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Runtime;

/// The projector is idle.
const IDLE: &str = "idle";
/// The memtables are being flushed.
const FLUSHED: &str = "flushed";
/// A flush was cut off in the middle.
const TORN: &str = "torn_flush";

/// The points at which a projector is killed.
pub const POINTS: [&str; 15] = {
    let mut all = [IDLE; 15];
    let mut at = 0;
    while at < failpoint::ALL.len() {
        all[at] = failpoint::ALL[at];
        at += 1;
    }
    all[at] = FLUSHED;
    all[at + 1] = TORN;
    all
};

/// How long one step may take.
const STEP_MAX: Duration = Duration::from_secs(60);
/// Restarts in a row at most; each may be killed.
const RESTARTS_MAX: usize = 20;

/// How often each point killed.
pub type Kills = BTreeMap<&'static str, u64>;

/// The armed kill points, and the result of a kill.
#[derive(Debug, Default)]
struct Trap {
    /// The folder of the running projector.
    dir: PathBuf,
    armed: BTreeSet<&'static str>,
    /// The copied folder from which the projector continues after a kill.
    left: Option<PathBuf>,
    kills: Kills,
    error: Option<String>,
}

impl Trap {
    /// Simulates a kill if the point is armed: copies the folder.
    fn reach(&mut self, point: &'static str) {
        if self.left.is_some() || !self.armed.remove(point) {
            return;
        }
        *self.kills.entry(point).or_default() += 1;
        let next = self.dir.with_extension(self.kills.values().sum::<u64>().to_string());
        if let Err(error) = killed(&self.dir, &next) {
            self.error = Some(format!("{error:#}"));
        }
        self.left = Some(next);
    }
}

fn locked(trap: &Mutex<Trap>) -> std::sync::MutexGuard<'_, Trap> {
    trap.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A journal on disk.
struct World {
    history: History,
    runtime: Runtime,
    log: MemoryLog,
    now: Arc<AtomicI64>,
    trap: Arc<Mutex<Trap>>,
    projector: Option<Projector>,
    /// The partitions whose last records the log holds back from readers.
    held: BTreeSet<u32>,
    model: Model,
    _folder: tempfile::TempDir,
}

/// Runs a seed's history on disk. Compares the answers at some positions, after every kill, and at the end. At the end the
/// indices must also equal a rebuild from the log.
pub fn disk(seed: u64) -> Result<(super::Checked, Kills), Difference> {
    let history = history(seed);
    let at = |position: usize| Difference::after_event(seed, position);
    let mut world = World::new(history.clone()).map_err(|error| at(0).failed(&error))?;
    let samples: BTreeSet<usize> = history.samples(LOOKS - 2).into_iter().collect();
    let (mut answers, mut position) = (0, 0);
    for (step, events) in history.steps_with_events() {
        let failed = |error: anyhow::Error| at(position).failed(&error);
        world.step(&step, &events).map_err(failed)?;
        let killed = world.settle().map_err(failed)?;
        if world.projector.is_none() {
            position += events.len();
            continue;
        }
        let sampled = (position..position + events.len()).any(|position| samples.contains(&position));
        position += events.len();
        if killed || sampled {
            answers += world
                .compare(false)
                .map_err(|error| at(position).failed(&error))?
                .map_err(|found| at(position).over(found))?;
        }
    }
    if seed.is_multiple_of(EARLIER_EVERY) && world.projector.is_some() {
        answers += world
            .compare(true)
            .map_err(|error| at(position).failed(&error))?
            .map_err(|found| at(position).over(found))?;
    }
    world.verify().map_err(|error| at(position).failed(&error))?;
    let kills = locked(&world.trap).kills.clone();
    Ok((super::Checked { model: world.model.clone(), answers }, kills))
}

impl World {
    fn new(history: History) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let now = Arc::new(AtomicI64::new(0));
        let clock = now.clone();
        let seed = history.seed;
        let log = MemoryLog::with(MemoryOptions {
            topic: history.journal.topic.clone(),
            partitions: history.journal.partitions,
            value_bytes_max: 4 << 20,
            clock: Clock::new(move || clock.load(Ordering::Relaxed)),
            repeats: seed.is_multiple_of(2).then_some(Repeats { every: 3 + seed % 5, back: 2 }),
            chunk: seed.is_multiple_of(3).then_some(2),
            ..MemoryOptions::default()
        });
        // Few histories reach these points, so they are armed from the start.
        let rare = [
            failpoint::SKIP_VOIDED,
            failpoint::STOP_REPORTED,
            failpoint::REBUILD_CAUGHT_UP,
            failpoint::BULK_FOLDED,
            failpoint::BULK_INGESTED,
        ];
        let armed = rare.get(usize::try_from(seed % 6)?).copied().into_iter().collect();
        let trap = Trap { dir: folder.path().join("index-of"), armed, ..Trap::default() };
        fs::create_dir_all(&trap.dir)?;
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            model: model(&history, None),
            trap: Arc::new(Mutex::new(trap)),
            projector: None,
            held: BTreeSet::new(),
            history,
            log,
            now,
            _folder: folder,
        })
    }

    /// Starts a projector on the folder of the previous projector. Repeats that after each kill during the start.
    fn start(&mut self) -> anyhow::Result<()> {
        for _ in 0..RESTARTS_MAX {
            // The old projector must end before its folder is deleted.
            self.projector = None;
            let (old, dir) = {
                let mut trap = locked(&self.trap);
                ensure!(trap.error.is_none(), "{:?}", trap.error);
                let next = trap.left.take().unwrap_or_else(|| trap.dir.clone());
                (std::mem::replace(&mut trap.dir, next.clone()), next)
            };
            if old != dir {
                fs::remove_dir_all(&old)?;
            }
            let trap = self.trap.clone();
            let config = Config {
                // Little memory rotates memtables often; much memory loses more in a power cut.
                memory_bytes: if self.history.seed.is_multiple_of(2) { 8 << 20 } else { 64 << 20 },
                bulk: self.bulk(),
                // The loss of a kill: almost nothing, a few records, or all since the last flush.
                flush: match self.history.seed % 3 {
                    0 => flush::Limits { records_max: 2, ..flush::Limits::default() },
                    1 => flush::Limits { records_max: 20, ..flush::Limits::default() },
                    _ => flush::Limits::default(),
                },
                failpoints: Failpoints::new(move |point| locked(&trap).reach(point)),
                ..Config::new(dir, || 0, || "an-id".to_owned())
            };
            let started = self.runtime.block_on(Projector::start(config, Arc::new(self.log.clone())));
            self.projector = Some(started.map_err(anyhow::Error::from)?);
            if locked(&self.trap).left.is_none() {
                return Ok(());
            }
        }
        anyhow::bail!("killed {RESTARTS_MAX} times in a row during the start")
    }

    /// Three of four seeds build every empty index in bulk, with little memory or with enough. Disables the build while the
    /// log holds records back, because the build would wait for them.
    fn bulk(&self) -> Limits {
        if self.history.seed % 4 == 3 || !self.held.is_empty() {
            return Limits { offsets_min: u64::MAX, ..Limits::default() };
        }
        let memory_bytes = if self.history.seed.is_multiple_of(2) { 64 << 10 } else { 64 << 20 };
        Limits { offsets_min: 1, memory_bytes }
    }

    /// Applies a step to the log or to the projector, and delivers to the model what readers get.
    fn step(&mut self, step: &Step, events: &[Event]) -> anyhow::Result<()> {
        for event in events {
            match event {
                Event::Deliver(delivery) => self.model.deliver(&encoding::encode(delivery)?.model),
                Event::StartMoved { partition, start } => self.model.start_moved(*partition, *start),
            }
        }
        match step {
            Step::Append { delivery, fault } => self.append(delivery, *fault)?,
            Step::Gap { partition, count } => self.log.skip(PartitionId::new(*partition)?, *count),
            // The log redelivers records by its own count.
            Step::Redeliver { .. } => {}
            Step::Hold { partition } => {
                self.held.insert(*partition);
                self.log.hold(PartitionId::new(*partition)?);
            }
            Step::Release { partition } => {
                self.held.remove(partition);
                self.log.release(PartitionId::new(*partition)?);
            }
            Step::MoveStart { partition, start } => {
                let partition = PartitionId::new(*partition)?;
                // The flush that retention triggers ends before the records are deleted.
                if let Some(projector) = &self.projector {
                    projector.store(partition)?.flush()?;
                }
                self.log.truncate_before(partition, Offset::new(*start)?)
            }
            Step::Crash { point } => {
                let point = POINTS[usize::try_from(point % POINTS.len() as u64)?];
                self.kill(point)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, delivery: &runlog_model::Delivery, fault: runlog_model::AppendFault) -> anyhow::Result<()> {
        let log = encoding::encode(delivery)?.log;
        self.now.store(log.timestamp_millis, Ordering::Relaxed);
        let expected = match fault {
            runlog_model::AppendFault::None => Some(log.offset),
            runlog_model::AppendFault::Unknown => {
                self.log.fail_next(AppendFault::UnknownLanded);
                None
            }
            runlog_model::AppendFault::Lost => {
                self.log.fail_next(AppendFault::UnknownLost);
                None
            }
        };
        let entry = Entry { key: log.key, value: log.value, headers: log.headers };
        let acknowledged = self.runtime.block_on(self.log.append(log.partition, vec![entry]));
        match (acknowledged, expected) {
            (Ok(offsets), Some(offset)) => ensure!(offsets == [offset], "offset {offset} is {offsets:?}"),
            (Err(error), None) => ensure!(error.kind() == runlog_log::Kind::Unknown, "{error}"),
            (other, _) => anyhow::bail!("unexpected outcome of an append: {other:?}"),
        }
        Ok(())
    }

    /// Kills the projector at a point: now, or when it reaches the point.
    fn kill(&mut self, point: &'static str) -> anyhow::Result<()> {
        locked(&self.trap).armed.insert(point);
        let Some(projector) = &self.projector else { return Ok(()) };
        match point {
            IDLE | FLUSHED | TORN => {
                if point == FLUSHED {
                    for partition in PartitionId::all(self.history.journal.partitions) {
                        projector.store(partition)?.flush()?;
                    }
                }
                locked(&self.trap).reach(point);
                if point == TORN {
                    self.tear()?;
                }
            }
            failpoint::STORE_OPENED => self.start()?,
            // The verification fails if the log has lost its start.
            failpoint::VERIFY_BUILT => drop(projector.verify()),
            _ => {}
        }
        Ok(())
    }

    /// Cuts off a flush in each store of the copy.
    fn tear(&self) -> anyhow::Result<()> {
        let Some(left) = locked(&self.trap).left.clone() else { return Ok(()) };
        let current = files(&left)?.into_keys().filter(|path| path.file_name().is_some_and(|name| name == "CURRENT"));
        current.filter_map(|path| Some(path.parent()?.to_owned())).try_for_each(|store| cut_flush(&store))
    }

    /// Waits until the projector is at the model's positions. Restarts it after a kill. Returns whether it was killed.
    fn settle(&mut self) -> anyhow::Result<bool> {
        let mut killed = false;
        if self.projector.is_none() {
            // The journal exists once every partition has its genesis.
            let has_begun = self.model.partitions()["partitions"].as_array().is_some_and(|all| {
                all.iter().all(|partition| partition["applied"] != 0 || partition["state"] == "stopped")
            });
            if !has_begun {
                return Ok(false);
            }
            self.start()?;
        }
        for _ in 0..RESTARTS_MAX {
            if locked(&self.trap).left.is_some() {
                killed = true;
                self.start()?;
            }
            self.wait()?;
            if locked(&self.trap).left.is_none() {
                return Ok(killed);
            }
        }
        anyhow::bail!("killed {RESTARTS_MAX} times in a row")
    }

    fn wait(&self) -> anyhow::Result<()> {
        let projector = self.projector.as_ref().context("a projector")?;
        let partitions = self.model.partitions();
        for row in partitions["partitions"].as_array().into_iter().flatten() {
            let partition = u32::try_from(row["partition"].as_u64().context("a partition")?)?;
            let partition = PartitionId::new(partition)?;
            let applied = Offset::new(row["applied"].as_u64().context("an offset")?)?;
            let there = |progress: &Progress| match (&progress.stopped, row["error"].as_str()) {
                (None, None) => progress.applied >= applied,
                (Some(Stop { kind, offset, .. }), Some(error)) => {
                    kind.as_str() == error && row["stopped_at"] == offset.get()
                }
                _ => false,
            };
            let waited = async { tokio::time::timeout(STEP_MAX, projector.wait_until(partition, there)).await };
            let Ok(reached) = self.runtime.block_on(waited) else {
                anyhow::bail!("the model is at {row}, the projector stays at {:?}", projector.progress(partition)?);
            };
            reached?;
        }
        Ok(())
    }

    fn compare(&self, earlier: bool) -> anyhow::Result<Result<u64, Found>> {
        let projector = self.projector.as_ref().context("a projector")?;
        let all = PartitionId::all(self.history.journal.partitions);
        let stores = all.clone().map(|partition| projector.store(partition)).collect::<Result<Vec<_>, _>>()?;
        let views: Vec<_> = stores.iter().map(|store| store.view()).collect();
        let part = |partition: PartitionId| -> anyhow::Result<_> {
            Ok(Part { applied: None, stopped: projector.progress(partition)?.stopped })
        };
        let queries = InProcess {
            topic: &self.history.journal.topic,
            rows: views.iter().collect(),
            parts: all.map(part).collect::<Result<_, _>>()?,
        };
        let (model, history) = (&self.model, &self.history);
        Ok(if earlier { super::earlier(model, &queries, history) } else { super::compare(model, &queries, history) })
    }

    /// Fails unless the indices equal a rebuild from the log, if the log is complete.
    fn verify(&self) -> anyhow::Result<()> {
        let projector = self.projector.as_ref().context("a projector")?;
        if (0..self.history.journal.partitions).all(|partition| self.model.rebuilds(partition)) {
            let verification = projector.verify().map_err(anyhow::Error::from)?;
            ensure!(verification.equal, "the indices differ from the log: {:?}", verification.partitions);
        }
        let index = locked(&self.trap).dir.join("index");
        ensure!(!super::bulk::has_build(&index)?, "files of a build are left");
        Ok(())
    }
}
