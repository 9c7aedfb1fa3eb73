//! `pools`: agent pools that a run is in (open) or has left, by run; and the runs of a pool. A run's pools are one seek and
//! a step each, and so are a pool's runs in this partition.

use super::{Index, Key};
use runlog_schemas::id::RunId;

/// Rows as in [`evolving`](super::evolving).
pub const INDEX: Index = Index::Pools;

/// A run that is in a pool; the row is empty.
pub fn member(pool_id: &str, run_id: RunId<&str>) -> Key {
    members(pool_id).text(run_id)
}

/// A pool's runs.
pub fn members(pool_id: &str) -> Key {
    Key::new(INDEX, 3).text(pool_id)
}
