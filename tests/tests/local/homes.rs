//! A journal's home and its mirrors, in one process: logs in memory with ids, and a copier that keeps bytes and headers.

use anyhow::{Context, ensure};
use runlog_log::{
    Delivery, Entry, Kind, Log, LogId, Offset, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_producer::{Config as ProducerConfig, Journal, Runlog};
use runlog_projector::{
    Config, Consistency, Error, Projector,
    index::{
        bulk::Limits,
        config::Genesis as Writes,
        fold::StopKind,
        home::{self, Accept, Carried, Home, Role},
        store::{Rows, meta},
    },
};
use runlog_schemas::{
    answer::{ErrorKind, ProblemReason},
    draft::Draft,
    id::RunId,
    payload::{Genesis, Payload, Skip, lifetime::RetentionHorizon},
    record::JournalRecord,
};
use runlog_server::append::{Appender, skip};
use runlog_tests::{
    agent::{Agent, entry, id, run_in},
    agreement::bulk::{rows, same_rows},
};
use serde_json::json;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tempfile::tempdir;

const DEADLINE: Duration = Duration::from_secs(30);
const PARTITIONS: u32 = 2;

mod committed;
mod indices;
mod skips;
mod takeover;

fn log(name: &str) -> MemoryLog {
    let options = MemoryOptions { partitions: PARTITIONS, id: LogId::memory(name), ..MemoryOptions::default() };
    MemoryLog::with(options)
}

fn log_id(name: &str) -> LogId {
    LogId::memory(name).unwrap()
}

fn config(dir: &Path) -> Config {
    /// Unique in this process.
    fn unique() -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed))
    }
    Config { takeover_quiet: Duration::ZERO, ..Config::new(dir, || 0, unique) }
}

async fn serve_log(dir: &Path, log: Arc<dyn Log>) -> anyhow::Result<Arc<Projector>> {
    Ok(Arc::new(Projector::start(config(dir), log).await?))
}

async fn serve(dir: &Path, log: &MemoryLog) -> anyhow::Result<Arc<Projector>> {
    serve_log(dir, Arc::new(log.clone())).await
}

async fn deliveries(log: &impl Log, partition: PartitionId) -> anyhow::Result<Vec<Delivery>> {
    let bounds = log.bounds(partition, DEADLINE).await?;
    let (mut reader, mut all) = (log.reader(&[(partition, bounds.start)])?, Vec::new());
    while reader.position(partition).is_some_and(|position| position < bounds.end) {
        all.extend(reader.poll(1000, Duration::ZERO)?);
    }
    Ok(all)
}

/// Copies the records of `from` that `to` does not have yet. As with MirrorMaker, each transaction leaves an offset without a
/// record.
async fn mirror(from: &MemoryLog, to: &MemoryLog) -> anyhow::Result<()> {
    for partition in PartitionId::all(PARTITIONS) {
        let copied = deliveries(to, partition).await?.len();
        let new = deliveries(from, partition).await?.into_iter().skip(copied);
        for Delivery { key, value, headers, .. } in new {
            to.append(partition, vec![Entry { key, value, headers }]).await?;
            to.skip(partition, 1);
        }
    }
    Ok(())
}

/// A record of the journal of `log` with a header.
async fn carrier(log: &MemoryLog, carried: &Carried) -> anyhow::Result<Entry> {
    let first = deliveries(log, PartitionId::ZERO).await?.into_iter().next().context("a genesis")?;
    let mut headers: Vec<_> = first.headers.into_iter().filter(|(name, _)| name != home::HEADER).collect();
    headers.push(home::header(carried));
    Ok(Entry { key: first.key, value: first.value, headers })
}

fn home_of(epoch: u32, name: &str, from: Option<&str>) -> Carried {
    Carried::Home(Home { epoch, log: log_id(name), from: from.map(log_id), who: "ann".into(), why: "moved".into() })
}

fn accept_of(epoch: u32, run: Option<&str>) -> Carried {
    Carried::Accept(Accept { epoch, run: run.map(id), who: "ann".into(), why: "checked".into() })
}

fn foreign_genesis(home: &str) -> Entry {
    let payload = Payload::Genesis(Genesis { journal_id: "another".into(), partitions: PARTITIONS });
    let mut entry = entry(&JournalRecord::of_partition(id("genesis:another"), "test", payload));
    entry.headers.push(home::header(&home_of(1, home, None)));
    entry
}

/// Appends a run to each partition of a log.
async fn fill(log: &MemoryLog, name: &str) -> anyhow::Result<()> {
    for partition in PartitionId::all(PARTITIONS) {
        let mut agent = Agent::new(&run_in(partition, PARTITIONS, name));
        let records = [agent.claim(), agent.turn("one"), agent.turn("two")];
        log.append(partition, records.iter().map(entry).collect()).await?;
    }
    Ok(())
}

