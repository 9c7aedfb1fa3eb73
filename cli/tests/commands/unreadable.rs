use super::harness::Server;
use runlog_log::{
    Entry, Log,
    local::{LocalConfig, LocalLog},
};
use runlog_schemas::{
    id::{Offset, PartitionId, RunId},
    partition::partition_of,
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

/// A run id in `partition` of four.
pub(super) fn run_in(partition: impl Into<PartitionId>) -> String {
    let partition = partition.into();
    (0..)
        .map(|n| format!("run-{n}"))
        .find(|run_id| partition_of(RunId::new(run_id.as_str()).unwrap(), 4) == partition)
        .unwrap()
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
