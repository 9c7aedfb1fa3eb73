//! `idempotency_keys`: requests by their idempotency key, within run and tool. The first request of a key is one seek,
//! each later one a step.

use super::{
    index::{Index, KeyPart, OFFSET, RECORD_INDEX, RUN, RowFamily},
    key::Key,
};
use runlog_schemas::id::{Offset, RecordId, RunId};

/// The index.
pub const INDEX: Index = Index::new(
    18,
    "idempotency_keys",
    &[RowFamily::new::<RecordId>(
        0,
        "requests",
        &[RUN, KeyPart::Text("tool_name"), KeyPart::Text("idempotency_key"), OFFSET, RECORD_INDEX],
    )],
);

/// The request at a position (its record id) by its key.
pub fn key(run_id: RunId<&str>, tool_name: &str, idempotency_key: &str, offset: Offset, index: u32) -> Key {
    of_key(run_id, tool_name, idempotency_key).offset(offset).u32(index)
}

/// All requests of a key, in log order.
pub fn of_key(run_id: RunId<&str>, tool_name: &str, idempotency_key: &str) -> Key {
    Key::new(INDEX, 0).text(run_id).text(tool_name).text(idempotency_key)
}
