//! Warns of unknown members and values of a posted record, of stated facts that the record does not have, and of empty keys. They
//! have no effect; most are mistakes.

use super::{
    Draft, ENVELOPE_VALUES_MAX,
    unknown::{self, UNRECOGNIZED},
};
use crate::{
    answer::Warning,
    json::{self, bounded::Bounds},
    payload::Payload,
    record::JournalRecord,
};
use serde_json::Value;

/// Largest number of warnings of one record. Further warnings are omitted.
const WARNINGS_MAX: usize = 64;
/// The statuses of a run lifecycle.
const RUN_STATUSES: [&str; 4] = ["started", "completed", "failed", "cancelled"];
/// The statuses of the contract's terminal markers.
const TERMINAL_STATUSES: [&str; 3] = ["run_completed", "run_failed", "run_cancelled"];
/// The kinds of a conversation turn.
const TURN_KINDS: [&str; 5] = ["user", "assistant", "system", "sysinfo", "tool"];

impl Draft {
    /// Returns warnings of unknown members, statuses and kinds, facts without effect, and empty keys, in the order of their pointers,
    /// at most 64. `text` is the JSON that the draft was parsed from.
    pub fn warnings(&self, text: &str) -> Vec<Warning> {
        let mut warnings = Vec::new();
        collect(&self.record, "", &mut warnings);
        let without_effect = "a fact that this record cannot have; it is not kept, and has no effect";
        // The text was parsed before, so it has no error.
        let facts = unknown::facts(text, &self.record).unwrap_or_default();
        warnings.extend(facts.into_iter().map(|pointer| Warning { pointer, message: without_effect.to_owned() }));
        warnings.sort_by(|a, b| a.pointer.cmp(&b.pointer));
        warnings.truncate(WARNINGS_MAX);
        warnings
    }
}

fn collect(record: &JournalRecord, at: &str, warnings: &mut Vec<Warning>) {
    let mut warn =
        |pointer: &str, message: String| warnings.push(Warning { pointer: format!("{at}{pointer}"), message });
    match &record.payload {
        Payload::RunLifecycle(run) => {
            let statuses = [&RUN_STATUSES[..], &TERMINAL_STATUSES[..]].concat();
            if !statuses.contains(&run.status.as_str()) {
                warn("/payload/status", unknown_value(&run.status, &RUN_STATUSES));
            }
        }
        Payload::ConversationTurn(turn) if !TURN_KINDS.contains(&turn.kind.as_str()) => {
            warn("/payload/kind", unknown_value(&turn.kind, &TURN_KINDS));
        }
        _ => {}
    }
    let keys = [("/idempotency_key", &record.body.idempotency_key), ("/dedupe_key", &record.body.dedupe_key)];
    for (pointer, _) in keys.into_iter().filter(|(_, key)| key.as_deref() == Some("")) {
        warn(pointer, "an empty key, which counts as absent".to_owned());
    }
    if let Some(kept) = &record.body.unknown_fields
        && let Ok(Value::Object(kept)) = json::value(kept)
    {
        // Values of a large payload would need many times its memory. Without them, an unknown value is an unknown member.
        let taken = serde_json::to_string(record).unwrap_or_default();
        let taken = json::value_within(&taken, &Bounds::of_values(ENVELOPE_VALUES_MAX)).unwrap_or_default();
        // A skip's JSON names the partition beside the payload: the record's destination, not part of the record.
        let addressed = |pointer: &str| pointer == "/partition" && record.body.record_kind.of_partition();
        for (pointer, given) in kept.into_iter().filter(|(pointer, _)| !addressed(pointer)) {
            let message = match taken.pointer(&pointer) {
                None => "unknown member, which has no effect".to_owned(),
                Some(Value::String(taken)) if taken == UNRECOGNIZED => {
                    format!("unknown value {given}, which has no effect")
                }
                Some(_) => format!("{given} does not fit the member, and has no effect"),
            };
            warn(&pointer, message);
        }
    }
    if let Payload::Batch(batch) = &record.payload {
        for (index, record) in batch.records.iter().enumerate() {
            collect(record, &format!("{at}/payload/records/{index}"), warnings);
        }
    }
}

