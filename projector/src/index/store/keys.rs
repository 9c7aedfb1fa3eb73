//! `idempotency_keys`: requests by the key that they were made with, within run and tool. The first request of a key is one
//! seek, each later one a step.

use super::{Index, Key};
use runlog_schemas::id::{Offset, RunId};

/// The request at a place (its record id) by its key.
pub fn key(run_id: RunId<&str>, tool_name: &str, idempotency_key: &str, offset: Offset, index: u32) -> Key {
    of_key(run_id, tool_name, idempotency_key).offset(offset).u32(index)
}

/// All requests of a key, in log order.
pub fn of_key(run_id: RunId<&str>, tool_name: &str, idempotency_key: &str) -> Key {
    Key::new(Index::Keys, 0).text(run_id).text(tool_name).text(idempotency_key)
}
