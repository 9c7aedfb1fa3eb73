//! Hooks: registration, invocation and answer.

use crate::{
    contract,
    refs::{EntityRef, PolicyRef},
    symbols, variants,
};

contract! {
    /// `hook_records::HookRecord` of the contract.
    Hook {
        schema_version: u32,
        hook_id: String,
        point: HookPoint,
        payload: HookRecordPayload,
    }
}
contract! {
    /// `registered` of [`HookRecordPayload`].
    HookRegistered {
        spec_hash: String,
        executor_ref: String,
        policy_ref: PolicyRef,
    }
}
contract! {
    /// `invocation_started` of [`HookRecordPayload`].
    HookInvocationStarted {
        invocation_id: String,
    }
}
contract! {
    /// `completed` of [`HookRecordPayload`].
    HookCompleted {
        invocation_id: String,
        elapsed_ms: u64,
    }
}
contract! {
    /// `timed_out` of [`HookRecordPayload`].
    HookTimedOut {
        invocation_id: String,
        elapsed_ms: u64,
        failure_policy: String,
    }
}
contract! {
    /// `cancelled` of [`HookRecordPayload`].
    HookCancelled {
        invocation_id: String,
    }
}
contract! {
    /// `failed` of [`HookRecordPayload`].
    HookFailed {
        invocation_id: String,
        failure_policy: String,
        redacted_summary: String,
    }
}
contract! {
    /// `response_decision` of [`HookRecordPayload`].
    HookResponded {
        invocation_id: String,
        decision: HookResponseDecision,
        response_class: HookResponseClass,
        mutation_right_decision: String,
        target_domain_refs: Vec<EntityRef>,
    }
}
variants! {
    /// `hook_records::HookRecordPayload` of the contract.
    HookRecordPayload: internal("type") {
        1 Registered(HookRegistered) = "registered",
        2 InvocationStarted(HookInvocationStarted) = "invocation_started",
        3 Completed(HookCompleted) = "completed",
        4 TimedOut(HookTimedOut) = "timed_out",
        5 Cancelled(HookCancelled) = "cancelled",
        6 Failed(HookFailed) = "failed",
        7 ResponseDecision(HookResponded) = "response_decision",
    }
}
symbols! {
    /// `hook_records::HookResponseDecision` of the contract.
    open HookResponseDecision {
        AcceptedJournaledBeforeApply = "accepted_journaled_before_apply",
        RejectedMutationRight = "rejected_mutation_right", RejectedPointMatrix = "rejected_point_matrix",
        RejectedPolicy = "rejected_policy",
    }
}
symbols! {
    /// `package_hooks::HookPoint` of the contract.
    open HookPoint {
        RunStarting = "run_starting", BeforeContextAssembly = "before_context_assembly",
        AfterContextAssembly = "after_context_assembly", BeforeProviderProjection = "before_provider_projection",
        BeforeModelCall = "before_model_call", OnModelDelta = "on_model_delta", AfterModelCall = "after_model_call",
        BeforeStructuredOutputValidation = "before_structured_output_validation",
        AfterStructuredOutputValidation = "after_structured_output_validation", BeforeToolCall = "before_tool_call",
        AfterToolCall = "after_tool_call", BeforeApprovalRequest = "before_approval_request",
        AfterApprovalDecision = "after_approval_decision", BeforeSubagentStart = "before_subagent_start",
        AfterSubagentTerminal = "after_subagent_terminal",
        BeforeIsolationProcessStart = "before_isolation_process_start",
        AfterIsolationProcessExit = "after_isolation_process_exit",
        OnRunCancelRequested = "on_run_cancel_requested", BeforeRunComplete = "before_run_complete",
        AfterRunTerminal = "after_run_terminal", BeforeCompaction = "before_compaction",
        AfterCompaction = "after_compaction",
    }
}
symbols! {
    /// `package_hooks::HookResponseClass` of the contract.
    open HookResponseClass {
        Observe = "observe", InjectContext = "inject_context", ModifyProjection = "modify_projection",
        RequestCompaction = "request_compaction", ModifyValidationHints = "modify_validation_hints",
        ModifyToolRequest = "modify_tool_request", ModifyApprovalRequest = "modify_approval_request", Deny = "deny",
        RequestApproval = "request_approval", RequestRetry = "request_retry",
        RewriteToolResult = "rewrite_tool_result", ModifySubagentRequest = "modify_subagent_request",
        ModifyProcessRequest = "modify_process_request", ValidateDetach = "validate_detach",
        RequestUsageRollupRepair = "request_usage_rollup_repair", RequestCleanupRepair = "request_cleanup_repair",
        MarkProtectedContext = "mark_protected_context",
        RequestProjectionAuditRepair = "request_projection_audit_repair",
        StopCompletionWithRepairNeeded = "stop_completion_with_repair_needed", StopRun = "stop_run",
    }
}
