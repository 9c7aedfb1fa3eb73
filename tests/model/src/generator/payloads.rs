//! Payloads as `publish` takes them.

use serde_json::{Value, json};

fn source() -> Value {
    json!({"kind": "sdk", "id": "source.sdk", "trust": "host_provided", "privacy": "content_refs_only"})
}

fn destination() -> Value {
    json!({"kind": "tool", "id": "tools.local", "privacy": "content_refs_only", "retention": "host_policy"})
}

fn subject() -> Value {
    json!({"kind": "tool_call", "id": "call", "privacy": "content_refs_only"})
}

pub(super) fn batch(records: &[Value]) -> Value {
    json!({"type": "batch", "records": records})
}

/// A hidden payload, which only its facts describe.
pub(super) fn encrypted(key_id: &str, payload_type: &str, facts: &Value) -> Value {
    let kind = if payload_type == "conversation_turn" { payload_type } else { "tool_call" };
    let mut facts = facts.clone();
    facts["payload_type"] = payload_type.into();
    json!({
        "record_kind": kind,
        "key_id": key_id,
        "facts": facts,
        "payload": {
            "type": "encrypted", "algorithm": "aes-256-gcm",
            "nonce": "000102030405060708090a0b", "ciphertext": "8d2f00ff",
        },
    })
}

pub(super) fn effect_intent(id: &str, key: Option<&str>) -> Value {
    let mut intent = json!({
        "type": "effect_intent", "effect_id": id, "kind": "tool_execution", "subject_ref": subject(),
        "source": source(), "destination": destination(), "redacted_summary": "one effect",
    });
    if let Some(key) = key {
        intent["idempotency_key"] = key.into();
    }
    intent
}

pub(super) fn effect_result(id: &str, status: &str) -> Value {
    json!({"type": "effect_result", "effect_id": id, "terminal_status": status, "redacted_summary": "one result"})
}

/// Without its type, for use within another payload.
fn without_type(mut payload: Value) -> Value {
    if let Some(members) = payload.as_object_mut() {
        members.remove("type");
    }
    payload
}

pub(super) fn terminal_result(id: &str, status: &str) -> Value {
    json!({"type": "terminal_result", "effect_id": id, "result_record_id": "result", "terminal_status": status})
}

pub(super) fn turn_lifecycle(run_id: &str, turn: u64, status: &str) -> Value {
    json!({
        "type": "turn_lifecycle", "turn_id": format!("turn-{turn}"), "run_ids": [run_id], "status": status,
        "redacted_summary": "a turn",
    })
}

pub(super) fn tool(run_id: &str, key: &str, state: &str, keyed: bool) -> Value {
    let mut payload = json!({
        "type": "tool", "tool_call_id": key, "run_id": run_id, "turn_id": "turn", "capability_id": "capability",
        "canonical_tool_name": "write", "namespace": "workspace", "source": source(), "destination": destination(),
        "effect_class": "Write", "risk_class": "High", "privacy": "content_refs_only", "retention": "run_scoped",
        "redacted_args_summary": "one path", "status": state,
    });
    if keyed {
        payload["idempotency_key"] = format!("key-{key}").into();
    }
    payload
}

pub(super) fn delivery(key: &str, state: &str, note: &str) -> Value {
    let effect = format!("deliver-{key}");
    let intent = || without_type(effect_intent(&effect, None));
    let (record_type, record) = match state {
        "requested" => (
            "intent",
            json!({
                "delivery_id": key, "effect_intent": intent(), "destination": destination(), "sink_ref": "sink",
                "desired_sink_ref": "sink", "delivery_kind": {"type": "final_message"}, "content_mode": "redacted_summary",
                "redacted_summary": note, "privacy": "content_refs_only", "retention": "run_scoped",
                "dedupe_key": format!("dedupe-{key}"), "runtime_package_fingerprint": "package",
            }),
        ),
        "deduped" => (
            "dedupe",
            json!({
                "delivery_id": key, "dedupe_key": format!("dedupe-{key}"), "prior_delivery_id": "delivery-before",
                "prior_terminal_status": "completed", "current_status": "deduped", "redacted_summary": note,
            }),
        ),
        "reconciliation_needed" => (
            "reconciliation",
            json!({
                "delivery_id": key, "intent_record_id": note, "side_effect_kind": "output_delivery",
                "dedupe_key": format!("dedupe-{key}"), "terminal_status": "reconciliation_needed",
                "terminal_append_status": "append_failed", "unsafe_pending_reason": note,
                "replay_decision": "requires_host_reconciliation", "resend_allowed": false,
            }),
        ),
        "event" => (
            "event",
            json!({
                "event_kind": "output_dispatch_completed", "delivery_id": key, "destination": destination(),
                "sink_ref": "sink", "dedupe_key": format!("dedupe-{key}"), "dispatch_status": "completed",
                "redacted_summary": note,
            }),
        ),
        status => (
            "result",
            json!({
                "delivery_id": key, "effect_result": without_type(effect_result(&effect, "completed")),
                "destination": destination(), "sink_ref": "sink", "dispatch_status": status, "redacted_summary": note,
                "retry_classification": "NotRetryable",
            }),
        ),
    };
    json!({"type": "output_delivery", "record_type": record_type, "record": record})
}

