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

/// Records that are tried before the disk has to be felt.
const TRIES_MAX: usize = 400;
/// How long service may take to come back, and how often it is tried.
const ROOM_WAIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// A run, and what its only writer was told of its records.
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

    /// Sends a record, once more where it was sent before: what is answered.
    fn send(&mut self, id: &str) -> anyhow::Result<(u16, Value)> {
        if !self.texts.contains_key(id) {
            // Text that is not made shorter on its way to the disk.
            let digits = (0..self.length).filter_map(|_| char::from_digit(self.random.between(0, 36) as u32, 36));
            self.texts.insert(id.to_owned(), digits.collect());
        }
        let content = &self.texts[id];
        let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": content });
        let record = json!({ "run_id": "r", "record_id": id, "payload": payload });
        let (status, said) = self.server.post("/v1/runs/r/records?deadline_ms=5000", &record)?;
        self.open.retain(|open| open != id);
        match status {
            200 if ["applied", "repeat"].iter().any(|outcome| said["outcome"] == *outcome) => {
                self.applied.push(id.to_owned());
            }
            429 | 503 => self.open.push(id.to_owned()),
            _ => anyhow::bail!("{status} {said}"),
        }
        Ok((status, said))
    }

    fn next(&mut self) -> anyhow::Result<(u16, Value)> {
        self.made += 1;
        self.send(&format!("record-{}", self.made))
    }

    /// Sends until one is refused: what is said then.
    fn until_refused(&mut self, disk: &Disk) -> anyhow::Result<Value> {
        for _ in 0..TRIES_MAX {
            // What was written to tables gave back its logs.
            disk.fill()?;
            let (status, said) = self.next()?;
            if status != 200 {
                return Ok(said);
            }
        }
        anyhow::bail!("the disk is not full")
    }

    /// What is in the run, whole: the ids.
    fn shown(&self, consistency: &str) -> anyhow::Result<Vec<String>> {
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

    /// Sends what is open until all of it is applied.
    fn settles(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        while let Some(id) = self.open.first().cloned() {
            let (_, said) = self.send(&id)?;
            ensure!(begun.elapsed() < ROOM_WAIT, "there is room, and {id} is not taken: {said}");
            if !self.open.is_empty() {
                thread::sleep(LOOK);
            }
        }
        Ok(begun.elapsed())
    }

    /// All that was ever tried is there, each once, and the index is what the log says.
    fn all_is_there(&self) -> anyhow::Result<()> {
        let (mut shown, mut known) = (self.shown("latest")?, self.applied.clone());
        shown.sort();
        known.sort();
        ensure!(shown == known, "{} shown, {} known", shown.len(), known.len());
        let verification = self.server.runlog().json(&["verify"])?.exits(0)?;
        ensure!(verification.json()?["equal"] == true, "verify: {}", verification.stdout);
        Ok(())
    }
}

/// Over HTTP the data folder is `DIR`, wherever it is.
fn names(said: &Value, dir: &str) -> anyhow::Result<()> {
    let detail = said["detail"].as_str().unwrap_or_default();
    for part in [dir, "No space left on device", "make room"] {
        ensure!(detail.contains(part), "it does not say {part:?}: {said}");
    }
    Ok(())
}

/// Killed with the disk full, and started with it full, a server says so and ends as what may be tried again. Started with
/// room, it has everything.
fn started_with_it_full(mut writer: Writer, disk: &Disk, launch: &Launch, dir: &Path) -> anyhow::Result<()> {
    writer.until_refused(disk)?;
    writer.server.kill()?;
    let ran = launch.refused()?.exits(4)?;
    ensure!(ran.error_kind()? == "unavailable", "{}", ran.stdout);
    names(&json!({ "detail": ran.json()?["error"]["message"] }), dir.to_str().context("a path")?)?;
    disk.make_room()?;
    writer.server = launch.start()?;
    writer.settles()?;
    writer.all_is_there()?;
    writer.server.kill()
}

#[test]
fn a_full_disk_under_the_local_log_refuses_appends_and_nothing_else() -> anyhow::Result<()> {
    // Too small for a write-ahead log to be laid out beforehand, and large enough for tables to be written.
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
            let said = writer.until_refused(&disk)?;
            ensure!(["unavailable", "overloaded"].iter().any(|kind| said["kind"] == *kind), "{said}");
            names(&said, "DIR/log")?;
            println!("{}", said["detail"]);
            // Refused again, and all that was acknowledged is answered, with nothing of what was not.
            let (status, said) = writer.next()?;
            ensure!([429, 503].contains(&status), "{said}");
            names(&said, "DIR/log")?;
            ensure!(writer.shown("latest")? == writer.applied, "round {round}: {:?}", writer.shown("latest"));
            let record = r#"{"run_id":"other","record_id":"o","payload":{"type":"conversation_turn","message_id":"m","kind":"user","content":"c"}}"#;
            let ran = writer.server.runlog().json_with_input(&["publish", "-"], record)?.exits(4)?;
            ensure!(["unavailable", "overloaded"].iter().any(|kind| ran.stdout.contains(kind)), "{}", ran.stdout);
            disk.make_room()?;
            let took = writer.settles()?;
            println!("log of {bytes} bytes, round {round}: {} records, on again after {took:?}", writer.applied.len());
            writer.all_is_there()?;
        }
        started_with_it_full(writer, &disk, &launch, &dir)?;
    }
    Ok(())
}

#[test]
fn a_full_disk_under_the_indices_stops_the_partition_until_there_is_room() -> anyhow::Result<()> {
    // RocksDB goes on once there is room for a memtable.
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
        let said = writer.until_refused(&disk)?;
        ensure!(said["kind"] == "partition_stopped", "{said}");
        names(&said, "DIR/index")?;
        println!("{}", said["detail"]);
        let (status, said) = writer.server.get("/v1/runs/r?deadline_ms=1000")?;
        ensure!(status == 503 && said["kind"] == "partition_stopped", "{status} {said}");
        ensure!(writer.shown("eventual")? == writer.applied, "round {round}");
        let doctor = writer.server.runlog().json(&["doctor"])?.json()?;
        ensure!(doctor.to_string().contains("make room"), "{doctor}");
        disk.make_room()?;
        let took = writer.settles()?;
        println!("index of {bytes} bytes, round {round}: {} records, on again after {took:?}", writer.applied.len());
        writer.all_is_there()?;
    }
    started_with_it_full(writer, &disk, &launch, &dir)
}
