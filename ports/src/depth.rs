//! How deep what a port is given may nest.

use serde_json::Value;

/// How deep a value may nest: a record is read again as JSON, in which it stands a few levels down.
pub(crate) const DEPTH_MAX: usize = 120;

/// Whether a value nests at most `levels` deep.
pub(crate) fn within(value: &Value, levels: usize) -> bool {
    match (value, levels.checked_sub(1)) {
        (Value::Array(items), Some(left)) => items.iter().all(|item| within(item, left)),
        (Value::Object(members), Some(left)) => members.values().all(|member| within(member, left)),
        (Value::Array(_) | Value::Object(_), None) => false,
        _ => true,
    }
}
