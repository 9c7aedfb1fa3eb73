//! The texts of a request to a server: segments of paths, parameters and records.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use runlog_schemas::{answer::Position, record::JournalRecord};
use serde_json::Value;

/// The unreserved characters of RFC 3986. All others are percent-encoded in a path segment or a parameter.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a path segment, or a parameter's value.
pub(super) fn segment(text: &(impl AsRef<str> + ?Sized)) -> PercentEncode<'_> {
    utf8_percent_encode(text.as_ref(), UNRESERVED)
}

/// Formats a position for a query.
pub(super) fn format_position(Position { partition, offset, index, .. }: &Position) -> String {
    format!("{partition}:{offset}:{index}")
}

/// Formats the consistency of an answer that includes a position.
pub(super) fn at_least_at(Position { partition, offset, .. }: &Position) -> String {
    format!("at-least={partition}:{offset}")
}

/// Formats a record as JSON, with the secret that its own JSON leaves out.
pub(super) fn json(record: &JournalRecord) -> serde_json::Result<String> {
    let Some(secret) = record.body.facts.shown else { return serde_json::to_string(record) };
    let mut json = serde_json::to_value(record)?;
    if let Some(Value::Object(facts)) = json.get_mut("facts") {
        facts.insert("shown".to_owned(), secret.reveal().into());
    }
    Ok(json.to_string())
}
