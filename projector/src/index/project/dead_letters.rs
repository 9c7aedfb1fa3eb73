//! `dead_letters`: unreadable records.

use super::{changes::Changes, context::RecordContext};
use crate::index::store::{
    Rows,
    dead_letters::{DeadLetterRow, key},
};
use runlog_schemas::{codec::Unreadable, datum::Sha256};

/// Stores the offset, the reason and the hash.
pub fn project<R: Rows>(at: RecordContext<'_>, why: &Unreadable, changes: &mut Changes<'_, R>) {
    let row = DeadLetterRow {
        reason: why.reason().to_owned(),
        sha256: Sha256::of(at.framed),
        bytes: at.framed.len() as u64,
        detail: why.to_string(),
    };
    changes.put(key(at.offset), &row);
}
