//! The configuration of a projector.

use super::{
    bulk::limits::Limits as BulkLimits,
    executor::Executor,
    failpoint::Failpoints,
    flush,
    held::Holds,
    store::{Folder, Storage},
};
use runlog_schemas::{
    codec::{NoRegistry, Schemas},
    schema::{BASIS_SINCE, WRITTEN_BY_DEFAULT},
};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Milliseconds since the Unix epoch.
pub type Clock = fn() -> u64;

/// Who writes the genesis of an empty log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Genesis {
    /// This projector.
    #[default]
    Write,
    /// Another server: this projector waits for it, because it did not create the log, and a mirror must not get a genesis
    /// of its own.
    Await,
}

/// The configuration of a projector.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data folder, which contains `index/`.
    pub dir: PathBuf,
    /// Where the indices are stored: on disk or, for simulations, in memory. Default on disk.
    pub storage: Storage,
    /// Memory of RocksDB's cache and memtables, all partitions together, bytes. Default 128 MiB.
    pub memory_bytes: usize,
    /// Serve the index without reading the log. Default false.
    pub paused: bool,
    /// Serve a Kafka topic although its settings can lose records of the journal. Remembered in `dir`. Default false.
    pub accept_lossy_topic: bool,
    /// What to do with a log that has no record yet. Default [`Genesis::Write`].
    pub genesis: Genesis,
    /// The operator created the empty Kafka topic for a new journal, so this projector writes the genesis. Default false.
    pub new_journal: bool,
    /// Whether a missing Kafka topic is created. Default true.
    pub may_create: bool,
    /// The expected number of partitions; `None` accepts the journal's number.
    pub partitions: Option<u32>,
    /// The partitions that this projector holds. Default: all.
    pub holds: Holds,
    /// Random ids: of the journal, if this call creates it, and of records that the projector itself writes.
    pub ids: fn() -> String,
    /// The clock, for records that the projector itself writes.
    pub clock: Clock,
    /// The store of payloads that are too large for a record. Default none; a local journal then uses its `content/`
    /// folder.
    pub content: Option<runlog_content::Store>,
    /// The schema registry: resolves schema ids, and determines the framing of records that the projector writes. Default:
    /// none.
    pub schemas: Arc<dyn Schemas>,
    /// The newest schema version that is written. Default [`WRITTEN_BY_DEFAULT`], because an older server stops at the
    /// first record of a version that it does not know.
    pub write_schema: u16,
    /// Called at the points that [`failpoint`](crate::index::failpoint) names. Default: does nothing.
    pub failpoints: Failpoints,
    /// Runs the loop, the reads and the appends. Default: threads.
    pub executor: Executor,
    /// The limits of bulk builds.
    pub bulk: BulkLimits,
    /// The limits of rows that are only in memory: after a crash their records are applied again.
    pub flush: flush::Limits,
    /// Maximum number of appends in progress; further appends are refused as `Overloaded`. Default [`APPENDS_MAX`].
    pub appends_max: usize,
    /// How long no record may arrive before a takeover ([`Projector::take_home`]). Default [`TAKEOVER_QUIET`].
    ///
    /// [`Projector::take_home`]: crate::index::projector::Projector::take_home
    pub takeover_quiet: Duration,
}

/// Default of [`Config::appends_max`].
pub const APPENDS_MAX: usize = 512;

/// Default of [`Config::takeover_quiet`].
pub const TAKEOVER_QUIET: Duration = Duration::from_secs(5);

/// Default of [`Config::memory_bytes`].
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
            genesis: Genesis::default(),
            new_journal: false,
            may_create: true,
            partitions,
            holds: Holds::default(),
            ids,
            clock,
            content,
            schemas,
            write_schema: WRITTEN_BY_DEFAULT,
            failpoints,
            executor,
            bulk: BulkLimits::default(),
            flush: flush::Limits::default(),
            takeover_quiet: TAKEOVER_QUIET,
            appends_max: APPENDS_MAX,
        }
    }

    /// Whether records may contain a basis, which needs schema version 3.
    pub fn writes_basis(&self) -> bool {
        self.write_schema >= BASIS_SINCE
    }

    /// The folder of the indices.
    pub(crate) fn index(&self) -> Folder {
        Folder::new(self.storage.clone(), self.dir.join("index"))
    }
}
