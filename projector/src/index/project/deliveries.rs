//! `deliveries`: what did something and is no applied record of its own.

use super::{Changes, RecordContext, RunRecord};
use crate::index::store::{Rows, deliveries::key, records::RecordRow};

/// Keeps what was delivered and does not stand as one applied record of its own.
pub fn kept<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    let row = RecordRow { logged_at_millis: at.logged_at_millis, framed: at.row_bytes() };
    changes.put(key(record.run_id, at.offset), &row);
}
