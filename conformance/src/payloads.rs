//! The payloads of the scenarios, as a client writes them.

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

pub(crate) fn turn(message_id: &str) -> Value {
    json!({"type": "conversation_turn", "message_id": message_id, "kind": "user", "content": format!("say {message_id}")})
}

pub(crate) fn request(tool: &str, arguments: &Value) -> Value {
    json!({"type": "tool_call_requested", "request_id": "response-1", "call_id": format!("call {arguments}"),
        "tool_name": tool, "arguments": arguments})
}

pub(crate) fn completed(request: &str, result: &Value) -> Value {
    json!({"type": "tool_call_completed", "request_record_id": request, "result": result})
}

pub(crate) fn failed(request: &str, message: &str) -> Value {
    json!({"type": "tool_call_failed", "request_record_id": request, "error_kind": "refused", "error_message": message})
}

pub(crate) fn attempt(request: &str) -> Value {
    json!({"type": "tool_call_attempt", "request_record_id": request, "attempt": 2, "reason": "once more"})
}

/// Builds an effect resolution. The decision `done` also has a result.
pub(crate) fn resolution(effect: &str, decision: &str) -> Value {
    let mut resolution = json!({"type": "effect_resolution", "request_record_id": effect, "decision": decision,
        "who": "conformance", "why": "looked it up"});
    if decision == "done" {
        resolution["result"] = json!({"found": 7});
    }
    resolution
}

pub(crate) fn lifecycle(status: &str) -> Value {
    json!({"type": "run_lifecycle", "status": status, "reason": "so it went"})
}

pub(crate) fn turn_lifecycle(run_id: &str, status: &str) -> Value {
    json!({"type": "turn_lifecycle", "turn_id": "turn-1", "run_ids": [run_id], "status": status,
        "redacted_summary": "a turn"})
}

pub(crate) fn recovery_marker() -> Value {
    json!({"type": "recovery", "unsafe_pending": [], "recovery_reason": "it died"})
}

pub(crate) fn effect_intent(id: &str) -> Value {
    json!({"type": "effect_intent", "effect_id": id, "kind": "tool_execution", "subject_ref": subject(),
        "source": source(), "destination": destination(), "redacted_summary": "one effect"})
}

pub(crate) fn effect_result(id: &str, status: &str) -> Value {
    json!({"type": "effect_result", "effect_id": id, "terminal_status": status, "redacted_summary": "one result"})
}

pub(crate) fn terminal_result(id: &str, status: &str) -> Value {
    json!({"type": "terminal_result", "effect_id": id, "result_record_id": "result", "terminal_status": status})
}

fn without_type(mut payload: Value) -> Value {
    if let Some(members) = payload.as_object_mut() {
        members.remove("type");
    }
    payload
}

pub(crate) fn tool(run_id: &str, id: &str, status: &str) -> Value {
    json!({"type": "tool", "tool_call_id": id, "run_id": run_id, "turn_id": "turn", "capability_id": "capability",
        "canonical_tool_name": "write", "namespace": "workspace", "source": source(), "destination": destination(),
        "effect_class": "Write", "risk_class": "High", "privacy": "content_refs_only", "retention": "run_scoped",
        "redacted_args_summary": "one path", "status": status})
}

pub(crate) fn delivery_intent(id: &str) -> Value {
    json!({"type": "output_delivery", "record_type": "intent", "record": {
        "delivery_id": id, "effect_intent": without_type(effect_intent(&format!("deliver-{id}"))),
        "destination": destination(), "sink_ref": "sink", "desired_sink_ref": "sink",
        "delivery_kind": {"type": "final_message"}, "content_mode": "redacted_summary", "redacted_summary": "a delivery",
        "privacy": "content_refs_only", "retention": "run_scoped", "dedupe_key": format!("dedupe-{id}"),
        "runtime_package_fingerprint": "package"}})
}

pub(crate) fn delivery_result(id: &str, status: &str) -> Value {
    json!({"type": "output_delivery", "record_type": "result", "record": {
        "delivery_id": id, "effect_result": without_type(effect_result(&format!("deliver-{id}"), "completed")),
        "destination": destination(), "sink_ref": "sink", "dispatch_status": status, "redacted_summary": "a delivery",
        "retry_classification": "NotRetryable"}})
}

