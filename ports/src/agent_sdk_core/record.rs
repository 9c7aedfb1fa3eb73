//! Converts the SDK's records to Runlog's records, and back.
//!
//! The SDK's number, time and run id are kept beside Runlog's own. So a record is the same however often it is sent, and it is
//! read as it was appended.

use super::sdk_error::foreign;
use ::agent_sdk_core::{AgentError, JournalRecord, journal::JOURNAL_SCHEMA_VERSION};
use runlog_producer::{
    self as producer,
    draft::Draft,
    id::{RecordId, RunId},
    original::original,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Records read per page.
pub(super) const PAGE: usize = 1000;

/// Members of the envelope for which Runlog has its own values.
const NUMBER: &str = "/journal_seq";
const TIME: &str = "/timestamp_millis";
const RUN: &str = "/run_id";
const ID: &str = "/record_id";

/// Members that are kept beside a record, by JSON pointer. Sorted, because their order is part of the record's hash and must not
/// depend on the features of `serde_json` that a host enables.
type SdkMembers = BTreeMap<String, Value>;

/// The record in the log's run `run_id`, not numbered yet.
pub(super) fn ours(record: &JournalRecord, run_id: &RunId) -> Result<producer::JournalRecord, AgentError> {
    let illegal = |what: String| AgentError::contract_violation(format!("journal record {} {what}", record.record_id));
    if record.journal_schema_version != JOURNAL_SCHEMA_VERSION {
        return Err(illegal(format!("has schema version {}", record.journal_schema_version)));
    }
    let mut ours = parse(record, run_id).map_err(&illegal)?;
    let mut members = sdk_members(&ours)?;
    members.insert(NUMBER.into(), record.journal_seq.into());
    members.insert(TIME.into(), record.timestamp_millis.into());
    if record.run_id.as_str() != run_id.as_str() {
        members.insert(RUN.into(), record.run_id.as_str().into());
    }
    ours.body.unknown_fields = Some(text(&members).map_err(illegal)?);
    Ok(ours)
}

fn text(members: &SdkMembers) -> Result<String, String> {
    serde_json::to_string(members).map_err(|error| error.to_string())
}

/// Parses the record's JSON as a server does that receives it, or says why it is refused.
fn parse(record: &JournalRecord, run_id: &RunId) -> Result<producer::JournalRecord, String> {
    let mut json = serde_json::to_value(record).map_err(|error| error.to_string())?;
    let Some(members) = json.as_object_mut() else { return Err("is no object".into()) };
    for pointer in [NUMBER, TIME] {
        members.remove(&pointer[1..]);
    }
    members.insert("run_id".into(), run_id.as_str().into());
    let draft = Draft::parse(&json.to_string()).map_err(|error| format!("is refused: {error}"))?;
    if draft.has_record_id { Ok(draft.record) } else { Err("has no id".into()) }
}

/// Gives the record another id in the log, made unique by its number.
pub(super) fn rename(ours: &mut producer::JournalRecord, number: u64) -> Result<(), AgentError> {
    let mut members = sdk_members(ours)?;
    let id = RecordId::new(format!("{}#{number}", ours.body.record_id))
        .map_err(|illegal| AgentError::contract_violation(illegal.to_string()))?;
    members.insert(ID.into(), std::mem::replace(&mut ours.body.record_id, id).as_str().into());
    ours.body.unknown_fields = Some(text(&members).map_err(AgentError::contract_violation)?);
    Ok(())
}

/// The record as it was appended.
pub(super) fn theirs(record: &producer::JournalRecord) -> Result<JournalRecord, AgentError> {
    let read = original(record).and_then(serde_json::from_value);
    read.map_err(|error| foreign(&format!("record {} of run {}", record.body.record_id, record.body.run_id), &error))
}

/// The SDK's number of a record; Runlog's `journal_seq` if another client wrote it.
pub(super) fn number(record: &producer::JournalRecord) -> Result<u64, AgentError> {
    let number = sdk_members(record)?.get(NUMBER).and_then(Value::as_u64);
    Ok(number.unwrap_or_else(|| record.place.journal_seq.get()))
}

/// The SDK's id of a record.
pub(super) fn id(record: &producer::JournalRecord) -> Result<String, AgentError> {
    let members = sdk_members(record)?;
    Ok(members.get(ID).and_then(Value::as_str).unwrap_or(record.body.record_id.as_str()).to_owned())
}

/// The members kept beside a record.
pub(super) fn sdk_members(record: &producer::JournalRecord) -> Result<SdkMembers, AgentError> {
    let Some(members) = &record.body.unknown_fields else { return Ok(SdkMembers::new()) };
    serde_json::from_str(members).map_err(|error| foreign(&format!("record {}", record.body.record_id), &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    /// Payload types that the SDK's hosts append.
    const APPENDED: [&str; 9] = [
        "effect_intent",
        "effect_result",
        "message",
        "model_attempt",
        "recovery",
        "run_lifecycle",
        "terminal_result",
        "turn_lifecycle",
        "wake",
    ];

    #[test]
    fn a_record_is_read_as_it_was_appended() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/golden/v1");
        let (run, mut read) = (RunId::new("in.the.log".to_owned()).unwrap(), BTreeSet::new());
        for example in fs::read_dir(examples).unwrap() {
            let path = example.unwrap().path();
            let json = path.extension().is_some_and(|extension| extension == "json");
            let text = if json { fs::read_to_string(&path).unwrap() } else { continue };
            // The SDK does not have Runlog's own payloads.
            let Ok(record) = serde_json::from_str::<JournalRecord>(&text) else { continue };
            let ours = ours(&record, &run).unwrap();
            assert_eq!(theirs(&ours).unwrap(), record, "{path:?}");
            read.insert(ours.payload.payload_type().as_str());
        }
        assert!(APPENDED.iter().all(|payload_type| read.contains(payload_type)), "{read:?}");
    }

    #[test]
    fn a_number_that_avro_cannot_hold_is_kept_beside_the_record() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/golden/v1/checkpoint.json");
        let mut record: JournalRecord = serde_json::from_str(&fs::read_to_string(golden).unwrap()).unwrap();
        let ::agent_sdk_core::JournalRecordPayload::Checkpoint(checkpoint) = &mut record.payload else { panic!() };
        checkpoint.created_at_millis = u64::MAX;
        let run = RunId::new(record.run_id.as_str().to_owned()).unwrap();
        let ours = ours(&record, &run).unwrap();
        assert!(ours.body.unknown_fields.as_ref().unwrap().contains(&u64::MAX.to_string()));
        assert_eq!(theirs(&ours).unwrap(), record);
    }
}
