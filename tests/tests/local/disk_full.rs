//! The disk fills up under the local log and under the indices. A write that does not fit is refused with the reason,
//! no write is partial, acknowledged records stay readable, and service continues once there is space.
//!
//! The disks are file systems in memory. Mounting them needs root.

use anyhow::{Context, ensure};
use runlog_tests::{
    disk::Disk,
    random::Random,
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use tempfile::tempdir;

/// Records that are tried before the disk must be full.
const TRIES_MAX: usize = 400;
/// How long service may take to resume, and how often it is tried.
const ROOM_WAIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// A run, and the answers to its only writer.
struct Writer {
    server: Server,
    /// Characters of each record.
    length: usize,
    random: Random,
    /// Applied, by their ids.
    applied: Vec<String>,
    /// Tried, and not known to be applied.
    open: Vec<String>,
    made: usize,
    /// By the records' ids.
    texts: HashMap<String, String>,
}

impl Writer {
    fn new(server: Server, length: usize) -> Self {
        Self {
            server,
            length,
            random: Random::new(length as u64),
            texts: HashMap::new(),
            applied: Vec::new(),
            open: Vec::new(),
            made: 0,
        }
    }

    /// Sends a record, possibly again. Returns the answer.
    fn send(&mut self, id: &str) -> anyhow::Result<(u16, Value)> {
        if !self.texts.contains_key(id) {
            // Incompressible text.
            let digits = (0..self.length).filter_map(|_| char::from_digit(self.random.between(0, 36) as u32, 36));
            self.texts.insert(id.to_owned(), digits.collect());
        }
        let content = &self.texts[id];
        let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": content });
        let record = json!({ "run_id": "r", "record_id": id, "payload": payload });
        let (status, answer) = self.server.post("/v1/runs/r/records?deadline_ms=5000", &record)?;
        self.open.retain(|open| open != id);
        match status {
            200 if ["applied", "repeat"].iter().any(|outcome| answer["outcome"] == *outcome) => {
                self.applied.push(id.to_owned());
            }
            429 | 503 => self.open.push(id.to_owned()),
            _ => anyhow::bail!("{status} {answer}"),
        }
        Ok((status, answer))
    }

    fn next(&mut self) -> anyhow::Result<(u16, Value)> {
        self.made += 1;
        self.send(&format!("record-{}", self.made))
    }

    /// Sends records until one is refused. Returns that answer.
    fn until_refused(&mut self, disk: &Disk) -> anyhow::Result<Value> {
        for _ in 0..TRIES_MAX {
            // Flushing to tables freed the space of write-ahead logs.
            disk.fill()?;
            let (status, answer) = self.next()?;
            if status != 200 {
                return Ok(answer);
            }
        }
        anyhow::bail!("the disk is not full")
    }

    /// The ids of the run's records, each read whole.
    fn shown_turns(&self, consistency: &str) -> anyhow::Result<Vec<String>> {
        let (mut ids, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/runs/r/records?raw=true&limit=100&consistency={consistency}{cursor}");
            let (status, page) = self.server.get(&path)?;
            ensure!(status == 200, "{status} {page}");
            for record in page["records"].as_array().context("records")? {
                let id = record["record_id"].as_str().context("an id")?;
                ensure!(record["payload"]["content"] == self.texts[id].as_str(), "{id} is not whole");
                ids.push(id.to_owned());
            }
            let Some(next) = page["next_cursor"].as_str() else { return Ok(ids) };
            cursor = format!("&cursor={next}");
        }
    }

    /// Sends the open records until all are applied.
    fn settles(&mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        while let Some(id) = self.open.first().cloned() {
            let (_, answer) = self.send(&id)?;
            ensure!(start.elapsed() < ROOM_WAIT, "the disk has space, but {id} is not accepted: {answer}");
            if !self.open.is_empty() {
                thread::sleep(LOOK);
            }
        }
        Ok(start.elapsed())
    }

    /// Checks that the run has every tried record once, and that the index matches the log.
    fn ensure_complete(&self) -> anyhow::Result<()> {
        let (mut shown, mut known) = (self.shown_turns("latest")?, self.applied.clone());
        shown.sort();
        known.sort();
        ensure!(shown == known, "{} shown, {} known", shown.len(), known.len());
        self.server.runlog().verified()
    }
}

/// Over HTTP the data folder is `DIR`, wherever it is.
fn check_names_folder(answer: &Value, dir: &str) -> anyhow::Result<()> {
    let detail = answer["detail"].as_str().unwrap_or_default();
    for part in [dir, "No space left on device", "free space"] {
        ensure!(detail.contains(part), "it does not say {part:?}: {answer}");
    }
    Ok(())
}

/// Killed with the disk full, and started with the disk full, a server reports that and ends with a retryable error.
/// Started with free space, it has every acknowledged record.
fn started_with_it_full(mut writer: Writer, disk: &Disk, launch: &Launch, dir: &Path) -> anyhow::Result<()> {
    writer.until_refused(disk)?;
    writer.server.kill()?;
    let ran = launch.refused()?.exits(4)?;
    ensure!(ran.error_kind()? == "unavailable", "{}", ran.stdout);
    check_names_folder(&json!({ "detail": ran.json()?["error"]["message"] }), dir.to_str().context("a path")?)?;
    disk.make_room()?;
    writer.server = launch.start()?;
    writer.settles()?;
    writer.ensure_complete()?;
    writer.server.kill()
}

#[test]
fn a_full_disk_under_the_local_log_refuses_only_appends() -> anyhow::Result<()> {
    // Too small for a write-ahead log to be preallocated, and large enough for tables to be written.
    for (bytes, length, rounds) in [(12 << 20, 1_000, 2), (64 << 20, 150_000, 1)] {
        let folder = tempdir()?;
        let dir = folder.path().join("log");
        let disk = Disk::mount(&dir, bytes)?;
        let launch = Launch::local(folder.path()).partitions(1);
        let mut writer = Writer::new(launch.start()?, length);
        for round in 0..rounds {
            for _ in 0..10 {
                writer.next()?;
            }
            let problem = writer.until_refused(&disk)?;
            ensure!(["unavailable", "overloaded"].iter().any(|kind| problem["kind"] == *kind), "{problem}");
            check_names_folder(&problem, "DIR/log")?;
            println!("{}", problem["detail"]);
            // Another append is refused, and all acknowledged records are answered, without the unacknowledged ones.
            let (status, problem) = writer.next()?;
            ensure!([429, 503].contains(&status), "{problem}");
            check_names_folder(&problem, "DIR/log")?;
            ensure!(
                writer.shown_turns("latest")? == writer.applied,
                "round {round}: {:?}",
                writer.shown_turns("latest")
            );
            let record = r#"{"run_id":"other","record_id":"o","payload":{"type":"conversation_turn","message_id":"m","kind":"user","content":"c"}}"#;
            let ran = writer.server.runlog().json_with_input(&["publish", "-"], record)?.exits(4)?;
            ensure!(["unavailable", "overloaded"].iter().any(|kind| ran.stdout.contains(kind)), "{}", ran.stdout);
            disk.make_room()?;
            let took = writer.settles()?;
            println!("log of {bytes} bytes, round {round}: {} records, on again after {took:?}", writer.applied.len());
            writer.ensure_complete()?;
        }
        started_with_it_full(writer, &disk, &launch, &dir)?;
    }
    Ok(())
}

#[test]
fn a_full_disk_under_the_indices_stops_the_partition_until_space_is_free() -> anyhow::Result<()> {
    // RocksDB resumes once there is space for a memtable.
    let (bytes, length) = (96 << 20, 150_000);
    let folder = tempdir()?;
    let dir = folder.path().join("index");
    let disk = Disk::mount(&dir, bytes)?;
    let launch = Launch::local(folder.path()).partitions(1);
    let mut writer = Writer::new(launch.start()?, length);
    for round in 0..2 {
        for _ in 0..10 {
            writer.next()?;
        }
        let problem = writer.until_refused(&disk)?;
        ensure!(problem["kind"] == "partition_stopped", "{problem}");
        check_names_folder(&problem, "DIR/index")?;
        println!("{}", problem["detail"]);
        let (status, problem) = writer.server.get("/v1/runs/r?deadline_ms=1000")?;
        ensure!(status == 503 && problem["kind"] == "partition_stopped", "{status} {problem}");
        ensure!(writer.shown_turns("eventual")? == writer.applied, "round {round}");
        let doctor = writer.server.runlog().json(&["doctor"])?.json()?;
        ensure!(doctor.to_string().contains("free space"), "{doctor}");
        disk.make_room()?;
        let took = writer.settles()?;
        println!("index of {bytes} bytes, round {round}: {} records, on again after {took:?}", writer.applied.len());
        writer.ensure_complete()?;
    }
    started_with_it_full(writer, &disk, &launch, &dir)
}
