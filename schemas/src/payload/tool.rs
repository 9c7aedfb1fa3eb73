//! The run-journal contract's own tool calls, by reference to content.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectResult},
    payload::policy::{EffectClass, PolicyOutcome, RiskClass},
    refs::{DestinationRef, PolicyRef, PrivacyClass, RetentionClass, SourceRef},
    symbols,
};

contract! {
    /// `capability::PackageSidecarRef` of the contract.
    PackageSidecarRef {
        sidecar_id: String,
        kind: String,
        version: String,
        maybe content_hash: String,
    }
}
contract! {
    /// `tool_records::ToolCallRecord` of the contract.
    Tool {
        tool_call_id: String,
        run_id: String,
        maybe turn_id: String,
        capability_id: String,
        canonical_tool_name: String,
        namespace: String,
        source: SourceRef,
        destination: DestinationRef,
        maybe executor_ref: String,
        many policy_refs: PolicyRef,
        many sidecar_refs: PackageSidecarRef,
        effect_class: EffectClass,
        risk_class: RiskClass,
        privacy: PrivacyClass,
        retention: RetentionClass,
        many requested_args_refs: String,
        redacted_args_summary: String,
        maybe original_redacted_args_summary: String,
        maybe patched_redacted_args_summary: String,
        many result_content_refs: String,
        maybe redacted_result_summary: String,
        maybe original_redacted_result_summary: String,
        maybe patched_redacted_result_summary: String,
        maybe hook_id: String,
        maybe idempotency_key: String,
        status: ToolCallRecordStatus,
        maybe policy_outcome: PolicyOutcome,
        maybe effect_intent: EffectIntent,
        maybe effect_result: EffectResult,
        maybe unsafe_pending_reason: String,
    }
}
symbols! {
    /// `tool_records::ToolCallRecordStatus` of the contract.
    open ToolCallRecordStatus {
        Requested = "requested", RequestModified = "request_modified", IntentRecorded = "intent_recorded",
        Completed = "completed", Failed = "failed", TimedOut = "timed_out", Cancelled = "cancelled",
        DeniedBeforeExecution = "denied_before_execution", ResultRewritten = "result_rewritten",
        Unknown = "unknown", RecoveryRequired = "recovery_required",
    }
}
