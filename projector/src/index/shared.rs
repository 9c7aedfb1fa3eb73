//! The state that the loop, the followers and the queries share.

use super::{
    config::Config,
    executor::NoResult,
    flush::Flushes,
    fold::Stop,
    held::NotHere,
    home::HomeState,
    store::{Budget, Storage, Store, meta},
};
use runlog_log::Log;
use runlog_schemas::id::{Offset, PartitionId};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{Notify, Semaphore};

/// The maximum number of followers of one projector at a time: each has its own consumer.
pub const FOLLOWERS_MAX: usize = 16;
/// The maximum number of concurrent reads; further reads wait. The allocator keeps freed memory for each thread that
/// reads. A limit on the runtime's threads would not work, because a read of content waits for another one of them.
const READS_MAX: usize = 32;

/// A partition's progress, which queries wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Every record below this offset is reflected in the index.
    pub applied: Offset,
    /// The stop, if the partition is stopped.
    pub stopped: Option<Stop>,
}

/// The state that the loop, the followers and the queries share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) log: Arc<dyn Log>,
    /// The same log without the guard, for the takeover of a mirror.
    pub(crate) unguarded: Arc<dyn Log>,
    pub(crate) journal: meta::Journal,
    pub(crate) home: Arc<HomeState>,
    pub(crate) budget: Budget,
    pub(crate) flushes: Flushes,
    pub(crate) ending: AtomicBool,
    pub(crate) config: Config,
    /// Permits for bulk builds, which share their memory.
    pub(crate) builds: Semaphore,
    /// The maximum number of partitions that are folded in bulk at the same time.
    pub(crate) builds_max: usize,
    /// Permits for followers of the log.
    pub(crate) followers: Arc<Semaphore>,
    /// Permits for reads.
    reads: Arc<Semaphore>,
    /// Whether each partition of the journal is held.
    pub(crate) holds_all: bool,
    /// By their ids; `None` for a partition that is not held.
    partitions: Vec<Option<Partition>>,
}

#[derive(Debug)]
struct Partition {
    store: RwLock<Arc<Store>>,
    progress: Mutex<Progress>,
    /// Wakes all waiters in the order in which they began to wait. Tokio's `watch` wakes them in a random order, which a
    /// simulation could not repeat.
    progressed: Notify,
    /// The applied offset of the older-layout store that this one replaces, until it has reached it.
    older: Mutex<Option<Offset>>,
    /// The log's end at the start, until all records below it are applied.
    first_end: Mutex<Option<Offset>>,
}

/// The log of a projector, and the home of its journal.
#[derive(Debug)]
pub struct Logs {
    /// The log, which appends only at the home.
    pub log: Arc<dyn Log>,
    /// The same log without that guard.
    pub unguarded: Arc<dyn Log>,
    /// The home.
    pub home: Arc<HomeState>,
}

/// A partition at the start.
#[derive(Debug)]
pub struct Start {
    /// The store that answers queries.
    pub store: Arc<Store>,
    /// Its progress.
    pub progress: Progress,
    /// The applied offset of the older-layout store that this one replaces, if any.
    pub older: Option<Offset>,
    /// The log's end at the start, if no query is answered before its records are applied.
    pub first_end: Option<Offset>,
}

impl Shared {
    /// The partitions in order; `None` for a partition that is not held.
    pub(crate) fn new(
        config: Config,
        Logs { log, unguarded, home }: Logs,
        journal: meta::Journal,
        budget: Budget,
        partitions: Vec<Option<Start>>,
    ) -> Self {
        let partition = |start: Start| Partition {
            store: RwLock::new(start.store),
            progress: Mutex::new(start.progress),
            progressed: Notify::new(),
            older: Mutex::new(start.older),
            first_end: Mutex::new(start.first_end),
        };
        let partitions: Vec<_> = partitions.into_iter().map(|start| start.map(partition)).collect();
        let (ending, followers) = (AtomicBool::new(false), Arc::new(Semaphore::new(FOLLOWERS_MAX)));
        let reads = Arc::new(Semaphore::new(READS_MAX));
        let held_count = partitions.iter().flatten().count();
        let builds_max = std::thread::available_parallelism().map_or(1, usize::from).min(held_count).max(1);
        let builds = Semaphore::new(builds_max);
        let flushes = Flushes::new(config.flush, budget.memtables_max(), partitions.len(), held_count);
        Self {
            log,
            unguarded,
            journal,
            home,
            budget,
            flushes,
            ending,
            config,
            builds,
            builds_max,
            followers,
            reads,
            holds_all: held_count == partitions.len(),
            partitions,
        }
    }

