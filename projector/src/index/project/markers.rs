//! `recovery_markers`: the positions of a run's recovery markers.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    Rows,
    markers::{MarkerRow, key},
};

/// Stores a marker.
pub fn project<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    let row = MarkerRow { record_id: record.record_id.to_owned(), journal_seq: record.journal_seq };
    changes.put(key(record.run_id, at.offset, at.index), &row);
}
