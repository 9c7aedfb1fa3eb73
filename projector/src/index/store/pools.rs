//! `pools`: the agent pools that a run is in (open) or has left (ended), by run; and the runs of a pool. A run's pools
//! are one seek, and a step per pool. A pool's runs in this partition are one seek, and a step per run.

use super::{
    evolving::{self, ENDED, FACTS, OPEN},
    index::{Index, KeyPart, RUN_ID, RowFamily},
    key::Key,
};
use runlog_schemas::{id::RunId, judge::lifecycle::Family};

/// Rows as in [`evolving`], and the runs of a pool.
pub const INDEX: Index = evolving::index(12, "pools", Family::Pool, &[OPEN, ENDED, FACTS, MEMBERS]);

const MEMBERS: RowFamily = RowFamily::empty(3, "members", &[KeyPart::Text("pool_id"), RUN_ID]);

/// A run in a pool; the row is empty.
pub fn member(pool_id: &str, run_id: RunId<&str>) -> Key {
    members(pool_id).text(run_id)
}

/// A pool's runs.
pub fn members(pool_id: &str) -> Key {
    Key::new(INDEX, 3).text(pool_id)
}
