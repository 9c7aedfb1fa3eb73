//! Faults of a log partition, which affect all its readers.

use crate::{
    ledger::{GARBAGE, POISON},
    server::Server,
    stage::{PARTITIONS, Stage},
};
use axum::{body::Body, http::Request};
use runlog_log::{Entry, Offset, PartitionId};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::sleep;

fn lands(stage: &Stage, partition: u32, value: &[u8]) {
    let Ok(partition) = PartitionId::new(partition) else { return };
    let entry = Entry { key: b"nobody".to_vec(), value: value.to_vec(), headers: Vec::new() };
    stage.land(partition, vec![entry]);
}

/// A record of an unknown schema lands.
pub(crate) fn poison(stage: &Stage, partition: u32) {
    stage.count("a record of an unknown schema");
    lands(stage, partition, POISON);
}

/// Bytes land that are no record.
pub(crate) fn garbage(stage: &Stage, partition: u32) {
    stage.count("bytes that are no record");
    lands(stage, partition, GARBAGE);
}

/// The log deletes the records that all servers have applied. Has no effect while one server is down, or has not applied a skip: the
/// index without the skipped record is built from the beginning of the log.
pub(crate) async fn truncate(stage: &Stage, servers: &[Arc<Server>], partition: u32) {
    let mut applied = Vec::new();
    for server in servers {
        let Some(at) = applied_by(server, partition).await else { return };
        applied.push(at);
    }
    let Ok(partition_id) = PartitionId::new(partition) else { return };
    // The copier has not copied later records.
    applied.extend(stage.mirror.as_ref().map(|mirror| mirror.next(partition_id).get()));
    let Some(start) = applied.into_iter().min() else { return };
    if start == 0 || stage.ledger().has_skip_from(partition_id, start) {
        return;
    }
    stage.count("log truncated at its start");
    stage.tell(|| format!("partition {partition} starts at {start}"));
    stage.log.truncate_before(partition_id, Offset::new(start).unwrap_or_default());
    stage.ledger().truncated(partition, start);
}

/// The next offset that a server applies.
async fn applied_by(server: &Server, partition: u32) -> Option<u64> {
    let request = Request::builder().uri("/v1/doctor").body(Body::empty()).ok()?;
    let answer = server.answer(request)?.whole().await?;
    let doctor: Value = serde_json::from_slice(answer.body()).ok()?;
    let rows = doctor["partitions"].as_array()?;
    rows.iter().find(|row| row["partition"] == partition)?["applied"].as_u64()
}

/// A server reads from a deposed leader for a while. Has no effect after the last fault.
pub(crate) async fn depose(stage: Arc<Stage>, server: u32, ms: u64) {
    let Some(link) = stage.link(server).filter(|_| !stage.is_healed()) else { return };
    stage.tell(|| format!("server {server} reads from a deposed leader for {ms} ms"));
    stage.ledger().deposed(server, true);
    link.depose(true);
    sleep(Duration::from_millis(ms)).await;
    link.depose(false);
    stage.ledger().deposed(server, false);
}

/// For a while the log reports to a server an end `records` before its applied position, and the server reads
/// nothing. Has no effect while it is down, or has applied no record.
pub(crate) async fn report_older_ends(stage: &Stage, server: &Arc<Server>, ms: u64, records: u64) {
    let mut ends = BTreeMap::new();
    for partition in PartitionId::all(PARTITIONS) {
        let Some(applied) = applied_by(server, partition.get()).await.filter(|applied| *applied > 0) else { return };
        ends.insert(partition, Offset::new(applied.saturating_sub(records)).unwrap_or_default());
    }
    stage.count("server sees an end before its position");
    stage.tell(|| format!("{} sees for {ms} ms a log end before its applied position", server.name()));
    stage.ledger().ends_moved();
    server.link().report_older_ends(Some(ends));
    sleep(Duration::from_millis(ms)).await;
    server.link().report_older_ends(None);
    stage.ledger().ends_moved();
}
