//! The facts and kinds of the payloads that other contracts bring, and of those that change what a run is.

use super::{Facts, RecordKind};
use crate::{
    canonical,
    datum::Sha256,
    id::{Fingerprint, JournalSeq},
    payload::{
        Payload,
        approval::{Approval, ApprovalDecision},
        observed::ToolJournalEntry,
        output_delivery::OutputDelivery,
    },
};

/// The kind that a payload type is carried under; none where the type is unknown, or hides another one that has it.
pub(super) fn kind(payload_type: &str) -> Option<RecordKind> {
    Some(match payload_type {
        "run_lifecycle" | "terminal_result" => RecordKind::Run,
        "turn_lifecycle" => RecordKind::Turn,
        "context_projection" => RecordKind::Context,
        "model_attempt" => RecordKind::ModelAttempt,
        "message" => RecordKind::Message,
        "structured_output" => RecordKind::StructuredOutput,
        "approval" => RecordKind::Approval,
        "tool" => RecordKind::Tool,
        "output_delivery" => RecordKind::OutputDispatch,
        "hook" => RecordKind::Hook,
        "stream_rule" => RecordKind::StreamRule,
        "realtime_session" => RecordKind::RealtimeSession,
        "isolation" => RecordKind::Isolation,
        "child_lifecycle" => RecordKind::ChildLifecycle,
        "agent_pool" => RecordKind::AgentPool,
        "run_message" => RecordKind::RunMessage,
        "wake" => RecordKind::Wake,
        "subagent" => RecordKind::Subagent,
        "extension_action" => RecordKind::ExtensionAction,
        "effect_intent" => RecordKind::EffectIntent,
        "effect_result" => RecordKind::EffectResult,
        "checkpoint" => RecordKind::Checkpoint,
        "recovery" => RecordKind::Recovery,
        "conversation_turn" => RecordKind::ConversationTurn,
        "tool_call_requested"
        | "tool_call_attempt"
        | "tool_call_completed"
        | "tool_call_failed"
        | "tool_journal_entry" => RecordKind::ToolCall,
        "loop_checkpoint" => RecordKind::LoopCheckpoint,
        "checkpoint_prune" => RecordKind::CheckpointPrune,
        "run_claim" => RecordKind::RunClaim,
        "effect_resolution" => RecordKind::EffectResolution,
        "skip" => RecordKind::Skip,
        "genesis" => RecordKind::Genesis,
        "write_back_staged" | "write_back_committed" | "write_back_rejected" => RecordKind::WriteBack,
        "code_edit_proposal" => RecordKind::CodeEditProposal,
        "retraction" => RecordKind::Retraction,
        "erasure" => RecordKind::Erasure,
        "fork" => RecordKind::Fork,
        "retention_horizon" => RecordKind::RetentionHorizon,
        "batch" => RecordKind::Batch,
        "host_payload" => RecordKind::HostPayload,
        _ => return None,
    })
}

/// Fills in the facts of a payload of the run-journal contract.
pub(super) fn of_contract(payload: &Payload, facts: &mut Facts) {
    match payload {
        Payload::TurnLifecycle(p) => facts.state(p.status.as_str(), &p.turn_id),
        Payload::ContextProjection(p) => facts.key = Some(p.projection_id.clone()),
        Payload::ModelAttempt(p) => facts.status = p.stop_reason.map(|reason| reason.as_str().to_owned()),
        Payload::Message(p) => facts.key = Some(p.message_id.clone()),
        Payload::StructuredOutput(p) => facts.status = Some(p.variant().to_owned()),
        Payload::Approval(p) => approval(p, facts),
        Payload::Tool(p) => {
            facts.state(p.status.as_str(), &p.tool_call_id);
            facts.tool_name = Some(p.canonical_tool_name.clone());
        }
        Payload::OutputDelivery(p) => delivery(p, facts),
        Payload::Hook(p) => facts.state(p.payload.variant(), &p.hook_id),
        Payload::StreamRule(p) => facts.state(p.record_kind.as_str(), &p.rule_id),
        Payload::RealtimeSession(p) => facts.state(p.status.as_str(), &p.session_id),
        Payload::Isolation(p) => facts.status = Some(p.variant().to_owned()),
        Payload::ChildLifecycle(p) => facts.state(p.status.as_str(), &p.child_run_id),
        Payload::AgentPool(p) => facts.state(p.lifecycle_status.as_str(), &p.pool_id),
        Payload::RunMessage(p) => facts.state(p.delivery_status.as_str(), &p.message_id),
        Payload::Wake(p) => facts.state(p.trigger_status.as_str(), &p.condition_id),
        Payload::Subagent(p) => facts.status = Some(p.variant().to_owned()),
        Payload::ExtensionAction(p) => facts.state(p.status.as_str(), &p.request_id),
        Payload::EffectIntent(p) => {
            facts.state("intent", &p.effect_id);
            facts.tool_name = Some(p.kind.as_str().to_owned());
        }
        Payload::EffectResult(p) => facts.state(p.terminal_status.as_str(), &p.effect_id),
        Payload::Checkpoint(p) => {
            facts.checkpoint_id = Some(p.checkpoint_id.clone());
            // A number of that contract may be beyond what the schema holds.
            facts.covers_journal_seq = Some(JournalSeq::ZERO.saturating_add(p.covers_journal_seq));
            facts.checkpoint_seq = Some(p.checkpoint_seq);
            facts.created_at_millis = Some(p.created_at_millis);
        }
        Payload::TerminalResult(p) => facts.state(&p.terminal_status, &p.effect_id),
        _ => {}
    }
}

