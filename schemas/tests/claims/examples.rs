//! One example per payload type, as a person writes it: `schemas/examples/TYPE.json`.

use std::{collections::BTreeSet, fs, path::PathBuf};

use runlog_schemas::{
    codec::{self, Unframed},
    datum::Datum,
    draft::Draft,
    id::RunId,
    original::original,
    payload::{
        Payload, PayloadType, RunLifecycle,
        wrapped::{BATCH_RECORDS_MAX, Batch},
    },
    record::{JournalRecord, RecordKind},
};
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn example(tag: &str) -> String {
    fs::read_to_string(folder().join(format!("{tag}.json"))).unwrap_or_else(|error| panic!("{tag}: {error}"))
}

/// Pointers to the parts of `given` that `found` lacks.
fn lost(given: &Value, found: Option<&Value>, pointer: &str) -> Vec<String> {
    match (given, found) {
        (Value::Object(given), Some(found @ Value::Object(_))) => {
            given.iter().flat_map(|(name, value)| lost(value, found.get(name), &format!("{pointer}/{name}"))).collect()
        }
        (Value::Array(given), Some(Value::Array(found))) if given.len() == found.len() => {
            let item =
                |(at, (given, found)): (usize, (&Value, &Value))| lost(given, Some(found), &format!("{pointer}/{at}"));
            given.iter().zip(found).enumerate().flat_map(item).collect()
        }
        (given, Some(found)) if given == found => Vec::new(),
        _ => vec![pointer.to_owned()],
    }
}

#[test]
fn there_is_one_example_for_each_payload_type() {
    let stem = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let files: BTreeSet<String> = fs::read_dir(folder()).unwrap().map(stem).collect();
    assert_eq!(files, Payload::TYPES.iter().map(|tag| format!("{tag}.json")).collect());
}

#[test]
fn an_example_survives_the_way_into_the_log_and_back() {
    for tag in Payload::TYPES {
        let mut given: Value = serde_json::from_str(&example(tag)).unwrap();
        assert_eq!(given["payload"]["type"], **tag);
        // The partition of a skip is not a member of the record.
        let partition = given.as_object_mut().unwrap().remove("partition");
        assert_eq!(partition.is_some(), *tag == "skip");
        let text = given.to_string();
        let record = Draft::parse(&text).unwrap_or_else(|error| panic!("{tag}: {error}")).record;
        let payload_type: PayloadType = tag.parse().unwrap();
        assert_eq!(record.body.facts.payload_type == payload_type, !payload_type.hides());
        let stored = codec::decode(codec::unframe(&codec::encode(&record)).unwrap()).unwrap();
        assert_eq!(stored, record, "{tag}");
        let printed = serde_json::to_string(&stored).unwrap();
        assert_eq!(lost(&given, Some(&serde_json::from_str(&printed).unwrap()), ""), Vec::<String>::new(), "{tag}");
        // The printed JSON parses to the same record.
        assert_eq!(Draft::parse(&printed).unwrap().record, record, "{tag}");
        assert_eq!(record.body.unknown_fields, None, "{tag}: an example has no member that the schema does not know");
    }
}

#[test]
fn unknown_members_are_kept_wherever_they_stand() {
    let text = r#"{
        "run_id": "r", "record_id": "a", "vendor_extension": {"n": 12, "list": [1, null]},
        "subject_ref": {"kind": "run", "id": "r", "privacy": "internal", "colour": "red"},
        "correlation_keys": [{"key": "k", "value": "v", "a/b~c": true}],
        "payload": {"type": "tool_call_completed", "request_record_id": "q", "result": {"own": "stays"}, "cost": 0.5}
    }"#;
    let record = Draft::parse(text).unwrap().record;
    let expected = serde_json::json!({
        "/vendor_extension": {"n": 12, "list": [1, null]},
        "/subject_ref/colour": "red",
        "/correlation_keys/0/a~1b~0c": true,
        "/payload/cost": 0.5,
    });
    let parse = |text: &Option<String>| serde_json::from_str::<Value>(text.as_deref().unwrap()).unwrap();
    assert_eq!(parse(&record.body.unknown_fields), expected);
    let stored = codec::decode(codec::unframe(&codec::encode(&record)).unwrap()).unwrap();
    assert_eq!(parse(&stored.body.unknown_fields), expected);
    // A record that is printed and parsed again is equal: no member is lost or kept twice.
    let again = Draft::parse(&serde_json::to_string(&stored).unwrap()).unwrap().record;
    assert_eq!(again, record);
}

