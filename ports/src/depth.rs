//! The limit on the nesting of JSON values in records.

use serde_json::Value;

/// A record is read as JSON, in which the value is nested a few levels deeper.
pub(crate) const DEPTH_MAX: usize = 120;

/// Whether a value nests at most `levels` deep.
pub(crate) fn nests_within(value: &Value, levels: usize) -> bool {
    match (value, levels.checked_sub(1)) {
        (Value::Array(items), Some(left)) => items.iter().all(|item| nests_within(item, left)),
        (Value::Object(members), Some(left)) => members.values().all(|member| nests_within(member, left)),
        (Value::Array(_) | Value::Object(_), None) => false,
        _ => true,
    }
}
