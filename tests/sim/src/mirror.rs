//! A mirror of the log in another log, and the copier that fills it, as MirrorMaker does: each partition in its order, late,
//! and with gaps between the offsets. A server reads the mirror, and some requests of clients go to it.

use crate::{
    dice::Dice,
    ledger::{differs, run_id},
    plan::{Event, LETTER, Plan},
    server::Server,
    stage::{PARTITIONS, Stage},
};
use anyhow::Context;
use axum::{body::Body, http::Request};
use runlog_log::{
    Clock, Entry, Log, LogId, Offset, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::index::store::Storage;
use runlog_schemas::{id::RunId, partition::partition_of};
use serde_json::Value;
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;

/// The number of the mirror's server.
pub(crate) const SERVER: u32 = 2;

/// The records that the copier copies at once.
const COPIED_MAX: u64 = 12;
/// How long the mirror's server may take to apply the whole mirror.
const APPLIED_MAX: u32 = 120;

/// The mirror.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) log: MemoryLog,
    /// The next offset of each partition of the home.
    next: Mutex<Vec<Offset>>,
    paused: AtomicBool,
    /// Whether the copier has ended.
    cut_off: AtomicBool,
    /// Records that came not from the copier.
    appended: AtomicU64,
}

/// The log of a seed: with an id if it has a mirror.
pub(crate) fn home(plan: &Plan, clock: Clock) -> MemoryLog {
    let id = starts(plan).and_then(|_| LogId::memory("home"));
    MemoryLog::with(MemoryOptions { id, partitions: PARTITIONS, clock, ..MemoryOptions::default() })
}

/// When the copier of a seed begins, and its longest pause.
fn starts(plan: &Plan) -> Option<(u64, u64)> {
    plan.events.iter().find_map(|event| match event {
        Event::Mirror { from, lag } => Some((*from, *lag)),
        _ => None,
    })
}

impl Mirror {
    /// The mirror of a seed, if it has one.
    pub(crate) fn new(plan: &Plan, clock: Clock) -> Option<Self> {
        starts(plan)?;
        let options =
            MemoryOptions { id: LogId::memory("mirror"), partitions: PARTITIONS, clock, ..MemoryOptions::default() };
        let next = Mutex::new(vec![Offset::ZERO; PARTITIONS as usize]);
        let (paused, cut_off, appended) = (AtomicBool::default(), AtomicBool::default(), AtomicU64::new(0));
        Some(Self { log: MemoryLog::with(options), next, paused, cut_off, appended })
    }

    /// The next offset that the copier reads.
    pub(crate) fn next(&self, partition: PartitionId) -> Offset {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.get(partition.index()).copied().unwrap_or_default()
    }

    /// Pauses the copier, or continues.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Ends the copier.
    pub(crate) fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
    }

    /// Whether the copier has ended.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Fails the seed if the mirror has a record of its own.
    pub(crate) fn check_appended(&self, stage: &Stage) {
        let appended = self.appended.load(Ordering::Relaxed);
        if appended > 0 {
            stage.ledger().fail(format!("servers appended {appended} records to the mirror"));
        }
    }

    /// A server appended records to the mirror: only a defect does that.
    pub(crate) fn appended(&self, records: usize) {
        self.appended.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Copies at most `max` records of a partition. Returns whether there were any.
    fn copy(&self, home: &MemoryLog, partition: PartitionId, max: u64, gap: u64) -> anyhow::Result<bool> {
        let from = self.next(partition);
        let mut reader = home.reader(&[(partition, from)])?;
        let records = reader.poll(usize::try_from(max)?, Duration::ZERO)?;
        let Some(last) = records.last() else { return Ok(false) };
        let next = last.offset.saturating_add(1);
        let entry =
            |record: runlog_log::Delivery| Entry { key: record.key, value: record.value, headers: record.headers };
        let appended = self.log.append(partition, records.into_iter().map(entry).collect());
        futures_util::FutureExt::now_or_never(appended).context("the mirror answers at once")??;
        // The control record at the end of a transaction.
        self.log.skip(partition, gap);
        if let Some(kept) = self.next.lock().unwrap_or_else(PoisonError::into_inner).get_mut(partition.index()) {
            *kept = next;
        }
        Ok(true)
    }
}

