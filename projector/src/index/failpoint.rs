//! Named points of the projector, so that a test can stop it, or look at what it left on disk, exactly there.

use std::{fmt, sync::Arc};

/// A store was opened, and nothing is read yet.
pub const STORE_OPENED: &str = "store_opened";
/// A batch is folded, nothing is written.
pub const BATCH_FOLDED: &str = "batch_folded";
/// A batch is written, waiters are not notified yet.
pub const BATCH_COMMITTED: &str = "batch_committed";
/// A partition stopped, waiters are notified.
pub const STOP_TOLD: &str = "stop_told";
/// The skip of the record that stopped a partition is written, the partition does not read on yet.
pub const SKIP_VOIDED: &str = "skip_voided";
/// The empty store of a rebuild exists and has the skips.
pub const REBUILD_BEGUN: &str = "rebuild_begun";
/// A rebuilt store has reached the live one, and is not marked live yet.
pub const REBUILD_CAUGHT_UP: &str = "rebuild_caught_up";
/// It is marked live, the old one still answers queries.
pub const REBUILD_MARKED: &str = "rebuild_marked";
/// It answers queries, the old one is still on disk.
pub const REBUILD_SWAPPED: &str = "rebuild_swapped";
/// A verification has folded a partition again, and compares nothing yet.
pub const VERIFY_BUILT: &str = "verify_built";
/// A partition is folded in bulk: its tables are written, and none is in its store.
pub const BULK_FOLDED: &str = "bulk_folded";
/// They are all in its store.
pub const BULK_INGESTED: &str = "bulk_ingested";

/// Every point.
pub const ALL: [&str; 12] = [
    STORE_OPENED,
    BATCH_FOLDED,
    BATCH_COMMITTED,
    STOP_TOLD,
    SKIP_VOIDED,
    REBUILD_BEGUN,
    REBUILD_CAUGHT_UP,
    REBUILD_MARKED,
    REBUILD_SWAPPED,
    VERIFY_BUILT,
    BULK_FOLDED,
    BULK_INGESTED,
];

/// Called with the name of each point that the projector reaches, on its thread, which waits for the call.
#[derive(Clone)]
pub struct Failpoints(Arc<dyn Fn(&'static str) + Send + Sync>);

impl Failpoints {
    /// Calls `call`.
    pub fn new(call: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }

    pub(crate) fn at(&self, point: &'static str) {
        (self.0)(point);
    }
}

impl Default for Failpoints {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failpoints")
    }
}
