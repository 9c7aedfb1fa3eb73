//! A home is lost, and an operator makes its mirror the home. The mirror may lack the home's last records. So agents must not continue
//! a run that was open then, or that the mirror does not know, until an operator has checked and accepted it.

use super::mirrors::{await_ready, log_id};
use anyhow::{Context, ensure};
use runlog_log::kafka::{KafkaConfig, admin};
use runlog_tests::{
    agent::run_in,
    agent_process::{AgentProcess, booking},
    chaos::kill_fleet::PARTITIONS,
    kafka::Broker,
    mirror::{Mirror, Style, ends},
    programs::test_process,
    sample_journal,
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};
use tempfile::{TempDir, tempdir};

/// How long a takeover may take.
const WAIT: Duration = Duration::from_secs(60);
/// How long no record may arrive before a takeover.
const QUIET: Duration = Duration::from_secs(5);
/// The pause between two looks at a server.
const LOOK: Duration = Duration::from_millis(50);
/// The number of runs of each kind.
const RUNS: usize = 20;

/// A home with its server, and its mirror. The folder is deleted with this value.
struct Site {
    home: Server,
    home_id: String,
    home_topic: KafkaConfig,
    topic: Mirror,
    folder: TempDir,
}

impl Site {
    /// Starts the home, writes its records by `fill`, and copies them.
    fn start(partitions: u32, style: Style, fill: impl Fn(&Server) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let (folder, home_topic) = (tempdir()?, Broker::shared().unique_topic());
        let home = Launch::kafka(&folder.path().join("home"), &home_topic).partitions(partitions).start()?;
        fill(&home)?;
        let topic = Mirror::start(&home_topic, style)?;
        Ok(Self { home, home_id: log_id(&home_topic)?, home_topic, topic, folder })
    }

    /// A server of the mirror.
    fn mirror(&self) -> Launch {
        Launch::kafka(&self.folder.path().join("mirror"), &self.topic.config)
    }

    /// A server of the mirror that takes over.
    fn taking(&self) -> Launch {
        taking(self.mirror(), &self.home_id)
    }

    /// Ends the mirror's server and starts another one, which builds its index from the log.
    fn with_new_index(&self, server: Server) -> anyhow::Result<Server> {
        server.terminate()?;
        fs::remove_dir_all(self.mirror().dir().join("index"))?;
        let server = self.mirror().start()?;
        await_ready(&server)?;
        Ok(server)
    }
}

pub(super) fn taking(launch: Launch, from: &str) -> Launch {
    ["--take-home", from, "--who", "jo", "--why", "region A burned down"]
        .iter()
        .fold(launch, |launch, word| launch.with(word))
}

pub(super) fn role(server: &Server) -> anyhow::Result<Value> {
    Ok(server.get("/v1/journal")?.1["role"].clone())
}

/// Waits until the server's log is the home.
pub(super) fn await_home(server: &Server) -> anyhow::Result<()> {
    let started = Instant::now();
    while role(server)? != "home" {
        let (status, answer) = server.get("/v1/runs?consistency=eventual")?;
        ensure!(status == 200, "a mirror answers meanwhile: {status} {answer}");
        let (status, answer) = server.post("/v1/runs/another/claims", &json!({}))?;
        ensure!(status != 200, "a claim was accepted: {answer}");
        ensure!(started.elapsed() < WAIT, "it is not the home:\n{}", server.stderr());
        thread::sleep(LOOK);
    }
    Ok(())
}

fn ids(kind: &str) -> impl Iterator<Item = String> {
    (0..RUNS).map(move |number| format!("{kind}-{number:02}"))
}

fn record(run: &str, name: &str, payload: &Value) -> Value {
    json!({ "run_id": run, "record_id": format!("{run}/{name}"), "payload": payload })
}

fn lifecycle(run: &str, status: &str) -> Value {
    record(run, status, &json!({ "type": "run_lifecycle", "status": status }))
}

/// A call that has no result yet.
fn call(run: &str) -> Value {
    let call = json!({ "type": "tool_call_requested", "request_id": "r", "call_id": "c", "tool_name": "book",
        "arguments": { "seat": "1A" } });
    record(run, "call", &call)
}

/// Open runs with a pending call, and runs that ended.
fn fill(home: &Server) -> anyhow::Result<()> {
    let open = ids("open").flat_map(|run| [lifecycle(&run, "started"), call(&run)]);
    let ended = ids("ended").flat_map(|run| [lifecycle(&run, "started"), lifecycle(&run, "completed")]);
    home.runlog().publish(&open.chain(ended).collect::<Vec<_>>())
}

