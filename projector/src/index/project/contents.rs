//! `contents`: the content store objects that records name, whether they exist or not.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    Rows,
    contents::{ContentRow, key},
};

/// Stores the claim check of a record that is kept, applied or as evidence.
pub fn project<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    if let Some(stored) = record.stored() {
        let (record_id, logged_at_millis) = (record.record_id.to_owned(), at.logged_at_millis);
        let row = ContentRow { record_id, stored: stored.clone(), logged_at_millis };
        changes.put(key(record.run_id, at.offset, at.index), &row);
    }
}
