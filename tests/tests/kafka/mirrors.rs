//! A server on a mirror of a journal's topic: it answers reads that need no freshness, and refuses each request that only a
//! server of the home may answer. Otherwise two agents, one at the home and one at the mirror, would run the same effect.

use anyhow::{Context, ensure};
use runlog_log::{
    Log,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_producer::{Action, Config, Journal, Runlog as Client};
use runlog_schemas::answer::ErrorKind;
use runlog_server::operations;
use runlog_tests::{
    command::Runlog,
    kafka::Broker,
    mirror::{Mirror, Style, ends},
    older_version,
    sample_journal::{self, CLAIMED, IMPORTED, RUN},
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long a server may take to apply a mirror's records.
const WAIT: Duration = Duration::from_secs(60);
const PARTITIONS: u32 = 2;

/// A server of a home with an example of everything, and a server of its mirror. Their folders are deleted with this value.
struct Site {
    home: Server,
    mirror: Server,
    topic: Mirror,
    home_topic: KafkaConfig,
    /// The home's log id.
    home_id: String,
    folders: [TempDir; 2],
}

impl Site {
    fn start(style: Style) -> anyhow::Result<Self> {
        let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
        let config = Broker::shared().unique_topic();
        let home = Launch::kafka(folders[0].path(), &config).partitions(PARTITIONS).start()?;
        sample_journal::fill(&home, folders[0].path())?;
        let topic = Mirror::start(&config, style)?;
        let mirror = Launch::kafka(folders[1].path(), &topic.config).start()?;
        await_ready(&mirror)?;
        let home_id = log_id(&config)?;
        Ok(Self { home, mirror, topic, home_topic: config, home_id, folders })
    }
}

pub(super) fn log_id(config: &KafkaConfig) -> anyhow::Result<String> {
    Ok(KafkaLog::connect(config.clone())?.id().context("Kafka gives ids")?.to_string())
}

/// Waits until the server has applied its log.
pub(super) fn await_ready(server: &Server) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let (status, ready) = server.get("/readyz")?;
        if status == 200 {
            return Ok(());
        }
        ensure!(started.elapsed() < WAIT, "it is not ready: {status} {ready}\n{}", server.stderr());
    }
}

/// Waits until the server has applied each record that is in its log now. It may be ready before, since it looks at the log's end from
/// time to time.
pub(super) fn await_copied(server: &Server, config: &KafkaConfig) -> anyhow::Result<()> {
    let (ends, started) = (ends(config)?, Instant::now());
    loop {
        let (status, doctor) = server.get("/v1/doctor")?;
        let partitions = doctor["partitions"].as_array().with_context(|| format!("{status} {doctor}"))?;
        let applied = partitions.iter().filter_map(|partition| partition["applied"].as_i64());
        if applied.zip(&ends).filter(|(applied, end)| applied >= end).count() == ends.len() {
            return Ok(());
        }
        ensure!(started.elapsed() < WAIT, "it has not applied {ends:?}: {doctor}\n{}", server.stderr());
    }
}

