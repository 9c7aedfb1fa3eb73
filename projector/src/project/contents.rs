//! `contents`: what is named, whether it is there or not.

use super::{At, Changes, OfRun};
use crate::store::{
    Rows,
    contents::{ContentRow, key},
};

/// Takes in the claim check of a record that is kept, applied or as evidence.
pub fn kept<R: Rows>(record: OfRun<'_, '_>, at: At<'_>, changes: &mut Changes<'_, R>) {
    if let Some(stored) = record.stored() {
        let row = ContentRow { record_id: record.record_id.to_owned(), stored: stored.clone() };
        changes.put(key(record.run_id, at.offset, at.index), &row);
    }
}
