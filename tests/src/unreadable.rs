//! Claims about records that a reader cannot decode, on every log.

use std::{fs, time::Instant};

use anyhow::{Context, ensure};
use runlog_log::{Entry, Offset, PartitionId};
use runlog_schemas::{
    codec,
    datum::{Datum, Sha256, hex, put_long},
    payload::{Payload, Skip},
    record::JournalRecord,
};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, entry, id, run_in},
    command::Runlog,
    server::{Launch, Server},
};

/// The partitions of a story's journal.
pub const PARTITIONS: u32 = 4;
/// How long an immediate answer may take, seconds: far below the deadline of a query.
const AT_ONCE_SECONDS: f64 = 5.0;

/// The append function of a foreign client.
pub type Append<'a> = dyn Fn(&[(PartitionId, Entry)]) -> anyhow::Result<Vec<Offset>> + 'a;

/// A journal that a foreign client can write to.
pub struct Journal<'a> {
    /// How its server is started.
    pub launch: Launch,
    /// The foreign client.
    pub append: &'a Append<'a>,
    /// Whether the client can write while the server runs.
    pub shared: bool,
}

impl std::fmt::Debug for Journal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("launch", &self.launch).field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Journal<'_> {
    fn put(&self, server: Server, records: &[(PartitionId, Entry)]) -> anyhow::Result<(Server, Vec<Offset>)> {
        if self.shared {
            return Ok((server, (self.append)(records)?));
        }
        server.terminate()?;
        let offsets = (self.append)(records)?;
        Ok((self.launch.start()?, offsets))
    }
}

fn bytes(value: Vec<u8>) -> Entry {
    Entry { value, ..Entry::default() }
}

fn datum(record: &JournalRecord) -> Vec<u8> {
    record.to_bytes()
}

/// The framing of single objects, with another schema's fingerprint.
pub fn of_schema(fingerprint: [u8; 8], record: &JournalRecord) -> Entry {
    bytes([&[0xC3, 0x01], &fingerprint[..], &datum(record)].concat())
}

/// A record of our schema with a payload that it does not have.
fn of_branch(branch: i64, record: &JournalRecord) -> Entry {
    let mut value = codec::encode(record)[..10].to_vec();
    record.place.put(&mut value);
    record.body.put(&mut value);
    put_long(branch, &mut value);
    bytes(value)
}

/// A record whose id is the empty string, which no writer of ours makes.
fn unnamed(record: &JournalRecord) -> Vec<u8> {
    let mut id = Vec::new();
    record.body.record_id.put(&mut id);
    let framed = codec::encode(record);
    let at = framed.windows(id.len()).position(|bytes| bytes == id).unwrap_or_default();
    [&framed[..at], &[0], &framed[at + id.len()..]].concat()
}

/// The ids of the run's applied records.
fn ids(runlog: &Runlog, run_id: &str, consistency: &str) -> anyhow::Result<Vec<String>> {
    let lines = runlog.json(&["show", run_id, "--consistency", consistency])?.exits(0)?.documents()?;
    lines.iter().map(|line| Ok(line["record_id"].as_str().context("an id")?.to_owned())).collect()
}