async fn caught_up(projector: &Projector) -> anyhow::Result<()> {
    for partition in PartitionId::all(PARTITIONS) {
        projector.caught_up(partition, DEADLINE).await?;
    }
    Ok(())
}

async fn ends(log: &MemoryLog) -> anyhow::Result<Vec<Offset>> {
    let mut ends = Vec::new();
    for partition in PartitionId::all(PARTITIONS) {
        ends.push(log.bounds(partition, DEADLINE).await?.end);
    }
    Ok(ends)
}

async fn stopped(projector: &Projector, partition: PartitionId) -> anyhow::Result<(StopKind, Offset, String)> {
    let progress = tokio::time::timeout(DEADLINE, projector.wait_until(partition, |at| at.stopped.is_some())).await??;
    let stop = progress.stopped.context("a stop")?;
    Ok((stop.kind, stop.offset, stop.error))
}

fn is_refused<T>(what: &str, result: Result<T, Error>) -> anyhow::Result<()> {
    let error = result.err().with_context(|| format!("{what} was not refused"))?;
    ensure!(error.kind() == ErrorKind::Unavailable && error.reason() == Some(ProblemReason::Mirror), "{what}: {error}");
    ensure!(error.to_string().contains("memory:home"), "{what}: {error}");
    Ok(())
}

/// The rows of a log's index: folded live, built in bulk, and after a restart.
async fn all_builds(
    log: &MemoryLog,
    settled: impl AsyncFn(&Projector) -> anyhow::Result<()>,
) -> anyhow::Result<Arc<Projector>> {
    let [live_dir, bulk_dir] = [tempdir()?, tempdir()?];
    let live = serve(live_dir.path(), log).await?;
    settled(&live).await?;
    for restart in [false, true] {
        let config = Config { bulk: Limits { offsets_min: 1, memory_bytes: 64 << 10 }, ..config(bulk_dir.path()) };
        let built = Projector::start(config, Arc::new(log.clone())).await?;
        settled(&built).await.with_context(|| format!("after a restart: {restart}"))?;
        // The partition that the server learned it from can differ.
        let home =
            |projector: &Projector| projector.home().known().map(|row| (row.epoch, row.log, row.origin, row.rival));
        ensure!(home(&built) == home(&live), "{:?}", built.home());
        for partition in PartitionId::all(PARTITIONS) {
            let (of_built, of_live) = (rows(&*built.store(partition)?)?, rows(&*live.store(partition)?)?);
            same_rows(partition, &of_built, &of_live)?;
        }
    }
    Ok(live)
}

#[tokio::test]
async fn a_new_journal_names_its_log_as_its_home_in_every_partition() -> anyhow::Result<()> {
    let (dir, log) = (tempdir()?, log("home"));
    let server = serve(dir.path(), &log).await?;
    caught_up(&server).await?;
    ensure!(server.home().role() == Role::Home);
    for partition in PartitionId::all(PARTITIONS) {
        let all = deliveries(&log, partition).await?;
        let [genesis] = all.as_slice() else { anyhow::bail!("{all:?}") };
        let Some(Carried::Home(home)) = home::carried(&genesis.headers)? else { anyhow::bail!("{genesis:?}") };
        ensure!((home.epoch, &home.log) == (1, &log_id("home")), "{home:?}");
    }
    server.wait(PartitionId::ZERO, Consistency::Latest, DEADLINE).await?;

    let (dir, without_id) = (tempdir()?, MemoryLog::new(PARTITIONS));
    let server = serve(dir.path(), &without_id).await?;
    ensure!(server.home().role() == Role::Unknown);
    let genesis = deliveries(&without_id, PartitionId::ZERO).await?.remove(0);
    ensure!(home::carried(&genesis.headers)?.is_none());
    Ok(())
}

