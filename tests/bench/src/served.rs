//! The server: from an empty index until it answers, its lookups, `verify`, and its restarts.

use anyhow::{Context, ensure};
use runlog_log::kafka::{KafkaConfig, KafkaLog};
use runlog_schemas::{payload::Payload, record::JournalRecord};
use runlog_tests::{
    kafka::Broker,
    server::{Launch, Server, client},
};
use serde_json::Value;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Scale,
    append::Writer,
    measure::{Latencies, cpu, open_loop, peak_mib, quantiles},
    records::{self, Journal, TOOL},
    report::{Figure, Goal, Row, Unit},
};

pub(crate) const PARTITIONS: u32 = 4;
/// Queries per second.
const RATE: u32 = 500;
/// Calls of the lookups.
const CALLS: usize = 10_000;
/// How long a rebuild or a verification may take.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// A call of the journal that has a result.
#[derive(Debug)]
pub(crate) struct Call {
    run: String,
    arguments: String,
}

pub(crate) async fn run(broker: &Broker, scale: &Scale) -> anyhow::Result<Vec<Figure>> {
    let (topic, dir) = (broker.unique_topic(), tempfile::tempdir()?);
    // Starts a server once, which appends the genesis.
    Launch::kafka(&dir.path().join("first"), &topic).partitions(PARTITIONS).start()?.kill()?;
    let calls = Arc::new(fill(&topic, scale.records).await?);
    let (mut rates, mut cpus, mut resident, mut verified, mut over) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut index, mut terminated, mut killed) = (vec![], vec![], vec![]);
    let mut latencies: [Vec<Latencies>; 3] = Default::default();
    for round in 0..scale.rounds.min(3) {
        let launch = Launch::kafka(&dir.path().join(format!("{round}")), &topic);
        let started = Instant::now();
        let server = launch.start()?;
        ready(&server).await?;
        let took = started.elapsed();
        rates.push(scale.records as f64 / took.as_secs_f64());
        cpus.push(cpu(&server.pid().to_string())?.as_secs_f64() * 1e6 / scale.records as f64);
        resident.push(peak_mib(server.pid())?);
        for (way, path) in ["/healthz", "eventual", "latest"].into_iter().enumerate() {
            latencies[way].push(measure_way(&server, &calls, path, scale.questions).await?);
        }
        let started = Instant::now();
        let answer: Value = client_for_long()?
            .post(format!("{}/v1/verify", server.url))
            .json(&Value::Null)
            .send()
            .await?
            .json()
            .await?;
        ensure!(answer["equal"] == true, "verify: {answer}");
        verified.push(scale.records as f64 / started.elapsed().as_secs_f64());
        over.push(started.elapsed().as_secs_f64() / took.as_secs_f64());
        index.push(mebibytes(launch.dir())?);
        server.terminate()?;
        let server = restarted(&launch, &mut terminated).await?;
        server.kill()?;
        restarted(&launch, &mut killed).await?.terminate()?;
        std::fs::remove_dir_all(launch.dir())?;
    }
    let method =
        format!("{} records in {PARTITIONS} partitions of a topic, `runlog serve` with its defaults.", scale.records);
    let [healthz, eventual, latest] = &latencies;
    let rebuild = Figure {
        title: "Rebuild and restart".into(),
        method: format!(
            "{method} From an empty folder to /readyz; then `verify`; then a restart after SIGTERM and after kill -9."
        ),
        rows: vec![
            Row::new("rebuilt until it serves", Unit::RecordsPerSecond, rates).goal(Goal::AtLeast(150_000.0)),
            Row::new("rebuild", Unit::CpuMicrosPerRecord, cpus).goal(Goal::AtMost(9.0)),
            Row::new("resident while rebuilding, at the most", Unit::Mebibytes, resident).goal(Goal::AtMost(1024.0)),
            Row::new("verified", Unit::RecordsPerSecond, verified),
            Row::new("verify's time over the rebuild's", Unit::Ratio, over).goal(Goal::AtMost(1.2)),
            Row::new("index on disk", Unit::Mebibytes, index),
            Row::new("restart after SIGTERM", Unit::Millis, terminated).goal(Goal::AtMost(2_000.0)),
            Row::new("restart after kill -9", Unit::Millis, killed).goal(Goal::AtMost(2_000.0)),
        ],
    };
    let lookups = Figure {
        title: "Lookups over HTTP".into(),
        method: format!(
            "{method} {RATE} questions/s, open loop, for calls all over the journal; /healthz is what HTTP alone costs."
        ),
        rows: vec![
            Row::ratio("p99, eventual over /healthz", &quantiles(0.99, eventual), &quantiles(0.99, healthz)),
            Row::new("/healthz, p50", Unit::Millis, quantiles(0.5, healthz)),
            Row::new("/healthz, p99", Unit::Millis, quantiles(0.99, healthz)),
            Row::new("at eventual, p50", Unit::Millis, quantiles(0.5, eventual)),
            Row::new("at eventual, p99", Unit::Millis, quantiles(0.99, eventual)).goal(Goal::AtMost(1.0)),
            Row::new("at latest, p50", Unit::Millis, quantiles(0.5, latest)),
            Row::new("at latest, p99", Unit::Millis, quantiles(0.99, latest)).goal(Goal::AtMost(1.5)),
        ],
    };
    Ok(vec![rebuild, lookups])
}

