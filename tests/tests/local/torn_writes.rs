//! Files of a killed server with torn or corrupt ends, and files with damage in the middle. Acknowledged records can be
//! read, no write is partial, and an index continues from its last commit. If that is impossible, the server names the
//! damage and the remedy and exits with 5.

use anyhow::{Context, ensure};
use runlog_tests::{
    disk::cut_flush,
    random::Random,
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::tempdir;

/// Records before the server is killed.
const RECORDS: usize = 20;

/// Sends records, and kills the server. Returns the ids of the acknowledged records.
fn write(launch: &Launch, from: usize) -> anyhow::Result<Vec<String>> {
    let (server, acknowledged) = write_records(launch, from)?;
    server.kill()?;
    Ok(acknowledged)
}

/// A server that accepted records, and the ids of the acknowledged records.
fn write_records(launch: &Launch, from: usize) -> anyhow::Result<(Server, Vec<String>)> {
    let server = launch.start()?;
    let mut acknowledged = Vec::new();
    for number in from..from + RECORDS {
        let id = format!("record-{number}");
        let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": text(&id) });
        let record = json!({ "run_id": "r", "record_id": id, "payload": payload });
        let (status, answer) = server.post("/v1/runs/r/records", &record)?;
        ensure!(status == 200 && answer["outcome"] == "applied", "{status} {answer}");
        acknowledged.push(id);
    }
    Ok((server, acknowledged))
}

fn text(id: &str) -> String {
    format!("what {id} says").repeat(20)
}

/// The run's records, each whole.
fn shown_ids(server: &Server) -> anyhow::Result<Vec<String>> {
    let (status, page) = server.get("/v1/runs/r/records?raw=true&limit=1000")?;
    ensure!(status == 200, "{status} {page}");
    let whole = |record: &Value| {
        let id = record["record_id"].as_str().context("an id")?.to_owned();
        ensure!(record["payload"]["content"] == text(&id), "{id} is not whole: {record}");
        Ok(id)
    };
    page["records"].as_array().context("records")?.iter().map(whole).collect()
}

/// The newest file of a database with this ending.
fn newest(dir: &Path, ending: &str) -> anyhow::Result<PathBuf> {
    let files = fs::read_dir(dir)?.filter_map(Result::ok).map(|entry| entry.path());
    let file = files.filter(|path| path.extension().is_some_and(|extension| extension == ending)).max();
    file.with_context(|| format!("no .{ending} in {}", dir.display()))
}

/// The index's file of bodies.
fn bodies(dir: &Path) -> anyhow::Result<PathBuf> {
    let mut files = fs::read_dir(dir)?.filter_map(Result::ok).map(|entry| entry.path());
    let file = files.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("bodies-")));
    file.with_context(|| format!("no bodies in {}", dir.display()))
}

/// The result of a write that a power cut interrupted: a part of its last bytes, or other bytes in their place.
#[derive(Clone, Copy, Debug)]
enum Tear {
    Cut(u64),
    Garbled(usize),
    Zeroed(usize),
}

fn tear(path: &Path, how: Tear, random: &mut Random) -> anyhow::Result<()> {
    let mut bytes = fs::read(path)?;
    let end = bytes.len();
    match how {
        Tear::Cut(count) => bytes.truncate(end - usize::try_from(count)?),
        Tear::Garbled(count) => bytes[end - count..].iter_mut().for_each(|byte| *byte ^= random.between(1, 256) as u8),
        Tear::Zeroed(count) => bytes[end - count..].fill(0),
    }
    Ok(fs::write(path, bytes)?)
}

const TEARS: [Tear; 6] =
    [Tear::Cut(1), Tear::Cut(300), Tear::Garbled(1), Tear::Garbled(300), Tear::Zeroed(3), Tear::Zeroed(300)];

#[test]
fn a_torn_end_of_the_local_log_loses_only_the_record_that_was_being_written() -> anyhow::Result<()> {
    let mut random = Random::new(1);
    for how in TEARS {
        let folder = tempdir()?;
        let launch = Launch::local(folder.path()).partitions(1);
        let mut acknowledged = write(&launch, 0)?;
        // The last record is the torn one. The index, which has it, is deleted as well, or it would be ahead of its
        // log.
        acknowledged.pop();
        tear(&newest(&folder.path().join("log"), "log")?, how, &mut random)?;
        fs::remove_dir_all(folder.path().join("index"))?;
        let server = launch.start().with_context(|| format!("{how:?}"))?;
        ensure!(shown_ids(&server)? == acknowledged, "{how:?}: {:?}", shown_ids(&server));
        server.kill()?;
        acknowledged.extend(write(&launch, RECORDS)?);
        let server = launch.start()?;
        ensure!(shown_ids(&server)? == acknowledged, "{how:?}: {:?}", shown_ids(&server));
        server.runlog().verified()?;
    }
    Ok(())
}

