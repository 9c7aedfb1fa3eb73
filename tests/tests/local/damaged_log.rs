//! A log with a damaged record: the records before it are served, and the partition stops at it.

use runlog_log::{Delivery, Error, Kind, Log, Offset, PartitionId, Reader, memory::MemoryLog};
use runlog_projector::{
    Config, Consistency, Projector,
    index::{bulk::Limits, fold::StopKind, query::timeline, store::records},
};
use runlog_schemas::id::RunId;
use runlog_tests::{
    agent::{Agent, entry, id, run_in},
    hooked_log::{Hooks, hook},
};
use std::{path::Path, sync::Arc, time::Duration};
use tempfile::tempdir;

const FIRST: PartitionId = PartitionId::ZERO;
const DEADLINE: Duration = Duration::from_secs(30);
const RECORDS: u32 = 40;
/// The offset of the damaged record; the genesis has offset 0.
const DAMAGED: u32 = 30;

/// The record at [`DAMAGED`] cannot be read, and the reader does not get past it.
#[derive(Debug)]
struct Damaged;

impl Hooks for Damaged {
    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        match reader.position(FIRST).map(|position| Offset::from(DAMAGED).since(position)) {
            Some(0) => {
                let error = Error::new(Kind::Damaged, "t", "a record is missing");
                Err(error.in_partition(FIRST).at_offset(DAMAGED.into()))
            }
            Some(left) => reader.poll(max.min(left as usize), timeout),
            None => reader.poll(max, timeout),
        }
    }
}

fn config(dir: &Path, offsets_min: u64) -> Config {
    Config { bulk: Limits { offsets_min, ..Limits::default() }, ..Config::new(dir, || 0, || "journal".to_owned()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_records_before_a_damaged_record_are_served_and_the_partition_stops_at_it() {
    let (log, dir) = (MemoryLog::new(1), tempdir().unwrap());
    let intact = Projector::start(config(dir.path(), u64::MAX), Arc::new(log.clone())).await.unwrap();
    let run: RunId = id(run_in(FIRST, 1, "run"));
    let mut agent = Agent::new(run.as_str());
    let records = (0..RECORDS).map(|_| entry(&agent.turn("hello"))).collect();
    log.append(FIRST, records).await.unwrap();
    intact.wait(FIRST, Consistency::Latest, DEADLINE).await.unwrap();
    for offsets_min in [u64::MAX, 0] {
        let dir = tempdir().unwrap();
        let log = hook(log.clone(), &Arc::new(Damaged));
        let projector = Projector::start(config(dir.path(), offsets_min), log).await.unwrap();
        let stops = projector.wait_until(FIRST, |at| at.stopped.is_some());
        let progress = tokio::time::timeout(DEADLINE, stops).await.unwrap().unwrap();
        let stop = progress.stopped.unwrap();
        assert_eq!((stop.kind, stop.offset), (StopKind::LogDamaged, DAMAGED.into()), "{}", stop.error);
        assert_eq!(progress.applied, DAMAGED.into());
        let store = projector.store(FIRST).unwrap();
        let last = timeline::end(&store.view(), run.borrow()).unwrap();
        let before = records::key(run.borrow(), Offset::from(DAMAGED - 1), 0);
        assert_eq!(last.as_deref(), Some(before.bytes()), "its last record is before the damage");
    }
}
