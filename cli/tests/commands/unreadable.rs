use super::harness::Server;
use runlog_log::{
    Entry, Log,
    local::{LocalConfig, LocalLog},
};
use runlog_schemas::{
    codec,
    id::{Offset, PartitionId, RunId},
    partition::partition_of,
    payload::{Payload, RunLifecycle},
    record::JournalRecord,
};
use serde_json::json;
use std::path::Path;

pub(super) const STARTED: &str = r#"{"type":"run_lifecycle","status":"started"}"#;

/// Appends bytes as a foreign client would, while no server runs; their offset.
pub(super) fn append(data: &Path, partition: impl Into<PartitionId>, value: Vec<u8>) -> Offset {
    let log = LocalLog::open(LocalConfig::new(data.join("log"))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entry = Entry { key: b"foreign".to_vec(), value, headers: Vec::new() };
    runtime.block_on(log.append(partition.into(), vec![entry])).unwrap()[0]
}

/// A run id whose partition, of four, is the one given.
pub(super) fn run_in(partition: impl Into<PartitionId>) -> String {
    let partition = partition.into();
    (0..)
        .map(|n| format!("run-{n}"))
        .find(|run_id| partition_of(RunId::new(run_id.as_str()).unwrap(), 4) == partition)
        .unwrap()
}

#[test]
fn unreadable_bytes_are_dead_letters_and_the_partition_continues() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert_eq!(Server::start(&data, &[]).signal("TERM"), 0);
    let offset = append(&data, 1, b"no record".to_vec());
    let server = Server::start(&data, &[]);
    server.publish_applied(&run_in(1), &[("s", STARTED)]);
    let letters = server.ask(&["dead-letter", "list"]).is(0);
    let letter = &letters["records"][0];
    assert_eq!((&letter["reason"], &letter["bytes"]), (&json!("not_framed"), &json!(9)));
    assert_eq!((&letter["position"]["partition"], &letter["position"]["offset"]), (&json!(1), &json!(offset)));
    assert_eq!((letters["records"].as_array().unwrap().len(), &letters["next_cursor"]), (1, &json!(null)));
    let shown = server.ask(&["dead-letter", "show", &format!("1:{offset}")]).is(0);
    assert_eq!((&shown["hex"], &shown["sha256"]), (&json!("6e6f207265636f7264"), &letter["sha256"]));
    assert_eq!(server.ask(&["dead-letter", "show", "1:0"]).error(1), "not_found");
    assert_eq!(server.ask(&["verify"]).is(0)["equal"], true);
}

#[test]
fn a_record_of_an_unknown_schema_stops_its_partition_until_it_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (stopped, other) = (run_in(2), run_in(0));
    let server = Server::start(&data, &[]);
    server.publish_applied(&stopped, &[("s", STARTED)]);
    assert_eq!(server.signal("TERM"), 0);
    let payload = Payload::from(RunLifecycle { status: "completed".into(), reason: String::new() });
    let mut bytes =
        codec::encode(&JournalRecord::new(RunId::new(stopped.as_str()).unwrap(), "e".parse().unwrap(), "a", payload));
    bytes[2] ^= 0xff;
    let offset = append(&data, 2, bytes);
    let server = Server::start(&data, &[]);
    // The others are served, and what was applied stays readable.
    server.publish_applied(&other, &[("s", STARTED)]);
    let refused = server.ask(&["show", &stopped]);
    assert_eq!(refused.error(4), "partition_stopped");
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["topic"], &error["partition"], &error["offset"]),
        (&json!("runlog.journal"), &json!(2), &json!(offset))
    );
    assert_eq!(server.ask(&["show", &stopped, "--consistency", "eventual"]).lines().len(), 1);
    let then = |place: &str, level: &str| {
        server.ask(&["recover", &stopped, "--as-of", place, "--consistency", level, "--deadline", "5s"])
    };
    assert_eq!(then("2:1", "eventual").is(0)["next_journal_seq"], 2);
    assert_eq!(then("2:1", "latest").error(4), "partition_stopped");
    assert_eq!(then(&format!("2:{offset}"), "eventual").error(4), "partition_stopped");
    let word = server.ask(&["doctor"]).is(1);
    assert_eq!((&word["healthy"], &word["partitions"][2]["state"]), (&json!(false), &json!("stopped")));
    assert!(!word["findings"].as_array().unwrap().is_empty(), "{word}");
    let effects = server.ask(&["effects", "--consistency", "latest"]).is(0);
    assert_eq!(effects["unavailable_partitions"], json!([2]));
    let skip = |place: &str| server.ask(&["dead-letter", "skip", place, "--who", "me", "--why", "not ours", "--yes"]);
    assert_eq!(skip(&format!("2:{}", offset.saturating_add(100))).error(3), "invalid");
    assert_eq!(skip(&format!("2:{offset}")).is(0)["outcome"], "applied");
    assert_eq!(server.ask(&["show", &stopped]).lines().len(), 1);
    assert_eq!(server.ask(&["doctor"]).is(0)["partitions"][2]["state"], "running");
    assert_eq!(server.ask(&["verify"]).is(0)["equal"], true);
}

#[test]
fn a_skip_can_be_published_as_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert_eq!(Server::start(&data, &[]).signal("TERM"), 0);
    let offset = append(&data, 3, [&[0xc3, 0x01], [0u8; 8].as_slice()].concat());
    let server = Server::start(&data, &[]);
    // A server is ready before it has read the log's last records.
    let effects = server.ask(&["effects", "--consistency", "latest"]).is(0);
    assert_eq!(effects["unavailable_partitions"], json!([3]));
    assert_eq!(server.ask(&["doctor"]).code, 1);
    let skip = json!({"partition": 3, "payload": {"type": "skip", "offset": offset, "who": "me", "why": "foreign"}});
    assert_eq!(server.publish(&skip.to_string()).is(0)["outcome"], "applied");
    assert_eq!(server.ask(&["doctor"]).code, 0);
}