fn unknown_value(given: &str, known: &[&str]) -> String {
    format!("unknown value {given:?}, which has no effect; known are {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(payload: &str, more: &str) -> Vec<String> {
        let text = format!(r#"{{"run_id":"r","record_id":"i","payload":{payload}{more}}}"#);
        Draft::parse(&text).unwrap().warnings(&text).into_iter().map(|warning| warning.pointer).collect()
    }

    #[test]
    fn a_warning_points_at_the_unknown_member_or_value() {
        let call = r#"{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"t","arguments":{"idempotencyKey":1}"#;
        assert!(pointers(&format!("{call}}}"), "").is_empty(), "arguments are the caller's own");
        assert_eq!(pointers(&format!(r#"{call},"idempotencyKey":"k"}}"#), ""), ["/payload/idempotencyKey"]);
        let started = r#"{"type":"run_lifecycle","status":"started"}"#;
        assert!(pointers(started, "").is_empty());
        assert_eq!(pointers(started, r#","writerId":"w""#), ["/writerId"]);
        assert_eq!(pointers(r#"{"type":"run_lifecycle","status":"complete"}"#, ""), ["/payload/status"]);
        let turn = r#"{"type":"conversation_turn","message_id":"m","kind":"humanoid","content":{"any":"thing"}}"#;
        assert_eq!(pointers(turn, ""), ["/payload/kind"]);
        let batch = format!(
            r#"{{"type":"batch","records":[{{"run_id":"r","record_id":"a","payload":{started},"x":1}},{{"run_id":"r","record_id":"b","payload":{turn}}}]}}"#
        );
        assert_eq!(pointers(&batch, ""), ["/payload/records/0/x", "/payload/records/1/payload/kind"]);
    }

    #[test]
    fn an_empty_key_is_warned_of() {
        let call = r#"{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"t","arguments":{}}"#;
        let keys = r#","idempotency_key":"","dedupe_key":"""#;
        assert_eq!(pointers(call, keys), ["/dedupe_key", "/idempotency_key"]);
        let batch = format!(
            r#"{{"type":"batch","records":[{{"run_id":"r","record_id":"a","payload":{call},"idempotency_key":""}}]}}"#
        );
        assert_eq!(pointers(&batch, ""), ["/payload/records/0/idempotency_key"]);
        assert!(pointers(call, r#","idempotency_key":"k""#).is_empty());
    }

    #[test]
    fn a_fact_that_the_record_cannot_have_is_warned_of() {
        let call = r#"{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"t","arguments":{}}"#;
        let of_facts = |facts: &str| pointers(call, &format!(r#","facts":{facts}"#));
        assert!(of_facts(r#"{"unresolved":"refuse","repeatable":true,"observed":null}"#).is_empty());
        assert_eq!(of_facts(r#"{"unresolve":"refuse"}"#), ["/facts/unresolve"]);
        assert_eq!(of_facts(r#"{"Repeatable":true,"revision":1}"#), ["/facts/Repeatable", "/facts/revision"]);
        let started = r#"{"type":"run_lifecycle","status":"started"}"#;
        assert_eq!(pointers(started, r#","facts":{"unresolved":"refuse"}"#), ["/facts/unresolved"]);
        let batch = format!(
            r#"{{"type":"batch","records":[{{"run_id":"r","record_id":"a","payload":{call},"facts":{{"unresolve":"refuse"}}}}]}}"#
        );
        assert_eq!(pointers(&batch, ""), ["/payload/records/0/facts/unresolve"]);
        // A record that the server printed has all its facts.
        let text = format!(r#"{{"run_id":"r","record_id":"i","payload":{call}}}"#);
        let facts = serde_json::to_string(&Draft::parse(&text).unwrap().record.body.facts).unwrap();
        assert!(of_facts(&facts).is_empty(), "{facts}");
    }

    #[test]
    fn no_example_of_the_contract_is_warned_of() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let mut count = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(Draft::parse(&text).unwrap().warnings(&text), [], "{}", path.display());
            count += 1;
        }
        assert!(count > 10);
    }
}
