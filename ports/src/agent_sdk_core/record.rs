//! The SDK's record as one of Runlog's, and back.
//!
//! Number, time and run are kept as they came, beside Runlog's own: the record is the same whenever it is sent again, and what
//! is read is what was appended.

use super::{
    failure::foreign,
    plain,
    tape::{self, Tape, Unfit},
};
use ::agent_sdk_core::{AgentError, JournalRecord, journal::JOURNAL_SCHEMA_VERSION};
use runlog_producer::{
    self as producer,
    draft::Draft,
    id::{RecordId, RunId},
    original::original,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The records that are read at a time.
pub(super) const PAGE: usize = 1000;

/// The members of the envelope that Runlog has its own of.
const NUMBER: &str = "/journal_seq";
const TIME: &str = "/timestamp_millis";
const RUN: &str = "/run_id";
const ID: &str = "/record_id";
/// Members of the envelope that the SDK's record does not have.
const OWN: [&str; 4] = ["key_id", "validity", "facts", "unknown_fields"];

/// What is kept of a record, by JSON pointer. In their order, whatever features of `serde_json` a host has: it is part of what
/// makes a record the same.
type Kept = BTreeMap<String, Value>;

/// What is kept of the SDK's envelope, in the same order.
#[derive(Serialize)]
struct Own<'a> {
    #[serde(rename = "/journal_seq")]
    number: u64,
    #[serde(rename = "/run_id", skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    #[serde(rename = "/timestamp_millis")]
    time: u64,
}

/// The record as Runlog writes it, in the log's run `run_id`; its place is still to be given.
pub(super) fn ours(record: &JournalRecord, run_id: &RunId) -> Result<producer::JournalRecord, AgentError> {
    let illegal =
        |what: String| AgentError::contract_violation(format!("journal record {:?} {what}", record.record_id));
    if record.journal_schema_version != JOURNAL_SCHEMA_VERSION {
        return Err(illegal(format!("has schema version {}", record.journal_schema_version)));
    }
    let mut ours = match plain::ours(record, run_id) {
        Ok(ours) => ours,
        Err(Unfit) => parsed(record, run_id).map_err(&illegal)?,
    };
    let other_run = (record.run_id.as_str() != run_id.as_str()).then(|| record.run_id.as_str());
    let own = Own { number: record.journal_seq, run: other_run, time: record.timestamp_millis };
    let own = serde_json::to_string(&own).map_err(|error| illegal(error.to_string()))?;
    ours.body.unknown_fields = Some(match &ours.body.unknown_fields {
        None => own,
        Some(_) => {
            let mut kept = kept(&ours)?;
            kept.append(&mut serde_json::from_str(&own).map_err(|error| illegal(error.to_string()))?);
            text(&kept).map_err(illegal)?
        }
    });
    Ok(ours)
}

fn text(kept: &Kept) -> Result<String, String> {
    serde_json::to_string(kept).map_err(|error| error.to_string())
}

/// Any record, or why it is not taken: as whoever sends its JSON is answered.
fn parsed(record: &JournalRecord, run_id: &RunId) -> Result<producer::JournalRecord, String> {
    let mut json = serde_json::to_value(record).map_err(|error| error.to_string())?;
    let Some(members) = json.as_object_mut() else { return Err("is no object".into()) };
    for pointer in [NUMBER, TIME] {
        members.remove(&pointer[1..]);
    }
    members.insert("run_id".into(), run_id.as_str().into());
    let draft = Draft::parse(&json.to_string()).map_err(|error| format!("is not taken: {error}"))?;
    if draft.has_record_id { Ok(draft.record) } else { Err("has no id".into()) }
}

