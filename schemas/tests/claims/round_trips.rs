//! JSON that others wrote comes back as it was: the fixtures that agent-sdk-core publishes, and the JSON of the smaller
//! contracts' sources.
//!
//! ```text
//!   their JSON ─▶ record ─▶ Avro ─▶ record ─▶ JSON, equal
//! ```

use std::{collections::BTreeSet, fs, path::PathBuf};

use runlog_schemas::{codec, draft::Draft, original::original};
use serde_json::{Map, Value, json};

fn contracts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("contracts")
}

fn fixture(name: &str) -> Value {
    let path = contracts().join("fixtures").join(name);
    serde_json::from_slice(&fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"))).unwrap()
}

/// Encodes and decodes a record.
fn there_and_back(json: &Value) -> Value {
    let draft = Draft::parse(&json.to_string()).unwrap_or_else(|error| panic!("{error}: {json}"));
    let stored = codec::decode(codec::unframe(&codec::encode(&draft.record)).unwrap()).unwrap();
    assert_eq!(stored, draft.record);
    assert_eq!(stored.body.unknown_fields, None, "the schema has a field for each member of {json}");
    original(&stored).unwrap()
}

/// Encodes and decodes a payload in an envelope, which is not compared.
fn payload_there_and_back(payload: &Value) -> Value {
    there_and_back(&json!({"run_id": "r", "record_id": "a", "payload": payload}))["payload"].take()
}

#[test]
fn the_fixtures_that_hold_journal_records_come_back_unchanged() {
    let list: Value = serde_json::from_slice(&fs::read(contracts().join("fixtures.json")).unwrap()).unwrap();
    for (name, what) in list["apply"].as_object().unwrap() {
        let fixture = fixture(name);
        match what["is"].as_str().unwrap() {
            "a whole record" => assert_eq!(there_and_back(&fixture), fixture, "{name}"),
            "a payload" => {
                let mut payload = what["wrap"].as_object().unwrap().clone();
                match what.get("content").and_then(Value::as_str) {
                    Some(content) => drop(payload.insert(content.to_owned(), fixture)),
                    None => payload.extend(fixture.as_object().unwrap().clone()),
                }
                let payload = Value::Object(payload);
                assert_eq!(payload_there_and_back(&payload), payload, "{name}");
            }
            // Replaces a part in the example of its payload type.
            _ => {
                let example = contracts().join(format!("../examples/{}.json", what["of"].as_str().unwrap()));
                let mut record: Value = serde_json::from_slice(&fs::read(example).unwrap()).unwrap();
                record["source"] = Value::Null;
                record["destination"] = Value::Null;
                record["subject_ref"] = Value::Null;
                let values = match &what["at"] {
                    Value::String(pointer) => vec![(pointer.clone(), fixture)],
                    at => {
                        let part = |(name, pointer): (&String, &Value)| {
                            (pointer.as_str().unwrap().to_owned(), fixture[name].clone())
                        };
                        at.as_object().unwrap().iter().map(part).collect()
                    }
                };
                for (pointer, part) in &values {
                    *record.pointer_mut(pointer).unwrap_or_else(|| panic!("{name}: {pointer}")) = part.clone();
                }
                let back = there_and_back(&record);
                values
                    .iter()
                    .for_each(|(pointer, part)| assert_eq!(back.pointer(pointer), Some(part), "{name}: {pointer}"));
            }
        }
    }
}

#[test]
fn each_fixture_is_listed_and_each_that_does_not_apply_has_a_reason() {
    let list: Value = serde_json::from_slice(&fs::read(contracts().join("fixtures.json")).unwrap()).unwrap();
    let (apply, not) = (list["apply"].as_object().unwrap(), list["do_not_apply"].as_object().unwrap());
    assert!(not.values().all(|why| why.as_str().is_some_and(|why| !why.is_empty())));
    let mut files = BTreeSet::new();
    let mut folders = vec![contracts().join("fixtures")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(contracts().join("fixtures")).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name != "README.md" {
                files.insert(name);
            }
        }
    }
    assert_eq!(files, apply.keys().cloned().collect());
    // The package has 93.
    assert_eq!(apply.len() + not.len(), 93);
}

/// `payload` without its tag.
fn untagged(mut payload: Value) -> Map<String, Value> {
    let members = payload.as_object_mut().unwrap();
    members.remove("type").unwrap();
    members.clone()
}

fn tagged(tag: &str, members: &Value) -> Value {
    let mut members = members.as_object().unwrap().clone();
    members.insert("type".into(), tag.into());
    Value::Object(members)
}

#[test]
fn tool_journal_entries_come_back_unchanged() {
    for entry in [
        json!({
            "session_id": "s", "call_fingerprint": "read_file:{\"mode\":\"read\",\"path\":\"/tmp/test.txt\"}",
            "tool_name": "read_file", "arguments": {"path": "/tmp/test.txt", "mode": "read"}, "result": {"lines": [1.5, null]},
            "is_error": false, "timestamp_ms": 1_700_000_000_000_u64,
        }),
        json!({
            "session_id": "", "call_fingerprint": "", "tool_name": "tool_a", "arguments": null, "result": null,
            "is_error": true, "timestamp_ms": 0,
        }),
    ] {
        let back = payload_there_and_back(&tagged("tool_journal_entry", &entry));
        assert_eq!(Value::Object(untagged(back)), entry);
    }
}

