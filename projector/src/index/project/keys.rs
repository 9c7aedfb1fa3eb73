//! `idempotency_keys`: requests by their idempotency key.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{Rows, keys::key};

/// Stores a request; a request without a key has no row.
pub fn project<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    let (Some(made_with), Some(tool)) = (record.idempotency_key, &record.facts.tool_name) else { return };
    changes.put(key(record.run_id, tool, made_with, at.offset, at.index), &record.record_id.to_owned());
}
