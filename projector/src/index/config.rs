//! What a projector is made of.

use crate::index::{
    bulk,
    executor::Executor,
    failpoint::Failpoints,
    flush,
    store::{Folder, Storage},
};
use runlog_schemas::{
    codec::{NoRegistry, Schemas},
    schema::{BASIS_SINCE, WRITTEN_BY_DEFAULT},
};
use std::{path::PathBuf, sync::Arc};

/// Milliseconds since the Unix epoch.
pub type Clock = fn() -> u64;

/// What a projector is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Holds `index/`.
    pub dir: PathBuf,
    /// Where the indices are kept: on disk, or, for simulations, in memory. Default on disk.
    pub storage: Storage,
    /// RocksDB's cache and memtables, all partitions together, bytes. Default 128 MiB.
    pub memory_bytes: usize,
    /// Serve the index and consume nothing. Default false.
    pub paused: bool,
    /// Serve a Kafka topic although its settings can lose records of the journal. Remembered in `dir`. Default false.
    pub accept_lossy_topic: bool,
    /// The count that the caller expects; none takes the journal's.
    pub partitions: Option<u32>,
    /// Random ids: of the journal, if this call creates it, and of records that the projector itself writes.
    pub ids: fn() -> String,
    /// The clock, for records that the projector itself writes.
    pub clock: Clock,
    /// Where payloads are that are too large for a record. Default none, and for a local journal its `content/` folder.
    pub content: Option<runlog_content::Store>,
    /// The schema registry: what ids name, and how records are framed that the projector writes. Default: none.
    pub schemas: Arc<dyn Schemas>,
    /// The newest schema version that is written. Default [`WRITTEN_BY_DEFAULT`]: an older server stops at the first record of
    /// a version that it does not know.
    pub write_schema: u16,
    /// Called at the points that [`failpoint`](crate::index::failpoint) names. Default: does nothing.
    pub failpoints: Failpoints,
    /// Who runs the loop, the reads and the appends. Default: threads.
    pub executor: Executor,
    /// When partitions are built in bulk, and with how much memory.
    pub bulk: bulk::Limits,
    /// When rows go from memory to disk: what a crash may take, to be folded again.
    pub flush: flush::Limits,
    /// Appends in progress at the same time; further ones are refused as `Overloaded`. Default [`APPENDS_MAX`].
    pub appends_max: usize,
}

/// Appends in progress at the same time when nobody says otherwise.
pub const APPENDS_MAX: usize = 512;

/// Memory for RocksDB when nobody says otherwise, bytes.
pub const MEMORY_BYTES: usize = 128 << 20;

impl Config {
    /// The defaults, with the indices under `dir`.
    pub fn new(dir: impl Into<PathBuf>, clock: Clock, ids: fn() -> String) -> Self {
        let memory_bytes = MEMORY_BYTES;
        let (dir, schemas) = (dir.into(), Arc::new(NoRegistry));
        let (paused, accept_lossy_topic, partitions, content) = (false, false, None, None);
        let (failpoints, executor) = (Failpoints::default(), Executor::default());
        Self {
            dir,
            storage: Storage::Disk,
            memory_bytes,
            paused,
            accept_lossy_topic,
            partitions,
            ids,
            clock,
            content,
            schemas,
            write_schema: WRITTEN_BY_DEFAULT,
            failpoints,
            executor,
            bulk: bulk::Limits::default(),
            flush: flush::Limits::default(),
            appends_max: APPENDS_MAX,
        }
    }
    /// Whether a basis may be written.
    pub(crate) fn writes_basis(&self) -> bool {
        self.write_schema >= BASIS_SINCE
    }

    /// The folder of the indices.
    pub(crate) fn index(&self) -> Folder {
        Folder::new(self.storage.clone(), self.dir.join("index"))
    }
}
