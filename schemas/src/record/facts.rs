//! The facts and kinds of the payloads that other contracts bring, and of those that change what a run is.

use super::{Facts, RecordKind};
use crate::{
    canonical,
    id::{Fingerprint, JournalSeq},
    payload::{Payload, approval::Approval, observed::ToolJournalEntry, output_delivery::OutputDelivery},
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
        Payload::EffectIntent(p) => facts.state("intent", &p.effect_id),
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

fn approval(approval: &Approval, facts: &mut Facts) {
    let key = match approval {
        Approval::Unrecognized(_) => None,
        Approval::Requested(p) => Some(&p.request.approval_request_id),
        Approval::DispatchIntent(p) => Some(&p.request_id),
        Approval::DispatchResult(p) => Some(&p.request_id),
        Approval::Responded(p) => Some(&p.request_id),
        Approval::Denied(p) => Some(&p.request_id),
    };
    facts.status = Some(approval.variant().to_owned());
    facts.key = key.cloned();
}

fn delivery(delivery: &OutputDelivery, facts: &mut Facts) {
    let key = match delivery {
        OutputDelivery::Unrecognized(_) => None,
        OutputDelivery::Intent(p) => Some(&p.delivery_id),
        OutputDelivery::Result(p) => Some(&p.delivery_id),
        OutputDelivery::Dedupe(p) => Some(&p.delivery_id),
        OutputDelivery::Reconciliation(p) => Some(&p.delivery_id),
        OutputDelivery::Event(p) => Some(&p.delivery_id),
    };
    facts.status = Some(delivery.variant().to_owned());
    facts.key = key.cloned();
}

/// The fingerprint is Runlog's: the entry's own one is another contract's, and stays in the payload.
fn tool_journal_entry(entry: &ToolJournalEntry, facts: &mut Facts) {
    facts.status = Some(if entry.is_error { "failed" } else { "completed" }.to_owned());
    facts.tool_name = Some(entry.tool_name.clone());
    facts.fingerprint = canonical::canonicalize(entry.arguments.as_str())
        .ok()
        .map(|arguments| Fingerprint::of(&entry.tool_name, &canonical::args_sha256(&arguments)));
}