/// The requests by which an agent continues a run.
fn continuing(run: &str) -> Vec<(String, Option<Value>)> {
    let turn = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": "hello" });
    let queries = [
        "",
        "?consistency=eventual",
        "/recovery",
        "/recovery?consistency=eventual",
        "/lookup?tool=book&args=%7B%22seat%22%3A%221A%22%7D",
        &format!("/calls/{run}%2Fcall"),
        &format!("/outcome?record_id={run}%2Fcall"),
        &format!("/outcome?record_id={run}%2Fcall&consistency=eventual"),
        "/checkpoints/latest",
    ];
    let queries = queries.map(|query| (format!("/v1/runs/{run}{query}"), None));
    let appends = [
        (format!("/v1/runs/{run}/records"), Some(record(run, "turn", &turn))),
        (format!("/v1/runs/{run}/records"), Some(json!([record(run, "turn", &turn), record(run, "turn2", &turn)]))),
        (format!("/v1/runs/copy-of-{run}/copies"), Some(json!({ "from": run }))),
        (format!("/v1/runs/{run}/claims"), Some(json!({ "claimed_by": "agent" }))),
    ];
    queries.into_iter().chain(appends).collect()
}

fn ask(server: &Server, (path, body): &(String, Option<Value>)) -> anyhow::Result<(u16, Value)> {
    match body {
        Some(body) => server.post(path, body),
        None => server.get(path),
    }
}

/// Fails unless the server refuses each request by which an agent continues the run, and names the command.
fn is_in_doubt(server: &Server, run: &str) -> anyhow::Result<()> {
    for request in continuing(run) {
        let (status, answer) = ask(server, &request)?;
        let is_doubt = status == 409 && answer["kind"] == "reconcile_required" && answer["reason"] == "doubt";
        let detail = answer["detail"].as_str().unwrap_or_default();
        ensure!(is_doubt && detail.contains(&format!("runlog home accept {run} ")), "{}: {status} {answer}", request.0);
    }
    Ok(())
}

/// Fails if the server refuses a request by which an agent continues the run, because the run is in doubt. A copy has an unknown id.
fn is_not_in_doubt(server: &Server, run: &str) -> anyhow::Result<()> {
    for request in continuing(run).into_iter().filter(|(path, _)| !path.ends_with("/copies")) {
        let (status, answer) = ask(server, &request)?;
        ensure!(answer["reason"] != "doubt", "{}: {status} {answer}", request.0);
    }
    Ok(())
}

fn accept(what: &str) -> [&str; 8] {
    ["home", "accept", what, "--who", "jo", "--why", "the airline has no booking", "--yes"]
}

/// The runs that `runlog runs --in-doubt` lists, in pages of seven.
fn listed(server: &Server) -> anyhow::Result<Vec<String>> {
    let (mut runs, mut cursor) = (Vec::new(), None);
    loop {
        let mut line = vec!["runs", "--in-doubt", "--limit", "7", "--consistency", "latest"];
        line.extend(cursor.iter().flat_map(|cursor: &String| ["--cursor", cursor]));
        let page = server.runlog().answer(&line)?;
        let ids = page["runs"].as_array().context("runs")?.iter().filter_map(|run| run["run_id"].as_str());
        runs.extend(ids.map(str::to_owned));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(runs),
        }
    }
}

/// Reads and decisions of people, which a run in doubt allows.
fn people_can_work(server: &Server, run: &str) -> anyhow::Result<()> {
    let (status, records) = server.get(&format!("/v1/runs/{run}/records"))?;
    ensure!(status == 200, "{status} {records}");
    let position = &records["records"][0]["position"];
    let log = position["log"].as_str().context("a log")?;
    let place = format!("{}:{}@{log}", position["partition"], position["offset"]);
    for path in [
        format!("/v1/runs/{run}/records?as_of={place}"),
        format!("/v1/runs/{run}/recovery?as_of={place}"),
        format!("/v1/runs/{run}/tail?until_end=true"),
        "/v1/runs".to_owned(),
        "/v1/effects".to_owned(),
    ] {
        let (status, answer) = server.get(&path)?;
        ensure!(status == 200 && answer.to_string().contains(run), "{path}: {status} {answer}");
    }
    let decide =
        ["effects", "resolve", run, &format!("{run}/call"), "--not-done", "--who", "jo", "--why", "w", "--yes"];
    server.runlog().json(&[&decide[..], &["--force"]].concat())?.exits(0)?;
    is_in_doubt(server, run)
}

