//! `deliveries`: deliveries that had an effect and are not a single applied record.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{Rows, deliveries::key, records::RecordRow};

/// Stores such a delivery.
pub fn project<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    let row = RecordRow { logged_at_millis: at.logged_at_millis, framed: at.row_bytes() };
    changes.put(key(record.run_id, at.offset), &row);
}
