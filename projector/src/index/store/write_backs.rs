//! `write_backs`: what is staged and neither committed nor rejected, by transaction and epoch, in which transactions
//! count from 0 again. A run's open ones are one seek and a step each, those of a transaction's number in all epochs as
//! well.

use super::{
    Index, Key,
    evolving::{self, ENDED, FACTS, OPEN},
};
use runlog_schemas::{id::RunId, judge::lifecycle::Family};

/// Rows as in [`evolving`]; the keys are those of [`lifecycle::write_back_key`](runlog_schemas::judge::lifecycle).
pub const INDEX: Index = evolving::index(14, "write_backs", Family::WriteBack, &[OPEN, ENDED, FACTS]);

/// The open ones of a transaction's number, oldest epoch first.
pub fn open_of_number(run_id: RunId<&str>, txn: &str) -> Key {
    evolving::open_of(INDEX, run_id).text_prefix(&format!("{txn}@"))
}