/// Gives the record another id in the log, of its number.
pub(super) fn rename(ours: &mut producer::JournalRecord, number: u64) -> Result<(), AgentError> {
    let mut kept = kept(ours)?;
    let id = RecordId::new(format!("{}#{number}", ours.body.record_id))
        .map_err(|illegal| AgentError::contract_violation(illegal.to_string()))?;
    kept.insert(ID.into(), std::mem::replace(&mut ours.body.record_id, id).as_str().into());
    ours.body.unknown_fields = Some(text(&kept).map_err(AgentError::contract_violation)?);
    Ok(())
}

/// The record as it was appended.
pub(super) fn theirs(record: &producer::JournalRecord) -> Result<JournalRecord, AgentError> {
    if let Ok(theirs) = plainly_theirs(record, kept(record)?) {
        return Ok(theirs);
    }
    let read = original(record).and_then(serde_json::from_value);
    read.map_err(|error| foreign(&format!("record {} of run {}", record.body.record_id, record.body.run_id), &error))
}

/// The same where no more is `kept` than members of the envelope.
fn plainly_theirs(record: &producer::JournalRecord, kept: Kept) -> Result<JournalRecord, Unfit> {
    let mut own = Kept::from_iter([
        ("journal_seq".to_owned(), record.place.journal_seq.get().into()),
        ("timestamp_millis".to_owned(), record.place.timestamp_millis.into()),
    ]);
    for (pointer, value) in kept {
        if ![NUMBER, TIME, RUN, ID].contains(&pointer.as_str()) {
            return Err(Unfit);
        }
        own.insert(pointer[1..].to_owned(), value);
    }
    let (body, payload, tape) = (Tape::of(&record.body)?, Tape::of(&record.payload)?, Tape::of(&own)?);
    let envelope = body.root().members().filter(|(name, _)| !OWN.contains(name) && !own.contains_key(*name));
    tape::read(envelope.chain(tape.root().members()).chain([("payload", payload.root())]))
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
pub(super) fn kept(record: &producer::JournalRecord) -> Result<Kept, AgentError> {
    let Some(kept) = &record.body.unknown_fields else { return Ok(Kept::new()) };
    serde_json::from_str(kept).map_err(|error| foreign(&format!("record {}", record.body.record_id), &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    /// What an SDK's host appends all the time. Others go by their JSON.
    const PLAIN: [&str; 9] = [
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
    fn a_record_goes_plainly_as_its_json_does_and_comes_back() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/golden/v1");
        let (run, mut plainly) = (RunId::new("in.the.log".to_owned()).unwrap(), BTreeSet::new());
        for example in fs::read_dir(examples).unwrap() {
            let path = example.unwrap().path();
            let json = path.extension().is_some_and(|extension| extension == "json");
            let text = if json { fs::read_to_string(&path).unwrap() } else { continue };
            // Runlog's own payloads are none of the SDK's.
            let Ok(record) = serde_json::from_str::<JournalRecord>(&text) else { continue };
            let ours = ours(&record, &run).unwrap();
            if let Ok(plain) = plain::ours(&record, &run) {
                assert_eq!(Ok(plain), parsed(&record, &run), "{path:?}");
                assert_eq!(plainly_theirs(&ours, kept(&ours).unwrap()).unwrap(), record, "{path:?}");
                plainly.insert(ours.payload.payload_type());
            }
            assert_eq!(theirs(&ours).unwrap(), record, "{path:?}");
        }
        assert!(PLAIN.iter().all(|payload_type| plainly.contains(payload_type)), "{plainly:?}");
    }

    #[test]
    fn what_no_avro_number_holds_is_kept_beside_it() {
        let text = include_str!("../../../schemas/golden/v1/checkpoint.json");
        let mut record: JournalRecord = serde_json::from_str(text).unwrap();
        let ::agent_sdk_core::JournalRecordPayload::Checkpoint(checkpoint) = &mut record.payload else { panic!() };
        checkpoint.created_at_millis = u64::MAX;
        let run = RunId::new(record.run_id.as_str().to_owned()).unwrap();
        plain::ours(&record, &run).unwrap_err();
        assert_eq!(theirs(&ours(&record, &run).unwrap()).unwrap(), record);
    }
}
