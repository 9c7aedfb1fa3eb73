//! `idempotency_keys`: requests by the key that they were made with.

use super::{Changes, RecordContext, RunRecord};
use crate::index::store::{Rows, keys::key};

/// Takes in a request; one without a key has no row.
pub fn requested<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    let (Some(made_with), Some(tool)) = (record.idempotency_key, &record.facts.tool_name) else { return };
    changes.put(key(record.run_id, tool, made_with, at.offset, at.index), &record.record_id.to_owned());
}