/// Log entries that are not records become dead letters, and the records after them are applied. `oversized`: the log
/// accepts a record over our limit. `tombstone`: the log accepts a record without a value.
pub fn dead_letters(journal: &Journal<'_>, oversized: bool, tombstone: bool) -> anyhow::Result<()> {
    let mut agent = Agent::new(&run_in(0, PARTITIONS, "run"));
    let server = journal.launch.start()?;
    let whole = codec::encode(&agent.lifecycle("started"));
    let mut corrupt = whole.clone();
    corrupt[40..].fill(0xff);
    let mut unreadable = vec![
        (b"no avro".to_vec(), "not_framed"),
        (whole[..whole.len() - 3].to_vec(), "undecodable"),
        (corrupt, "undecodable"),
        ([whole.as_slice(), &[0]].concat(), "undecodable"),
        (vec![0xC3, 0x01], "not_framed"),
        (unnamed(&agent.clone().turn("x")), "undecodable"),
    ];
    if oversized {
        unreadable.push(([whole.as_slice(), &vec![0; 1 << 20]].concat(), "too_large"));
    }
    if tombstone {
        unreadable.push((Vec::new(), "not_framed"));
    }
    let partition = PartitionId::ZERO;
    let mut records = vec![(partition, bytes(whole))];
    for (value, _) in &unreadable {
        records.push((partition, bytes(value.clone())));
        records.push((partition, entry(&agent.turn("after it"))));
    }
    let (server, offsets) = journal.put(server, &records)?;
    let runlog = server.runlog();
    ensure!(ids(&runlog, &agent.run_id, "latest")?.len() == unreadable.len() + 1, "the records after them are applied");
    let check = |runlog: &Runlog| -> anyhow::Result<()> {
        let list = runlog.answer(&["dead-letter", "list", "--consistency", "latest"])?;
        let list = list["records"].as_array().context("records")?;
        ensure!(list.len() == unreadable.len(), "{list:?}");
        for (number, (value, reason)) in unreadable.iter().enumerate() {
            let (offset, found) = (offsets[1 + 2 * number], &list[number]);
            let position = &found["position"];
            ensure!(position["partition"] == 0 && position["offset"] == offset.get(), "record {number}: {found}");
            ensure!(found["reason"] == *reason && found["bytes"] == value.len(), "record {number}: {found}");
            ensure!(found["sha256"] == Sha256::of(value).to_string(), "record {number}: {found}");
            let shown = runlog.answer(&["dead-letter", "show", &format!("0:{offset}")])?;
            let digits = shown["hex"].as_str().context("hex")?;
            ensure!(hex(value).starts_with(digits) && digits.len() == 2 * value.len().min(4096), "its bytes: {shown}");
        }
        let doctor = runlog.answer(&["doctor"])?;
        let warned = doctor["findings"].as_array().context("findings")?.iter().any(|finding| {
            finding["severity"] == "warning"
                && finding["what"].as_str().is_some_and(|what| what.contains("partition 0"))
        });
        ensure!(doctor["healthy"] == true && warned && doctor["partitions"][0]["state"] == "running", "{doctor}");
        runlog.json(&["dead-letter", "show", "0:0"])?.exits(1)?;
        runlog.verified()
    };
    check(&runlog)?;
    server.kill()?;
    fs::remove_dir_all(journal.launch.dir().join("index"))?;
    let server = journal.launch.start()?;
    let runlog = server.runlog();
    check(&runlog)?;
    horizon_hides_bytes(&runlog, &format!("0:{}", offsets[1]))
}

/// The payload type of a dead letter is unknown, so a retention horizon of any type hides its bytes if it is old enough.
fn horizon_hides_bytes(runlog: &Runlog, place: &str) -> anyhow::Result<()> {
    let retain = |until: &str| {
        let args = ["retention", "tool_call_completed", "--until", until, "--who", "w", "--why", "y", "--yes"];
        runlog.json(&args)?.exits(0).map(drop)
    };
    let show = || runlog.answer(&["dead-letter", "show", place]);
    let before = show()?;
    retain("2001-01-01T00:00:00Z")?;
    ensure!(show()? == before && before["hex"] != "", "before its time: {before}");
    retain("2999-01-01T00:00:00Z")?;
    let after = show()?;
    ensure!(after["hex"] == "" && after["dropped"]["partition"] == 0, "{after}");
    ensure!(after["sha256"] == before["sha256"] && after["detail"] == before["detail"], "{after}");
    Ok(())
}

/// The offset at which a partition is stopped, and a part of the doctor's error.
struct Stop {
    offset: Offset,
    says: &'static str,
}

