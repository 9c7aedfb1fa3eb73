//! An index is compared with its log when it is opened. A slow log is not mistaken for another log.

use runlog_log::{Delivery, Error, Log, Offset, PartitionId, Reader, memory::MemoryLog};
use runlog_projector::{Config, Consistency, Projector};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::{
    agent::{Agent, entry, run_in},
    hooked_log::{Hooks, hook},
};
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

/// While slow, the log returns no record after its first in time.
#[derive(Debug, Default)]
struct Slow(AtomicBool);

impl Hooks for Slow {
    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        let is_after_first = reader.position(PartitionId::ZERO) > Some(Offset::ZERO);
        if is_after_first && self.0.load(Ordering::SeqCst) { Ok(Vec::new()) } else { reader.poll(max, timeout) }
    }
}

async fn start(dir: &Path, log: &MemoryLog, slow: &Arc<Slow>) -> Result<Projector, runlog_projector::Error> {
    let config = Config::new(dir, || 0, || "journal".into());
    Projector::start(config, hook(log.clone(), slow)).await
}

/// A log with a run of its own.
async fn log(turns: &[&str]) -> MemoryLog {
    let (log, folder) = (MemoryLog::new(PARTITIONS), tempfile::tempdir().unwrap());
    start(folder.path(), &log, &Arc::default()).await.unwrap().end();
    let mut agent = Agent::new(&run_in(0, PARTITIONS, "run"));
    for turn in turns {
        log.append(0.into(), vec![entry(&agent.turn(turn))]).await.unwrap();
    }
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_slow_at_start_is_unavailable_and_not_diverged() {
    let (folder, slow) = (tempfile::tempdir().unwrap(), Arc::<Slow>::default());
    let (log, other) = (log(&["a", "b"]).await, log(&["a", "c"]).await);
    let projector = start(folder.path(), &log, &slow).await.unwrap();
    projector.wait(0.into(), Consistency::Latest, DEADLINE).await.unwrap();
    projector.end();
    drop(projector);
    slow.0.store(true, Ordering::SeqCst);
    let error = start(folder.path(), &log, &slow).await.expect_err("it cannot be compared");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("topic runlog.journal, partition 0, offset 2"), "{error}");
    slow.0.store(false, Ordering::SeqCst);
    let projector = start(folder.path(), &log, &slow).await.unwrap();
    projector.wait(0.into(), Consistency::Latest, DEADLINE).await.unwrap();
    projector.end();
    drop(projector);
    let diverged = start(folder.path(), &other, &slow).await.unwrap();
    let error = diverged.wait(0.into(), Consistency::Latest, DEADLINE).await.expect_err("another log");
    assert_eq!(error.kind(), ErrorKind::PartitionStopped, "{error}");
    assert!(error.to_string().contains("the record at offset 2 differs"), "{error}");
}
