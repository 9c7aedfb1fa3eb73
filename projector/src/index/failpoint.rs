//! Named points in the projector's code, at which a test can stop it or inspect its files.

use std::{fmt, sync::Arc};

/// A partition's store is open; its fold does not exist yet.
pub const STORE_OPENED: &str = "store_opened";
/// A batch is folded; its rows are not committed yet.
pub const BATCH_FOLDED: &str = "batch_folded";
/// A batch is committed; waiters are not notified yet.
pub const BATCH_COMMITTED: &str = "batch_committed";
/// A partition stopped; its waiters are notified.
pub const STOP_REPORTED: &str = "stop_reported";
/// The skip of the record that stopped a partition is on disk; the partition does not continue yet.
pub const SKIP_VOIDED: &str = "skip_voided";
/// The empty store of a rebuild exists and contains the skips.
pub const REBUILD_STARTED: &str = "rebuild_started";
/// A rebuilt store has reached the live store's offset; it is not marked live yet.
pub const REBUILD_CAUGHT_UP: &str = "rebuild_caught_up";
/// A rebuilt store is marked live; the old store still answers queries.
pub const REBUILD_MARKED: &str = "rebuild_marked";
/// A rebuilt store answers queries; the old store is still on disk.
pub const REBUILD_SWAPPED: &str = "rebuild_swapped";
/// A verification has folded a partition again; it has not digested the live rows yet.
pub const VERIFY_BUILT: &str = "verify_built";
/// A partition is folded in bulk: its tables are written, but not yet added to its store.
pub const BULK_FOLDED: &str = "bulk_folded";
/// All tables of a partition's bulk build are in its store.
pub const BULK_INGESTED: &str = "bulk_ingested";

/// The data folder has the note that this process will create the topic of a new journal; the topic does not exist yet.
pub const CREATION_NOTED: &str = "creation_noted";
/// The topic of a new journal exists; the note does not have its id yet.
pub const CREATION_TOPIC_MADE: &str = "creation_topic_made";
/// The note has the topic's id; the topic is still empty.
pub const CREATION_TOPIC_NOTED: &str = "creation_topic_noted";
/// Partition 0 has a genesis that this process wrote; the other partitions are still empty.
pub const GENESIS_APPENDED: &str = "genesis_appended";

/// A partition has the record of a takeover; the partitions after it may lack it.
pub const HOME_APPENDED: &str = "home_appended";

/// The points of a journal's creation in Kafka, in order.
pub const CREATION: [&str; 4] = [CREATION_NOTED, CREATION_TOPIC_MADE, CREATION_TOPIC_NOTED, GENESIS_APPENDED];

/// All points of an existing journal.
pub const ALL: [&str; 12] = [
    STORE_OPENED,
    BATCH_FOLDED,
    BATCH_COMMITTED,
    STOP_REPORTED,
    SKIP_VOIDED,
    REBUILD_STARTED,
    REBUILD_CAUGHT_UP,
    REBUILD_MARKED,
    REBUILD_SWAPPED,
    VERIFY_BUILT,
    BULK_FOLDED,
    BULK_INGESTED,
];

/// A function that gets the name of each point that the projector reaches. It runs on the projector's thread, which waits
/// for it.
#[derive(Clone)]
pub struct Failpoints(Arc<dyn Fn(&'static str) + Send + Sync>);

impl Failpoints {
    /// Calls `call` at each point.
    pub fn new(call: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }

    pub(crate) fn reach(&self, point: &'static str) {
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
