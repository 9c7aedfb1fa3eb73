//! `deliveries`: a run's delivered records that changed its rows and are not a single applied record. These are refused
//! records, repeats that consumed a number or repeat a refusal, and batches. A run's rows depend only on these and on the
//! applied records. They can therefore be folded again up to any offset ([`as_of`](crate::index::as_of)). A record applied
//! alone has no row here; a batch is stored twice, whole and as its records. A page is one seek, and a step per
//! delivery.

use super::{
    index::{Index, OFFSET, RUN, RowFamily},
    key::Key,
};
use runlog_schemas::id::{Offset, RunId};

/// The index.
pub const INDEX: Index = Index::new(
    19,
    "deliveries",
    &[RowFamily::records(0, "deliveries", &[RUN, OFFSET]), RowFamily::empty(1, "unread", &[RUN, OFFSET])],
);

/// The record delivered at an offset; the row is a [`RecordRow`](super::records::RecordRow).
pub fn key(run_id: RunId<&str>, offset: Offset) -> Key {
    prefix(run_id).offset(offset)
}

/// All such records of a run, in log order.
pub fn prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}

/// Marks a voided delivery of the run that this build cannot read; the row is empty.
pub fn unread(run_id: RunId<&str>, offset: Offset) -> Key {
    all_unread(run_id).offset(offset)
}

/// All such marks of a run, in log order.
pub fn all_unread(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 1).text(run_id)
}
