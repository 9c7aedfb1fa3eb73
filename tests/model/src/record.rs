//! Accessors for one record's JSON.

use crate::hashes;
use serde_json::{Map, Value};

/// The fields of a record's place in its writer's order. They are not content.
const PLACE: [&str; 6] = ["writer_id", "writer_epoch", "writer_seq", "prev_hash", "journal_seq", "timestamp_millis"];

/// Payload types without a `journal_seq`.
const UNNUMBERED: [&str; 14] = [
    "loop_checkpoint",
    "checkpoint_prune",
    "write_back_staged",
    "write_back_committed",
    "write_back_rejected",
    "code_edit_proposal",
    "fork",
    "batch",
    "run_claim",
    "effect_resolution",
    "retraction",
    "erasure",
    "genesis",
    "host_payload",
];

/// The value at a path of member names, `/a/b`: a JSON pointer without its escapes, which would cost an allocation
/// each.
pub(crate) fn value_at<'a>(record: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').skip(1).try_fold(record, |value, name| value.get(name))
}

/// The text at a path; empty where there is none.
pub(crate) fn text<'a>(record: &'a Value, path: &str) -> &'a str {
    value_at(record, path).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a path; 0 where there is none.
pub(crate) fn number(record: &Value, path: &str) -> u64 {
    value_at(record, path).and_then(Value::as_u64).unwrap_or_default()
}

/// The list at a path; empty where there is none.
pub(crate) fn list<'a>(record: &'a Value, path: &str) -> &'a [Value] {
    value_at(record, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Whether the payload is hidden, so that the facts beside it describe it.
pub(crate) fn hidden(record: &Value) -> bool {
    matches!(text(record, "/payload/type"), "encrypted" | "stored_payload")
}

/// The payload's type, also for a hidden payload.
pub(crate) fn payload_type(record: &Value) -> &str {
    text(record, if hidden(record) { "/facts/payload_type" } else { "/payload/type" })
}

/// The request or effect that a result, attempt or resolution answers.
pub(crate) fn answers(record: &Value) -> &str {
    text(record, if hidden(record) { "/facts/answers" } else { "/payload/request_record_id" })
}

/// The tool and the fingerprint of a request.
pub(crate) fn tool(record: &Value) -> (String, String) {
    if hidden(record) {
        return (text(record, "/facts/tool_name").to_owned(), text(record, "/facts/fingerprint").to_owned());
    }
    let name = text(record, "/payload/tool_name");
    let arguments = value_at(record, "/payload/arguments").unwrap_or(&Value::Null);
    (name.to_owned(), hashes::fingerprint(name, arguments))
}

/// A member of the payload; null where the payload is hidden or has none.
pub(crate) fn payload_member(record: &Value, name: &str) -> Value {
    if hidden(record) { Value::Null } else { record["payload"].get(name).cloned().unwrap_or(Value::Null) }
}

/// Whether the record gets a `journal_seq`.
pub(crate) fn numbered(record: &Value) -> bool {
    let kind = text(record, "/record_kind");
    let foreign = payload_type(record) == "host_payload" && !matches!(kind, "" | "host_payload");
    foreign || !UNNUMBERED.contains(&payload_type(record))
}

/// Whether the record belongs to a partition and to no run.
pub(crate) fn of_partition(record: &Value) -> bool {
    matches!(payload_type(record), "genesis" | "skip" | "retention_horizon")
}

/// Whether the record is judged by its place: everything but claims and the kinds that need none.
pub(crate) fn needs_claim(record: &Value) -> bool {
    !matches!(payload_type(record), "run_claim" | "effect_resolution" | "retraction" | "erasure")
}

/// The facts that are not content.
const UNHASHED_FACTS: [&str; 3] = ["principal_proof", "only_own", "approver"];

/// Whether two records have equal content: all members but the place and some facts. The places of a batch's records do not
/// count either.
pub(crate) fn same_content(one: &Value, other: &Value) -> bool {
    let (Some(first), Some(second)) = (one.as_object(), other.as_object()) else { return false };
    let batches = payload_type(one) == "batch" && payload_type(other) == "batch";
    let content = |name: &&String| !PLACE.contains(&name.as_str()) && *name != "facts";
    let same = |name: &String| match (first.get(name), second.get(name)) {
        (Some(_), Some(_)) if batches && name == "payload" => {
            inner(one).len() == inner(other).len()
                && inner(one).iter().zip(inner(other)).all(|(one, other)| same_content(one, other))
        }
        (one, other) => one == other,
    };
    let facts = |record: &Map<String, Value>| {
        let facts = record.get("facts").and_then(Value::as_object).into_iter().flatten();
        let facts = facts.filter(|(name, _)| !UNHASHED_FACTS.contains(&name.as_str()));
        facts.map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>()
    };
    first.keys().filter(content).all(same)
        && second.keys().filter(content).all(|name| first.contains_key(name))
        && facts(first) == facts(second)
}

/// A record without its place and some facts: the input of its content hash.
pub(crate) fn content(record: &Value) -> Value {
    let mut content = record.clone();
    if let Some(members) = content.as_object_mut() {
        PLACE.iter().for_each(|name| drop(members.remove(*name)));
    }
    if let Some(facts) = content.get_mut("facts").and_then(Value::as_object_mut) {
        UNHASHED_FACTS.iter().for_each(|name| drop(facts.remove(*name)));
        if facts.is_empty() {
            content.as_object_mut().map(|members| members.remove("facts"));
        }
    }
    content
}

/// Whether two records have the same payload, so that the second one adds no information.
pub(crate) fn same_payload(one: &Value, other: &Value) -> bool {
    one["payload"] == other["payload"]
}

/// The records within a batch; empty for other records.
pub(crate) fn inner(record: &Value) -> &[Value] {
    if payload_type(record) == "batch" { list(record, "/payload/records") } else { &[] }
}
