//! Applied records that were not flushed are lost by a kill, and folded again from the log.

use anyhow::{Context, ensure};
use runlog_log::{Log, Offset, PartitionId, memory::MemoryLog};
use runlog_projector::{
    Config, Consistency, Projector,
    index::{
        failpoint::{self, Failpoints},
        flush, fold,
        store::{Budget, Store},
    },
};
use runlog_schemas::{answer::ErrorKind, payload::Skip};
use runlog_server::append;
use runlog_tests::{
    agent::{Agent, entry, run_in},
    disk::killed,
    server::{Launch, Server},
    unreadable::of_schema,
};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::tempdir;

const FIRST: PartitionId = PartitionId::ZERO;
const DEADLINE: Duration = Duration::from_secs(30);
/// Less than the age at which rows are flushed in any case.
const SOON: Duration = Duration::from_secs(6);

async fn start(dir: &Path, log: &MemoryLog) -> Projector {
    start_with(Config::new(dir, || 0, || "journal".to_owned()), log).await
}

async fn start_with(config: Config, log: &MemoryLog) -> Projector {
    Projector::start(config, Arc::new(log.clone())).await.unwrap()
}

/// Appends turns of one run, and returns the offset of the last turn.
async fn append_turns(log: &MemoryLog, count: usize) -> Offset {
    let mut agent = Agent::new(&run_in(FIRST, 1, &format!("run of {count}")));
    let records = (0..count).map(|_| entry(&agent.turn("hello"))).collect();
    *log.append(FIRST, records).await.unwrap().last().unwrap()
}

async fn latest(projector: &Projector) {
    projector.wait(FIRST, Consistency::Latest, DEADLINE).await.unwrap();
}

