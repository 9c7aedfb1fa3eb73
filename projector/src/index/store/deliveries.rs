//! `deliveries`: a run's deliveries that had an effect and are not a single applied record: refused records, repeats
//! that consumed a number or repeat a refusal, and batches. Applied records and these are together all that a run's
//! rows come from, so that they can be folded again to any offset ([`as_of`](crate::index::as_of)). A record that is
//! applied alone has no such row; a batch is kept twice, whole and as its records. One seek, a step each.

use super::{
    Index, Key, RowFamily,
    index::{OFFSET, RUN},
};
use runlog_schemas::id::{Offset, RunId};

/// The index.
pub const INDEX: Index = Index::new(19, "deliveries", &[RowFamily::records(0, "deliveries", &[RUN, OFFSET])]);

/// What was delivered at an offset; the row is a [`RecordRow`](super::records::RecordRow).
pub fn key(run_id: RunId<&str>, offset: Offset) -> Key {
    prefix(run_id).offset(offset)
}

/// All of that of a run, in log order.
pub fn prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}