/// Fills a journal; returns calls of it that have a result.
pub(crate) async fn fill(topic: &KafkaConfig, count: u64) -> anyhow::Result<Vec<Call>> {
    let (mut calls, mut open, mut nth) = (Vec::new(), std::collections::HashMap::new(), 0);
    let each = (count / 4 / CALLS as u64).max(1);
    append_journal(topic, 4, count, |record| {
        let run = record.body.run_id.as_str().to_owned();
        match &record.payload {
            Payload::ToolCallRequested(call) => {
                let arguments = call.arguments.as_ref().context("arguments")?.to_value().to_string();
                open.insert(run, arguments);
            }
            Payload::ToolCallCompleted(_) if nth % each == 0 => {
                calls.extend(open.remove(&run).map(|arguments| Call { run, arguments }));
            }
            _ => {}
        }
        nth += 1;
        Ok(())
    })
    .await?;
    ensure!(!calls.is_empty(), "{count} records have no call with a result that was chosen");
    Ok(calls)
}

/// Appends the first records of a journal. Calls `show` with each record.
pub(crate) async fn append_journal(
    topic: &KafkaConfig,
    seed: u64,
    count: u64,
    mut show: impl FnMut(&JournalRecord) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (log, mut journal) = (KafkaLog::connect(topic.clone())?, Journal::new(seed, crate::RECORDS_PER_RUN));
    let mut writer = Writer::new(&log);
    for _ in 0..count {
        let record = journal.record()?;
        show(&record)?;
        let (partition, entry) = records::entry(&record, PARTITIONS)?;
        writer.append(partition, entry).await?;
    }
    writer.finish().await
}

pub(crate) async fn ready(server: &Server) -> anyhow::Result<()> {
    let (client, started) = (client()?, Instant::now());
    while client.get(format!("{}/readyz", server.url)).send().await?.status() != 200 {
        ensure!(started.elapsed() < LONG, "not ready after {LONG:?}: {}", server.stderr());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn restarted(launch: &Launch, took: &mut Vec<f64>) -> anyhow::Result<Server> {
    let started = Instant::now();
    let server = launch.start()?;
    ready(&server).await?;
    took.push(started.elapsed().as_secs_f64() * 1000.0);
    Ok(server)
}

fn client_for_long() -> anyhow::Result<reqwest::Client> {
    Ok(runlog_producer::Tls::default().http_client(false)?.no_proxy().timeout(LONG).build()?)
}

/// Measures `/healthz`, or lookups at a consistency.
async fn measure_way(
    server: &Server,
    calls: &Arc<Vec<Call>>,
    way: &'static str,
    count: u32,
) -> anyhow::Result<Latencies> {
    let (client, url) = (client()?, server.url.clone());
    let work = |nth: u32| {
        let (client, url, calls) = (client.clone(), url.clone(), calls.clone());
        async move {
            if way != "/healthz" {
                return look_up(client, url, calls, way, nth).await;
            }
            let answer = client.get(format!("{url}/healthz")).send().await?;
            ensure!(answer.status() == 200, "{answer:?}");
            answer.bytes().await?;
            Ok(())
        }
    };
    open_loop(RATE, RATE, work).await?;
    open_loop(RATE, count, work).await
}

/// Looks up one of the calls, with a stride over the whole journal, not in its order.
pub(crate) async fn look_up(
    client: reqwest::Client,
    url: String,
    calls: Arc<Vec<Call>>,
    consistency: &'static str,
    nth: u32,
) -> anyhow::Result<()> {
    let call = calls.get(nth as usize * 7919 % calls.len()).context("a call")?;
    let query = [("tool", TOOL), ("args", call.arguments.as_str()), ("consistency", consistency)];
    let url = reqwest::Url::parse_with_params(&format!("{url}/v1/runs/{}/lookup", call.run), &query)?;
    let answer: Value = client.get(url).send().await?.json().await?;
    ensure!(answer["status"] == "completed", "{answer}");
    Ok(())
}

/// The disk usage of a folder's files, MiB.
pub(crate) fn mebibytes(dir: &Path) -> anyhow::Result<f64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { (mebibytes(&entry.path())? * 1048576.0) as u64 } else { metadata.len() };
    }
    Ok(bytes as f64 / 1048576.0)
}
