//! `deliveries`: what was delivered to a run and did something, and does not stand as one applied record of its own: what was
//! refused, a repeat that took a number or told a refusal again, a batch as it came. Applied records and these are together
//! all that a run's rows come from, so that they can be folded again to any offset ([`past`](crate::index::as_of)). A record that is
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
