//! Benchmarks, each beside the usual alternative: `make bench`. Needs Docker and the Kafka image.
//!
//! Appends records of 500 bytes (framed): a third each of turns, requests and results, over 1,000 runs. Environment:
//! `RUNLOG_BENCH_RECORDS` (default 1,000,000) for projecting, `RUNLOG_BIN`.

use anyhow::{Context, ensure};
use rdkafka::{
    ClientConfig,
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};
use runlog_log::{
    Ack, Entry, Log,
    kafka::{KafkaConfig, KafkaLog, admin},
};
use runlog_projector::{Contents, index::query, open};
use runlog_schemas::{
    answer::LookupStatus,
    codec,
    id::{JournalSeq, Offset, OrEmpty, PartitionId, RunId, WriterSeq},
    json::Json,
    partition::partition_of,
    payload::{ConversationTurn, Payload, RunLifecycle, ToolCallCompleted, ToolCallRequested},
    record::JournalRecord,
};
use runlog_tests::kafka::Broker;
use std::{
    collections::{HashMap, VecDeque},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Bytes of a record on the wire.
const RECORD_BYTES: usize = 500;
const RUNS: u64 = 1_000;
const PARTITIONS: u32 = 4;
/// Records appended per way.
const APPENDED: usize = 300_000;
/// Rounds of each way, alternating, so that a noisy minute hits both.
const ROUNDS: usize = 3;
/// Acknowledgements awaited behind the newest append.
const OUTSTANDING: usize = 256;
/// Records per `Log::append`.
const BATCH: usize = 64;
const LOOKUPS: usize = 5_000;

/// Writes runs record by record, round robin, without a claim.
struct Writer {
    next: u64,
    seqs: HashMap<u64, (u64, u64, String)>,
    /// Encoded lengths without filling, by the record's shape.
    bare: HashMap<(u64, bool, u32, u32), usize>,
}

impl Writer {
    fn new() -> Self {
        Self { next: 0, seqs: HashMap::new(), bare: HashMap::new() }
    }

    fn record(&mut self) -> JournalRecord {
        let n = self.next;
        self.next += 1;
        let run = n % RUNS;
        let (writer_seq, journal_seq, request) = self.seqs.entry(run).or_insert((0, 0, String::new()));
        *writer_seq += 1;
        *journal_seq += 1;
        let id = format!("r{n:012}");
        let payload: Payload = match *journal_seq % 3 {
            _ if *journal_seq == 1 => RunLifecycle { status: "started".into(), reason: String::new() }.into(),
            2 => {
                request.clone_from(&id);
                call(*journal_seq).into()
            }
            0 => ToolCallCompleted {
                request_record_id: request.parse().expect("a record id"),
                result: Some(Json::from(serde_json::json!({ "ok": n }))),
                latency_ms: None,
            }
            .into(),
            _ => ConversationTurn {
                message_id: id.clone(),
                parent_id: None,
                thread_id: None,
                kind: "user".into(),
                content: Json::from(serde_json::json!("a")),
            }
            .into(),
        };
        let mut record = JournalRecord::new(run_id(run).borrow(), id.parse().expect("a record id"), "bench", payload);
        record.place.writer_id = format!("writer-{run}").parse().expect("a writer id");
        record.place.writer_seq = WriterSeq::ZERO.saturating_add(*writer_seq);
        record.place.journal_seq = JournalSeq::ZERO.saturating_add(*journal_seq);
        record.place.timestamp_millis = n;
        // Encoded once for all of its kind: the filling depends on the kind and the length of two numbers only.
        let shape = (*journal_seq % 3, *journal_seq == 1, digits(*journal_seq), digits(n));
        let bare = *self.bare.entry(shape).or_insert_with(|| codec::encode(&record).len());
        record.body.tags = vec!["x".repeat(RECORD_BYTES.saturating_sub(bare + 4).max(1))];
        record
    }
}

fn digits(number: u64) -> u32 {
    number.checked_ilog10().unwrap_or(0)
}

fn run_id(run: u64) -> RunId {
    format!("bench-{run:04}").parse().expect("a run id")
}

fn arguments(journal_seq: u64) -> serde_json::Value {
    serde_json::json!({ "n": journal_seq, "q": "seat" })
}

fn call(journal_seq: u64) -> ToolCallRequested {
    let call = ToolCallRequested {
        request_id: "q".into(),
        call_id: "c".into(),
        parent_id: None,
        vendor: None,
        tool_name: "book".into(),
        args_sha256: String::new(),
        fingerprint: OrEmpty::NONE,
        arguments: Some(Json::from(arguments(journal_seq))),
    };
    call.seal().expect("plain arguments are canonical")
}

#[allow(clippy::print_stdout, reason = "the figures are what it is for")]
fn main() -> anyhow::Result<()> {
    if let Ok(count) = std::env::var("RUNLOG_BENCH_FOLD") {
        return fold(count.parse()?);
    }
    let appends_only = std::env::var_os("RUNLOG_BENCH_APPENDS").is_some();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let broker = Broker::start()?;
    let mut figures = Vec::new();
    runtime.block_on(append(&broker.bootstrap(), &mut figures))?;
    if appends_only {
        return Ok(());
    }
    let total = std::env::var("RUNLOG_BENCH_RECORDS").ok().map(|n| n.parse()).transpose()?.unwrap_or(1_000_000);
    runtime.block_on(project(&broker.bootstrap(), total, &mut figures))?;
    let figures: Vec<_> = figures
        .iter()
        .map(|(name, unit, value)| serde_json::json!({ "name": name, "unit": unit, "value": value }))
        .collect();
    println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "figures": figures }))?);
    Ok(())
}

