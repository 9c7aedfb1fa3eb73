//! An index is compared with its log when it is opened. A slow log is not mistaken for another log.

#![allow(clippy::unwrap_used, reason = "tests")]

use runlog_log::{
    Ack, BoundsAnswer, Delivery, Entry, Error, Log, Offset, PartitionId, Reader,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::{Config, Consistency, Projector};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::agent::{Agent, entry, run_in};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const PARTITIONS: u32 = 1;
const DEADLINE: Duration = Duration::from_secs(30);

/// A log that, while slow, returns no record after its first in time.
#[derive(Clone, Debug)]
struct SlowLog(MemoryLog, Arc<AtomicBool>);

impl Log for SlowLog {
    fn topic(&self) -> &str {
        self.0.topic()
    }
    fn partitions(&self) -> u32 {
        self.0.partitions()
    }
    fn value_bytes_max(&self) -> usize {
        self.0.value_bytes_max()
    }
    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        self.0.append(partition, batch)
    }
    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        self.0.bounds(partition, deadline)
    }
    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        let reader = self.0.reader(from)?;
        let slow = self.1.load(Ordering::SeqCst) && from.iter().any(|(_, next)| *next > Offset::ZERO);
        Ok(if slow { Box::new(SlowReader(reader)) } else { reader })
    }
}

struct SlowReader(Box<dyn Reader>);

impl Reader for SlowReader {
    fn poll(&mut self, _max: usize, _timeout: Duration) -> Result<Vec<Delivery>, Error> {
        Ok(Vec::new())
    }
    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.0.position(partition)
    }
    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error> {
        self.0.seek(partition, next)
    }
    fn release(&mut self, partition: PartitionId) -> Result<(), Error> {
        self.0.release(partition)
    }
}

async fn start(dir: &Path, log: &SlowLog) -> Result<Projector, runlog_projector::Error> {
    let config = Config::new(dir, || 0, || "journal".into());
    Projector::start(config, Arc::new(log.clone())).await
}

/// A log with a run of its own.
async fn log(turns: &[&str]) -> SlowLog {
    let memory = MemoryLog::with(MemoryOptions { partitions: PARTITIONS, ..MemoryOptions::default() });
    let log = SlowLog(memory, Arc::default());
    let folder = tempfile::tempdir().unwrap();
    start(folder.path(), &log).await.unwrap().end();
    let mut agent = Agent::new(&run_in(0, PARTITIONS, "run"));
    for turn in turns {
        log.append(0.into(), vec![entry(&agent.turn(turn))]).await.unwrap();
    }
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_slow_at_start_is_unavailable_and_not_diverged() {
    let (folder, log, other) = (tempfile::tempdir().unwrap(), log(&["a", "b"]).await, log(&["a", "c"]).await);
    let projector = start(folder.path(), &log).await.unwrap();
    projector.wait(0.into(), Consistency::Latest, DEADLINE).await.unwrap();
    projector.end();
    drop(projector);
    log.1.store(true, Ordering::SeqCst);
    let error = start(folder.path(), &log).await.expect_err("it cannot be compared");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("topic runlog.journal, partition 0, offset 2"), "{error}");
    log.1.store(false, Ordering::SeqCst);
    let projector = start(folder.path(), &log).await.unwrap();
    projector.wait(0.into(), Consistency::Latest, DEADLINE).await.unwrap();
    projector.end();
    drop(projector);
    let diverged = start(folder.path(), &other).await.unwrap();
    let error = diverged.wait(0.into(), Consistency::Latest, DEADLINE).await.expect_err("another log");
    assert_eq!(error.kind(), ErrorKind::PartitionStopped, "{error}");
    assert!(error.to_string().contains("the record at offset 2 is not the one"), "{error}");
}