#[test]
fn an_index_ahead_of_a_torn_log_is_reported() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path()).partitions(1);
    let (server, acknowledged) = write_records(&launch, 0)?;
    // An orderly end flushes the index.
    server.terminate()?;
    tear(&newest(&folder.path().join("log"), "log")?, Tear::Cut(300), &mut Random::new(2))?;
    let server = launch.start()?;
    let (status, answer) = server.get("/v1/runs/r")?;
    ensure!(status == 503 && answer["kind"] == "partition_stopped", "an acknowledged record is gone: {answer}");
    ensure!(answer["detail"].as_str().is_some_and(|detail| detail.contains("this is another log")), "{answer}");
    let (status, answer) = server.get("/v1/runs/r?consistency=eventual")?;
    ensure!(status == 200 && answer["records"] == acknowledged.len(), "{answer}");
    Ok(())
}

#[test]
fn an_index_whose_last_flush_was_cut_off_resumes_from_the_previous_flush() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path()).partitions(1);
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        acknowledged.extend(write(&launch, round * RECORDS)?);
        cut_flush(&folder.path().join("index/1/0"))?;
        let server = launch.start()?;
        ensure!(shown_ids(&server)? == acknowledged, "{:?}", shown_ids(&server));
        server.runlog().verified()?;
        server.terminate()?;
    }
    Ok(())
}

/// Changes a byte in the middle of a file.
fn damage(path: &Path) -> anyhow::Result<()> {
    let mut bytes = fs::read(path)?;
    let at = bytes.len() / 2;
    bytes[at] ^= 0x55;
    Ok(fs::write(path, bytes)?)
}

/// A server that does not start, and names the damage and the remedy.
fn check_refused_start(launch: &Launch, dir: &Path, advice: &str) -> anyhow::Result<()> {
    let ran = launch.refused()?.exits(5)?;
    ensure!(ran.error_kind()? == "internal", "{}", ran.stdout);
    let message = ran.json()?["error"]["message"].as_str().unwrap_or_default().to_owned();
    for part in [dir.to_str().context("a path")?, advice] {
        ensure!(message.contains(part), "it does not say {part:?}: {message}");
    }
    Ok(())
}

#[test]
fn damage_in_the_middle_of_the_local_log_is_reported_and_not_skipped() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path()).partitions(1);
    write(&launch, 0)?;
    let (dir, kept) = (folder.path().join("log"), folder.path().join("kept"));
    let wal = newest(&dir, "log")?;
    fs::copy(&wal, &kept)?;
    damage(&wal)?;
    check_refused_start(&launch, &dir, "restore this folder from a copy")?;
    // The restored file is served.
    fs::copy(&kept, &wal)?;
    launch.start()?.runlog().verified()?;
    // Damage in a table: the log opens, and a read of the table reports the damage.
    let table = newest(&dir, "sst")?;
    fs::copy(&table, &kept)?;
    damage(&table)?;
    fs::remove_dir_all(folder.path().join("index"))?;
    match launch.start() {
        Ok(server) => {
            let (status, answer) = server.get("/v1/runs/r")?;
            ensure!(status == 503 && answer["kind"] == "partition_stopped", "{status} {answer}");
            ensure!(answer["detail"].as_str().is_some_and(|detail| detail.contains("from a copy")), "{answer}");
            println!("{}", answer["detail"]);
        }
        Err(_) => check_refused_start(&launch, &dir, "restore this folder from a copy")?,
    }
    fs::copy(&kept, &table)?;
    let server = launch.start()?;
    ensure!(shown_ids(&server)?.len() == RECORDS, "{:?}", shown_ids(&server));
    server.runlog().verified()
}

#[test]
fn a_damaged_index_names_the_folder_to_delete_and_is_built_again() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path()).partitions(1);
    let mut acknowledged = write(&launch, 0)?;
    // An orderly end flushes it.
    launch.start()?.terminate()?;
    let dir = folder.path().join("index/1/0");
    for kind in ["table", "manifest", "bodies", "no bodies"] {
        match kind {
            "table" => damage(&newest(&dir, "sst")?)?,
            "manifest" => damage(&dir.join(fs::read_to_string(dir.join("CURRENT"))?.trim()))?,
            "bodies" => damage(&bodies(&dir)?)?,
            _ => fs::remove_file(bodies(&dir)?)?,
        }
        let advice = "delete this folder, and start again";
        match launch.start() {
            Ok(server) => {
                let (status, answer) = server.get("/v1/runs/r/records?raw=true")?;
                ensure!(
                    status == 500 && answer["detail"].as_str().is_some_and(|detail| detail.contains(advice)),
                    "{answer}"
                );
                println!("{}", answer["detail"]);
                let doctor = server.runlog().json(&["doctor"])?;
                // It reads no bodies.
                let codes: &[i32] = if kind == "bodies" { &[0] } else { &[1, 5] };
                ensure!(doctor.code.is_some_and(|code| codes.contains(&code)), "{}", doctor.stdout);
                println!("{}", doctor.stdout);
            }
            Err(_) => check_refused_start(&launch, &dir, advice)?,
        }
        fs::remove_dir_all(&dir)?;
        acknowledged.extend(write(&launch, acknowledged.len())?);
        let server = launch.start()?;
        ensure!(shown_ids(&server)? == acknowledged, "{:?}", shown_ids(&server));
        server.runlog().verified()?;
        server.terminate()?;
    }
    Ok(())
}
