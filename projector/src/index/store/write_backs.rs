//! `write_backs`: staged operations that are neither committed nor rejected, by transaction and epoch (transactions count
//! from 0 again in each epoch). A run's open operations, or the open operations of one transaction number in all
//! epochs, are one seek, and a step per operation.

use super::{
    evolving::{self, ENDED, FACTS, OPEN},
    index::Index,
    key::Key,
};
use runlog_schemas::{id::RunId, judge::lifecycle::Family};

/// Rows as in [`evolving`]; their keys follow [`lifecycle::write_back_key`](runlog_schemas::judge::lifecycle).
pub const INDEX: Index = evolving::index(14, "write_backs", Family::WriteBack, &[OPEN, ENDED, FACTS]);

/// The open operations of a transaction number, oldest epoch first.
pub fn open_of_number(run_id: RunId<&str>, txn: &str) -> Key {
    evolving::open_of(INDEX, run_id).text_prefix(&format!("{txn}@"))
}