#[test]
fn write_back_entries_come_back_unchanged_with_every_operation_and_reason() {
    let at = "2025-08-19T10:11:12.123456789Z";
    let operations = [
        json!({"op": "compaction", "before": 120, "after": 24}),
        json!({"op": "save"}),
        json!({"op": "reset"}),
        json!({"op": "context_reset"}),
        json!({"op": "history_sink_upload", "bucket": "b", "key": "k", "bytes": 1_u64 << 40}),
    ];
    let reasons = [
        json!({"reason": "destructive_op"}),
        json!({"reason": "schema_mismatch", "detail": "txn TxnId(7) is not pending"}),
        json!({"reason": "provenance_fail", "detail": ""}),
        json!({"reason": "invariant_violation", "detail": "constraint below structured"}),
    ];
    let staged = operations.iter().map(|op| json!({"phase": "staged", "txn": 7, "at": at, "op": op}));
    let rejected = reasons.iter().map(|reason| json!({"phase": "rejected", "txn": 7, "at": at, "reason": reason}));
    let committed = json!({"phase": "committed", "txn": 0, "at": at});
    for entry in staged.chain(rejected).chain([committed]) {
        let mut members = entry.as_object().unwrap().clone();
        let phase = members.remove("phase").unwrap();
        let tag = format!("write_back_{}", phase.as_str().unwrap());
        let mut back = untagged(payload_there_and_back(&tagged(&tag, &Value::Object(members))));
        back.insert("phase".into(), phase);
        assert_eq!(Value::Object(back), entry);
    }
}

#[test]
fn a_loop_checkpoint_comes_back_unchanged_and_one_from_before_versions_is_version_0() {
    let usage = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
    // The contract's own test of a snapshot without `schema_version`.
    let before_versions = json!({
        "run_id": "run-1", "session_id": "s", "turn": 1, "messages": [], "total_usage": usage,
        "tool_calls_count": 0, "checkpoint_ms": 0,
    });
    let mut whole = before_versions.clone();
    whole["schema_version"] = 1.into();
    whole["messages"] = json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]);
    whole["verification_reports"] = json!([{"ok": true, "later": {"x": 1.25}}]);
    for given in [before_versions, whole] {
        let mut members = given.as_object().unwrap().clone();
        let run_id = members.remove("run_id").unwrap();
        let made_at = members.remove("checkpoint_ms").unwrap();
        members.extend([
            ("checkpoint_id".to_owned(), "c".into()),
            ("checkpoint_seq".to_owned(), 1.into()),
            ("covers_journal_seq".to_owned(), 0.into()),
            ("created_at_millis".to_owned(), made_at),
        ]);
        let payload = tagged("loop_checkpoint", &Value::Object(members));
        let back = there_and_back(&json!({"run_id": run_id, "record_id": "a", "payload": payload}));
        let mut actual = untagged(back["payload"].clone());
        actual.insert("run_id".into(), back["run_id"].clone());
        let made_at = actual.remove("created_at_millis").unwrap();
        actual.insert("checkpoint_ms".into(), made_at);
        for ours in ["checkpoint_id", "checkpoint_seq", "covers_journal_seq", "state_hash"] {
            actual.remove(ours).unwrap();
        }
        let mut expected = given.as_object().unwrap().clone();
        expected.entry("schema_version").or_insert(0.into());
        assert_eq!(actual, expected);
    }
}

#[test]
fn observed_facts_come_back_with_their_valid_time() {
    let turn = json!({
        "type": "conversation_turn", "message_id": "5f0c", "parent_id": "4f0c", "thread_id": "t", "kind": "sysinfo",
        "content": "indexed",
    });
    let proposal = json!({
        "type": "code_edit_proposal", "request_id": "q", "diffs": [{"a": 1}], "confidence": 0.875, "status": "reverted",
        "decided_at_millis": -1, "applied_at_millis": 2, "commit_hash": "c0ffee",
    });
    let request = json!({
        "type": "tool_call_requested", "request_id": "q", "call_id": "c", "parent_id": "p", "vendor": "openai",
        "tool_name": "apply_code_edit", "args_sha256": "00ff",
    });
    let done = json!({"type": "tool_call_failed", "request_record_id": "a", "error_kind": "io", "error_message": "", "latency_ms": -3});
    for payload in [turn, proposal, request, done] {
        for validity in [json!({"at": -62_135_596_800_000_i64, "is_valid": true}), json!({"at": 5, "is_valid": false})]
        {
            let given = json!({"run_id": "r", "record_id": "a", "validity": validity, "payload": payload});
            let record = Draft::parse(&given.to_string()).unwrap().record;
            let stored = codec::decode(codec::unframe(&codec::encode(&record)).unwrap()).unwrap();
            assert_eq!(serde_json::to_value(stored.body.validity).unwrap(), validity);
            let back = serde_json::to_value(&stored).unwrap();
            let lost: Vec<_> =
                payload.as_object().unwrap().iter().filter(|(name, value)| back["payload"][*name] != **value).collect();
            assert!(lost.is_empty(), "{lost:?} in {back}");
        }
    }
}
