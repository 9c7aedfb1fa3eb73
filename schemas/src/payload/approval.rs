//! Approvals of the run-journal contract: requested, dispatched, answered.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectResult},
    payload::policy::{ApprovalDecisionKind, DispatcherScope, EffectClass, RiskClass},
    refs::{DestinationRef, PolicyRef, SourceRef},
    symbols, variants,
};

contract! {
    /// `approved` of [`ApprovalDecision`].
    ApprovalDecisionApproved {
        actor_ref: SourceRef,
    }
}
contract! {
    /// `approved_for_session` of [`ApprovalDecision`].
    ApprovalDecisionApprovedForSession {
        actor_ref: SourceRef,
    }
}
contract! {
    /// `denied` of [`ApprovalDecision`].
    ApprovalDecisionDenied {
        reason_code: String,
        null actor_ref: SourceRef,
    }
}
variants! {
    /// `approval_records::ApprovalDecision` of the contract.
    ApprovalDecision: internal("decision") {
        1 Approved(ApprovalDecisionApproved) = "approved",
        2 ApprovedForSession(ApprovalDecisionApprovedForSession) = "approved_for_session",
        3 Denied(ApprovalDecisionDenied) = "denied",
    }
}
symbols! {
    /// `approval_records::ApprovalLifecycleStatus` of the contract.
    open ApprovalLifecycleStatus {
        Requested = "requested", DispatchIntentRecorded = "dispatch_intent_recorded", Dispatched = "dispatched",
        Approved = "approved", ApprovedForSession = "approved_for_session", Denied = "denied",
        TimedOut = "timed_out", Cancelled = "cancelled", DispatcherUnavailable = "dispatcher_unavailable",
        RecoveryRequired = "recovery_required",
    }
}
contract! {
    /// `requested` of [`Approval`].
    ApprovalRequested {
        request: ApprovalRequest,
    }
}
contract! {
    /// `dispatch_intent` of [`Approval`].
    ApprovalDispatchIntent {
        request_id: String,
        effect_intent: EffectIntent,
    }
}
contract! {
    /// `dispatch_result` of [`Approval`].
    ApprovalDispatchResult {
        request_id: String,
        lifecycle_status: ApprovalLifecycleStatus,
        effect_result: EffectResult,
    }
}
contract! {
    /// `responded` of [`Approval`].
    ApprovalResponded {
        request_id: String,
        decision: ApprovalDecision,
    }
}
contract! {
    /// `denied` of [`Approval`].
    ApprovalDenied {
        request_id: String,
        reason_code: String,
    }
}
variants! {
    /// `approval_records::ApprovalRecord` of the contract.
    Approval: adjacent("record_type", "record") {
        1 Requested(ApprovalRequested) = "requested",
        2 DispatchIntent(ApprovalDispatchIntent) = "dispatch_intent",
        3 DispatchResult(ApprovalDispatchResult) = "dispatch_result",
        4 Responded(ApprovalResponded) = "responded",
        5 Denied(ApprovalDenied) = "denied",
    }
}
contract! {
    /// `approval_records::ApprovalRequest` of the contract.
    ApprovalRequest {
        approval_request_id: String,
        approval_dispatch_effect_id: String,
        run_id: String,
        maybe session_id: String,
        agent_id: String,
        turn_id: String,
        tool_call_id: String,
        source: SourceRef,
        destination: DestinationRef,
        canonical_tool_name: String,
        tool_source: SourceRef,
        effect_class: EffectClass,
        risk_class: RiskClass,
        requested_args_ref: String,
        redacted_args_summary: String,
        policy_refs: Vec<PolicyRef>,
        dispatcher_scope: DispatcherScope,
        timeout_ms: u64,
        allowed_decisions: Vec<ApprovalDecisionKind>,
        created_at_millis: u64,
        runtime_package_fingerprint: String,
    }
}
