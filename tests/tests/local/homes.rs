//! A journal's home and its mirrors, in one process: logs in memory with ids, and a copier that keeps bytes and headers.

use anyhow::{Context, ensure};
use runlog_log::{
    Ack, BoundsAnswer, Delivery, Entry, Kind, Log, LogId, Offset, PartitionId, Reader,
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
        rebuild,
        store::{Folder, Rows, Storage, meta},
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
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tempfile::tempdir;

const DEADLINE: Duration = Duration::from_secs(30);
const PARTITIONS: u32 = 2;

/// A log with aborted transactions, whose records only uncommitted readers get.
#[derive(Clone, Debug)]
struct Transactions {
    log: MemoryLog,
    aborted: Arc<Mutex<BTreeSet<(PartitionId, Offset)>>>,
    committed: bool,
}

impl Transactions {
    fn new(log: MemoryLog) -> Self {
        Self { log, aborted: Arc::default(), committed: false }
    }

    async fn append_aborted(&self, partition: PartitionId, entry: Entry) -> anyhow::Result<()> {
        let offsets = self.log.append(partition, vec![entry]).await?;
        self.aborted.lock().unwrap().extend(offsets.into_iter().map(|offset| (partition, offset)));
        self.log.skip(partition, 1);
        Ok(())
    }
}

impl Log for Transactions {
    fn topic(&self) -> &str {
        self.log.topic()
    }

    fn id(&self) -> Option<&LogId> {
        self.log.id()
    }

    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn value_bytes_max(&self) -> usize {
        self.log.value_bytes_max()
    }

    fn reads_committed(&self) -> bool {
        self.committed
    }

    fn committed(&self) -> Option<Result<Arc<dyn Log>, runlog_log::Error>> {
        Some(Ok(Arc::new(Self { committed: true, ..self.clone() })))
    }

    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        self.log.append(partition, batch)
    }

    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        self.log.bounds(partition, deadline)
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, runlog_log::Error> {
        let reader = self.log.reader(from)?;
        let aborted = if self.committed { self.aborted.clone() } else { Arc::default() };
        Ok(Box::new(WithoutAborted { reader, aborted }))
    }
}

struct WithoutAborted {
    reader: Box<dyn Reader>,
    aborted: Arc<Mutex<BTreeSet<(PartitionId, Offset)>>>,
}

impl Reader for WithoutAborted {
    fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Delivery>, runlog_log::Error> {
        let mut records = self.reader.poll(max, timeout)?;
        let aborted = self.aborted.lock().unwrap();
        records.retain(|record| !aborted.contains(&(record.partition, record.offset)));
        Ok(records)
    }

    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.reader.position(partition)
    }

    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), runlog_log::Error> {
        self.reader.seek(partition, next)
    }

    fn release(&mut self, partition: PartitionId) -> Result<(), runlog_log::Error> {
        self.reader.release(partition)
    }
}

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
    Config::new(dir, || 0, unique)
}