pub(crate) fn approval_requested(run_id: &str, id: &str) -> Value {
    json!({"type": "approval", "record_type": "requested", "record": {"request": {
        "approval_request_id": id, "approval_dispatch_effect_id": "dispatch", "run_id": run_id, "agent_id": "agent",
        "turn_id": "turn", "tool_call_id": "call", "source": source(), "destination": destination(),
        "canonical_tool_name": "book", "tool_source": source(), "effect_class": "Write", "risk_class": "High",
        "requested_args_ref": "args", "redacted_args_summary": "one", "policy_refs": [], "dispatcher_scope": "Host",
        "timeout_ms": 1000, "allowed_decisions": ["Approved", "Denied"], "created_at_millis": 1,
        "runtime_package_fingerprint": "package"}}})
}

/// `decision` is `approved` or `denied`.
pub(crate) fn approval_decided(id: &str, decision: &str) -> Value {
    let decision = match decision {
        "approved" => json!({"decision": "approved", "actor_ref": source()}),
        denied => json!({"decision": denied, "reason_code": "no", "actor_ref": null}),
    };
    json!({"type": "approval", "record_type": "responded", "record": {"request_id": id, "decision": decision}})
}

pub(crate) fn wake(run_id: &str, id: &str, status: &str) -> Value {
    json!({"type": "wake", "condition_id": id, "run_id": run_id, "event_filter_fingerprint": "sha256:00",
        "resume_policy": "none", "trigger_status": status, "idempotency_key": "wake"})
}

pub(crate) fn run_message(run_id: &str, id: &str, status: &str) -> Value {
    json!({"type": "run_message", "message_id": id, "source_run_id": run_id,
        "address_target": {"type": "topic", "topic_id": "topic"}, "content_ref": "content",
        "correlation": {"entries": []}, "delivery_status": status, "idempotency_key": "message"})
}

pub(crate) fn proposal(id: &str, status: &str) -> Value {
    json!({"type": "code_edit_proposal", "request_id": id, "diffs": [{"path": "src/lib.rs", "patch": "@@"}],
        "status": status})
}

pub(crate) fn pool(run_id: &str, id: &str, status: &str) -> Value {
    json!({"type": "agent_pool", "pool_id": id, "member_run_ids": [run_id], "lifecycle_status": status})
}

/// `phase` is `staged`, `committed` or `rejected`.
pub(crate) fn write_back(phase: &str, txn: u64) -> Value {
    let mut payload = json!({"type": format!("write_back_{phase}"), "txn": txn, "at": "2026-11-22T02:00:00Z"});
    match phase {
        "staged" => payload["op"] = json!({"op": "save"}),
        "rejected" => payload["reason"] = json!({"reason": "destructive_op"}),
        _ => {}
    }
    payload
}

pub(crate) fn message(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn checkpoint(id: &str, covers: u64, messages: &[Value]) -> Value {
    json!({"type": "loop_checkpoint", "checkpoint_id": id, "checkpoint_seq": 1, "covers_journal_seq": covers,
        "unanswered": [], "schema_version": 1, "session_id": "session", "turn": 1, "tool_calls_count": 0,
        "created_at_millis": 1000, "messages": messages})
}

pub(crate) fn prune(before: u64, preserve: bool) -> Value {
    json!({"type": "checkpoint_prune", "prune_covered_before": before, "preserve_latest_terminal": preserve})
}

pub(crate) fn retraction(record_id: &str) -> Value {
    json!({"type": "retraction", "retracted_record_id": record_id, "who": "conformance", "why": "said by mistake"})
}

/// Builds a summary for event queries, with this family and kind.
pub(crate) fn event(run_id: &str, family: &str, kind: &str) -> Value {
    json!({"run_id": run_id, "agent_id": "conformance", "event_family": family, "event_kind": kind, "source": source(),
        "subject_ref": {"kind": "run", "id": run_id, "privacy": "internal"}, "related_refs": [], "correlation_keys": [],
        "tags": [], "privacy_class": "internal", "delivery_semantics": "journal_backed"})
}
