//! Restores the JSON of a record: the contract's members, and members without a field in the schema.

use crate::record::JournalRecord;
use serde_json::{Map, Value};

/// Members of the envelope that are Runlog's own.
const OWN: [&str; 8] =
    ["writer_id", "writer_epoch", "writer_seq", "prev_hash", "key_id", "validity", "facts", "unknown_fields"];

/// Returns the record as its SDK wrote it. It equals the JSON that [`crate::draft::Draft::parse`] read, except that members with
/// null or an empty list are absent.
pub fn original(record: &JournalRecord) -> Result<Value, serde_json::Error> {
    let mut json = serde_json::to_value(record)?;
    if let Some(members) = json.as_object_mut() {
        OWN.iter().for_each(|name| drop(members.remove(*name)));
    }
    if let Some(kept) = &record.body.unknown_fields {
        let unknown_fields: Map<String, Value> = serde_json::from_str(kept)?;
        unknown_fields.into_iter().for_each(|(pointer, value)| put(&mut json, &pointer, value));
    }
    Ok(json)
}

/// Sets the value at `pointer`, whose parent exists: an unknown object is kept whole, under one pointer.
fn put(json: &mut Value, pointer: &str, value: Value) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    match json.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.insert(name.replace("~1", "/").replace("~0", "~"), value);
        }
        Some(Value::Array(items)) => match name.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
            Some(item) => *item = value,
            None => items.push(value),
        },
        _ => {}
    }
}
