//! A poll may return a partition's records in several chunks, interleaved with other partitions' records.

use runlog_log::{
    Entry, Log, Offset, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::{Config, Consistency, Projector};
use runlog_schemas::{codec, id::RunId, payload::Skip, record::JournalRecord};
use runlog_tests::agent::{Agent, entry, id, run_in};
use std::{path::Path, sync::Arc, time::Duration};

const PARTITIONS: u32 = 2;
const DEADLINE: Duration = Duration::from_secs(30);

async fn start(dir: &Path, log: &MemoryLog) -> Projector {
    let config = Config::new(dir, || 0, || "journal".into());
    Projector::start(config, Arc::new(log.clone())).await.unwrap()
}

async fn append(log: &MemoryLog, partition: impl Into<PartitionId>, entries: Vec<Entry>) -> Offset {
    log.append(partition.into(), entries).await.unwrap()[0]
}

fn turn_entries(agent: &mut Agent, count: usize) -> Vec<Entry> {
    (0..count).map(|_| entry(&agent.turn("hello"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_after_a_skip_in_the_same_poll_are_applied_once() {
    // One poll returns everything: the record that stops the partition, its skip three chunks later, and records
    // after both.
    let log = MemoryLog::with(MemoryOptions { partitions: PARTITIONS, chunk: Some(3), ..MemoryOptions::default() });
    let folder = tempfile::tempdir().unwrap();
    start(&folder.path().join("genesis"), &log).await.end();
    let mut stopped = Agent::new(&run_in(0, PARTITIONS, "stopped"));
    let mut other = Agent::new(&run_in(1, PARTITIONS, "other"));
    append(&log, 0, turn_entries(&mut stopped, 5)).await;
    let newer = Entry { value: [&[0xC3, 0x01][..], &[0xAB; 8], b"newer"].concat(), ..Entry::default() };
    let offset = append(&log, 0, vec![newer]).await;
    append(&log, 0, turn_entries(&mut stopped, 10)).await;
    let skip = Skip { offset, who: "w".into(), why: "y".into() };
    let skip = JournalRecord::of_partition(id("skip"), "test", skip.into());
    append(&log, 0, vec![Entry { value: codec::encode(&skip), ..Entry::default() }]).await;
    append(&log, 0, turn_entries(&mut stopped, 20)).await;
    append(&log, 1, turn_entries(&mut other, 60)).await;

    let projector = start(&folder.path().join("served"), &log).await;
    for partition in PartitionId::all(PARTITIONS) {
        projector.wait(partition, Consistency::Latest, DEADLINE).await.unwrap();
    }
    for (agent, partition, records) in [(&stopped, 0, 35), (&other, 1, 60)] {
        let partition = PartitionId::from(partition);
        let place = runlog_projector::index::query::TopicPartition { topic: "t", partition, log: None };
        let store = projector.store(partition).unwrap();
        let run =
            runlog_projector::index::query::runs::get(&store.view(), place, id::<RunId>(&agent.run_id).borrow(), 0)
                .unwrap()
                .unwrap();
        assert_eq!(run.records, records, "of {}", agent.run_id);
    }
    let projector = Arc::new(projector);
    let verified = tokio::task::spawn_blocking(move || projector.verify()).await.unwrap().unwrap();
    assert!(verified.equal, "{verified:?}");
}