/// Only the fold, from memory to disk: what a profiler should look at. Nothing else runs in this process.
fn fold(count: u64) -> anyhow::Result<()> {
    use runlog_projector::index::{fold::Fold, store};
    use runlog_schemas::payload::Genesis;
    let journal = store::meta::Journal { journal_id: "bench".into(), partitions: 1 };
    let genesis = Genesis { journal_id: "bench".into(), partitions: 1 };
    let mut writer = Writer::new();
    let first = JournalRecord::of_partition("genesis".parse().expect("a record id"), "bench", genesis.into());
    let records = std::iter::once(first).chain(std::iter::from_fn(|| Some(writer.record())));
    let deliveries: Vec<_> = (0..=count)
        .zip(records)
        .map(|(offset, record)| runlog_log::Delivery {
            partition: PartitionId::ZERO,
            offset: Offset::ZERO.saturating_add(offset),
            timestamp_millis: 0,
            key: Vec::new(),
            value: codec::encode(&record),
            headers: Vec::new(),
        })
        .collect();
    let dir = tempfile::tempdir()?;
    let budget = store::Budget::new(128 << 20);
    let store = std::sync::Arc::new(store::Store::open(dir.path(), &budget, store::Mode::Live)?);
    let mut fold = Fold::resume(PartitionId::ZERO, journal, store, std::sync::Arc::new(codec::NoRegistry))?;
    let begun = Instant::now();
    for batch in deliveries.chunks(4096) {
        let step = fold.take(batch)?;
        ensure!(step == runlog_projector::index::fold::Step::Applied, "{step:?}");
    }
    figure(&mut Vec::new(), "folded", "records/s", count as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}

type Figures = Vec<(String, &'static str, f64)>;

fn figure(figures: &mut Figures, name: &str, unit: &'static str, value: f64) {
    eprintln!("{name:<44} {value:>14.3} {unit}");
    figures.push((name.to_owned(), unit, value));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Raw librdkafka against `Log::append`, both acks=all and idempotent, of the same bytes, made beforehand; then the same
/// with building and encoding the records in the loop.
async fn append(bootstrap: &str, figures: &mut Figures) -> anyhow::Result<()> {
    let (mut raw, mut ours, mut ratios, mut encoding) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut writer = Writer::new();
    let entries: Vec<_> = (0..APPENDED).map(|_| entry(&writer.record())).collect();
    for round in 0..ROUNDS {
        let theirs = raw_append(bootstrap, &format!("raw-{round}"), &entries)?;
        let mine = our_append(bootstrap, &format!("ours-{round}"), entries.clone().into_iter()).await?;
        let mut writer = Writer::new();
        let made = (0..APPENDED).map(|_| entry(&writer.record()));
        encoding.push(our_append(bootstrap, &format!("encoding-{round}"), made).await?);
        raw.push(theirs);
        ours.push(mine);
        ratios.push(mine / theirs);
    }
    figure(figures, "appended, raw librdkafka", "records/s", median(raw));
    figure(figures, "appended, runlog log", "records/s", median(ours));
    figure(figures, "appended, runlog over raw", "ratio", median(ratios));
    figure(figures, "appended, records built and encoded as well", "records/s", median(encoding));
    Ok(())
}

/// A record's partition and entry.
fn entry(record: &JournalRecord) -> (PartitionId, Entry) {
    let key = record.body.run_id.as_str().into();
    let entry = Entry { key, value: codec::encode(record), headers: Vec::new() };
    let run_id = record.body.run_id.borrow().expect("a record of a run");
    (partition_of(run_id, PARTITIONS), entry)
}

fn raw_append(bootstrap: &str, topic: &str, entries: &[(PartitionId, Entry)]) -> anyhow::Result<f64> {
    admin::create_topic(&KafkaConfig::new(bootstrap, topic), PARTITIONS)?;
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "3")
        .set("compression.type", "lz4")
        .set("queue.buffering.max.messages", "400000")
        .create()?;
    let begun = Instant::now();
    for (partition, entry) in entries {
        let mut record = BaseRecord::to(topic).partition(partition.signed()).key(&entry.key).payload(&entry.value);
        while let Err((error, back)) = producer.send(record) {
            ensure!(format!("{error}").contains("QueueFull"), "{error}");
            std::thread::yield_now();
            record = back;
        }
    }
    producer.flush(Duration::from_secs(60))?;
    Ok(entries.len() as f64 / begun.elapsed().as_secs_f64())
}

async fn our_append(
    bootstrap: &str,
    topic: &str,
    entries: impl ExactSizeIterator<Item = (PartitionId, Entry)>,
) -> anyhow::Result<f64> {
    let config = KafkaConfig::new(bootstrap, topic);
    if admin::describe(&config)?.is_none() {
        admin::create_topic(&config, PARTITIONS)?;
    }
    let log = KafkaLog::connect(config)?;
    let mut waiting: VecDeque<Ack> = VecDeque::new();
    let mut batches: Vec<Vec<Entry>> = vec![Vec::new(); PARTITIONS as usize];
    let count = entries.len();
    let begun = Instant::now();
    for (partition, entry) in entries {
        let batch = &mut batches[partition.index()];
        batch.push(entry);
        if batch.len() == BATCH {
            waiting.push_back(log.append(partition, std::mem::take(batch)));
        }
        if waiting.len() > OUTSTANDING {
            waiting.pop_front().context("an ack")?.await?;
        }
    }
    for (partition, batch) in PartitionId::all(PARTITIONS).zip(batches) {
        waiting.push_back(log.append(partition, batch));
    }
    for ack in waiting {
        ack.await?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn binary() -> PathBuf {
    std::env::var_os("RUNLOG_BIN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../bin/runlog"), Into::into)
}

fn serve(bootstrap: &str, topic: &str, data: &Path) -> anyhow::Result<Server> {
    let mut child = Command::new(binary())
        .args(["serve", "--brokers", bootstrap, "--topic", topic, "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .args(["--partitions", &PARTITIONS.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("stdout")?).read_line(&mut line)?;
    let first: serde_json::Value = serde_json::from_str(&line).context("the server's first line")?;
    let url = first["listening"].as_str().context("listening")?.to_owned();
    Ok(Server { child, url })
}

/// Projects `total` records, then looks calls up over HTTP and in this process.
async fn project(bootstrap: &str, total: u64, figures: &mut Figures) -> anyhow::Result<()> {
    let (topic, data) = ("projected", tempfile::tempdir()?);
    // The genesis first, then the records, then the measured server on an empty index.
    drop(serve(bootstrap, topic, &data.path().join("genesis"))?);
    let mut writer = Writer::new();
    our_append(bootstrap, topic, (0..usize::try_from(total)?).map(|_| entry(&writer.record()))).await?;
    let dir = data.path().join("served");
    let begun = Instant::now();
    let server = serve(bootstrap, topic, &dir)?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    while client.get(format!("{}/readyz", server.url)).send().await?.status() != 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    figure(figures, "projected, start included", "records/s", total as f64 / seconds);
    figure(figures, "resident memory while projecting, peak", "MiB", peak_mib(server.child.id())?);
    let anomalies: serde_json::Value =
        client.get(format!("{}/v1/anomalies?consistency=latest", server.url)).send().await?.json().await?;
    ensure!(anomalies["anomalies"].as_array().is_some_and(Vec::is_empty), "anomalies: {anomalies}");
    // The same server's answer without any content: what HTTP alone costs here.
    let mut micros = Vec::with_capacity(LOOKUPS);
    for _ in 0..LOOKUPS {
        let asked = Instant::now();
        let answer = client.get(format!("{}/healthz", server.url)).send().await?;
        ensure!(answer.status() == 200, "{answer:?}");
        answer.bytes().await?;
        micros.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    percentiles(figures, "healthz over HTTP", micros);
    for consistency in ["eventual", "latest"] {
        let mut micros = Vec::with_capacity(LOOKUPS);
        for n in 0..LOOKUPS as u64 {
            let args = arguments(2 + 3 * (n % 100)).to_string();
            let url = format!("{}/v1/runs/{}/lookup", server.url, run_id(n * 7 % RUNS));
            let asked = Instant::now();
            let query = [("tool", "book"), ("args", args.as_str()), ("consistency", consistency)];
            let url = reqwest::Url::parse_with_params(&url, &query)?;
            let answer: serde_json::Value = client.get(url).send().await?.json().await?;
            micros.push(asked.elapsed().as_secs_f64() * 1e6);
            ensure!(answer["status"] == "completed", "{answer}");
        }
        percentiles(figures, &format!("lookup over HTTP at {consistency}"), micros);
    }
    drop(server);
    in_process(bootstrap, topic, &dir, figures).await
}

async fn in_process(bootstrap: &str, topic: &str, dir: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let config = runlog_projector::Config::new(dir, || 0, || "bench".into());
    let projector = open::kafka(config, KafkaConfig::new(bootstrap, topic)).await?;
    let mut micros = Vec::with_capacity(LOOKUPS);
    for n in 0..LOOKUPS as u64 {
        let run = run_id(n * 7 % RUNS);
        let fingerprint = call(2 + 3 * (n % 100)).fingerprint.0.context("a fingerprint")?;
        let asked = Instant::now();
        let partition = projector.partition_of(run.borrow());
        let store = projector.store(partition);
        let place = query::TopicPartition { topic, partition };
        let answer =
            query::lookup::one(&store.view(), &Contents::none(), place, run.borrow(), fingerprint.borrow(), None)?;
        micros.push(asked.elapsed().as_secs_f64() * 1e6);
        ensure!(answer.status == LookupStatus::Completed, "{answer:?}");
    }
    percentiles(figures, "lookup in process", micros);
    Ok(())
}

fn percentiles(figures: &mut Figures, name: &str, mut micros: Vec<f64>) {
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
    figure(figures, &format!("{name}, p50"), "µs", at(0.5));
    figure(figures, &format!("{name}, p99"), "µs", at(0.99));
}

/// The most resident memory that a process had, MiB.
fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
