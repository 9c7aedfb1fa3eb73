//! Converts the crate's types to records, and back. Their JSON is the payload's.

use super::types::{Error, JournalEntry, Op, RejectReason, TxnId};
use runlog_producer::{payload::Payload, record::JournalRecord};
use serde_json::{Value, json};

/// The prefix of the names of payload types; the rest of a name is the phase.
const TYPES: &str = "write_back_";

pub(super) fn staged(txn: TxnId, at: &str, op: &Op) -> Payload {
    payload(json!({ "type": "write_back_staged", "txn": txn, "at": at, "op": op }))
}

pub(super) fn rejected(txn: TxnId, at: &str, reason: &RejectReason) -> Payload {
    payload(json!({ "type": "write_back_rejected", "txn": txn, "at": at, "reason": reason }))
}

pub(super) fn committed(txn: TxnId, at: &str) -> Payload {
    payload(json!({ "type": "write_back_committed", "txn": txn, "at": at }))
}

fn payload(json: Value) -> Payload {
    serde_json::from_value(json).expect("the schema has each entry of the crate")
}

/// The entry in a record. `None` for a record of another kind.
pub(super) fn entry(record: &JournalRecord) -> Result<Option<JournalEntry>, Error> {
    let payload_type = record.payload.payload_type();
    let Some(phase) = payload_type.as_str().strip_prefix(TYPES) else { return Ok(None) };
    let converted = serde_json::to_value(&record.payload).and_then(|mut json| {
        json["phase"] = phase.into();
        serde_json::from_value(json)
    });
    let record_id = || record.body.record_id.as_str().to_owned();
    converted.map(Some).map_err(|error| Error::Unreadable { record_id: record_id(), what: error.to_string() })
}