    /// Runs a read that may block a thread, as soon as there is a permit.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        // The semaphore is never closed. The reading thread owns the permit, because it continues after the client
        // disconnects.
        let turn = self.reads.clone().acquire_owned().await.ok();
        let read = move || {
            let _turn = turn;
            read()
        };
        self.config.executor.run(read).await
    }

    /// Whether the service is ending.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// The memory of one bulk build, bytes.
    pub(crate) fn build_bytes(&self) -> usize {
        match self.config.storage {
            Storage::Disk => self.config.bulk.memory_bytes / self.builds_max,
            // Writes no temporary files if there is no disk.
            Storage::Memory(_) => usize::MAX,
        }
    }

    /// The partitions that this server holds, in order.
    pub(crate) fn held_partitions(&self) -> impl Iterator<Item = PartitionId> + Clone {
        PartitionId::all(self.journal.partitions).filter(|partition| self.partitions[partition.index()].is_some())
    }

    /// Checks that this server holds `partition`, which must be a partition of the journal.
    pub(crate) fn check_held(&self, partition: PartitionId) -> Result<(), NotHere> {
        self.partition(partition).map(drop)
    }

    fn partition(&self, partition: PartitionId) -> Result<&Partition, NotHere> {
        self.partitions[partition.index()].as_ref().ok_or(NotHere { partition })
    }

    /// The store that answers queries of `partition`, which must be a partition of the journal.
    pub(crate) fn store(&self, partition: PartitionId) -> Result<Arc<Store>, NotHere> {
        Ok(self.partition(partition)?.store.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Makes `store` answer queries. Has no effect for a partition that is not held.
    pub(crate) fn swap(&self, partition: PartitionId, store: Arc<Store>) {
        let Ok(own) = self.partition(partition) else { return };
        *own.store.write().unwrap_or_else(PoisonError::into_inner) = store;
    }

    /// The offset that `partition` must reach to replace an older version's index; `None` once it has.
    pub(crate) fn older(&self, partition: PartitionId) -> Result<Option<Offset>, NotHere> {
        Ok(*self.partition(partition)?.older.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The offset (exclusive) that `partition` must reach before `eventual` answers; `None` once it has. It is the offset of an older
    /// version's index, or the log's end at the start.
    pub(crate) fn awaited(&self, partition: PartitionId) -> Result<Option<Offset>, NotHere> {
        let older = self.older(partition)?;
        Ok(older.max(*self.partition(partition)?.first_end()))
    }

    /// Has no effect for a partition that is not held.
    pub(crate) fn forget_older(&self, partition: PartitionId) {
        let Ok(held) = self.partition(partition) else { return };
        *held.older.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn progress(&self, partition: PartitionId) -> Result<Progress, NotHere> {
        Ok(self.partition(partition)?.progress().clone())
    }

    /// Waits until `reached` holds for the progress of `partition`.
    pub(crate) async fn wait_until(
        &self,
        partition: PartitionId,
        reached: impl Fn(&Progress) -> bool,
    ) -> Result<Progress, NotHere> {
        let partition = self.partition(partition)?;
        loop {
            // Subscribed before the check, so that no report is missed.
            let progressed = partition.progressed.notified();
            {
                let progress = partition.progress();
                if reached(&progress) {
                    return Ok(progress.clone());
                }
            }
            progressed.await;
        }
    }

    /// Sets the progress and wakes waiters if it changed. Has no effect for a partition that is not held.
    pub(crate) fn report(&self, partition: PartitionId, applied: Offset, stopped: Option<Stop>) {
        let held = self.partition(partition);
        debug_assert!(held.is_ok(), "only a partition with a fold reports its progress");
        let Ok(held) = held else { return };
        let waits_for_skip = stopped.as_ref().is_some_and(|stop| stop.kind.is_ended_by_skip());
        self.home.report(partition, applied, waits_for_skip);
        let new = Progress { applied, stopped };
        // Other stops can have an offset that is not applied.
        if new.stopped.is_none() || waits_for_skip {
            held.first_end().take_if(|end| applied >= *end);
        }
        if std::mem::replace(&mut *held.progress(), new.clone()) != new {
            held.progressed.notify_waiters();
        }
    }
}

impl Partition {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first_end(&self) -> MutexGuard<'_, Option<Offset>> {
        self.first_end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