#[test]
fn runs_of_a_lost_home_wait_until_an_operator_accepts_them() -> anyhow::Result<()> {
    let site = Site::start(2, Style::EXACTLY_ONCE, fill)?;
    let of_home = site.home.get("/v1/runs?limit=1")?.1;
    let position = of_home["runs"][0]["position"].clone();
    // Only the home has these runs.
    site.home.runlog().publish(&ids("lost").map(|run| lifecycle(&run, "started")).collect::<Vec<_>>())?;
    let Site { home, home_id, topic, folder, .. } = &site;
    let server = site.taking().start()?;
    await_home(&server)?;
    server.await_complaint("runlog runs --in-doubt")?;
    let after = ends(&topic.config)?;
    for kind in ["open", "lost"] {
        for run in ids(kind).take(3) {
            is_in_doubt(&server, &run)?;
        }
        for run in ids(kind).skip(3) {
            let (status, answer) = server.post(&format!("/v1/runs/{run}/claims"), &json!({}))?;
            ensure!(status == 409 && answer["reason"] == "doubt", "{run}: {status} {answer}");
        }
    }
    ensure!(ends(&topic.config)? == after, "a refused request was appended");
    ids("ended").take(3).try_for_each(|run| is_not_in_doubt(&server, &run))?;
    people_can_work(&server, "open-00")?;
    ensure!(listed(&server)? == ids("open").collect::<Vec<_>>());
    let shown = server.runlog().answer(&["home"])?;
    ensure!(shown["role"] == "home" && shown["in_doubt"] == json!({ "count": RUNS, "more": false }), "{shown}");
    let doctor = server.runlog().json(&["doctor"])?.stdout;
    ensure!(doctor.contains("20 open runs") && doctor.contains("runlog runs --in-doubt"), "{doctor}");

    // Positions and cursors of the lost home name other records here.
    let place = format!("{}:{}", position["partition"], position["offset"]);
    let cursor = of_home["next_cursor"].as_str().context("a cursor")?;
    for (path, named) in [
        (format!("/v1/runs/ended-00/records?as_of={place}@{home_id}"), home_id.as_str()),
        (format!("/v1/runs/ended-00?consistency=at-least={place}"), "several logs"),
        (format!("/v1/runs?cursor={cursor}"), home_id.as_str()),
    ] {
        let (status, answer) = server.get(&path)?;
        let refused = status == 409 && answer["reason"] == "foreign_log";
        ensure!(
            refused && answer["detail"].as_str().is_some_and(|why| why.contains(named)),
            "{path}: {status} {answer}"
        );
    }

    server.runlog().json(&accept("open-01"))?.exits(0)?;
    is_not_in_doubt(&server, "open-01")?;
    is_in_doubt(&server, "open-02")?;
    is_in_doubt(&server, "lost-00")?;
    server.runlog().json(&accept("--unknown-runs"))?.exits(0)?;
    is_not_in_doubt(&server, "lost-00")?;
    is_in_doubt(&server, "open-02")?;
    let mut agent = test_process("agent")?;
    agent.args([&server.url, &server.url]).arg(folder.path());
    let mut agent = AgentProcess::start(agent)?;
    agent.open("a-new-run")?;
    let booked = agent.request(&booking("1A", None))?;
    ensure!(booked["recorded"] == false && booked["error"].is_null(), "{booked}");

    stays_after_a_restart_and_a_rebuild(&site, server)?;
    // What the documentation warns of: the lost home still believes that it is the home.
    ensure!(role(home)? == "home");
    Ok(())
}

/// The flags have no effect when they are repeated. The state is in the log, so a new index has it too.
fn stays_after_a_restart_and_a_rebuild(site: &Site, mut server: Server) -> anyhow::Result<()> {
    let after = ends(&site.topic.config)?;
    server.restart(&site.taking())?;
    server.await_complaint("--take-home has no effect")?;
    await_ready(&server)?;
    ensure!(ends(&site.topic.config)? == after, "it was taken twice");
    let waiting: Vec<_> = ids("open").filter(|run| run != "open-01").collect();
    for rebuilt in [false, true] {
        if rebuilt {
            server = site.with_new_index(server)?;
        }
        ensure!(role(&server)? == "home" && listed(&server)? == waiting, "{:?}", listed(&server)?);
        is_in_doubt(&server, "open-02")?;
        is_not_in_doubt(&server, "open-01")?;
        is_not_in_doubt(&server, "a-new-run")?;
        is_not_in_doubt(&server, "lost-01")?;
    }
    server.runlog().verified()
}

