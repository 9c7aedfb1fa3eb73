//! A record whose schema the registry has not resolved yet is not read, also if a skip voids it. Read as an unknown record it
//! would leave other traces on a server whose registry answers late.

use runlog_log::{Delivery, Entry, Error, Kind, Log, Offset, PartitionId, Reader, memory::MemoryLog};
use runlog_projector::{
    Config, Consistency, Projector,
    index::{
        bulk::Limits,
        changes::{CACHE_BYTES, Deltas},
        fold::{self, StopKind},
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Framing, Schemas, Unreadable},
    payload::{Payload, Skip},
    record::JournalRecord,
    schema::Version,
};
use runlog_tests::{
    agent::{Agent, entry, id},
    hooked_log::{Hooks, hook},
};
use serde_json::json;
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};
use tempfile::TempDir;

const FIRST: PartitionId = PartitionId::ZERO;
const DEADLINE: Duration = Duration::from_secs(30);
/// The registry's id of the records' schema.
const ID: u32 = 7;

/// A registry that answers only while it is open.
#[derive(Debug)]
struct Registry {
    version: &'static Version,
    state: Mutex<RegistryState>,
    changed: Condvar,
}

#[derive(Debug)]
struct RegistryState {
    is_open: bool,
    /// The queries since it was last opened or closed.
    queries: usize,
}

impl Registry {
    fn open(version: &'static Version) -> Arc<Self> {
        let state = Mutex::new(RegistryState { is_open: true, queries: 0 });
        Arc::new(Self { version, state, changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().expect("no panic under the lock")
    }

    fn set_open(&self, is_open: bool) {
        *self.state() = RegistryState { is_open, queries: 0 };
        self.changed.notify_all();
    }

    /// Waits until an id was queried again: the first answer was not the last.
    fn wait_for_second_query(&self) {
        let waited = self.changed.wait_timeout_while(self.state(), DEADLINE, |state| state.queries < 2);
        assert!(waited.expect("no panic under the lock").0.queries >= 2, "the schema was not waited for");
    }
}

impl Schemas for Registry {
    fn version(&self, id: u32) -> Result<&'static Version, Unreadable> {
        let mut state = self.state();
        state.queries += 1;
        self.changed.notify_all();
        match state.is_open {
            true => Ok(self.version),
            false => Err(Unreadable::Unresolved { what: format!("id {id}: no answer yet"), failing: false }),
        }
    }

    fn framing(&self, _: &'static Version) -> Result<Framing, String> {
        Ok(Framing::SingleObject)
    }

    fn wait(&self, longest: Duration) {
        drop(self.changed.wait_timeout_while(self.state(), longest, |state| !state.is_open));
    }
}

/// A journal with the request of a call and a turn, both with a schema id.
struct Site {
    log: MemoryLog,
    registry: Arc<Registry>,
    request: Offset,
}

impl Site {
    async fn new() -> Self {
        let mut agent = Agent::new("r");
        let records = [agent.request("pay", &json!({ "invoice": 1 })), agent.turn("paid")];
        let registry = Registry::open(records[0].version());
        let log = MemoryLog::new(1);
        // Creates the journal.
        drop(projector(&log, &registry, Limits::default()).await);
        let with_id = |record: &JournalRecord| {
            let value = codec::encode_as(record, Framing::Confluent(ID));
            Entry { value, ..entry(record) }
        };
        let offsets = log.append(FIRST, records.iter().map(with_id).collect()).await.unwrap();
        Self { log, registry, request: offsets[0] }
    }

    /// Appends a skip of the request. Returns its offset.
    async fn skip(&self) -> Offset {
        let skip = Skip { offset: self.request, who: "w".into(), why: "y".into() };
        let record = JournalRecord::of_partition(id("skip"), "runlog", Payload::Skip(skip));
        self.log.append(FIRST, vec![entry(&record)]).await.unwrap()[0]
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.log.reader(&[(FIRST, Offset::ZERO)]).unwrap().poll(usize::MAX, DEADLINE).unwrap()
    }
}

async fn projector(log: &MemoryLog, registry: &Arc<Registry>, bulk: Limits) -> (Projector, TempDir) {
    projector_over(Arc::new(log.clone()), registry, bulk).await
}

async fn projector_over(log: Arc<dyn Log>, registry: &Arc<Registry>, bulk: Limits) -> (Projector, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { schemas: registry.clone(), bulk, ..Config::new(dir.path(), || 0, || "journal".into()) };
    (Projector::start(config, log).await.unwrap(), dir)
}

/// Nothing from this offset on can be read.
#[derive(Debug)]
struct DamagedAt(Offset);

impl Hooks for DamagedAt {
    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        match reader.position(FIRST).map(|position| self.0.since(position)) {
            Some(0) => {
                let error = Error::new(Kind::Damaged, "t", "a record is missing");
                Err(error.in_partition(FIRST).at_offset(self.0))
            }
            Some(left) => reader.poll(max.min(left as usize), timeout),
            None => reader.poll(max, timeout),
        }
    }
}