/// A record with an unknown schema stops its partition and no other, until an operator skips the record.
pub fn stops(journal: &Journal<'_>) -> anyhow::Result<()> {
    let mut agents: Vec<Agent> =
        PartitionId::all(PARTITIONS).map(|number| Agent::new(&run_in(number, PARTITIONS, "run"))).collect();
    let server = journal.launch.start()?;
    let mut records = Vec::new();
    for (partition, agent) in PartitionId::all(PARTITIONS).zip(&mut agents) {
        records.extend([agent.lifecycle("started"), agent.turn("before")].map(|record| (partition, entry(&record))));
        let newer = Agent::new(&agent.run_id).turn("of a newer version");
        match partition.get() {
            0 => records.push((partition, of_schema([0xAB; 8], &newer))),
            1 => records.push((partition, bytes([&[0, 0, 0, 0, 42], &datum(&newer)[..]].concat()))),
            2 => records.push((partition, of_branch(99, &newer))),
            _ => {}
        }
        records.push((partition, entry(&agent.turn("after"))));
    }
    let (mut server, offsets) = journal.put(server, &records)?;
    let mut stops: Vec<Option<Stop>> = [(2, "fingerprint abababababababab"), (6, "id 42"), (10, "branch 99")]
        .map(|(number, says): (usize, _)| Some(Stop { offset: offsets[number], says }))
        .into();
    stops.push(None);
    assert_stops(&server, &agents, &stops)?;
    // Applied records stay readable at `eventual`. At `at-least` the partition is refused even for an applied offset.
    let at_least = format!("at-least=0:{}", offsets[1]);
    let refused = server.runlog().json(&["show", agents[0].run_id.as_str(), "--consistency", &at_least])?.exits(4)?;
    ensure!(refused.error_kind()? == "partition_stopped", "{at_least}: {}", refused.stdout);
    ensure!(ids(&server.runlog(), &agents[0].run_id, "eventual")?.len() == 2, "the applied records are readable");
    // The running partition accepts records.
    let body = serde_json::to_value(agents[3].turn("while others are stopped"))?;
    let (status, outcome) = server.post(&format!("/v1/runs/{}/records", agents[3].run_id), &body)?;
    ensure!(status == 200 && outcome["outcome"] == "applied", "{status} {outcome}");

    server.kill()?;
    server = journal.launch.start()?;
    assert_stops(&server, &agents, &stops)?;
    skip(&server, &mut stops, 0)?;
    assert_stops(&server, &agents, &stops)?;
    server.kill()?;
    server = journal.launch.start()?;
    assert_stops(&server, &agents, &stops)?;
    server.kill()?;
    fs::remove_dir_all(journal.launch.dir().join("index"))?;
    server = journal.launch.start()?;
    // The skip follows its record in the log: the rebuild stops at the record until it finds the skip.
    let restarted = Instant::now();
    while restarted.elapsed().as_secs_f64() < 30.0
        && server.runlog().json(&["show", &agents[0].run_id])?.code == Some(4)
    {}
    assert_stops(&server, &agents, &stops)?;
    skip(&server, &mut stops, 1)?;
    skip(&server, &mut stops, 2)?;
    assert_stops(&server, &agents, &stops)
}

fn skip(server: &Server, stops: &mut [Option<Stop>], partition: usize) -> anyhow::Result<()> {
    let stop = stops[partition].take().context("it is stopped")?;
    let place = format!("{partition}:{}", stop.offset);
    let skip = ["dead-letter", "skip", &place, "--who", "a test", "--why", "the schema stays unknown", "--yes"];
    server.runlog().answer(&skip)?;
    Ok(())
}