#[test]
fn a_server_to_which_records_arrive_stays_a_mirror_and_does_not_try_again() -> anyhow::Result<()> {
    let mut site = Site::start(2, Style::EXACTLY_ONCE, |_| Ok(()))?;
    let server = site.taking().start()?;
    let started = Instant::now();
    for number in 0.. {
        site.home.runlog().publish(&[lifecycle(&format!("r-{number}"), "started")])?;
        ensure!(site.topic.copy()? > 0);
        if server.stderr().contains("records still arrive") {
            break;
        }
        ensure!(started.elapsed() < WAIT, "no error:\n{}", server.stderr());
    }
    let after = ends(&site.topic.config)?;
    // It would try again after 5 s without records.
    let quiet = Instant::now();
    while quiet.elapsed() < QUIET + Duration::from_secs(1) {
        let (status, refused) = server.post("/v1/runs/r-0/claims", &json!({}))?;
        ensure!(status == 503 && refused["reason"] == "mirror", "{status} {refused}");
        thread::sleep(LOOK);
    }
    ensure!(role(&server)? == "mirror" && server.get("/readyz")?.0 == 200 && ends(&site.topic.config)? == after);
    // The operator has stopped MirrorMaker.
    server.terminate()?;
    let server = site.taking().start()?;
    await_home(&server)?;
    is_in_doubt(&server, "r-0")
}

#[test]
fn a_takeover_that_is_killed_between_partitions_is_completed_by_the_same_flags() -> anyhow::Result<()> {
    let open: Vec<_> = (0_u16..2).map(|partition| run_in(partition, PARTITIONS, "open")).collect();
    let site = Site::start(PARTITIONS, Style::EXACTLY_ONCE, |home| {
        home.runlog().publish(&open.iter().map(|run| lifecycle(run, "started")).collect::<Vec<_>>())
    })?;
    let Site { home_id, topic, folder, .. } = &site;
    let mut command = test_process("killed-server")?;
    command.args([&topic.config.brokers, &topic.config.topic]).arg(folder.path());
    command.args(["0", "home_appended", home_id]);
    let process = AgentProcess::start(command)?;
    while process.receive()?["at"] != "home_appended" {}
    process.kill()?;

    let launch = Launch::kafka(&folder.path().join("index-0"), &topic.config);
    let server = launch.start()?;
    await_ready(&server)?;
    ensure!(role(&server)? == "home", "partition 0 decides");
    let before = ends(&topic.config)?;
    server.runlog().json(&accept(&open[0]))?.exits(0)?;
    is_not_in_doubt(&server, &open[0])?;
    is_in_doubt(&server, &open[1])?;
    let command = format!("--take-home {home_id} ");
    for line in [&accept(&open[1])[..], &accept("--unknown-runs")[..]] {
        let refused = server.runlog().json(line)?.exits(3)?.stdout;
        ensure!(refused.contains(&command), "{refused}");
    }
    let doctor = server.runlog().json(&["doctor"])?.stdout;
    ensure!(doctor.contains(&command) && doctor.contains("partitions 1, 2, 3"), "{doctor}");
    server.kill()?;

    let server = taking(launch, home_id).start()?;
    let started = Instant::now();
    while server.runlog().json(&["doctor"])?.stdout.contains(&command) {
        ensure!(started.elapsed() < WAIT, "it is not completed:\n{}", server.stderr());
        thread::sleep(LOOK);
    }
    let after = ends(&topic.config)?;
    ensure!((1..4).all(|partition| after[partition] == before[partition] + 1), "{before:?} {after:?}");
    is_in_doubt(&server, &open[1])?;
    server.runlog().json(&accept(&open[1]))?.exits(0)?;
    is_not_in_doubt(&server, &open[1])?;
    server.runlog().verified()
}

/// The hash of each run.
fn hashes(server: &Server) -> anyhow::Result<BTreeMap<String, Value>> {
    let (status, list) = server.get("/v1/runs?limit=1000&consistency=eventual")?;
    let runs = list["runs"].as_array().with_context(|| format!("{status} {list}"))?;
    Ok(runs.iter().map(|run| (run["run_id"].to_string(), run["hash"].clone())).collect())
}