async fn serve(dir: &Path, log: &(impl Log + Clone + 'static)) -> anyhow::Result<Arc<Projector>> {
    Ok(Arc::new(Projector::start(config(dir), Arc::new(log.clone())).await?))
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

fn accept_of(run: Option<&str>) -> Carried {
    Carried::Accept(Accept { run: run.map(id), who: "ann".into(), why: "checked".into() })
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
    let progress = tokio::time::timeout(DEADLINE, projector.wait_until(partition, |at| at.stopped.is_some())).await?;
    let stop = progress.stopped.context("a stop")?;
    Ok((stop.kind, stop.offset, stop.error))
}

fn is_refused<T>(what: &str, result: Result<T, Error>) -> anyhow::Result<()> {
    let error = result.err().with_context(|| format!("{what} was not refused"))?;
    ensure!(error.kind() == ErrorKind::Unavailable && error.reason() == Some(ProblemReason::Mirror), "{what}: {error}");
    ensure!(error.to_string().contains("memory:home"), "{what}: {error}");
    Ok(())
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

#[tokio::test]
async fn an_index_of_another_log_stops_by_name_and_an_older_index_is_adopted_once() -> anyhow::Result<()> {
    let (dir, home, copy) = (tempdir()?, log("home"), log("copy"));
    let server = serve(dir.path(), &home).await?;
    fill(&home, "r").await?;
    caught_up(&server).await?;
    drop(server);
    // Equal records at equal offsets: only the id differs.
    for partition in PartitionId::all(PARTITIONS) {
        for Delivery { key, value, headers, .. } in deliveries(&home, partition).await? {
            copy.append(partition, vec![Entry { key, value, headers }]).await?;
        }
    }
    let server = serve(dir.path(), &copy).await?;
    for partition in PartitionId::all(PARTITIONS) {
        let (kind, _, error) = stopped(&server, partition).await?;
        ensure!(kind == StopKind::ForeignLog, "{error}");
        ensure!(error == "the index was built from log memory:home, this is log memory:copy", "{error}");
    }
    server.wait(PartitionId::ZERO, Consistency::Eventual, DEADLINE).await?;
    drop(server);

    // An index from before logs had ids: the same records from a log without an id.
    let (older_dir, older) = (tempdir()?, MemoryLog::new(PARTITIONS));
    let server = serve(older_dir.path(), &older).await?;
    fill(&older, "r").await?;
    caught_up(&server).await?;
    ensure!(server.store(PartitionId::ZERO).row(meta::log().bytes())?.is_none());
    drop(server);
    let (first, second) = (log("first"), log("second"));
    for to in [&first, &second] {
        for partition in PartitionId::all(PARTITIONS) {
            for Delivery { key, value, headers, .. } in deliveries(&older, partition).await? {
                to.append(partition, vec![Entry { key, value, headers }]).await?;
            }
        }
    }
    let server = serve(older_dir.path(), &first).await?;
    caught_up(&server).await?;
    let adopted: Option<meta::LogRow> = server.store(PartitionId::ZERO).get(&meta::log())?;
    ensure!(adopted.is_some_and(|row| row.log == "memory:first"));
    ensure!(server.home().role() == Role::Unknown);
    drop(server);
    let server = serve(older_dir.path(), &second).await?;
    ensure!(stopped(&server, PartitionId::ZERO).await?.0 == StopKind::ForeignLog);
    Ok(())
}

#[tokio::test]
async fn an_older_index_that_differs_from_the_log_is_not_adopted() -> anyhow::Result<()> {
    let (dir, older) = (tempdir()?, MemoryLog::new(PARTITIONS));
    let server = serve(dir.path(), &older).await?;
    fill(&older, "r").await?;
    caught_up(&server).await?;
    drop(server);
    let other = log("other");
    for partition in PartitionId::all(PARTITIONS) {
        let genesis = deliveries(&older, partition).await?.remove(0);
        other
            .append(partition, vec![Entry { key: genesis.key, value: genesis.value, headers: genesis.headers }])
            .await?;
    }
    fill(&other, "s").await?;
    let server = serve(dir.path(), &other).await?;
    ensure!(stopped(&server, PartitionId::ZERO).await?.0 == StopKind::LogDiverged);
    ensure!(server.store(PartitionId::ZERO).row(meta::log().bytes())?.is_none());
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
            let (of_built, of_live) = (rows(&*built.store(partition))?, rows(&*live.store(partition))?);
            same_rows(partition, &of_built, &of_live)?;
        }
    }
    Ok(live)
}

#[tokio::test]
async fn homes_and_accepts_are_the_same_in_every_build_of_the_index() -> anyhow::Result<()> {
    let (dir, home) = (tempdir()?, log("home"));
    serve(dir.path(), &home).await?;
    fill(&home, "r").await?;
    let taken = home_of(2, "other", Some("home"));
    for carried in [accept_of(Some("b")), accept_of(None), taken, home_of(1, "late", None), accept_of(Some("a"))] {
        home.append(PartitionId::ZERO, vec![carrier(&home, &carried).await?]).await?;
    }
    fill(&home, "s").await?;
    let mut malformed = carrier(&home, &accept_of(None)).await?;
    malformed.headers.last_mut().context("a header")?.1 = b"{\"home\":{}}".to_vec();
    home.append(PartitionId::ZERO, vec![malformed, carrier(&home, &home_of(2, "rival", None)).await?]).await?;
    let server = all_builds(&home, async |projector| caught_up(projector).await).await?;
    let known = server.home().known().context("a home")?;
    ensure!(
        (known.epoch, known.log.as_str(), known.rival.as_str()) == (2, "memory:other", "memory:rival"),
        "{known:?}"
    );
    ensure!((known.origin.as_str(), known.offset) == ("memory:home", 6_u32.into()), "{known:?}");
    ensure!(server.home().role() == Role::Contested);
    let store = server.store(PartitionId::ZERO);
    for (run, offset) in [(Some("a"), 8_u32), (Some("b"), 4), (None, 5)] {
        let run_id: Option<RunId> = run.map(id);
        let row: Option<meta::AcceptRow> = store.get(&meta::accepted(run_id.as_ref().map(RunId::borrow)))?;
        ensure!(row.is_some_and(|row| row.offset == offset.into()), "{run:?}");
    }
    let other: Option<meta::HomeRow> = server.store(1_u32.try_into()?).get(&meta::home())?;
    ensure!(other.is_some_and(|row| row.epoch == 1), "the row is the partition's own");
    Ok(())
}

#[tokio::test]
async fn a_journal_that_arrives_in_another_journals_topic_stops_the_partition() -> anyhow::Result<()> {
    let (dir, home) = (tempdir()?, log("home"));
    serve(dir.path(), &home).await?;
    // Two servers created the journal at the same time: the second genesis has no effect.
    home.append(PartitionId::ZERO, vec![foreign_genesis("home")]).await?;
    fill(&home, "r").await?;
    home.append(PartitionId::ZERO, vec![foreign_genesis("elsewhere")]).await?;
    fill(&home, "s").await?;
    let server = all_builds(&home, async |projector| {
        let (kind, offset, error) = stopped(projector, PartitionId::ZERO).await?;
        ensure!((kind, offset) == (StopKind::NotAJournal, 5_u32.into()), "{kind:?} at {offset}: {error}");
        ensure!(error.contains("journal another of log memory:elsewhere"), "{error}");
        projector.caught_up(1_u32.try_into()?, DEADLINE).await?;
        Ok(())
    })
    .await?;
    ensure!(server.home().role() == Role::Home);
    Ok(())
}

fn skip_of(offset: u32) -> Entry {
    let payload = Payload::Skip(Skip { offset: offset.into(), who: "ann".into(), why: "poison".into() });
    entry(&JournalRecord::of_partition(id(format!("skip-{offset}")), "test", payload))
}

#[tokio::test]
async fn a_skip_of_another_log_stops_the_partition_until_a_skip_of_its_own_log_voids_it() -> anyhow::Result<()> {
    let (dir, home, copy, zero) = (tempdir()?, log("home"), log("copy"), PartitionId::ZERO);
    let at_home = serve(dir.path(), &home).await?;
    fill(&home, "r").await?;
    let horizon =
        RetentionHorizon { until_millis: 1, family: "turn_content".into(), who: "ann".into(), why: "law".into() };
    let horizon = entry(&JournalRecord::of_partition(id("horizon"), "test", Payload::RetentionHorizon(horizon)));
    // Voids the turn "two" of the home: the record at this offset of the mirror is another one.
    home.append(zero, vec![horizon, skip_of(3)]).await?;
    fill(&home, "s").await?;
    caught_up(&at_home).await?;
    mirror(&home, &copy).await?;
    let stops_at = 10_u32;
    let server = all_builds(&copy, async |projector| {
        let (kind, offset, error) = stopped(projector, zero).await?;
        ensure!((kind, offset) == (StopKind::ForeignSkip, stops_at.into()), "{kind:?} at {offset}: {error}");
        ensure!(
            error == "the skip at offset 10 names offset 3 of log memory:home; this log has other offsets",
            "{error}"
        );
        projector.caught_up(1_u32.try_into()?, DEADLINE).await?;
        Ok(())
    })
    .await?;
    drop(server);

    // A skip that the home writes does not end the stop, also if it names the offset of the stop. After the takeover one does.
    copy.append(zero, vec![skip_of(stops_at)]).await?;
    let still = async |projector: &Projector| {
        let reached = projector.wait_until(zero, |at| at.stopped.is_some());
        ensure!(tokio::time::timeout(DEADLINE, reached).await?.applied <= stops_at.into());
        projector.caught_up(1_u32.try_into()?, DEADLINE).await?;
        anyhow::Ok(())
    };
    drop(all_builds(&copy, async |projector| still(projector).await).await?);
    let takeover = home_of(2, "copy", Some("home"));
    for partition in PartitionId::all(PARTITIONS) {
        copy.append(partition, vec![carrier(&copy, &takeover).await?]).await?;
    }
    let (dir, live) = (tempdir()?, tempdir()?);
    let stopped_live = serve(live.path(), &copy).await?;
    ensure!(stopped(&stopped_live, zero).await?.0 == StopKind::ForeignSkip);
    // The skips by the home end no stop of the mirror: one of them is the second foreign skip.
    let second = copy.bounds(zero, DEADLINE).await?.end.get() - 2;
    copy.append(zero, vec![skip_of(stops_at), skip_of(u32::try_from(second)?)]).await?;
    for projector in [stopped_live, serve(dir.path(), &copy).await?] {
        caught_up(&projector).await?;
        ensure!(projector.home().role() == Role::Home);
    }
    let server = all_builds(&copy, async |projector| caught_up(projector).await).await?;
    let skips = runlog_projector::index::fold::skips_of(&*server.store(zero))?;
    ensure!(skips.into_keys().eq([Offset::from(stops_at), second.try_into()?]), "no other record is voided");
    Ok(())
}

#[tokio::test]
async fn a_log_that_began_as_a_mirror_is_read_committed_and_an_uncommitted_index_is_built_again() -> anyhow::Result<()>
{
    let (dir, zero) = (tempdir()?, PartitionId::ZERO);
    // The journal has no home yet when the mirror begins.
    let (home, home_dir) = (MemoryLog::new(PARTITIONS), tempdir()?);
    serve(home_dir.path(), &home).await?;
    fill(&home, "r").await?;
    let copy = Transactions::new(log("copy"));
    let genesis = deliveries(&home, zero).await?.remove(0);
    copy.append_aborted(zero, Entry { key: genesis.key, value: genesis.value, headers: genesis.headers }).await?;
    for partition in PartitionId::all(PARTITIONS) {
        for (nth, Delivery { key, value, headers, .. }) in deliveries(&home, partition).await?.into_iter().enumerate() {
            let entry = Entry { key, value, headers };
            if nth == 2 {
                copy.append_aborted(partition, entry.clone()).await?;
            }
            copy.append(partition, vec![entry]).await?;
        }
        copy.append_aborted(partition, entry(&Agent::new(&run_in(partition, PARTITIONS, "ghost")).claim())).await?;
    }
    let has_ghost = |projector: &Projector, partition: PartitionId| -> anyhow::Result<bool> {
        let ghost: RunId = id(run_in(partition, PARTITIONS, "ghost"));
        Ok(projector.store(partition).row(runlog_projector::index::store::runs::key(ghost.borrow()).bytes())?.is_some())
    };
    let server = serve(dir.path(), &copy).await?;
    caught_up(&server).await?;
    ensure!(server.home().role() == Role::Unknown && has_ghost(&server, zero)?);
    // The home is initialised, and the mirror copies that. The ghosts stay until the restart.
    let (home_record, one) = (carrier(&home, &home_of(1, "home", None)).await?, 1_u32.try_into()?);
    copy.append(zero, vec![home_record.clone()]).await?;
    copy.append(one, vec![home_record]).await?;
    caught_up(&server).await?;
    ensure!(server.home().role() == Role::Mirror && !server.log().reads_committed());
    drop(server);

    let generations =
        |partition| rebuild::generations(&Folder::new(Storage::Disk, dir.path().join("index")), partition);
    let fresh_dir = tempdir()?;
    for start in 0..3 {
        let server = serve(dir.path(), &copy).await?;
        caught_up(&server).await?;
        let fresh = serve(fresh_dir.path(), &copy).await?;
        caught_up(&fresh).await?;
        for partition in PartitionId::all(PARTITIONS) {
            ensure!(!has_ghost(&server, partition)?, "start {start}, partition {partition}");
            // The fresh index was read uncommitted, until its home was known.
            if start > 0 {
                same_rows(partition, &rows(&*server.store(partition))?, &rows(&*fresh.store(partition))?)?;
            }
        }
        ensure!(server.log().reads_committed() && generations(zero) == [2], "start {start}: {:?}", generations(zero));
    }
    Ok(())
}
