//! A fault in one partition stops only that partition, and the stop is reported.

use runlog_log::{Delivery, Entry, Error, Kind, Log, Offset, PartitionId, Reader, memory::MemoryLog};
use runlog_projector::{
    Config, Consistency, Projector,
    index::{
        failpoint::{self, Failpoints},
        store::{Rows, dead_letters},
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    codec::{Framing, Schemas, Unreadable},
    payload::Skip,
    schema::Version,
};
use runlog_server::append;
use runlog_tests::{
    agent::{Agent, entry, run_in},
    hooked_log::{Hooks, hook},
};
use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;

const PARTITIONS: u32 = 2;
const DEADLINE: Duration = Duration::from_secs(30);
const FIRST: PartitionId = PartitionId::ZERO;

/// A registry whose answers panic.
#[derive(Debug)]
struct Panics;

impl Schemas for Panics {
    fn version(&self, id: u32) -> Result<&'static Version, Unreadable> {
        panic!("a defect with schema {id}")
    }
    fn framing(&self, _: &'static Version) -> Result<Framing, String> {
        Ok(Framing::SingleObject)
    }
    fn wait(&self, _: Duration) {}
}

/// The effect of the next poll.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Fails(Kind),
    Panics,
}

/// A reader fails once, and a record of the first partition can be replaced.
#[derive(Debug, Default)]
struct Faulty {
    fault: Mutex<Option<Fault>>,
    /// The record at this offset is replaced.
    changed: Mutex<Option<Offset>>,
    /// The reported end of every partition.
    end: Mutex<Option<Offset>>,
}

impl Hooks for Faulty {
    fn end(&self, end: Offset) -> Offset {
        self.end.lock().unwrap().unwrap_or(end)
    }

    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        let fault = self.fault.lock().unwrap().take();
        match fault {
            Some(Fault::Fails(kind)) => return Err(Error::new(kind, "t", "an injected failure")),
            Some(Fault::Panics) => panic!("an injected defect"),
            None => {}
        }
        let mut records = reader.poll(max, timeout)?;
        let changed = *self.changed.lock().unwrap();
        for record in &mut records {
            if record.partition == FIRST && Some(record.offset) == changed {
                record.value.push(0);
            }
        }
        Ok(records)
    }
}

async fn start(log: Arc<dyn Log>) -> (TempDir, Projector) {
    start_with(log, Failpoints::default()).await
}

async fn start_with(log: Arc<dyn Log>, failpoints: Failpoints) -> (TempDir, Projector) {
    let dir = tempfile::tempdir().unwrap();
    let schemas = Arc::new(Panics);
    let config = Config { schemas, failpoints, ..Config::new(dir.path(), || 0, || "journal".into()) };
    (dir, Projector::start(config, log).await.unwrap())
}

/// Blocks writes of indices: each uses a slot of the gate and waits until the gate opens.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    /// The number of further writes to block.
    slots: usize,
    held: usize,
}

impl Gate {
    fn failpoints(&self) -> Failpoints {
        let gate = self.clone();
        Failpoints::new(move |point| {
            if point == failpoint::BATCH_FOLDED {
                gate.pass();
            }
        })
    }

    fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        if state.slots == 0 {
            return;
        }
        state.slots -= 1;
        state.held += 1;
        changed.notify_all();
        drop(changed.wait_while(state, |state| state.held > 0).unwrap());
    }

    fn close(&self) {
        self.0.0.lock().unwrap().slots = 1;
    }

    /// Waits until a write is blocked.
    fn wait_for(&self, held: usize) {
        let (state, changed) = &*self.0;
        let waited = changed.wait_timeout_while(state.lock().unwrap(), DEADLINE, |state| state.held < held);
        assert_eq!(waited.unwrap().0.held, held, "no write is held back");
    }

    fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).held = 0;
        changed.notify_all();
    }
}

/// Opens the gate at the end of the test, even on failure, because the projector waits for its writes.
struct Opened(Gate);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open();
    }
}