#[test]
fn unknown_symbols_variants_and_numbers_round_trip() {
    let text = r#"{
        "run_id": "r", "record_id": "a", "agent_id": "g", "record_kind": "of_tomorrow",
        "subject_ref": {"kind": "planet", "id": "mars", "privacy": "cosmic"},
        "payload": {
            "type": "hook", "schema_version": 1, "hook_id": "h", "point": "after_landing",
            "payload": {"type": "dreamt", "of": [1, {"two": 18446744073709551615}]}, "more": true
        }
    }"#;
    let given: Value = serde_json::from_str(text).unwrap();
    let record = Draft::parse(text).unwrap().record;
    assert_eq!(record.body.record_kind, RecordKind::Unrecognized);
    let Payload::Contract(hook) = &record.payload else { panic!("a contract's payload") };
    let texts = ["point", "payload"].map(|path| hook.text(path).unwrap());
    assert_eq!(texts, ["unrecognized", "dreamt"]);
    let stored = codec::decode(codec::unframe(&codec::encode(&record)).unwrap()).unwrap();
    assert_eq!(lost(&given, Some(&original(&stored).unwrap()), ""), Vec::<String>::new());
    assert_eq!(Draft::parse(&serde_json::to_string(&stored).unwrap()).unwrap().record, record);

    let text = r#"{"run_id":"r","payload":{"type":"tool_call_attempt","request_record_id":"q","attempt":2147483648,"reason":""}}"#;
    assert!(Draft::parse(text).is_err(), "Runlog's own numbers have limits");
    let text = r#"{"run_id":"r","payload":{"type":"checkpoint","checkpoint_id":"c","run_id":"r","checkpoint_seq":1,
        "covers_journal_seq":18446744073709551615,"loop_state":"","runtime_package_fingerprint":"","state_hash":"",
        "created_at_millis":1,"writer_id":"w"}}"#;
    let given: Value = serde_json::from_str(text).unwrap();
    let record = Draft::parse(text).unwrap().record;
    let stored = codec::decode(codec::unframe(&codec::encode(&record)).unwrap()).unwrap();
    assert_eq!(stored, record);
    assert_eq!(lost(&given, Some(&original(&stored).unwrap()), ""), Vec::<String>::new(), "another SDK's have none");
}