pub(super) fn pool(key: &str, state: &str, run_id: &str) -> Value {
    json!({"type": "agent_pool", "pool_id": key, "member_run_ids": [run_id], "lifecycle_status": state})
}

pub(super) fn approval(run_id: &str, key: &str, state: &str, note: &str) -> Value {
    let effect = format!("dispatch-{note}");
    let record = match state {
        "requested" => json!({"request": {
            "approval_request_id": key, "approval_dispatch_effect_id": effect, "run_id": run_id, "agent_id": "agent",
            "turn_id": "turn", "tool_call_id": "call", "source": source(), "destination": destination(),
            "canonical_tool_name": "book", "tool_source": source(), "effect_class": "Write", "risk_class": "High",
            "requested_args_ref": "args", "redacted_args_summary": note, "policy_refs": [],
            "dispatcher_scope": "Host", "timeout_ms": 1000, "allowed_decisions": ["Approved", "Denied"],
            "created_at_millis": 1, "runtime_package_fingerprint": "package",
        }}),
        "dispatch_intent" => json!({"request_id": key, "effect_intent": without_type(effect_intent(&effect, None))}),
        "approved" => json!({"request_id": key, "decision": {"decision": "approved", "actor_ref": source()}}),
        "denied by rule" => json!({"request_id": key, "reason_code": note}),
        "denied" => {
            json!({"request_id": key, "decision": {"decision": "denied", "reason_code": note, "actor_ref": null}})
        }
        status => json!({
            "request_id": key, "lifecycle_status": status.trim_start_matches("result "),
            "effect_result": without_type(effect_result(&effect, "completed")),
        }),
    };
    let record_type = match state {
        "requested" | "dispatch_intent" => state,
        "approved" | "denied" => "responded",
        "denied by rule" => "denied",
        _ => "dispatch_result",
    };
    json!({"type": "approval", "record_type": record_type, "record": record})
}

pub(super) fn wake(run_id: &str, key: &str, state: &str, note: &str) -> Value {
    json!({
        "type": "wake", "condition_id": key, "run_id": run_id, "event_filter_fingerprint": "sha256:00",
        "resume_policy": "none", "trigger_status": state, "idempotency_key": note,
    })
}

pub(super) fn run_message(run_id: &str, key: &str, state: &str, note: &str) -> Value {
    json!({
        "type": "run_message", "message_id": key, "source_run_id": run_id,
        "address_target": {"type": "topic", "topic_id": "topic"}, "content_ref": "content",
        "correlation": {"entries": []}, "delivery_status": state, "idempotency_key": note,
    })
}

pub(super) fn proposal(key: &str, state: &str, note: &str) -> Value {
    let diffs = json!([{"path": "src/lib.rs", "patch": note}]);
    json!({"type": "code_edit_proposal", "request_id": key, "diffs": diffs, "status": state})
}

pub(super) fn write_back(phase: &str, txn: u64) -> Value {
    let mut payload = json!({"type": format!("write_back_{phase}"), "txn": txn, "at": "2026-11-22T02:00:00Z"});
    match phase {
        "staged" => payload["op"] = json!({"op": "save"}),
        "rejected" => payload["reason"] = json!({"reason": "destructive_op"}),
        _ => {}
    }
    payload
}

pub(super) fn contract_checkpoint(run_id: &str, id: &str, covers: u64, created: i64) -> Value {
    json!({
        "type": "checkpoint", "checkpoint_id": id, "run_id": run_id, "checkpoint_seq": 1,
        "covers_journal_seq": covers, "loop_state": "awaiting_model", "runtime_package_fingerprint": "package",
        "state_hash": "sha256:00", "created_at_millis": created, "writer_id": "worker",
    })
}