/// Each partition with a stop is stopped at its offset, and each partition without a stop is served to its end.
fn assert_stops(server: &Server, agents: &[Agent], stops: &[Option<Stop>]) -> anyhow::Result<()> {
    let runlog = server.runlog();
    for (partition, (agent, stop)) in agents.iter().zip(stops).enumerate() {
        let Some(stop) = stop else {
            let applied = ids(&runlog, &agent.run_id, "latest").with_context(|| format!("partition {partition}"))?;
            ensure!(applied.len() >= 3, "partition {partition} is served to its end: {applied:?}");
            continue;
        };
        let started = Instant::now();
        let show = ["show", &agent.run_id, "--deadline", "60s"];
        let refused = runlog.json(&show)?.exits(4)?;
        ensure!(refused.error_kind()? == "partition_stopped", "partition {partition}: {}", refused.stdout);
        ensure!(
            started.elapsed().as_secs_f64() < AT_ONCE_SECONDS,
            "partition {partition}: only after {:?}",
            started.elapsed()
        );
        let (status, problem) = server.get(&format!("/v1/runs/{}/recovery", agent.run_id))?;
        ensure!(status == 503 && problem["kind"] == "partition_stopped", "{status} {problem}");
        ensure!(ids(&runlog, &agent.run_id, "eventual")?.len() == 2, "partition {partition}: the applied records");
        ensure!(problem["detail"].as_str().is_some_and(|detail| detail.contains(stop.says)), "{problem}");
    }
    let stopped: Vec<usize> = (0..stops.len()).filter(|partition| stops[*partition].is_some()).collect();
    let (status, ready) = server.get("/readyz")?;
    ensure!(status == 200 && ready["stopped"] == json!(stopped), "{status} {ready}");
    let effects = runlog.answer(&["effects", "--consistency", "latest"])?;
    ensure!(effects["unavailable_partitions"] == json!(stopped), "{effects}");
    let latest = runlog.answer(&["runs", "--consistency", "latest"])?;
    ensure!(latest["unavailable_partitions"] == json!(stopped), "{latest}");
    ensure!(latest["runs"].as_array().is_some_and(|runs| runs.len() == agents.len()), "{latest}");
    if let Some((partition, stop)) = stops.iter().enumerate().find_map(|(at, stop)| Some((at, stop.as_ref()?))) {
        let (status, list) = server.get(&format!("/v1/runs?consistency=at-least={partition}:{}", stop.offset))?;
        ensure!(status == 200 && list["unavailable_partitions"] == json!([partition]), "{status} {list}");
    }
    let (status, problem) = server.get("/v1/runs?consistency=at-least=99:0")?;
    ensure!(status == 400 && problem["kind"] == "usage", "{status} {problem}");
    ensure!(runlog.answer(&["runs"])?["runs"].as_array().is_some_and(|runs| runs.len() == agents.len()), "all runs");
    assert_doctor(&runlog, stops)?;
    runlog.verified()
}

fn assert_doctor(runlog: &Runlog, stops: &[Option<Stop>]) -> anyhow::Result<()> {
    let healthy = stops.iter().all(Option::is_none);
    let doctor = runlog.json(&["doctor"])?.exits(if healthy { 0 } else { 1 })?.json()?;
    ensure!(doctor["healthy"] == healthy, "{doctor}");
    let errors: Vec<&Value> = doctor["findings"].as_array().context("findings")?.iter().collect();
    for (partition, stop) in stops.iter().enumerate() {
        let health = &doctor["partitions"][partition];
        let Some(stop) = stop else {
            ensure!(health["state"] == "running" && health["applied"] == health["end"], "{health}");
            continue;
        };
        let error = health["error"].as_str().context("an error")?;
        ensure!(health["state"] == "stopped" && health["applied"] == stop.offset.get(), "{health}");
        ensure!(error.contains(stop.says) && error.contains(&format!("offset {}", stop.offset)), "{health}");
        let command = format!("runlog dead-letter skip {partition}:{}", stop.offset);
        let advised = errors.iter().any(|finding| finding["fix"].as_str().is_some_and(|fix| fix.contains(&command)));
        ensure!(advised, "no finding advises {command}: {doctor}");
    }
    Ok(())
}