/// A request: the path of its operation, its own path, and its body. Without a body it is a query.
type Request = (&'static str, String, Option<Value>);

/// The requests that only the home answers: every kind of append, and each read at `latest`.
fn home_requests(mirror_id: &str) -> Vec<Request> {
    let (who, why) = ("jo", "a test");
    let turn = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": "hello" });
    let record = |id: &str| json!({ "run_id": "new", "record_id": id, "payload": turn });
    let decision = json!({ "decision": "not_done", "revision": 2, "who": who, "why": why });
    let horizon = json!({ "family": "tool_call_completed", "until": "2026-01-01T00:00:00Z", "who": who, "why": why });
    let home = json!({ "log_id": mirror_id, "who": who, "why": why, "force": true });
    let posts = [
        ("/v1/runs/{run}/records", "/v1/runs/new/records".to_owned(), record("one")),
        ("/v1/runs/{run}/records", "/v1/runs/new/records".to_owned(), json!([record("two"), record("three")])),
        ("/v1/runs/{run}/records", "/v1/runs/new/records?return=ack".to_owned(), record("four")),
        ("/v1/runs/{run}/claims", "/v1/runs/new/claims".to_owned(), json!({ "claimed_by": who })),
        ("/v1/runs/{run}/contents", "/v1/runs/new/contents".to_owned(), record("large")),
        ("/v1/runs/{run}/copies", "/v1/runs/copy/copies".to_owned(), json!({ "from": IMPORTED })),
        ("/v1/runs/{run}/effects/{id}/resolution", format!("/v1/runs/{CLAIMED}/effects/asked/resolution"), decision),
        (
            "/v1/skips",
            "/v1/skips?force=true".to_owned(),
            json!({ "partition": 0, "offset": 2, "who": who, "why": why }),
        ),
        ("/v1/horizons", "/v1/horizons".to_owned(), horizon),
        ("/v1/home", "/v1/home".to_owned(), home),
        ("/v1/home/accepts", "/v1/home/accepts".to_owned(), json!({ "run_id": RUN, "who": who, "why": why })),
    ];
    let reads = [
        ("/v1/runs/{run}", format!("/v1/runs/{RUN}")),
        ("/v1/runs/{run}", format!("/v1/runs/{RUN}?consistency=latest")),
        ("/v1/runs/{run}/lookup", format!("/v1/runs/{CLAIMED}/lookup?tool=book&args=%7B%22seat%22%3A1%7D")),
        ("/v1/runs/{run}/recovery", format!("/v1/runs/{CLAIMED}/recovery")),
        ("/v1/runs/{run}/checkpoints/latest", format!("/v1/runs/{IMPORTED}/checkpoints/latest")),
        ("/v1/runs/{run}/calls/{id}", format!("/v1/runs/{CLAIMED}/calls/asked")),
        ("/v1/runs/{run}/outcome", format!("/v1/runs/{CLAIMED}/outcome?record_id=asked")),
    ];
    let existing: BTreeSet<_> = operations().map(|(_, path)| path).collect();
    let posts = posts.into_iter().map(|(operation, path, body)| (operation, path, Some(body)));
    let all = posts.chain(reads.into_iter().map(|(operation, path)| (operation, path, None)));
    all.filter(|(operation, ..)| existing.contains(operation)).collect()
}

#[test]
fn a_mirror_refuses_each_request_that_only_the_home_answers_and_gets_no_record() -> anyhow::Result<()> {
    let site = Site::start(Style::EXACTLY_ONCE)?;
    let requests = home_requests(&log_id(&site.topic.config)?);
    for (_, path) in operations().filter(|(method, path)| *method == "post" && *path != "/v1/verify") {
        ensure!(requests.iter().any(|(operation, ..)| *operation == path), "no request of POST {path}");
    }
    let before = ends(&site.topic.config)?;
    let mut wrong = Vec::new();
    for (_, path, body) in &requests {
        let (status, answer) = match body {
            Some(body) => site.mirror.post(path, body)?,
            None => site.mirror.get(path)?,
        };
        let refused = status == 503 && answer["kind"] == "unavailable" && answer["reason"] == "mirror";
        if !refused || answer["home"] != site.home_id.as_str() {
            wrong.push(format!("{} {path}: {status} {answer}", if body.is_some() { "POST" } else { "GET" }));
        }
    }
    let after = ends(&site.topic.config)?;
    if after != before {
        wrong.push(format!("the mirror got records: its ends were {before:?} and are {after:?}"));
    }
    ensure!(wrong.is_empty(), "a mirror answers {} requests:\n{}", wrong.len(), wrong.join("\n"));
    // The home continues.
    let (status, claim) = site.home.post("/v1/runs/new/claims", &json!({}))?;
    ensure!(status == 200, "{status} {claim}");
    Ok(())
}

/// The body of a claim as clients of an older version send it: they know neither homes nor log ids.
const OLD_CLAIM: &str = r#"{"claimed_by":"old","record_id":"old-claim","writer_id":"old"}"#;

#[test]
fn a_client_of_an_older_version_is_refused_at_a_mirror() -> anyhow::Result<()> {
    let site = Site::start(Style::AT_LEAST_ONCE)?;
    let before = ends(&site.topic.config)?;
    let host = site.mirror.url.strip_prefix("http://").context("plain HTTP")?;
    let mut connection = TcpStream::connect(host)?;
    connection.set_read_timeout(Some(WAIT))?;
    write!(
        connection,
        "POST /v1/runs/{CLAIMED}/claims?deadline_ms=30000 HTTP/1.1\r\ncontent-type: application/json\r\naccept: */*\r\n\
         connection: close\r\nhost: {host}\r\ncontent-length: {}\r\n\r\n{OLD_CLAIM}",
        OLD_CLAIM.len()
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    ensure!(answer.contains("\"kind\":\"unavailable\"") && answer.contains("had no effect"), "{answer}");
    ensure!(ends(&site.topic.config)? == before, "the mirror got a record");
    Ok(())
}

/// The answer without positions and cursors: offsets differ between a home and its mirror.
fn without_places(answer: &Value) -> Value {
    match answer {
        Value::Object(members) => {
            let places = [
                "position",
                "positions",
                "topic",
                "offset",
                "cursor",
                "next_cursor",
                "log",
                "log_id",
                "applied",
                "role",
            ];
            let others = members.iter().filter(|(name, _)| !places.contains(&name.as_str()));
            Value::Object(others.map(|(name, value)| (name.clone(), without_places(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_places).collect(),
        other => other.clone(),
    }
}

#[test]
fn a_mirror_answers_reads_that_need_no_freshness_as_the_home_does() -> anyhow::Result<()> {
    let mut site = Site::start(Style::EXACTLY_ONCE)?;
    for path in [
        format!("/v1/runs/{RUN}?consistency=eventual"),
        format!("/v1/runs/{RUN}/records?consistency=eventual"),
        format!("/v1/runs/{CLAIMED}/recovery?consistency=eventual"),
        format!("/v1/runs/{IMPORTED}/checkpoints/latest?consistency=eventual"),
        format!("/v1/runs/{CLAIMED}/lookup?tool=book&args=%7B%22seat%22%3A1%7D&consistency=eventual"),
        "/v1/effects?consistency=eventual".to_owned(),
        "/v1/runs?consistency=eventual".to_owned(),
    ] {
        let [(_, home), (status, mirror)] = [site.home.get(&path)?, site.mirror.get(&path)?];
        ensure!(status == 200, "{path}: {status} {mirror}");
        // Ages pass between two answers.
        let same = |answer| without_ages(without_places(answer));
        ensure!(same(&home) == same(&mirror), "{path}:\n{home}\n{mirror}");
    }
    for path in
        [format!("/v1/runs/{RUN}/tail?until_end=true&consistency=eventual"), "/v1/tail?until_end=true".to_owned()]
    {
        let (status, tail) = site.mirror.get(&path)?;
        ensure!(status == 200 && tail.as_str().is_some_and(|tail| tail.contains(RUN)), "{path}: {status} {tail}");
    }
    site.mirror.runlog().verified()?;
    // A mirror follows its home.
    let (_, claim) = site.home.post(&format!("/v1/runs/{CLAIMED}/claims"), &json!({ "claimed_by": "three" }))?;
    ensure!(site.topic.copy()? == 1, "the claim is copied");
    await_copied(&site.mirror, &site.topic.config)?;
    let (status, run) = site.mirror.get(&format!("/v1/runs/{CLAIMED}?consistency=eventual"))?;
    ensure!(status == 200 && run["epoch"] == claim["epoch"] && run["hash"] == claim["hash"], "{claim} {run}");
    Ok(())
}

fn without_ages(answer: Value) -> Value {
    match answer {
        Value::Object(members) => {
            let others = members.into_iter().filter(|(name, _)| name != "age_millis" && name != "lag");
            Value::Object(others.map(|(name, value)| (name, without_ages(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_ages).collect(),
        other => other,
    }
}

#[test]
fn a_producer_stops_at_a_mirror_and_at_another_log_than_its_servers() -> anyhow::Result<()> {
    let site = Site::start(Style::EXACTLY_ONCE)?;
    let before = ends(&site.topic.config)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let brokers = site.topic.config.brokers.clone();
    let through = |server: &Server| Config::new(Journal::Http(server.url.clone()), "agent");
    let straight =
        |server: &Server| Config::new(Journal::Kafka { brokers: brokers.clone(), server: server.url.clone() }, "agent");
    let open = |config: Config| runtime.block_on(async { Client::connect(config).await?.open("run").await.map(drop) });

    let refused = open(through(&site.mirror)).err().context("a mirror refuses the claim")?;
    ensure!((refused.kind(), refused.action()) == (ErrorKind::Unavailable, Action::Operator), "{refused:?}");
    let refused = open(straight(&site.mirror)).err().context("the connection is refused")?;
    ensure!((refused.kind(), refused.action()) == (ErrorKind::Unavailable, Action::Operator), "{refused:?}");
    ensure!(refused.to_string().contains(&site.home_id), "{refused}");
    // The brokers have another cluster's topic of the same name.
    let mut other = straight(&site.home);
    other.log = Some(Arc::new(KafkaLog::connect(site.topic.config.clone())?));
    let refused = open(other).err().context("the log is refused")?;
    ensure!((refused.kind(), refused.action()) == (ErrorKind::Invalid, Action::FixTheInput), "{refused:?}");
    ensure!(ends(&site.topic.config)? == before, "the mirror got a record");
    open(through(&site.home))?;
    open(straight(&site.home))?;
    Ok(())
}

#[test]
fn an_import_to_a_mirror_is_refused_and_to_the_home_is_not() -> anyhow::Result<()> {
    let site = Site::start(Style::EXACTLY_ONCE)?;
    let [home, mirror] = [&site.home_topic, &site.topic.config].map(ends);
    let file = site.folders[0].path().join("another.json");
    let trajectory = r#"[{"task_id": 2, "trial": 0, "reward": 1.0, "traj": [{"role": "user", "content": "hello"}]}]"#;
    std::fs::write(&file, trajectory)?;
    let file = file.to_str().context("a path")?;
    let import = |config: &KafkaConfig| {
        let arguments = ["import", "tau-bench", file, "--brokers", &config.brokers, "--topic", &config.topic];
        Runlog::without_server().json(&arguments)
    };
    let refused = import(&site.topic.config)?.exits(4)?;
    ensure!(refused.error_kind()? == "unavailable" && refused.stdout.contains(&site.home_id), "{}", refused.stdout);
    ensure!(ends(&site.topic.config)? == mirror?, "the mirror got a record");
    import(&site.home_topic)?.exits(0)?;
    ensure!(ends(&site.home_topic)? != home?, "the home got the run");
    Ok(())
}

#[test]
fn an_index_of_the_home_stops_on_its_mirror_and_answers_what_it_has() -> anyhow::Result<()> {
    let site = Site::start(Style::AT_LEAST_ONCE)?;
    let (_, run) = site.home.get(&format!("/v1/runs/{RUN}"))?;
    let Site { home, topic, folders, .. } = site;
    home.terminate()?;
    let copied = tempfile::tempdir()?;
    older_version::copy(&folders[0].path().join("index"), &copied.path().join("index"))?;
    let server = Launch::kafka(copied.path(), &topic.config).start()?;
    let doctor = server.runlog().json(&["doctor"])?.exits(1)?.json()?;
    let stops = doctor["partitions"].as_array().context("partitions")?;
    let says = "the index was built from log";
    ensure!(stops.iter().all(|row| row["error"].as_str().is_some_and(|error| error.contains(says))), "{doctor}");
    let (status, of_index) = server.get(&format!("/v1/runs/{RUN}?consistency=eventual"))?;
    ensure!(status == 200 && of_index["hash"] == run["hash"], "{status} {of_index}");
    Ok(())
}

/// The values of an answer's members, as text.
fn text<'a>(answer: &'a Value, pointer: &str) -> anyhow::Result<&'a str> {
    answer.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer} in {answer}"))
}

/// Queries with a position or a cursor that the server returned.
fn placed_queries(server: &Server) -> anyhow::Result<Vec<String>> {
    let get = |path: String| -> anyhow::Result<Value> {
        let (status, answer) = server.get(&path)?;
        ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    };
    let lines = get(format!("/v1/runs/{IMPORTED}/records?limit=1&consistency=eventual"))?;
    let runs = get("/v1/runs?limit=1&consistency=eventual".to_owned())?;
    let events = get("/v1/tail?until_end=true".to_owned())?;
    let event = events.as_str().into_iter().flat_map(str::lines).find_map(|line| line.strip_prefix("id:"));
    let position = &lines["records"][0]["position"];
    let place = format!("{}:{}@{}", position["partition"], position["offset"], text(position, "/log")?);
    let run = format!("/v1/runs/{IMPORTED}");
    Ok(vec![
        format!("{run}?consistency=at-least={place}"),
        format!("{run}/records?consistency=eventual&as_of={place}"),
        format!("{run}/outcome?consistency=eventual&position={place}"),
        format!("{run}/outcome?consistency=eventual&position={place}&also={place}"),
        format!("{run}/records?limit=1&consistency=eventual&cursor={}", text(&lines, "/next_cursor")?),
        format!("/v1/runs?limit=1&consistency=eventual&cursor={}", text(&runs, "/next_cursor")?),
        format!("/v1/tail?until_end=true&from={}", event.context("an event with an id")?.trim()),
    ])
}

#[test]
fn a_position_or_cursor_is_accepted_on_its_own_log_and_refused_by_name_on_another() -> anyhow::Result<()> {
    let site = Site::start(Style::EXACTLY_ONCE)?;
    let mirror_id = log_id(&site.topic.config)?;
    for (own, other, id) in [(&site.home, &site.mirror, &site.home_id), (&site.mirror, &site.home, &mirror_id)] {
        for path in placed_queries(own)? {
            ensure!(path.contains(id.as_str()), "it names its log {id}: {path}");
            let (status, answer) = own.get(&path)?;
            ensure!(status == 200, "{path}: {status} {answer}");
            let (status, refused) = other.get(&path)?;
            ensure!(status == 409 && refused["reason"] == "foreign_log", "{path}: {status} {refused}");
            ensure!(text(&refused, "/detail")?.contains(id.as_str()), "it names the log {id}: {refused}");
        }
    }
    // Clients of an older version send no log. The journal has been in the home's log only.
    let path = format!("/v1/runs/{IMPORTED}/records?consistency=eventual&as_of=0:5");
    ensure!(site.home.get(&path)?.1["reason"] != "foreign_log", "{:?}", site.home.get(&path)?);
    let (status, refused) = site.mirror.get(&path)?;
    ensure!(status == 409 && refused["reason"] == "foreign_log", "{status} {refused}");
    Ok(())
}