/// Fills in the facts of the payloads that Runlog has beyond tool calls and checkpoints, and of the smaller contracts'.
pub(super) fn of_own(payload: &Payload, facts: &mut Facts) {
    match payload {
        Payload::ToolJournalEntry(p) => tool_journal_entry(p, facts),
        Payload::WriteBackStaged(p) => facts.state("staged", &p.txn.to_string()),
        Payload::WriteBackCommitted(p) => facts.state("committed", &p.txn.to_string()),
        Payload::WriteBackRejected(p) => facts.state("rejected", &p.txn.to_string()),
        Payload::CodeEditProposal(p) => facts.state(p.status.as_str(), &p.request_id),
        Payload::Retraction(p) => facts.state("retracted", &p.retracted_record_id),
        Payload::Erasure(_) => facts.status = Some("erased".to_owned()),
        Payload::Fork(p) => facts.state("forked", p.from_run_id.as_str()),
        Payload::RetentionHorizon(p) => facts.key = Some(p.family.clone()),
        _ => {}
    }
}

/// The status is the contract's `ApprovalLifecycleStatus`, whichever of its records says it.
fn approval(approval: &Approval, facts: &mut Facts) {
    let (status, key) = match approval {
        Approval::Unrecognized(other) => (other.variant.as_str(), None),
        Approval::Requested(p) => ("requested", Some(&p.request.approval_request_id)),
        Approval::DispatchIntent(p) => ("dispatch_intent_recorded", Some(&p.request_id)),
        Approval::DispatchResult(p) => (p.lifecycle_status.as_str(), Some(&p.request_id)),
        Approval::Responded(p) => (decision(&p.decision), Some(&p.request_id)),
        Approval::Denied(p) => ("denied", Some(&p.request_id)),
    };
    facts.status = Some(status.to_owned());
    facts.key = key.cloned();
}

fn decision(decision: &ApprovalDecision) -> &str {
    match decision {
        ApprovalDecision::Unrecognized(_) => "unrecognized",
        known => known.variant(),
    }
}

/// The status is the contract's `OutputDispatchStatus`. An event only mirrors what other records say, and has none of it.
fn delivery(delivery: &OutputDelivery, facts: &mut Facts) {
    let (status, key) = match delivery {
        OutputDelivery::Unrecognized(other) => (other.variant.as_str(), None),
        OutputDelivery::Intent(p) => ("requested", Some(&p.delivery_id)),
        OutputDelivery::Result(p) => (p.dispatch_status.as_str(), Some(&p.delivery_id)),
        OutputDelivery::Dedupe(p) => (p.current_status.as_str(), Some(&p.delivery_id)),
        OutputDelivery::Reconciliation(p) => (p.terminal_status.as_str(), Some(&p.delivery_id)),
        OutputDelivery::Event(p) => ("event", Some(&p.delivery_id)),
    };
    facts.status = Some(status.to_owned());
    facts.key = key.cloned();
}

/// The keys that make an effect safe to run again, where its payload has them: those of a new record's envelope.
pub(crate) fn keys(payload: &Payload) -> (Option<String>, Option<String>) {
    match payload {
        Payload::EffectIntent(p) => (p.idempotency_key.clone(), p.dedupe_key.clone()),
        Payload::Tool(p) => (p.idempotency_key.clone(), None),
        Payload::OutputDelivery(OutputDelivery::Intent(p)) => (p.idempotency_key.clone(), Some(p.dedupe_key.clone())),
        _ => (None, None),
    }
}

/// The fingerprint is Runlog's. The entry's own one is another contract's and may hold the arguments in clear, so the key is
/// its hash.
fn tool_journal_entry(entry: &ToolJournalEntry, facts: &mut Facts) {
    facts.key = Some(Sha256::of(entry.call_fingerprint.as_bytes()).to_string());
    facts.status = Some(if entry.is_error { "failed" } else { "completed" }.to_owned());
    facts.tool_name = Some(entry.tool_name.clone());
    facts.fingerprint = canonical::canonicalize(entry.arguments.as_str())
        .ok()
        .map(|arguments| Fingerprint::of(&entry.tool_name, &canonical::args_sha256(&arguments)));
}
