//! Servers that hold some partitions of a journal answer nothing about the others: neither "not found" nor an empty list.

use anyhow::{Context, ensure};
use runlog_log::{
    Entry, Log, Offset, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::{
    Config, Projector,
    index::{
        held::Holds,
        home::{Carried, Home, header},
        projector::Consistency,
    },
};
use runlog_schemas::{
    answer::{ErrorKind, ProblemReason},
    codec,
    id::LogId,
    payload::{Genesis, Payload},
    record::JournalRecord,
};
use runlog_server::{access::AllowedHosts, operations};
use runlog_tests::{
    agent::{Agent, entry, id, run_in},
    hooked_log::{Hooks, hook},
    served,
    server::client,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const PARTITIONS: u32 = 2;
const WAIT: Duration = Duration::from_secs(30);

fn zero() -> PartitionId {
    PartitionId::ZERO
}

fn other_partition() -> PartitionId {
    PartitionId::from(1)
}

/// Counts the requests for the log's bounds.
#[derive(Debug, Default)]
struct Asked(AtomicU64);

impl Hooks for Asked {
    fn end(&self, end: Offset) -> Offset {
        self.0.fetch_add(1, Ordering::SeqCst);
        end
    }
}

struct Server {
    projector: Arc<Projector>,
    address: SocketAddr,
    http: reqwest::Client,
    requests: Arc<Asked>,
}

impl Server {
    async fn start(dir: &Path, log: &MemoryLog, holds: Holds) -> anyhow::Result<Self> {
        let requests = Arc::new(Asked::default());
        let config = Config { holds, ..Config::new(dir, || 0, served::id) };
        let projector = Arc::new(Projector::start(config, hook(log.clone(), &requests)).await?);
        let address = served::start(projector.clone(), AllowedHosts::default()).await?;
        Ok(Self { projector, address, http: client()?, requests })
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<(u16, Value)> {
        let request = self.http.request(method.to_uppercase().parse()?, format!("http://{}{path}", self.address));
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        let answer = request.send().await?;
        let (status, text) = (answer.status().as_u16(), answer.text().await?);
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    async fn get(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        self.send("get", path, None).await
    }

    /// The items of a list, as texts in order, and the partitions that it names as unavailable. Ages depend on the time.
    async fn list(&self, path: &str, items: &str) -> anyhow::Result<(BTreeSet<String>, Value)> {
        let (status, mut page) = self.get(path).await?;
        ensure!(status == 200, "{path}: {status} {page}");
        let mut listed = BTreeSet::new();
        for item in page[items].as_array_mut().with_context(|| format!("{path}: no {items}"))? {
            for parent in ["", "/run"] {
                let members = item.pointer_mut(parent).and_then(Value::as_object_mut);
                members.map(|members| members.remove("age_millis"));
            }
            listed.insert(item.to_string());
        }
        Ok((listed, page["unavailable_partitions"].take()))
    }
}

/// A server of all partitions, a server of partition 0 and a server of partition 1. Each partition has a run with a pending
/// effect and a refused record.
struct Site {
    log: MemoryLog,
    all: Server,
    first: Server,
    second: Server,
    runs: [String; 2],
    _dirs: [tempfile::TempDir; 3],
}

impl Site {
    async fn start() -> anyhow::Result<Self> {
        let log = memory_log();
        let dirs = [tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?];
        let all = Server::start(dirs[0].path(), &log, Holds::All).await?;
        let runs = [zero(), other_partition()].map(|partition| run_in(partition, PARTITIONS, "run"));
        for (partition, run) in [zero(), other_partition()].into_iter().zip(&runs) {
            let mut agent = Agent::new(run);
            let mut records = vec![agent.turn("hello"), agent.request("pay", &json!({ "sum": 1 }))];
            agent.turn("missing");
            records.push(agent.turn("after a gap"));
            log.append(partition, records.iter().map(entry).collect()).await?;
        }
        let first = Server::start(dirs[1].path(), &log, chosen([zero()])).await?;
        let second = Server::start(dirs[2].path(), &log, chosen([other_partition()])).await?;
        for server in [&all, &first, &second] {
            for partition in server.projector.held_partitions() {
                server.projector.wait(partition, Consistency::Latest, WAIT).await?;
            }
        }
        Ok(Self { log, all, first, second, runs, _dirs: dirs })
    }

    async fn ends(&self) -> anyhow::Result<Vec<Offset>> {
        let mut ends = Vec::new();
        for partition in PartitionId::all(PARTITIONS) {
            ends.push(self.log.bounds(partition, WAIT).await?.end);
        }
        Ok(ends)
    }
}

fn memory_log() -> MemoryLog {
    MemoryLog::with(MemoryOptions { partitions: PARTITIONS, id: LogId::memory("own"), ..MemoryOptions::default() })
}

fn chosen<const N: usize>(partitions: [PartitionId; N]) -> Holds {
    Holds::Chosen(partitions.into())
}

/// The answer of a server about a partition that it does not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    /// 503 with the reason `not_here`, and no record in the log.
    NotHere,
    /// 200, and `unavailable_partitions` names the partition.
    Named,
    /// The same status as of a server that holds all partitions.
    Same,
}

/// Each operation, with `RUN` for a run of the partition, and the expectation. A body of `null` is none.
fn table(run: &str) -> Vec<(&'static str, &'static str, String, Value, Expected)> {
    use Expected::{Named, NotHere, Same};
    let attribution = json!({ "who": "jo", "why": "a test" });
    let with = |members: Value| {
        let mut body = attribution.clone();
        for (name, value) in members.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body
    };
    // The body of a POST about a run is malformed: the server refuses before it reads the body.
    let garbage = || json!("garbage");
    let rows: Vec<(&str, &str, &str, Value, Expected)> = vec![
        ("get", "/v1/journal", "", Value::Null, Same),
        ("get", "/v1/whoami", "", Value::Null, Same),
        ("get", "/v1/overview", "", Value::Null, Named),
        ("get", "/v1/runs", "", Value::Null, Named),
        ("get", "/v1/runs", "?newest=true&consistency=latest", Value::Null, Named),
        ("get", "/v1/runs", "?consistency=at-least=1:0", Value::Null, Named),
        ("get", "/v1/runs/{run}", "", Value::Null, NotHere),
        ("get", "/v1/runs/{run}", "?consistency=eventual", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/records", "", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/records", "?as_of=1:2", Value::Null, NotHere),
        ("post", "/v1/runs/{run}/records", "", garbage(), NotHere),
        ("post", "/v1/runs/{run}/records", "?check=true", garbage(), NotHere),
        ("post", "/v1/runs/{run}/records", "?return=ack", garbage(), NotHere),
        ("post", "/v1/runs/{run}/claims", "", garbage(), NotHere),
        ("post", "/v1/runs/{run}/contents", "", garbage(), Same),
        ("post", "/v1/runs/{run}/copies", "", garbage(), NotHere),
        ("get", "/v1/runs/{run}/lookup", "?tool=pay&fingerprint=00", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/calls/{id}", "", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/checkpoints", "", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/checkpoints/latest", "", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/checkpoints/{id}", "", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/recovery", "", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/outcome", "?position=1:2", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/tail", "?until_end=true", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/standing/{list}", "", Value::Null, NotHere),
        ("get", "/v1/runs/{run}/facts", "", Value::Null, NotHere),
        ("post", "/v1/runs/{run}/effects/{id}/resolution", "", garbage(), NotHere),
        ("get", "/v1/indices/{index}/changes", "?until_end=true", Value::Null, NotHere),
        ("get", "/v1/tail", "?until_end=true", Value::Null, NotHere),
        ("get", "/v1/events", "?family=tool_call", Value::Null, Named),
        ("get", "/v1/events", "?run=RUN", Value::Null, NotHere),
        ("get", "/v1/effects", "?pending=true", Value::Null, Named),
        ("get", "/v1/effects", "?consistency=latest", Value::Null, Named),
        ("get", "/v1/anomalies", "", Value::Null, Named),
        ("get", "/v1/anomalies", "?run=RUN", Value::Null, NotHere),
        ("get", "/v1/anomalies", "?run=HELD", Value::Null, Named),
        ("get", "/v1/dead-letters", "", Value::Null, Named),
        ("get", "/v1/dead-letters/{at}", "", Value::Null, NotHere),
        ("post", "/v1/skips", "", with(json!({ "partition": 1, "offset": 1 })), NotHere),
        ("get", "/v1/horizons", "", Value::Null, Named),
        (
            "post",
            "/v1/horizons",
            "",
            with(json!({ "family": "conversation_turn", "until": "2020-01-01T00:00:00Z" })),
            NotHere,
        ),
        (
            "post",
            "/v1/horizons",
            "?dry_run=true",
            with(json!({ "partition": 1, "family": "conversation_turn", "until": "2020-01-01T00:00:00Z" })),
            NotHere,
        ),
        ("post", "/v1/home", "", with(json!({ "log_id": "memory:own" })), NotHere),
        ("post", "/v1/home/accepts", "", with(json!({ "unknown_runs": true })), NotHere),
        ("post", "/v1/home/accepts", "", with(json!({ "run_id": run })), NotHere),
        ("post", "/v1/verify", "", Value::Null, Named),
        ("get", "/v1/doctor", "", Value::Null, Same),
        ("get", "/healthz", "", Value::Null, Same),
        ("get", "/readyz", "", Value::Null, Same),
        ("get", "/metrics", "", Value::Null, Same),
        ("get", "/openapi.json", "", Value::Null, Same),
    ];
    let own_run = run_in(zero(), PARTITIONS, "run");
    let filled = |path: &str, query: &str| {
        let names = [("{run}", run), ("{id}", "x"), ("{list}", "wakes"), ("{index}", "runs"), ("{at}", "1:1")];
        let path = names.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
        format!("{path}{}", query.replace("RUN", run).replace("HELD", &own_run))
    };
    rows.into_iter().map(|(method, path, query, body, row)| (method, path, filled(path, query), body, row)).collect()
}

fn check_not_here(asked: &str, (status, problem): &(u16, Value), partition: PartitionId) -> anyhow::Result<()> {
    let answer = (*status, &problem["kind"], &problem["reason"], &problem["partition"]);
    ensure!(
        answer == (503, &json!("unavailable"), &json!("not_here"), &json!(partition)),
        "{asked}: {status} {problem}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_nothing_about_a_run_whose_partition_it_does_not_hold() -> anyhow::Result<()> {
    let site = Site::start().await?;
    let table = table(&site.runs[1]);
    let rows: BTreeSet<_> = table.iter().map(|(method, path, ..)| (*method, *path)).collect();
    ensure!(rows == operations().collect(), "an operation without a row, or a row without an operation");
    let ends = site.ends().await?;
    for (method, _, url, body, expected) in &table {
        let body = Some(body).filter(|body| !body.is_null());
        let before = site.first.requests.0.load(Ordering::SeqCst);
        let answer = site.first.send(method, url, body).await?;
        match expected {
            Expected::NotHere => {
                check_not_here(&format!("{method} {url}"), &answer, other_partition())?;
                ensure!(site.first.requests.0.load(Ordering::SeqCst) == before, "{method} {url} asked the log");
            }
            Expected::Named => {
                let (status, answer) = answer;
                ensure!(status == 200 && answer["unavailable_partitions"] == json!([1]), "{url}: {status} {answer}");
            }
            Expected::Same => {
                let of_all = site.all.send(method, url, body).await?;
                ensure!(answer.0 == of_all.0, "{url}: {answer:?}, {of_all:?}");
            }
        }
        ensure!(site.ends().await? == ends, "{method} {url} appended");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_about_the_runs_of_its_partitions_as_a_server_of_all_partitions_does() -> anyhow::Result<()> {
    let site = Site::start().await?;
    for (server, run) in [&site.first, &site.second].into_iter().zip(&site.runs) {
        for path in ["/records", "/recovery", "/checkpoints", "/facts", "/standing/wakes"] {
            let url = format!("/v1/runs/{run}{path}");
            let (answer, of_all) = (server.get(&url).await?, site.all.get(&url).await?);
            ensure!(answer == of_all, "{url}: {answer:?}, {of_all:?}");
        }
    }
    // A run whose partition is held cannot be read past a position of another partition, or copied from there.
    let url = format!("/v1/runs/{}?consistency=at-least=1:0", site.runs[0]);
    check_not_here(&url, &site.first.get(&url).await?, other_partition())?;
    let url = format!("/v1/runs/{}/copies", run_in(zero(), PARTITIONS, "target"));
    let ends = site.ends().await?;
    check_not_here(
        &url,
        &site.first.send("post", &url, Some(&json!({ "from": site.runs[1] }))).await?,
        other_partition(),
    )?;
    let refused =
        site.first.projector.append_to_partition(other_partition(), vec![entry(&Agent::new("x").turn("x"))]).await;
    let refused = refused.err().context("an append to a partition that is not held")?;
    let error = (refused.error.kind(), refused.error.reason(), refused.had_no_effect);
    ensure!(error == (ErrorKind::Unavailable, Some(ProblemReason::NotHere), true), "{refused:?}");
    ensure!(site.ends().await? == ends);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_servers_that_share_the_partitions_are_together_the_list_of_all_partitions() -> anyhow::Result<()> {
    let site = Site::start().await?;
    for (path, items, count) in [
        ("/v1/runs?consistency=latest", "runs", 2),
        ("/v1/runs?newest=true", "runs", 2),
        ("/v1/effects?pending=true", "effects", 2),
        ("/v1/anomalies?consistency=latest", "anomalies", 2),
        ("/v1/events?family=tool_call", "events", 2),
    ] {
        let (all, none) = site.all.list(path, items).await?;
        let (first, lacks_one) = site.first.list(path, items).await?;
        let (second, lacks_zero) = site.second.list(path, items).await?;
        ensure!((&none, &lacks_one, &lacks_zero) == (&json!([]), &json!([1]), &json!([0])), "{path}");
        ensure!(all.len() == count && first.is_disjoint(&second), "{path}: {all:?}");
        ensure!(first.union(&second).cloned().collect::<BTreeSet<_>>() == all, "{path}: {first:?} {second:?} {all:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_a_partition_that_is_not_held_is_refused_and_not_skipped() -> anyhow::Result<()> {
    let site = Site::start().await?;
    let (_, page) = site.all.get("/v1/effects?limit=1").await?;
    let cursor = page["next_cursor"].as_str().context("a cursor")?.to_owned();
    let partition = if cursor.starts_with("0:") { zero() } else { other_partition() };
    let (holds, lacks) = if partition == zero() { (&site.first, &site.second) } else { (&site.second, &site.first) };
    let url = format!("/v1/effects?limit=1&cursor={cursor}");
    check_not_here(&url, &lacks.get(&url).await?, partition)?;
    ensure!(holds.get(&url).await?.0 == 200);
    let of_no_partition = cursor.replacen(&format!("{partition}:"), "9:", 1);
    let (status, problem) = lacks.get(&format!("/v1/effects?limit=1&cursor={of_no_partition}")).await?;
    ensure!(status == 400 && problem["kind"] == "usage", "{status} {problem}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_not_held_stays_in_the_folder_and_changes_no_answer() -> anyhow::Result<()> {
    let (log, dir) = (memory_log(), tempfile::tempdir()?);
    let run = run_in(other_partition(), PARTITIONS, "run");
    // Without an HTTP server, which would keep the indices open.
    let all = Projector::start(Config::new(dir.path(), || 0, served::id), Arc::new(log.clone())).await?;
    log.append(other_partition(), vec![entry(&Agent::new(&run).turn("hello"))]).await?;
    all.wait(other_partition(), Consistency::Latest, WAIT).await?;
    let index = all.store(other_partition())?.dir().to_owned();
    drop(all);
    let first = Server::start(dir.path(), &log, chosen([zero()])).await?;
    check_not_here("the run", &first.get(&format!("/v1/runs/{run}")).await?, other_partition())?;
    let (runs, lacks) = first.list("/v1/runs", "runs").await?;
    ensure!(runs.is_empty() && lacks == json!([1]), "{runs:?} {lacks}");
    ensure!(index.exists(), "the index is kept");
    let (status, doctor) = first.get("/v1/doctor").await?;
    let says = doctor["findings"].to_string();
    ensure!(status == 200 && says.contains("partitions 1 are not on this server"), "{doctor}");
    Ok(())
}

/// A genesis of the journal, or its repetition with a home.
fn genesis(home: Option<&str>) -> Entry {
    let genesis = Genesis { journal_id: "j".into(), partitions: PARTITIONS };
    let record = JournalRecord::of_partition(id("genesis:j"), "runlog", Payload::Genesis(genesis));
    let home = home
        .and_then(LogId::memory)
        .map(|log| header(&Carried::Home(Home { epoch: 1, log, from: None, who: "jo".into(), why: "a test".into() })));
    Entry { value: codec::encode(&record), headers: home.into_iter().collect(), ..Entry::default() }
}

/// The home of a mirrored journal may be in partition 0 alone, when its record in the other partitions is not copied yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_some_partitions_appends_nothing_and_reads_no_latest_until_it_knows_a_home() -> anyhow::Result<()> {
    for (home, role, status) in [("home", "mirror", 503), ("own", "home", 200)] {
        let (log, dirs) = (memory_log(), [tempfile::tempdir()?, tempfile::tempdir()?]);
        log.append(zero(), vec![genesis(None), genesis(Some(home))]).await?;
        let mut agent = Agent::new(&run_in(other_partition(), PARTITIONS, "run"));
        log.append(other_partition(), vec![genesis(None), entry(&agent.turn("hello"))]).await?;
        let all = Server::start(dirs[0].path(), &log, Holds::All).await?;
        all.projector.caught_up(zero(), WAIT).await?;
        ensure!(all.get("/v1/journal").await?.1["role"] == role, "a server of all partitions knows the home");
        let second = Server::start(dirs[1].path(), &log, chosen([other_partition()])).await?;
        second.projector.caught_up(other_partition(), WAIT).await?;
        let run = format!("/v1/runs/{}", agent.run_id);
        let payload = json!({ "type": "conversation_turn", "message_id": "new", "kind": "user", "content": "x" });
        let turn = json!({ "run_id": agent.run_id, "record_id": "new", "payload": payload });
        let ends = (log.bounds(zero(), WAIT).await?.end, log.bounds(other_partition(), WAIT).await?.end);
        let refused = second.projector.append_to_partition(other_partition(), vec![entry(&agent.turn("again"))]).await;
        let refused = refused.err().context("an append without a known home")?;
        ensure!((refused.error.kind(), refused.had_no_effect) == (ErrorKind::Overloaded, true), "{refused:?}");
        // The server numbers the record, which needs a read at latest.
        let records = format!("{run}/records");
        let appended = second.send("post", &format!("{records}?deadline_ms=50"), Some(&turn)).await?;
        ensure!((appended.0, &appended.1["kind"]) == (503, &json!("unavailable")), "{appended:?}");
        let latest = second.get(&format!("{run}?deadline_ms=50")).await?;
        ensure!((latest.0, &latest.1["kind"]) == (503, &json!("unavailable")), "{latest:?}");
        let eventual = second.get(&format!("{run}?consistency=eventual")).await?;
        ensure!((eventual.0, &eventual.1["records"]) == (200, &json!(1)), "{eventual:?}");
        ensure!(
            ends == (log.bounds(zero(), WAIT).await?.end, log.bounds(other_partition(), WAIT).await?.end),
            "a record was appended"
        );
        let (_, doctor) = second.get("/v1/doctor").await?;
        ensure!(doctor["findings"].to_string().contains("it appends nothing"), "{doctor}");

        // A read that waits at `latest` continues when the record of the home arrives.
        let (waiting, arrived) =
            tokio::join!(second.get(&run), async { log.append(other_partition(), vec![genesis(Some(home))]).await });
        let waiting = waiting?;
        arrived?;
        ensure!(waiting.0 == status, "{role}: {waiting:?}");
        second.projector.caught_up(other_partition(), WAIT).await?;
        let appended = second.send("post", &records, Some(&turn)).await?;
        ensure!(appended.0 == status, "{role}: {appended:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_holds_no_partition_is_ready_and_names_all() -> anyhow::Result<()> {
    let (log, dirs) = (memory_log(), [tempfile::tempdir()?, tempfile::tempdir()?]);
    // The journal has its genesis.
    let _all = Server::start(dirs[0].path(), &log, Holds::All).await?;
    let none = Server::start(dirs[1].path(), &log, chosen([])).await?;
    let (status, ready) = none.get("/readyz").await?;
    ensure!(status == 200 && ready["state"] == "ready", "{status} {ready}");
    for path in ["/v1/runs", "/v1/effects", "/v1/events?family=tool_call", "/v1/overview"] {
        let (status, answer) = none.get(path).await?;
        ensure!(status == 200 && answer["unavailable_partitions"] == json!([0, 1]), "{path}: {status} {answer}");
    }
    Ok(())
}