async fn faulty() -> (TempDir, Projector, MemoryLog, Arc<Faulty>) {
    let (log, faults) = (MemoryLog::new(PARTITIONS), Arc::<Faulty>::default());
    let (dir, projector) = start(hook(log.clone(), &faults)).await;
    (dir, projector, log, faults)
}

/// Appends a turn of a run of its own. Returns its offset.
async fn append_turn(log: &dyn Log, partition: PartitionId, name: &str) -> Offset {
    let turn = Agent::new(&run_in(partition, PARTITIONS, name)).turn("hello");
    log.append(partition, vec![entry(&turn)]).await.unwrap()[0]
}

async fn latest(projector: &Projector, partition: PartitionId) {
    projector.wait(partition, Consistency::Latest, DEADLINE).await.unwrap();
}

/// Waits until the partition has applied the record at `offset` and is not stopped.
async fn await_applied(projector: &Projector, partition: PartitionId, offset: Offset) {
    let applied = projector.wait_until(partition, |progress| progress.applied > offset && progress.stopped.is_none());
    tokio::time::timeout(DEADLINE, applied).await.unwrap().unwrap();
}

/// Waits until the partition stops. Returns the offset and the kind.
async fn await_stop(projector: &Projector, partition: PartitionId) -> (Offset, &'static str) {
    let stopped = projector.wait_until(partition, |progress| progress.stopped.is_some());
    let stop = tokio::time::timeout(DEADLINE, stopped).await.unwrap().unwrap().stopped.unwrap();
    (stop.offset, stop.kind.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_whose_fold_panics_stops_its_partition_there_until_it_is_skipped() {
    let log = MemoryLog::new(PARTITIONS);
    let (_dir, projector) = start(Arc::new(log.clone())).await;
    // All records in one poll.
    log.hold(FIRST);
    let before = append_turn(&log, FIRST, "before").await;
    let named = Entry { value: [&[0, 0, 0, 0, 7][..], b"body"].concat(), ..Entry::default() };
    let defect = log.append(FIRST, vec![named]).await.unwrap()[0];
    let after = append_turn(&log, FIRST, "after").await;
    log.release(FIRST);
    assert_eq!(await_stop(&projector, FIRST).await, (defect, "panic"));
    let progress = projector.progress(FIRST).unwrap();
    assert_eq!(progress.applied, before.saturating_add(1), "earlier records are applied");
    let error = progress.stopped.unwrap().error;
    assert!(error.contains("a defect with schema 7") && error.contains(&format!("offset {defect}")), "{error}");

    let other = PartitionId::from(1);
    append_turn(&log, other, "other").await;
    latest(&projector, other).await;
    let skip = Skip { offset: defect, who: "w".into(), why: "y".into() };
    append::skip(&projector, FIRST, skip, DEADLINE).await.unwrap();
    await_applied(&projector, FIRST, after).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_after_a_commit_folds_no_record_again() {
    let (log, folded, panics) =
        (MemoryLog::new(PARTITIONS), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, armed) = (folded.clone(), panics.clone());
    let failpoints = Failpoints::new(move |point| match point {
        failpoint::BATCH_FOLDED => drop(count.fetch_add(1, Ordering::SeqCst)),
        failpoint::BATCH_COMMITTED => assert!(!armed.swap(false, Ordering::SeqCst), "a defect after the commit"),
        _ => {}
    });
    let (_dir, projector) = start_with(Arc::new(log.clone()), failpoints).await;
    for partition in PartitionId::all(PARTITIONS) {
        latest(&projector, partition).await;
    }
    let before = folded.load(Ordering::SeqCst);
    panics.store(true, Ordering::SeqCst);
    let once = append_turn(&log, FIRST, "once").await;
    await_applied(&projector, FIRST, once).await;
    assert!(!panics.load(Ordering::SeqCst), "it panicked");
    assert_eq!(folded.load(Ordering::SeqCst), before + 1, "batches folded for one record");
    assert!(projector.verify().unwrap().equal);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncation_without_a_partition_stops_the_partition_that_lost_records() {
    let (_dir, projector, log, faults) = faulty().await;
    let (other, lost) = (PartitionId::from(1), append_turn(&log, FIRST, "lost").await);
    append_turn(&log, other, "kept").await;
    latest(&projector, FIRST).await;
    latest(&projector, other).await;
    *faults.changed.lock().unwrap() = Some(lost);
    *faults.fault.lock().unwrap() = Some(Fault::Fails(Kind::OutOfRange));
    assert_eq!(await_stop(&projector, FIRST).await, (lost.saturating_add(1), "log_diverged"));
    let more = append_turn(&log, other, "more").await;
    await_applied(&projector, other, more).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loop_continues_after_a_panic_and_after_its_reader_failed_for_good() {
    for fault in [Fault::Panics, Fault::Fails(Kind::Fatal)] {
        let (_dir, projector, log, faults) = faulty().await;
        latest(&projector, FIRST).await;
        *faults.fault.lock().unwrap() = Some(fault);
        // Visible meanwhile.
        let kind = await_stop(&projector, FIRST).await.1;
        assert_eq!(kind, if matches!(fault, Fault::Panics) { "panic" } else { "log" });
        for partition in PartitionId::all(PARTITIONS) {
            let offset = append_turn(&log, partition, "more").await;
            await_applied(&projector, partition, offset).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_store_stays_on_disk_until_its_last_reader_is_done() {
    let log = MemoryLog::new(PARTITIONS);
    let (_dir, projector) = start(Arc::new(log.clone())).await;
    let voided = append_turn(&log, FIRST, "voided").await;
    append_turn(&log, FIRST, "kept").await;
    latest(&projector, FIRST).await;
    let replaced = projector.store(FIRST).unwrap();
    let dir = replaced.dir().to_owned();
    let skip = Skip { offset: voided, who: "w".into(), why: "y".into() };
    append::skip(&projector, FIRST, skip, DEADLINE).await.unwrap();
    assert_ne!(projector.store(FIRST).unwrap().dir(), dir, "a rebuilt store answers");
    assert!(dir.join("CURRENT").exists(), "a query may still open its tables");
    drop(replaced);
    assert!(!dir.exists(), "{} was not deleted", dir.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_below_the_applied_offset_is_not_the_latest() {
    let (_dir, projector, log, faults) = faulty().await;
    let at = append_turn(&log, FIRST, "one").await;
    await_applied(&projector, FIRST, at).await;
    // A deposed leader does not know the record yet.
    *faults.end.lock().unwrap() = Some(at);
    let refused = projector.wait(FIRST, Consistency::Latest, DEADLINE).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    projector.wait(FIRST, Consistency::Eventual, DEADLINE).await.expect("applied records stay");
    *faults.end.lock().unwrap() = None;
    latest(&projector, FIRST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_do_not_return_delay_no_other_partition_and_are_reported_until_they_do() {
    // One more than there are writer threads.
    let stuck = u32::try_from(thread::available_parallelism().unwrap().get()).unwrap() + 1;
    let (partitions, gate) = (stuck + 1, Gate::default());
    let log = MemoryLog::new(partitions);
    let (_dir, projector) = start_with(Arc::new(log.clone()), gate.failpoints()).await;
    let _opened = Opened(gate.clone());
    for partition in PartitionId::all(partitions) {
        latest(&projector, partition).await;
    }
    let (mut held, mut last) = (Vec::new(), Offset::ZERO);
    for partition in PartitionId::all(stuck) {
        gate.close();
        let at = log.append(partition, vec![turn_of(&mut Agent::new(&run_in(partition, partitions, "stuck")))]);
        held.push((partition, at.await.unwrap()[0]));
        gate.wait_for(held.len());
    }
    // More than may wait in memory for one partition.
    let mut agent = Agent::new(&run_in(FIRST, partitions, "many"));
    for _ in 0..3 {
        let many = (0..4096).map(|_| turn_of(&mut agent)).collect();
        last = *log.append(FIRST, many).await.unwrap().last().unwrap();
    }
    let other = PartitionId::from_signed(i32::try_from(stuck).unwrap()).unwrap();
    for name in ["one", "two"] {
        let mut agent = Agent::new(&run_in(other, partitions, name));
        let offset = log.append(other, vec![turn_of(&mut agent)]).await.unwrap()[0];
        await_applied(&projector, other, offset).await;
    }
    for (partition, offset) in &held {
        assert_eq!(await_stop(&projector, *partition).await, (*offset, "store_stalled"));
        let refused = projector.wait(*partition, Consistency::Latest, DEADLINE).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PartitionStopped, "{refused}");
    }
    assert_eq!(projector.progress(other).unwrap().stopped, None);
    gate.open();
    held[0].1 = last;
    for (partition, offset) in held {
        await_applied(&projector, partition, offset).await;
    }
    assert!(projector.verify().unwrap().equal, "no record is missing or reordered");
}

fn turn_of(agent: &mut Agent) -> Entry {
    entry(&agent.turn("hello"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projector_ends_although_a_write_does_not_return() {
    let (gate, log) = (Gate::default(), MemoryLog::new(PARTITIONS));
    let (dir, projector) = start_with(Arc::new(log.clone()), gate.failpoints()).await;
    let _opened = Opened(gate.clone());
    latest(&projector, FIRST).await;
    gate.close();
    append_turn(&log, FIRST, "stuck").await;
    gate.wait_for(1);
    projector.end();
    drop(projector);
    gate.open();
    // Its thread closes the index when the write has returned. A test that ended earlier would abort in RocksDB,
    // whose statics would be destroyed already.
    let next = async {
        loop {
            let config = Config::new(dir.path(), || 0, || "journal".into());
            match Projector::start(config, Arc::new(log.clone())).await {
                Ok(projector) => return projector,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let next = tokio::time::timeout(DEADLINE, next).await.expect("the index is closed");
    latest(&next, FIRST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skip_of_a_dead_letter_removes_it_without_a_rebuild() {
    let log = MemoryLog::new(PARTITIONS);
    let (_dir, projector) = start(Arc::new(log.clone())).await;
    let dead = log.append(FIRST, vec![Entry { value: b"garbage".to_vec(), ..Entry::default() }]).await.unwrap()[0];
    append_turn(&log, FIRST, "after").await;
    latest(&projector, FIRST).await;
    let (dir, row) = (projector.store(FIRST).unwrap().dir().to_owned(), dead_letters::key(dead));
    assert!(projector.store(FIRST).unwrap().row(row.bytes()).unwrap().is_some(), "a dead letter");
    let skip = Skip { offset: dead, who: "w".into(), why: "y".into() };
    append::skip(&projector, FIRST, skip, DEADLINE).await.unwrap();
    assert_eq!(projector.store(FIRST).unwrap().dir(), dir, "the same store answers");
    assert!(projector.store(FIRST).unwrap().row(row.bytes()).unwrap().is_none(), "the dead letter is skipped");
    assert!(projector.verify().unwrap().equal, "as if the skip had been known");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_of_a_replaced_log_is_applied() {
    let (_dir, projector, log, faults) = faulty().await;
    let before = append_turn(&log, FIRST, "before").await;
    await_applied(&projector, FIRST, before).await;
    *faults.fault.lock().unwrap() = Some(Fault::Fails(Kind::Replaced));
    for partition in PartitionId::all(PARTITIONS) {
        assert_eq!(await_stop(&projector, partition).await.1, "log_diverged");
        // The injected failure occurs once: a record appended now would be read.
        append_turn(&log, partition, "of another log").await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let progress = projector.progress(FIRST).unwrap();
    assert_eq!((progress.applied, progress.stopped.is_some()), (before.saturating_add(1), true));
}