/// A skip of an applied record voids it, even if an unreadable record after the skip stops the rebuild.
pub fn voids_and_stops(journal: &Journal<'_>) -> anyhow::Result<()> {
    let mut agent = Agent::new(&run_in(1, PARTITIONS, "run"));
    let mut other = Agent::new(&run_in(1, PARTITIONS, "other"));
    let server = journal.launch.start()?;
    let (begun, wrong) = (agent.lifecycle("started"), agent.turn("wrong"));
    let (server, offsets) = journal.put(server, &[&begun, &wrong].map(|record| (1.into(), entry(record))))?;
    ensure!(ids(&server.runlog(), &agent.run_id, "latest")?.len() == 2, "both are applied");
    let skip = Skip { offset: offsets[1], who: "w".into(), why: "y".into() };
    let skip = JournalRecord::of_partition(id("skip"), "test", Payload::Skip(skip));
    let later = other.lifecycle("started");
    let unknown = of_schema([7; 8], &other.turn("of a later version"));
    let records = [entry(&skip), entry(&later), unknown].map(|entry| (1.into(), entry));
    let (mut server, offsets) = journal.put(server, &records)?;
    for _ in 0..2 {
        let (status, said) = server.get(&format!("/v1/runs/{}", agent.run_id))?;
        ensure!(status == 503 && said["kind"] == "partition_stopped", "{status} {said}");
        let runlog = server.runlog();
        for (of, records) in [(&agent, &begun), (&other, &later)] {
            let applied = ids(&runlog, &of.run_id, "eventual")?;
            ensure!(applied == [records.body.record_id.as_str()], "{} has {applied:?}", of.run_id);
        }
        server.kill()?;
        server = journal.launch.start()?;
    }
    let place = format!("1:{}", offsets[2]);
    server.runlog().json(&["dead-letter", "skip", &place, "--who", "w", "--why", "y", "--force", "--yes"])?.exits(0)?;
    ensure!(ids(&server.runlog(), &agent.run_id, "latest")?.len() == 1, "the partition resumes");
    server.runlog().verified()
}

/// A skip of an applied record voids it permanently and frees its numbers for another record.
pub fn voids(journal: &Journal<'_>) -> anyhow::Result<()> {
    let mut agent = Agent::new(&run_in(1, PARTITIONS, "run"));
    let server = journal.launch.start()?;
    let valid = [agent.lifecycle("started"), agent.request("book", &json!({"seat": 1}))];
    let request = valid[1].body.record_id.clone();
    let mut other = agent.clone();
    let wrong = agent.complete(&request, &json!("wrong"));
    let mut records: Vec<_> = valid.iter().chain([&wrong]).map(|record| (1.into(), entry(record))).collect();
    records.push((1.into(), bytes(b"noise".to_vec())));
    let (mut server, offsets) = journal.put(server, &records)?;
    let lookup = ["lookup", &agent.run_id, "--tool", "book", "--args", "{\"seat\":1}"];
    ensure!(server.runlog().answer(&lookup)?["result"] == "wrong", "it is applied");
    let skip = |runlog: &Runlog, place: &str| {
        runlog.json(&["dead-letter", "skip", place, "--who", "w", "--why", "y", "--force", "--yes"])
    };
    let runlog = server.runlog();
    // Refused: the genesis, an offset beyond the end, and an unknown partition.
    let end = offsets[3].saturating_add(1);
    for (place, code) in [("1:0".to_owned(), 3), (format!("1:{end}"), 3), ("9:1".to_owned(), 2)] {
        skip(&runlog, &place)?.exits(code).with_context(|| place)?;
    }
    runlog.json(&["dead-letter", "skip", "1:1"])?.exits(2)?;

    for offset in [offsets[3], offsets[2]] {
        skip(&runlog, &format!("1:{offset}"))?.exits(0)?;
    }
    let voided = |runlog: &Runlog| -> anyhow::Result<()> {
        let applied = ids(runlog, &agent.run_id, "latest")?;
        ensure!(applied == valid.each_ref().map(|record| record.body.record_id.as_str()), "applied: {applied:?}");
        ensure!(runlog.json(&lookup)?.exits(6)?.json()?["status"] == "pending", "its call is pending again");
        let letters = runlog.answer(&["dead-letter", "list"])?;
        ensure!(letters["records"] == json!([]), "{letters}");
        runlog.verified()
    };
    voided(&runlog)?;
    server.kill()?;
    server = journal.launch.start()?;
    voided(&server.runlog())?;
    server.kill()?;
    fs::remove_dir_all(journal.launch.dir().join("index"))?;
    server = journal.launch.start()?;
    voided(&server.runlog())?;

    let right = serde_json::to_value(other.complete(&request, &json!("right")))?;
    let (status, outcome) = server.post(&format!("/v1/runs/{}/records", agent.run_id), &right)?;
    ensure!(status == 200 && outcome["outcome"] == "applied", "{status} {outcome}");
    ensure!(server.runlog().answer(&lookup)?["result"] == "right", "its numbers were free");
    server.runlog().verified()
}