/// Starts the server of the mirror once the mirror has a genesis. Before that it does not start.
pub(crate) fn serve(stage: &Arc<Stage>, storage: Storage, dir: PathBuf) -> Option<Arc<Server>> {
    stage.mirror.as_ref()?;
    let server = Server::new(SERVER, stage, storage, dir);
    let starting = server.clone();
    tokio::spawn(async move {
        while let Err(error) = starting.start().await {
            starting.tell(|| format!("the mirror's server does not start: {error:#}"));
            sleep(Duration::from_secs(1)).await;
        }
    });
    Some(server)
}

/// Copies the log until the task is ended.
pub(crate) async fn copy(stage: Arc<Stage>) {
    let (Some(mirror), Some((from, lag))) = (&stage.mirror, starts(&stage.plan)) else { return };
    let mut dice = Dice::new(stage.seed(), 99);
    sleep(Duration::from_millis(from)).await;
    loop {
        sleep(Duration::from_millis(dice.between(10, lag))).await;
        for partition in PartitionId::all(PARTITIONS) {
            let (is_turn, max, gap) = (dice.percent(70), dice.between(1, COPIED_MAX), dice.between(1, 2));
            if is_turn && !mirror.paused.load(Ordering::Relaxed) && !mirror.is_cut_off() {
                copied(&stage, mirror.copy(&stage.log, partition, max, gap));
            }
        }
    }
}

fn copied(stage: &Stage, copied: anyhow::Result<bool>) -> bool {
    match copied {
        Ok(false) => false,
        Ok(true) => {
            if let Some(link) = stage.link(SERVER) {
                link.news.notify_one();
            }
            true
        }
        Err(error) => {
            stage.ledger().fail(format!("the copier fails: {error:#}"));
            false
        }
    }
}

/// Copies the rest of the log, and checks that the mirror's server agrees with the model about each run, and that the mirror has no
/// record of its own. Partitions with a skip are exempt: a skip names an offset of the home.
pub(crate) async fn check(stage: &Stage, server: &Server) -> anyhow::Result<()> {
    let Some(mirror) = &stage.mirror else { return Ok(()) };
    for partition in PartitionId::all(PARTITIONS) {
        while copied(stage, mirror.copy(&stage.log, partition, u64::from(u16::MAX), 1)) {}
    }
    mirror.check_appended(stage);
    for run in 0..=LETTER {
        let id = run_id(run);
        let partition = partition_of(RunId::new(id.as_str())?, PARTITIONS);
        let has_skip = stage.ledger().has_skip_from(partition, 0);
        let mut difference = None;
        for _ in 0..APPLIED_MAX {
            let path = format!("/v1/runs/{id}/recovery?full=true&content=false&limit=1000&consistency=eventual");
            let recovery = without_offsets(get(server, &path).await?);
            let model = without_offsets(stage.ledger().recovery(run));
            difference = match (&model, recovery["kind"].as_str()) {
                (Value::Null, Some("not_found")) => None,
                _ => differs(&recovery, &model),
            };
            if difference.is_none() || has_skip || is_stopped(server, partition).await? {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        match difference {
            Some(_) if has_skip => stage.count("mirror of a partition with a skip"),
            Some(difference) => stage.ledger().fail(format!("in the end the mirror says of run {run}: {difference}")),
            None => stage.count("mirror agrees with the model about a run"),
        }
    }
    Ok(())
}

/// The recovery without the offsets of its calls, which differ on a mirror.
fn without_offsets(mut recovery: Value) -> Value {
    let calls = recovery.get_mut("completed").and_then(Value::as_array_mut);
    calls.into_iter().flatten().for_each(|call| call["position"] = Value::Null);
    recovery
}

pub(crate) async fn is_stopped(server: &Server, partition: PartitionId) -> anyhow::Result<bool> {
    let doctor = get(server, "/v1/doctor").await?;
    let mut rows = doctor["partitions"].as_array().into_iter().flatten();
    Ok(rows.any(|row| row["partition"] == partition.get() && row["state"] == "stopped"))
}

async fn get(server: &Server, path: &str) -> anyhow::Result<Value> {
    let request = Request::builder().uri(path).body(Body::empty())?;
    let answering = server.answer(request).context("the mirror's server is down")?;
    let answer = answering.whole().await.context("no answer of the mirror's server")?;
    Ok(serde_json::from_slice(answer.body())?)
}