#[tokio::test]
async fn no_append_path_of_a_mirror_appends_and_nothing_is_read_at_latest() -> anyhow::Result<()> {
    let (home_dir, mirror_dir) = (tempdir()?, tempdir()?);
    let (home, copy) = (log("home"), log("copy"));
    let at_home = serve(home_dir.path(), &home).await?;
    fill(&home, "r").await?;
    caught_up(&at_home).await?;
    mirror(&home, &copy).await?;
    let (server, before) = (serve(mirror_dir.path(), &copy).await?, ends(&copy).await?);
    caught_up(&server).await?;
    ensure!(server.home().role() == Role::Mirror);

    let zero = PartitionId::ZERO;
    let run_id: RunId = id(run_in(zero, PARTITIONS, "r"));
    server.wait(zero, Consistency::Eventual, DEADLINE).await?;
    server.wait(zero, Consistency::AtLeast(zero, 1_u32.into()), DEADLINE).await?;
    is_refused("a read at latest", server.wait(zero, Consistency::Latest, DEADLINE).await)?;
    let past = server.wait_past(zero, 1_u32.into(), Consistency::Latest, DEADLINE).await;
    is_refused("a read of a record at latest", past)?;
    let position = server.position(zero, 2_u32.into(), 0);
    let read = server.read_back(run_id.borrow(), &position, None, &[], Consistency::Latest, DEADLINE).await;
    is_refused("a read-back", read)?;

    let mut agent = Agent::new(run_id.as_str());
    let raw = server.log().append(zero, vec![entry(&agent.claim())]).await.unwrap_err();
    ensure!(raw.kind() == Kind::NotHome, "{raw}");
    let turn = json!({"type": "conversation_turn", "message_id": "m", "kind": "user", "content": "hello"});
    let record = json!({"record_id": "x", "run_id": run_id, "timestamp_millis": 1, "payload": turn});
    let appender = Arc::new(Appender::new(server.clone()));
    let draft = Draft::parse(&record.to_string())?;
    is_refused("an append", appender.append(run_id.borrow(), vec![draft], DEADLINE).await)?;
    let voids = Skip { offset: 2_u32.into(), who: "ann".into(), why: "test".into() };
    is_refused("a skip", skip(&server, zero, voids, DEADLINE).await)?;
    let embedded = Runlog::embedded(ProducerConfig::new(Journal::Local("unused".into()), "test"), server.clone());
    let opened = embedded.open(run_id.as_str()).await.err().context("a mirror let a run be claimed")?;
    ensure!(opened.to_string().contains("memory:home"), "{opened:?}");
    ensure!(ends(&copy).await? == before, "the mirror's log grew");
    ensure!(at_home.home().role() == Role::Home);
    Ok(())
}

#[tokio::test]
async fn a_log_without_an_id_cannot_prove_to_be_the_home() -> anyhow::Result<()> {
    let (home_dir, dir) = (tempdir()?, tempdir()?);
    let (home, copy) = (log("home"), MemoryLog::new(PARTITIONS));
    serve(home_dir.path(), &home).await?;
    mirror(&home, &copy).await?;
    let server = serve(dir.path(), &copy).await?;
    ensure!(server.home().role() == Role::Mirror);
    is_refused("a read at latest", server.wait(PartitionId::ZERO, Consistency::Latest, DEADLINE).await)
}

#[tokio::test]
async fn a_mirror_gets_no_genesis_from_its_server() -> anyhow::Result<()> {
    let (home_dir, dir) = (tempdir()?, tempdir()?);
    let (home, copy) = (log("home"), log("copy"));
    serve(home_dir.path(), &home).await?;
    // The mirror has reached partition 0 only.
    let genesis = deliveries(&home, PartitionId::ZERO).await?.remove(0);
    copy.append(PartitionId::ZERO, vec![Entry { value: genesis.value, headers: genesis.headers, key: genesis.key }])
        .await?;
    let server = serve(dir.path(), &copy).await?;
    ensure!(server.home().role() == Role::Mirror);
    ensure!(ends(&copy).await? == [1_u32.into(), Offset::ZERO]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_did_not_create_an_empty_topic_leaves_it_empty() -> anyhow::Result<()> {
    let (dir, empty) = (tempdir()?, log("copy"));
    let awaits = |dir: &Path| Config { genesis: Writes::Await, ..config(dir) };
    let refused = Projector::start(awaits(dir.path()), Arc::new(empty.clone())).await.err().context("it was served")?;
    ensure!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("--new-journal"), "{refused}");
    ensure!(ends(&empty).await? == [Offset::ZERO; 2]);

    // Another server writes the genesis meanwhile.
    let other = tempdir()?;
    let waiting = tokio::spawn(Projector::start(awaits(dir.path()), Arc::new(empty.clone())));
    serve(other.path(), &empty).await?;
    ensure!(waiting.await??.home().role() == Role::Home);
    Ok(())
}

#[tokio::test]
async fn an_index_beside_an_empty_topic_answers_and_no_second_journal_begins() -> anyhow::Result<()> {
    let (dir, home) = (tempdir()?, log("home"));
    let server = serve(dir.path(), &home).await?;
    fill(&home, "r").await?;
    caught_up(&server).await?;
    let journal = server.journal().clone();
    drop(server);
    let recreated = log("recreated");
    let config = Config { genesis: Writes::Await, ..config(dir.path()) };
    let server = Projector::start(config, Arc::new(recreated.clone())).await?;
    ensure!(*server.journal() == journal && ends(&recreated).await? == [Offset::ZERO; 2]);
    for partition in PartitionId::all(PARTITIONS) {
        let (kind, _, error) = stopped(&server, partition).await?;
        ensure!(kind == StopKind::ForeignLog && error.contains("memory:home"), "{error}");
    }
    server.wait(PartitionId::ZERO, Consistency::Eventual, DEADLINE).await?;
    Ok(())
}