async fn latest(projector: &Projector) {
    projector.wait(FIRST, Consistency::Latest, DEADLINE).await.unwrap();
}

/// The digests of all indices of the live store.
fn digests(projector: &Projector) -> Vec<(String, String)> {
    let verified = projector.verify().unwrap();
    assert!(verified.equal, "{verified:?}");
    let indices = verified.partitions.into_iter().flat_map(|partition| partition.indices);
    indices.map(|index| (index.name, index.live_digest)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_waits_for_the_schema_of_a_skipped_record() {
    let one_by_one = Limits { offsets_min: u64::MAX, ..Limits::default() };
    let in_bulk = Limits { offsets_min: 0, ..Limits::default() };
    for bulk in [one_by_one, in_bulk] {
        let site = Site::new().await;
        let (late, _dir) = projector(&site.log, &site.registry, bulk).await;
        latest(&late).await;
        // As if the registry's answers were lost before the rebuild reads the record again.
        site.registry.set_open(false);
        let skip = site.skip().await;
        site.registry.wait_for_second_query();
        assert!(late.progress(FIRST).unwrap().applied <= skip, "{bulk:?}: applied without the schema");
        site.registry.set_open(true);
        latest(&late).await;

        let (early, _dir) = projector(&site.log, &site.registry, bulk).await;
        latest(&early).await;
        assert_eq!(digests(&late), digests(&early), "{bulk:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verification_waits_for_the_schema_of_a_skipped_record() {
    let site = Site::new().await;
    let (projector, _dir) = projector(&site.log, &site.registry, Limits::default()).await;
    site.skip().await;
    latest(&projector).await;
    site.registry.set_open(false);
    let verified = std::thread::scope(|scope| {
        let verified = scope.spawn(|| projector.verify().unwrap());
        site.registry.wait_for_second_query();
        site.registry.set_open(true);
        verified.join().unwrap()
    });
    assert!(verified.equal, "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_unavailable_until_the_schema_is_resolved() {
    let site = Site::new().await;
    let (projector, _dir) = projector(&site.log, &site.registry, Limits::default()).await;
    site.skip().await;
    latest(&projector).await;
    let store = projector.store(FIRST).unwrap();
    let view = store.view();
    let skips = fold::skips_of(&view).unwrap();
    let mut deltas = Deltas::new(1, site.registry.clone(), CACHE_BYTES);
    // The request is skipped, the turn is displaced.
    for delivery in &site.deliveries()[1..=2] {
        site.registry.set_open(false);
        let refused = deltas.compute(&view, &skips, delivery).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        site.registry.set_open(true);
        let delta = deltas.compute(&view, &skips, delivery).unwrap();
        assert!(!delta.rows.is_empty(), "{}: {delta:?}", delivery.offset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_whose_schema_is_resolved_late_are_applied_before_a_damaged_record() {
    let one_by_one = Limits { offsets_min: u64::MAX, ..Limits::default() };
    let site = Site::new().await;
    let end = site.deliveries().last().map(|last| last.offset.saturating_add(1)).unwrap();
    site.skip().await;
    site.registry.set_open(false);
    let log = hook(site.log.clone(), &Arc::new(DamagedAt(end)));
    let (projector, _dir) = projector_over(log, &site.registry, one_by_one).await;
    site.registry.wait_for_second_query();
    site.registry.set_open(true);
    let stops =
        projector.wait_until(FIRST, |at| at.stopped.as_ref().is_some_and(|stop| stop.kind == StopKind::LogDamaged));
    let progress = tokio::time::timeout(DEADLINE, stops).await.unwrap().unwrap();
    assert_eq!(progress.applied, end, "{:?}", progress.stopped);
}