#[test]
fn a_kind_of_runlogs_own_carries_its_own_payloads_alone() {
    let kind_of = |kind: &str, payload: &str| {
        let text = format!(r#"{{"run_id":"r","record_kind":"{kind}","payload":{payload}}}"#);
        Draft::parse(&text).map(|draft| draft.record.body.record_kind.as_str())
    };
    let marker = r#"{"type":"terminal_result","effect_id":"e","result_record_id":"a","terminal_status":"completed"}"#;
    assert_eq!(kind_of("effect_result", marker).unwrap(), "effect_result");
    assert_eq!(kind_of("telemetry", marker).unwrap(), "telemetry");
    let attempt = r#"{"type":"tool_call_attempt","request_record_id":"q","attempt":2,"reason":""}"#;
    for (kind, payload) in [("run_claim", marker), ("effect_resolution", attempt), ("tool", attempt), ("skip", marker)]
    {
        assert_eq!(kind_of(kind, payload).unwrap_err().pointer, "/record_kind", "{kind}");
        // The reader also refuses it from a foreign writer.
        let mut record = Draft::parse(&format!(r#"{{"run_id":"r","payload":{payload}}}"#)).unwrap().record;
        record.body.record_kind = serde_json::from_value(kind.into()).unwrap();
        assert!(codec::read(&codec::encode(&record)).is_err(), "{kind}");
    }
    let mut record = Draft::parse(&format!(r#"{{"run_id":"r","payload":{marker}}}"#)).unwrap().record;
    record.body.facts.payload_type = PayloadType::RunLifecycle.into();
    assert!(codec::read(&codec::encode(&record)).is_err(), "facts that tell another story than the payload");
}

#[test]
fn a_batch_within_a_batch_is_no_batch() {
    let batch = |records: Vec<JournalRecord>| {
        JournalRecord::new(RunId::new("r").unwrap(), "b".parse().unwrap(), "a", Batch { records }.into())
    };
    let inner = batch(vec![]);
    let outer = batch(vec![inner.clone()]);
    assert!(codec::read(&codec::encode(&inner)).is_ok());
    assert!(codec::read(&codec::encode(&outer)).is_err());
    assert!(codec::decode(codec::unframe(&codec::encode(&outer)).unwrap()).is_err());
    assert!(Draft::parse(&serde_json::to_string(&outer).unwrap()).is_err());
    let many = batch(vec![
        JournalRecord::new(RunId::new("r").unwrap(), "1".parse().unwrap(), "a", plain());
        BATCH_RECORDS_MAX + 1
    ]);
    let error = codec::decode(Unframed { version: many.version(), datum: &many.to_bytes() }).unwrap_err();
    assert_eq!(error.what, "too many records in a batch");
}

fn plain() -> Payload {
    RunLifecycle { status: "x".into(), reason: String::new() }.into()
}

#[test]
fn a_null_value_differs_from_an_absent_member() {
    let result = |member: &str| {
        let payload = format!(r#"{{"type":"tool_call_completed","request_record_id":"q"{member}}}"#);
        let draft = Draft::parse(&format!(r#"{{"run_id":"r","payload":{payload}}}"#)).unwrap();
        let Payload::ToolCallCompleted(done) = draft.record.payload else { panic!("completed") };
        done.result.map(|result| result.as_str().to_owned())
    };
    assert_eq!(result(r#","result":null"#).as_deref(), Some("null"));
    assert_eq!(result(""), None);
}

#[test]
fn an_invalid_record_is_refused_with_a_pointer() {
    for (text, pointer) in [
        ("7", ""),
        (r#"{"run_id":"r"}"#, "/payload"),
        (r#"{"run_id":"r","payload":{"type":"nonsense"}}"#, "/payload"),
        (r#"{"payload":{"type":"run_lifecycle","status":"started"}}"#, "/run_id"),
        (r#"{"run_id":"r","payload":{"type":"skip","offset":1,"who":"w","why":"y"}}"#, "/run_id"),
        (
            r#"{"run_id":"r","writer_seq":9223372036854775808,"payload":{"type":"run_lifecycle","status":"x"}}"#,
            "/writer_seq",
        ),
        // Beyond Avro's long, and beyond Avro's int.
        (r#"{"run_id":"r","payload":{"type":"run_claim","writer_id":"w","epoch":9223372036854775808}}"#, "/payload"),
        (
            r#"{"run_id":"r","payload":{"type":"tool_call_attempt","request_record_id":"q","attempt":2147483648,"reason":""}}"#,
            "",
        ),
        (
            r#"{"run_id":"r","payload":{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"t"}}"#,
            "/payload",
        ),
        (
            r#"{"run_id":"r","payload":{"type":"loop_checkpoint","checkpoint_id":"c","checkpoint_seq":1,"covers_journal_seq":0,"messages":[],"state_hash":"no"}}"#,
            "/payload/state_hash",
        ),
        (
            r#"{"run_id":"r","payload":{"type":"loop_checkpoint","checkpoint_id":"c","checkpoint_seq":1,"covers_journal_seq":0,"base":"b","messages":[]}}"#,
            "/payload/state_hash",
        ),
        (
            r#"{"run_id":"r","payload":{"type":"loop_checkpoint","checkpoint_id":"c","checkpoint_seq":1,"covers_journal_seq":0,"messages":[1],"spans":[{"from_base":true,"from":0,"count":1}]}}"#,
            "/payload/spans",
        ),
    ] {
        let error = Draft::parse(text).expect_err(text);
        assert_eq!(error.pointer, pointer, "{text}: {error}");
    }
}