#[test]
fn a_mirror_that_mirror_maker_left_amid_transactions_has_the_runs_of_the_home() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let mut site = Site::start(2, Style::KILLED, |home| sample_journal::fill(home, folder.path()))?;
    let at_home = hashes(&site.home)?;
    let mut server = site.taking().start()?;
    await_home(&server)?;
    ensure!(hashes(&server)? == at_home);
    // The broker aborts the open transaction after a time. Until then readers wait for its end.
    site.topic.end_transaction()?;
    await_ready(&server)?;
    for rebuilt in [false, true] {
        if rebuilt {
            server = site.with_new_index(server)?;
        }
        ensure!(hashes(&server)? == at_home, "{rebuilt}");
        server.runlog().verified()?;
    }
    ensure!(at_home.len() > 2 && role(&server)? == "home");
    Ok(())
}

#[test]
fn a_partition_that_a_skip_of_the_lost_home_stopped_continues_after_a_skip_at_the_new_home() -> anyhow::Result<()> {
    let run = run_in(1, 2, "run");
    let site = Site::start(2, Style::EXACTLY_ONCE, |home| {
        home.runlog().publish(&[lifecycle(&run, "started"), call(&run)])?;
        let (_, records) = home.get(&format!("/v1/runs/{run}/records"))?;
        let place = format!("1:{}", records["records"][1]["position"]["offset"]);
        home.runlog().json(&skip(&place, &["--force"]))?.exits(0)?;
        home.runlog().publish(&[lifecycle("later", "started")])
    })?;
    let stop = |server: &Server| -> anyhow::Result<Value> {
        let doctor = server.runlog().json(&["doctor"])?.json()?;
        Ok(doctor["partitions"][1].clone())
    };
    let server = site.mirror().start()?;
    await_ready(&server)?;
    let stopped = stop(&server)?;
    let why = stopped["error"].as_str().context("it is stopped")?;
    ensure!(why.contains(&site.home_id) && why.contains("has other offsets"), "{why}");
    server.terminate()?;

    let server = site.taking().start()?;
    await_home(&server)?;
    let stopped = stop(&server)?;
    ensure!(stopped["state"] == "stopped", "{stopped}");
    let place = format!("1:{}", stopped["applied"]);
    let doctor = server.runlog().json(&["doctor"])?.exits(1)?.stdout;
    ensure!(doctor.contains(&format!("runlog dead-letter skip {place} ")), "{doctor}");
    // The other partition does not wait for it.
    server.runlog().json(&accept("--unknown-runs"))?.exits(4)?;
    is_not_in_doubt(&server, &run_in(0, 2, "new"))?;
    server.runlog().json(&skip(&place, &[]))?.exits(0)?;
    await_ready(&server)?;
    ensure!(stop(&server)?["state"] == "running");
    is_in_doubt(&server, &run)?;
    is_in_doubt(&server, &run_in(1, 2, "new"))?;
    for accepted in ["--unknown-runs", &run] {
        server.runlog().json(&accept(accepted))?.exits(0)?;
    }
    is_not_in_doubt(&server, &run)?;
    is_not_in_doubt(&server, &run_in(1, 2, "new"))?;
    server.runlog().verified()
}

fn skip<'a>(place: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["dead-letter", "skip", place, "--who", "jo", "--why", "a test", "--yes"], more].concat()
}

#[test]
fn a_takeover_of_another_log_than_the_home_is_refused_and_has_no_effect() -> anyhow::Result<()> {
    let site = Site::start(2, Style::EXACTLY_ONCE, |_| Ok(()))?;
    let Site { home_id, home_topic, topic, folder, .. } = &site;
    let before = (ends(home_topic)?, ends(&topic.config)?);
    let at_home = Launch::kafka(&folder.path().join("second"), home_topic);
    for (launch, from) in
        [(site.mirror(), "kafka:another:log"), (at_home.clone(), "kafka:another:log"), (at_home, home_id)]
    {
        let refused = taking(launch, from).refused()?.exits(3)?;
        ensure!(refused.stdout.contains(home_id.as_str()), "it names the home: {}", refused.stdout);
    }
    ensure!((ends(home_topic)?, ends(&topic.config)?) == before, "a refused takeover appended a record");
    let missing = Broker::shared().unique_topic();
    let refused = taking(Launch::kafka(&folder.path().join("third"), &missing), home_id).refused()?.exits(3)?;
    ensure!(refused.stdout.contains("does not exist"), "{}", refused.stdout);
    ensure!(admin::describe(&missing)?.is_none(), "the topic was created");
    Ok(())
}
