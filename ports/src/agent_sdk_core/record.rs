//! The SDK's record as one of Runlog's, and back.
//!
//! Number, time and run are kept as they came, beside Runlog's own: the record is the same whenever it is sent again, and what
//! is read is what was appended.

use super::failure::foreign;
use ::agent_sdk_core::{AgentError, JournalRecord, journal::JOURNAL_SCHEMA_VERSION};
use runlog_producer::{
    self as producer,
    draft::Draft,
    id::{RecordId, RunId},
    original::original,
};
use serde_json::{Map, Value};

/// The records that are read at a time.
pub(super) const PAGE: usize = 1000;

/// The members of the envelope that Runlog has its own of.
const NUMBER: &str = "/journal_seq";
const TIME: &str = "/timestamp_millis";
const RUN: &str = "/run_id";
const ID: &str = "/record_id";

/// The record as Runlog writes it, in the log's run `run_id`; its place is still to be given.
pub(super) fn ours(record: &JournalRecord, run_id: &RunId) -> Result<producer::JournalRecord, AgentError> {
    let illegal =
        |what: String| AgentError::contract_violation(format!("journal record {:?} {what}", record.record_id));
    if record.journal_schema_version != JOURNAL_SCHEMA_VERSION {
        return Err(illegal(format!("has schema version {}", record.journal_schema_version)));
    }
    let mut json = serde_json::to_value(record).map_err(|error| illegal(error.to_string()))?;
    let Some(members) = json.as_object_mut() else { return Err(illegal("is no object".into())) };
    let mut own = Map::new();
    for pointer in [NUMBER, TIME] {
        own.insert(pointer.into(), members.remove(&pointer[1..]).unwrap_or_default());
    }
    let run = members.insert("run_id".into(), run_id.as_str().into()).unwrap_or_default();
    if run != *run_id.as_str() {
        own.insert(RUN.into(), run);
    }
    let draft = Draft::parse(&json.to_string()).map_err(|error| illegal(format!("is not taken: {error}")))?;
    if !draft.has_record_id {
        return Err(illegal("has no id".into()));
    }
    let mut ours = draft.record;
    let mut kept = kept(&ours)?;
    kept.append(&mut own);
    ours.body.unknown_fields = Some(Value::Object(kept).to_string());
    Ok(ours)
}

/// Gives the record another id in the log, of its number.
pub(super) fn rename(ours: &mut producer::JournalRecord, number: u64) -> Result<(), AgentError> {
    let mut kept = kept(ours)?;
    let id = RecordId::new(format!("{}#{number}", ours.body.record_id))
        .map_err(|illegal| AgentError::contract_violation(illegal.to_string()))?;
    kept.insert(ID.into(), std::mem::replace(&mut ours.body.record_id, id).as_str().into());
    ours.body.unknown_fields = Some(Value::Object(kept).to_string());
    Ok(())
}

/// The record as it was appended.
pub(super) fn theirs(record: &producer::JournalRecord) -> Result<JournalRecord, AgentError> {
    let read = original(record).and_then(serde_json::from_value);
    read.map_err(|error| foreign(&format!("record {} of run {}", record.body.record_id, record.body.run_id), &error))
}

/// The SDK's number of a record; Runlog's where somebody else wrote it.
pub(super) fn number(record: &producer::JournalRecord) -> Result<u64, AgentError> {
    let number = kept(record)?.get(NUMBER).and_then(Value::as_u64);
    Ok(number.unwrap_or_else(|| record.place.journal_seq.get()))
}

/// The SDK's id of a record.
pub(super) fn id(record: &producer::JournalRecord) -> Result<String, AgentError> {
    let kept = kept(record)?;
    Ok(kept.get(ID).and_then(Value::as_str).unwrap_or(record.body.record_id.as_str()).to_owned())
}

/// What is kept of a record that its schema has no field for.
pub(super) fn kept(record: &producer::JournalRecord) -> Result<Map<String, Value>, AgentError> {
    let Some(kept) = &record.body.unknown_fields else { return Ok(Map::new()) };
    serde_json::from_str(kept).map_err(|error| foreign(&format!("record {}", record.body.record_id), &error))
}
