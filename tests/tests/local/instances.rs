//! Instances that share the partitions of a journal: when an instance answers, and which partitions it keeps.

use anyhow::{Context, ensure};
use runlog_log::{
    Delivery, Error, Log, Offset, PartitionId, Reader,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::{
    Config, Consistency, Projector,
    index::held::{Found, Holds},
};
use runlog_schemas::id::LogId;
use runlog_server::{Options, access::AllowedHosts, instances::Instances, serve};
use runlog_tests::{
    agent::{Agent, entry, run_in},
    hooked_log::{Hooks, hook},
    served,
    server::client,
    unreadable::of_schema,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use tokio::net::TcpListener;

const PARTITIONS: u32 = 4;
const WAIT: Duration = Duration::from_secs(30);

fn zero() -> PartitionId {
    PartitionId::ZERO
}

/// A log whose records arrive when it flows; the genesis and an index's last record are read before.
#[derive(Debug, Default)]
struct Held {
    flows: AtomicBool,
}

impl Hooks for Held {
    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        if max > 1 && !self.flows.load(Ordering::Acquire) {
            std::thread::park_timeout(timeout);
            return Ok(Vec::new());
        }
        reader.poll(max, timeout)
    }

    fn position(&self, reader: &dyn Reader, partition: PartitionId) -> Option<Offset> {
        if self.flows.load(Ordering::Acquire) { reader.position(partition) } else { None }
    }
}

async fn get(address: SocketAddr, path: &str) -> anyhow::Result<(u16, Value)> {
    let answer = client()?.get(format!("http://{address}{path}")).send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

async fn started(dir: &Path, log: Arc<dyn Log>, holds: Holds) -> anyhow::Result<(Arc<Projector>, SocketAddr)> {
    let config = Config { holds, ..Config::new(dir, || 0, served::id) };
    let projector = Arc::new(Projector::start(config, log).await?);
    let address = served::start(projector.clone(), AllowedHosts::default()).await?;
    Ok((projector, address))
}

/// A folder whose index has the first turn of a run, and a log that has a later record of the run.
async fn outdated(log: &MemoryLog, agent: &mut Agent) -> anyhow::Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    let projector = Projector::start(Config::new(dir.path(), || 0, served::id), Arc::new(log.clone())).await?;
    log.append(zero(), vec![entry(&agent.turn("first"))]).await?;
    projector.wait(zero(), Consistency::Latest, WAIT).await?;
    projector.end();
    drop(projector);
    Ok(dir)
}

fn chosen() -> Holds {
    Holds::Chosen([zero()].into())
}

/// The index may be restored from a copy that is hours old, while another instance has answered from all records.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_answers_eventual_after_it_has_applied_the_records_that_the_log_had_at_its_start()
-> anyhow::Result<()> {
    for (holds, answers_at_once) in [(Holds::All, true), (chosen(), false)] {
        let log = MemoryLog::new(1);
        let mut agent = Agent::new(&run_in(zero(), 1, "run"));
        let dir = outdated(&log, &mut agent).await?;
        log.append(zero(), vec![entry(&agent.turn("second"))]).await?;
        let gate = Arc::new(Held::default());
        let (projector, address) = started(dir.path(), hook(log.clone(), &gate), holds).await?;
        let run = format!("/v1/runs/{}?consistency=eventual", agent.run_id);
        for path in [run.as_str(), "/v1/runs?consistency=eventual", "/v1/effects"] {
            let mark = if path.contains('?') { '&' } else { '?' };
            let (status, answer) = get(address, &format!("{path}{mark}deadline_ms=50")).await?;
            let expected = if answers_at_once { (200, &Value::Null) } else { (503, &json!("stale")) };
            ensure!((status, &answer["kind"]) == expected, "{path}: {status} {answer}");
        }
        let lacks = if answers_at_once { json!([]) } else { json!([0]) };
        let (status, overview) = get(address, "/v1/overview").await?;
        ensure!(status == 200 && overview["unavailable_partitions"] == lacks, "{overview}");

        let waiting = tokio::spawn(async move { get(address, &run).await });
        gate.flows.store(true, Ordering::Release);
        let (status, answer) = waiting.await??;
        let records = if answers_at_once { 1..=2 } else { 2..=2 };
        ensure!(status == 200 && records.contains(&answer["records"].as_u64().unwrap_or(0)), "{status} {answer}");

        // A record after the start makes no query wait.
        projector.wait(zero(), Consistency::Latest, WAIT).await?;
        gate.flows.store(false, Ordering::Release);
        log.append(zero(), vec![entry(&agent.turn("third"))]).await?;
        let run = format!("/v1/runs/{}?consistency=eventual&deadline_ms=50", agent.run_id);
        let (status, answer) = get(address, &run).await?;
        ensure!(status == 200, "{status} {answer}");
        gate.flows.store(true, Ordering::Release);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_stops_before_the_end_of_the_start_answers_nothing_until_it_has_reached_it()
-> anyhow::Result<()> {
    for (holds, answers) in [(Holds::All, true), (chosen(), false)] {
        let log = MemoryLog::new(1);
        let mut agent = Agent::new(&run_in(zero(), 1, "run"));
        let dir = outdated(&log, &mut agent).await?;
        let unknown = of_schema([0xAB; 8], &agent.turn("of a newer version"));
        log.append(zero(), vec![unknown, entry(&Agent::new("other").turn("after"))]).await?;
        let (projector, address) = started(dir.path(), Arc::new(log.clone()), holds).await?;
        projector.wait_until(zero(), |progress| progress.stopped.is_some()).await?;
        let (status, answer) = get(address, &format!("/v1/runs/{}?consistency=eventual", agent.run_id)).await?;
        let expected = if answers { (200, &Value::Null) } else { (503, &json!("partition_stopped")) };
        ensure!((status, &answer["kind"]) == expected, "{status} {answer}");
        let (status, list) = get(address, "/v1/runs").await?;
        let lacks = if answers { json!([]) } else { json!([0]) };
        ensure!(status == 200 && list["unavailable_partitions"] == lacks, "{status} {list}");
    }
    Ok(())
}

/// The log lost records that the index has, and the other instances may not have them.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_does_not_match_the_log_answers_nothing_on_an_instance() -> anyhow::Result<()> {
    for (holds, answers) in [(Holds::All, true), (chosen(), false)] {
        let log = MemoryLog::new(1);
        let mut agent = Agent::new(&run_in(zero(), 1, "run"));
        let dir = outdated(&log, &mut agent).await?;
        let shorter = MemoryLog::new(1);
        let first = log.reader(&[(zero(), Offset::ZERO)])?.poll(1, WAIT)?.remove(0);
        let genesis = runlog_log::Entry { value: first.value, headers: first.headers, ..runlog_log::Entry::default() };
        shorter.append(zero(), vec![genesis]).await?;
        let (_, address) = started(dir.path(), Arc::new(shorter), holds).await?;
        let (status, answer) = get(address, &format!("/v1/runs/{}?consistency=eventual", agent.run_id)).await?;
        let expected = if answers { (200, &Value::Null) } else { (503, &json!("partition_stopped")) };
        ensure!((status, &answer["kind"]) == expected, "{status} {answer}");
    }
    Ok(())
}

/// A log with a run in each partition, and the runs.
async fn shared_log() -> anyhow::Result<(MemoryLog, Vec<String>)> {
    let log =
        MemoryLog::with(MemoryOptions { partitions: PARTITIONS, id: LogId::memory("own"), ..MemoryOptions::default() });
    let dir = tempfile::tempdir()?;
    Projector::start(Config::new(dir.path(), || 0, served::id), Arc::new(log.clone())).await?.end();
    let runs: Vec<_> = PartitionId::all(PARTITIONS).map(|partition| run_in(partition, PARTITIONS, "run")).collect();
    for (partition, run) in PartitionId::all(PARTITIONS).zip(&runs) {
        log.append(partition, vec![entry(&Agent::new(run).turn("hello"))]).await?;
    }
    Ok((log, runs))
}

async fn listeners(count: usize) -> anyhow::Result<Vec<(TcpListener, SocketAddr)>> {
    let mut listeners = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        listeners.push((listener, address));
    }
    Ok(listeners)
}

fn name(number: usize) -> String {
    format!("runlog-{number}")
}

/// The list of instances at these addresses, for the instance with this number.
fn list(addresses: &[SocketAddr], copies: usize, own: usize) -> anyhow::Result<Arc<Instances>> {
    let instance = |(number, address)| json!({ "name": name(number), "url": format!("http://{address}") });
    let instances: Vec<Value> = addresses.iter().enumerate().map(instance).collect();
    Ok(Arc::new(Instances::parse(&json!({ "instances": instances }).to_string(), &name(own), Some(copies))?))
}

struct Instance {
    projector: Arc<Projector>,
    address: SocketAddr,
    _dir: TempDir,
}

/// Starts the instance with this number of the list, with a folder of its own.
async fn start(
    log: &MemoryLog,
    (addresses, copies, number): (&[SocketAddr], usize, usize),
    listener: TcpListener,
) -> anyhow::Result<Instance> {
    let (dir, list) = (tempfile::tempdir()?, list(addresses, copies, number)?);
    let holds = Holds::ChosenBy(list.choose(|_, _| BTreeMap::new()));
    let config = Config { holds, ..Config::new(dir.path(), || 0, served::id) };
    let projector = Arc::new(Projector::start(config, Arc::new(log.clone())).await?);
    let mut options = Options::from(AllowedHosts::default());
    options.instances = Some(list);
    tokio::spawn(serve(listener, projector.clone(), options, std::future::pending(), WAIT));
    Ok(Instance { projector, address: addresses[number], _dir: dir })
}

/// Starts an instance of each address.
async fn started_all(log: &MemoryLog, copies: usize, count: usize) -> anyhow::Result<Vec<Instance>> {
    let listeners = listeners(count).await?;
    let addresses: Vec<_> = listeners.iter().map(|(_, address)| *address).collect();
    let mut instances = Vec::new();
    for (number, (listener, _)) in listeners.into_iter().enumerate() {
        instances.push(start(log, (&addresses, copies, number), listener).await?);
    }
    Ok(instances)
}

async fn post(address: SocketAddr, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
    let answer = client()?.post(format!("http://{address}{path}")).json(body).send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

/// The records of a partition.
fn records(log: &MemoryLog, partition: PartitionId) -> anyhow::Result<u64> {
    let bounds = futures_util::FutureExt::now_or_never(log.bounds(partition, WAIT)).context("a log in memory")??;
    Ok(bounds.end.get())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_instance_answers_and_appends_for_every_run() -> anyhow::Result<()> {
    let (log, runs) = shared_log().await?;
    for copies in [1, 2, 3] {
        let instances = started_all(&log, copies, 3).await?;
        for (partition, run) in PartitionId::all(PARTITIONS).zip(&runs) {
            let holds = |instance: &&Instance| instance.projector.check_held(partition).is_ok();
            ensure!(instances.iter().filter(holds).count() == copies, "{copies} copies of partition {partition}");
            for instance in &instances {
                let (status, answer) = get(instance.address, &format!("/v1/runs/{run}")).await?;
                ensure!(status == 200 && answer["run_id"] == **run, "{status} {answer}");
                let before = records(&log, partition)?;
                let (status, claim) = post(instance.address, &format!("/v1/runs/{run}/claims"), &json!({})).await?;
                ensure!(status == 200, "{status} {claim}");
                let turn = json!({ "run_id": run, "record_id": format!("turn {before}"), "writer_id": claim["writer_id"], "writer_epoch": claim["epoch"],
                    "payload": { "type": "conversation_turn", "message_id": "m", "kind": "user", "content": "hi" } });
                let (status, outcome) = post(instance.address, &format!("/v1/runs/{run}/records"), &turn).await?;
                ensure!(status == 200 && outcome["outcome"] == "applied", "{status} {outcome}");
                ensure!(records(&log, partition)? == before + 2, "each record is appended once");
            }
        }
        let metrics = client()?.get(format!("http://{}/metrics", instances[0].address)).send().await?.text().await?;
        let counted = metrics.lines().filter(|line| line.starts_with("runlog_forwarded_requests_total{"));
        ensure!(counted.clone().all(|line| line.contains(r#"answered="true""#)), "{metrics}");
        ensure!((counted.count() > 0) == (copies < 3), "{metrics}");
    }
    Ok(())
}

/// A run whose partition instance 0 does not hold, with its two instances in the order in which they are asked. Instance 0 and the second
/// one run. The first one's address is not used yet.
struct Elsewhere {
    log: MemoryLog,
    run: String,
    partition: PartitionId,
    door: Instance,
    second: Instance,
    first: TcpListener,
    urls: Vec<String>,
}

async fn elsewhere() -> anyhow::Result<Elsewhere> {
    let (log, runs) = shared_log().await?;
    let mut listeners: Vec<_> = listeners(3).await?.into_iter().map(Some).collect();
    let addresses: Vec<_> = listeners.iter().flatten().map(|(_, address)| *address).collect();
    let placed = list(&addresses, 2, 0)?.placement(PARTITIONS);
    let partition = PartitionId::all(PARTITIONS).find(|partition| !placed.is_here(*partition));
    let partition = partition.context("a partition that instance 0 does not hold")?;
    let urls = placed.urls(partition);
    let number = |url: &String| addresses.iter().position(|address| *url == format!("http://{address}"));
    let (first, second) = (number(&urls[0]).context("an instance")?, number(&urls[1]).context("an instance")?);
    let mut listener = |number: usize| listeners[number].take().map(|(listener, _)| listener).context("a listener");
    Ok(Elsewhere {
        run: runs[partition.index()].clone(),
        partition,
        door: start(&log, (&addresses, 2, 0), listener(0)?).await?,
        second: start(&log, (&addresses, 2, second), listener(second)?).await?,
        first: listener(first)?,
        urls,
        log,
    })
}

/// Answers each request alike, as another service at an address of the list would.
async fn impostor(listener: TcpListener, status: u16, body: Value) {
    let status = axum::http::StatusCode::from_u16(status).unwrap_or_default();
    let router = axum::Router::new().fallback(async move || (status, axum::Json(body)));
    axum::serve(listener, router).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_forwarded_once_and_refused_with_the_urls_if_no_instance_answers() -> anyhow::Result<()> {
    let Elsewhere { run, partition, door, second, first, urls, .. } = elsewhere().await?;
    drop(first);
    second.projector.end();
    let path = format!("http://{}/v1/runs/{run}", door.address);
    let forwarded = client()?.get(&path).header("runlog-forwarded", "runlog-9").send().await?;
    let claim = client()?.post(format!("{path}/claims")).header("runlog-forwarded", "runlog-9").json(&json!({}));
    for answer in [forwarded, claim.send().await?] {
        ensure!(answer.status() == 503, "{answer:?}");
        let answer: Value = answer.json().await?;
        let is_named = answer["not_here"] == json!({ "partition": partition, "instances": urls });
        ensure!(answer["reason"] == "not_here" && is_named, "{answer}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_names_no_journal_and_log_does_not_count() -> anyhow::Result<()> {
    for status in [404, 200] {
        let Elsewhere { log, run, partition, door, first, second, .. } = elsewhere().await?;
        tokio::spawn(impostor(first, status, json!({ "kind": "not_found", "detail": "no such run", "records": 7 })));
        let (read, answer) = get(door.address, &format!("/v1/runs/{run}")).await?;
        ensure!(read == 200 && answer["records"] == 1, "the next instance answers: {read} {answer}");
        let before = records(&log, partition)?;
        let (appended, answer) = post(door.address, &format!("/v1/runs/{run}/claims"), &json!({})).await?;
        ensure!(appended == 503 && answer["kind"] == "unavailable", "{appended} {answer}");
        ensure!(records(&log, partition)? == before, "no other instance gets a request that one has got");
        drop(second);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_does_not_wait_for_an_instance_that_hangs() -> anyhow::Result<()> {
    let Elsewhere { run, door, first, second, .. } = elsewhere().await?;
    // It listens and never answers, and the request may wait longer than this test.
    let path = format!("/v1/runs/{run}?consistency=latest&deadline_ms=300000");
    let (status, answer) = tokio::time::timeout(WAIT, get(door.address, &path)).await??;
    ensure!(status == 200 && answer["records"] == 1, "{status} {answer}");
    drop((first, second));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_goes_to_the_next_instance_only_if_no_byte_was_sent() -> anyhow::Result<()> {
    let Elsewhere { log, run, partition, door, first, second, .. } = elsewhere().await?;
    let before = records(&log, partition)?;
    let closes = tokio::spawn(async move {
        // Reads the beginning of a request, and closes the connection.
        let (mut connection, _) = first.accept().await?;
        tokio::io::AsyncReadExt::read(&mut connection, &mut [0; 100]).await
    });
    let path = format!("/v1/runs/{run}/claims");
    let (status, answer) = post(door.address, &path, &json!({})).await?;
    ensure!(status == 503 && answer["kind"] == "unavailable" && answer["reason"] != "not_here", "{status} {answer}");
    ensure!(records(&log, partition)? == before, "it may be in the log, so it is not sent again");
    closes.await??;
    // Nobody listens at the first address any more.
    let (status, claim) = post(door.address, &path, &json!({})).await?;
    ensure!(status == 200 && claim["epoch"] == 1, "{status} {claim}");
    ensure!(records(&log, partition)? == before + 1);
    drop(second);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_errors_name_no_instances() -> anyhow::Result<()> {
    let (log, runs) = shared_log().await?;
    let instances = started_all(&log, 3, 3).await?;
    let absent = run_in(zero(), PARTITIONS, "absent");
    let stale = format!("/v1/runs/{}?consistency=at-least=0:100&deadline_ms=20", runs[0]);
    for (path, kind) in [(format!("/v1/runs/{absent}"), "not_found"), (stale, "stale")] {
        let (_, answer) = get(instances[0].address, &path).await?;
        ensure!(answer["kind"] == kind && answer.get("not_here").is_none(), "{answer}");
    }
    Ok(())
}

/// An instance of a changed list keeps the copies that it has, because the other instances may not have built theirs yet.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_keeps_the_partitions_of_an_earlier_list_that_have_records_in_its_folder() -> anyhow::Result<()> {
    let (log, _) = shared_log().await?;
    let addresses: Vec<_> = listeners(3).await?.into_iter().map(|(_, address)| address).collect();
    let (folder, empty) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let partitions_of = async |dir: &Path, copies, serving: usize| {
        let list = list(&addresses, copies, 0)?;
        let serving = move |found: &Found<'_>| found.indexed.iter().map(|partition| (*partition, serving)).collect();
        let holds = Holds::ChosenBy(list.choose(move |found, _| serving(found)));
        let config = Config { holds, ..Config::new(dir, || 0, served::id) };
        let projector = Projector::start(config, Arc::new(log.clone())).await?;
        for partition in projector.held_partitions() {
            projector.wait(partition, Consistency::Latest, WAIT).await?;
        }
        let partitions: BTreeSet<PartitionId> = projector.held_partitions().collect();
        projector.end();
        anyhow::Ok(partitions)
    };
    let all: BTreeSet<_> = PartitionId::all(PARTITIONS).collect();
    ensure!(partitions_of(folder.path(), 3, 0).await? == all, "a full replica");
    let placed = partitions_of(empty.path(), 1, 0).await?;
    ensure!(!placed.is_empty() && placed != all, "{placed:?}");
    ensure!(partitions_of(folder.path(), 1, 0).await? == all, "no other instance serves its copy yet");
    ensure!(partitions_of(folder.path(), 1, 1).await? == placed, "the other instances serve their copies");
    // The folders are kept: an operator may go back to the earlier list.
    ensure!(partitions_of(folder.path(), 3, 0).await? == all);
    Ok(())
}
