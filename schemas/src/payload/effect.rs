//! Effects and the records for recovery: intents, results, checkpoints, markers.

use crate::{
    contract,
    refs::{DestinationRef, EntityRef, PolicyRef, SourceRef},
    symbols,
};

contract! {
    /// `effect::EffectIntent` of the contract.
    EffectIntent {
        effect_id: String,
        kind: EffectKind,
        subject_ref: EntityRef,
        source: SourceRef,
        maybe destination: DestinationRef,
        many policy_refs: PolicyRef,
        maybe idempotency_key: String,
        maybe dedupe_key: String,
        many content_refs: String,
        redacted_summary: String,
    }
}
symbols! {
    /// `effect::EffectKind` of the contract.
    open EffectKind {
        ProviderRequest = "provider_request", ToolExecution = "tool_execution",
        ApprovalDispatch = "approval_dispatch", MemoryWrite = "memory_write", ExtensionAction = "extension_action",
        OutputDelivery = "output_delivery", FileWrite = "file_write", ProcessStart = "process_start",
        ProcessSignal = "process_signal", IsolatedProcessStart = "isolated_process_start",
        ChildAgentStart = "child_agent_start", RunMessageDelivery = "run_message_delivery",
        ChildArtifactShutdown = "child_artifact_shutdown", DetachTransfer = "detach_transfer",
        HookMutation = "hook_mutation",
    }
}
contract! {
    /// `effect::EffectResult` of the contract.
    EffectResult {
        effect_id: String,
        terminal_status: EffectTerminalStatus,
        maybe external_operation_id: String,
        maybe reconciliation_ref: String,
        maybe error_ref: String,
        many content_refs: String,
        redacted_summary: String,
    }
}
symbols! {
    /// `effect::EffectTerminalStatus` of the contract.
    open EffectTerminalStatus {
        Completed = "completed", Failed = "failed", TimedOut = "timed_out", Cancelled = "cancelled",
        DeniedBeforeExecution = "denied_before_execution", Unknown = "unknown",
    }
}
contract! {
    /// `journal::PendingSideEffect` of the contract.
    PendingSideEffect {
        effect_id: String,
        intent_record_id: String,
        maybe idempotency_key: String,
        maybe dedupe_key: String,
        unsafe_pending_reason: String,
    }
}
contract! {
    /// `journal::RecoveryMarker` of the contract.
    Recovery {
        unsafe_pending: Vec<PendingSideEffect>,
        recovery_reason: String,
        many policy_refs: PolicyRef,
    }
}
contract! {
    /// `journal::RunCheckpoint` of the contract.
    Checkpoint {
        checkpoint_id: String,
        run_id: String,
        checkpoint_seq: u64,
        covers_journal_seq: u64,
        loop_state: String,
        maybe turn_id: String,
        maybe attempt_id: String,
        runtime_package_fingerprint: String,
        many pending_side_effects: PendingSideEffect,
        many pending_approvals: String,
        many content_ref_manifest: String,
        state_hash: String,
        created_at_millis: u64,
        writer_id: String,
    }
}
contract! {
    /// `journal::TerminalResultMarker` of the contract.
    TerminalResult {
        effect_id: String,
        result_record_id: String,
        terminal_status: String,
    }
}
