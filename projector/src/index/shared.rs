//! What the loop, the followers and the queries share.

use crate::index::{
    config::Config,
    fold::Stop,
    store::{Budget, Store, meta},
};
use runlog_log::Log;
use runlog_schemas::id::{Offset, PartitionId};
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{Semaphore, watch};

/// Followers of one projector at a time: each has a consumer of its own.
pub const FOLLOWERS_MAX: usize = 16;

/// Where a partition is, for whoever waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Every record below this offset is reflected in the index.
    pub applied: Offset,
    /// Why it stands still, if it does.
    pub stopped: Option<Stop>,
}

/// What the loop and the queries share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) journal: meta::Journal,
    pub(crate) budget: Budget,
    pub(crate) ending: AtomicBool,
    pub(crate) config: Config,
    /// Places for followers of the log.
    pub(crate) followers: Arc<Semaphore>,
    partitions: Vec<Partition>,
}

#[derive(Debug)]
struct Partition {
    store: RwLock<Arc<Store>>,
    progress: watch::Sender<Progress>,
    /// How far the store of an older layout had come that this one is built beside, until this one is.
    older: Mutex<Option<Offset>>,
}

/// A partition as it starts.
#[derive(Debug)]
pub struct Start {
    /// The store that answers.
    pub store: Arc<Store>,
    /// Where it is.
    pub progress: Progress,
    /// Where the store of an older layout had come to that this one is built beside, if it is.
    pub older: Option<Offset>,
}

impl Shared {
    /// The partitions in order.
    pub(crate) fn new(
        config: Config,
        log: Arc<dyn Log>,
        journal: meta::Journal,
        budget: Budget,
        partitions: Vec<Start>,
    ) -> Self {
        let partition = |start: Start| Partition {
            store: RwLock::new(start.store),
            progress: watch::Sender::new(start.progress),
            older: Mutex::new(start.older),
        };
        let partitions = partitions.into_iter().map(partition).collect();
        let (ending, followers) = (AtomicBool::new(false), Arc::new(Semaphore::new(FOLLOWERS_MAX)));
        Self { log, journal, budget, ending, config, followers, partitions }
    }

    pub(crate) fn index_dir(&self) -> PathBuf {
        self.config.dir.join("index")
    }

    /// Whether the service is ending.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// The store that answers for `partition`, which must be one of the journal's.
    pub(crate) fn store(&self, partition: PartitionId) -> Arc<Store> {
        self.partitions[partition.index()].store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn swap(&self, partition: PartitionId, store: Arc<Store>) {
        *self.partitions[partition.index()].store.write().unwrap_or_else(PoisonError::into_inner) = store;
    }

    /// How far `partition` has to be before it knows what an older version's index did; none where it does.
    pub(crate) fn older(&self, partition: PartitionId) -> Option<Offset> {
        *self.partitions[partition.index()].older.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn forget_older(&self, partition: PartitionId) {
        *self.partitions[partition.index()].older.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn progress(&self, partition: PartitionId) -> Progress {
        self.partitions[partition.index()].progress.borrow().clone()
    }

    /// Progress from now on.
    pub(crate) fn subscribe(&self, partition: PartitionId) -> watch::Receiver<Progress> {
        self.partitions[partition.index()].progress.subscribe()
    }

    /// Tells whoever waits; says nothing where nothing changed.
    pub(crate) fn report(&self, partition: PartitionId, applied: Offset, stopped: Option<Stop>) {
        self.partitions[partition.index()].progress.send_if_modified(|progress| {
            let new = Progress { applied, stopped };
            let changed = *progress != new;
            *progress = new;
            changed
        });
    }
}