/// Waits until everything up to an offset (inclusive) is on disk, and returns how long that took.
async fn on_disk(projector: &Projector, offset: Offset) -> Duration {
    let start = Instant::now();
    while projector.store(FIRST).unwrap().durable().unwrap() <= offset {
        assert!(start.elapsed() < DEADLINE, "{offset} is not on disk");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

fn publish(server: &Server, from: usize, count: usize) -> anyhow::Result<()> {
    let record = |number| {
        json!({ "run_id": "r", "record_id": format!("record-{number}"), "payload": {
            "type": "conversation_turn", "message_id": format!("m{number}"), "kind": "user", "content": "c" } })
    };
    let records: Vec<Value> = (from..from + count).map(record).collect();
    let (status, answer) = server.post("/v1/runs/r/records", &json!(records))?;
    let applied = answer.as_array().is_some_and(|all| all.iter().all(|one| one["outcome"] == "applied"));
    ensure!(status == 200 && applied, "{status} {answer}");
    Ok(())
}

/// The ids of the run's records.
fn shown_turns(server: &Server, consistency: &str) -> anyhow::Result<Vec<Value>> {
    let (status, page) = server.get(&format!("/v1/runs/r/records?limit=1000&consistency={consistency}"))?;
    ensure!(status == 200, "{status} {page}");
    let records = page["records"].as_array().context("records")?;
    Ok(records.iter().map(|record| record["record_id"].clone()).collect())
}

#[test]
fn a_server_killed_between_flushes_folds_the_rest_again_to_the_same_rows() -> anyhow::Result<()> {
    let launch = Launch::temporary()?.partitions(1);
    let server = launch.start()?;
    publish(&server, 0, 5)?;
    let (code, _) = server.terminate()?;
    ensure!(code == Some(0), "{code:?}");
    let server = launch.start()?;
    publish(&server, 5, 20)?;
    let before = shown_turns(&server, "latest")?;
    ensure!(before.len() == 25, "{before:?}");
    server.kill()?;
    // All records up to the orderly end are on disk. Later records are not, unless a flush preceded the kill.
    let paused = launch.clone().paused().start()?;
    let on_disk = shown_turns(&paused, "eventual")?;
    ensure!(on_disk.len() >= 5 && before.starts_with(&on_disk), "{on_disk:?}");
    paused.kill()?;
    let server = launch.start()?;
    ensure!(shown_turns(&server, "latest")? == before, "{:?}", shown_turns(&server, "latest"));
    server.runlog().verified()?;
    server.terminate()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skip_is_on_disk_before_its_partition_continues() {
    let (folder, log) = (tempdir().unwrap(), MemoryLog::new(1));
    let (dir, copy) = (folder.path().join("served"), folder.path().join("killed"));
    let (index, left) = (dir.join("index/1/0"), copy.clone());
    let failpoints = Failpoints::new(move |point| {
        if point == failpoint::SKIP_VOIDED {
            killed(&index, &left).unwrap();
        }
    });
    let projector = start_with(Config { failpoints, ..Config::new(&dir, || 0, || "journal".to_owned()) }, &log).await;
    latest(&projector).await;
    let unknown = of_schema([0xAB; 8], &Agent::new(&run_in(FIRST, 1, "r")).turn("of a newer version"));
    let offset = log.append(FIRST, vec![unknown]).await.unwrap()[0];
    projector.wait_until(FIRST, |progress| progress.stopped.is_some()).await.unwrap();
    append::skip(&projector, FIRST, Skip { offset, who: "w".into(), why: "y".into() }, DEADLINE).await.unwrap();
    let store = Store::open(&copy, &Budget::new(8 << 20)).unwrap();
    assert_eq!(fold::skips_of(&store).unwrap().into_keys().collect::<Vec<_>>(), [offset]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_begins_after_the_flushed_records_stops_the_partition_before_the_gap() {
    let (folder, log) = (tempdir().unwrap(), MemoryLog::new(1));
    let (dir, copy) = (folder.path().join("served"), folder.path().join("killed"));
    let projector = start(&dir, &log).await;
    append_turns(&log, 3).await;
    latest(&projector).await;
    projector.store(FIRST).unwrap().flush().unwrap();
    let flushed = projector.progress(FIRST).unwrap().applied;
    let last = append_turns(&log, 4).await;
    latest(&projector).await;
    killed(&dir.join("index/1/0"), &copy.join("index/1/0")).unwrap();
    drop(projector);
    // All applied records are deleted from the log, which continues.
    log.truncate_before(FIRST, last.saturating_add(1));
    append_turns(&log, 5).await;
    let projector = start(&copy, &log).await;
    let progress = projector.progress(FIRST).unwrap();
    assert_eq!(progress.applied, flushed);
    assert_eq!(progress.stopped.unwrap().kind.as_str(), "log_truncated");
    for consistency in [Consistency::Latest, Consistency::AtLeast(FIRST, Offset::ZERO)] {
        let refused = projector.wait(FIRST, consistency, DEADLINE).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PartitionStopped, "{refused}");
    }
    let store = projector.store(FIRST).unwrap();
    assert_eq!(store.durable().unwrap(), flushed, "nothing after the gap is applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_flushed_early_when_the_start_of_the_log_approaches() {
    let (folder, log) = (tempdir().unwrap(), MemoryLog::new(1));
    let projector = start(folder.path(), &log).await;
    let first = append_turns(&log, 3).await;
    latest(&projector).await;
    projector.store(FIRST).unwrap().flush().unwrap();
    log.truncate_before(FIRST, first);
    let last = append_turns(&log, 4).await;
    latest(&projector).await;
    // Learns the log's start, as `latest` does once a second.
    projector.bounds(FIRST, Duration::from_secs(10)).await.unwrap();
    let took = on_disk(&projector, last).await;
    assert!(took < SOON, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_an_idle_partition_are_flushed_at_their_age() {
    let (folder, log) = (tempdir().unwrap(), MemoryLog::new(1));
    let flush = flush::Limits { age_max: Duration::from_millis(100), ..flush::Limits::default() };
    let config = Config { flush, ..Config::new(folder.path(), || 0, || "journal".to_owned()) };
    let projector = start_with(config, &log).await;
    let last = append_turns(&log, 3).await;
    latest(&projector).await;
    let took = on_disk(&projector, last).await;
    assert!(took < SOON, "{took:?}");
}
