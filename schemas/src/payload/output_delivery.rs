//! Deliveries of output to sinks: intent, result, dedupe, reconciliation.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectKind, EffectResult},
    payload::policy::RetryClassification,
    refs::{DestinationRef, PolicyRef, PrivacyClass, RetentionClass},
    symbols, variants,
};

symbols! {
    /// `output_delivery::OutputContentMode` of the contract.
    open OutputContentMode {
        ContentRefsOnly = "content_refs_only", RedactedSummary = "redacted_summary",
        RawContentIfPolicyAllows = "raw_content_if_policy_allows",
    }
}
contract! {
    /// `output_delivery::OutputDeliveryDedupeRecord` of the contract.
    OutputDeliveryDedupeRecord {
        delivery_id: String,
        dedupe_key: String,
        maybe prior_delivery_id: String,
        maybe prior_external_operation_id: String,
        prior_terminal_status: OutputDispatchStatus,
        current_status: OutputDispatchStatus,
        redacted_summary: String,
        many policy_refs: PolicyRef,
    }
}
symbols! {
    /// `output_delivery::OutputDeliveryEventKind` of the contract.
    open OutputDeliveryEventKind {
        OutputDispatchRequested = "output_dispatch_requested",
        OutputDispatchCompleted = "output_dispatch_completed", OutputDispatchFailed = "output_dispatch_failed",
        OutputDispatchDeduped = "output_dispatch_deduped",
    }
}
contract! {
    /// `output_delivery::OutputDeliveryEventRecord` of the contract.
    OutputDeliveryEventRecord {
        event_kind: OutputDeliveryEventKind,
        delivery_id: String,
        destination: DestinationRef,
        sink_ref: String,
        dedupe_key: String,
        maybe source_message_id: String,
        dispatch_status: OutputDispatchStatus,
        maybe ack_ref: String,
        maybe reconciliation_status: ReplayRepairDecision,
        redacted_summary: String,
    }
}
contract! {
    /// `output_delivery::OutputDeliveryIntentRecord` of the contract.
    OutputDeliveryIntentRecord {
        delivery_id: String,
        effect_intent: EffectIntent,
        destination: DestinationRef,
        sink_ref: String,
        desired_sink_ref: String,
        delivery_kind: OutputDeliveryKind,
        content_mode: OutputContentMode,
        many content_refs: String,
        redacted_summary: String,
        privacy: PrivacyClass,
        retention: RetentionClass,
        many policy_refs: PolicyRef,
        maybe idempotency_key: String,
        dedupe_key: String,
        runtime_package_fingerprint: String,
    }
}
contract! {
    /// `stream_chunk` of [`OutputDeliveryKind`].
    OutputDeliveryKindStreamChunk {
        stream_cursor: String,
        chunk_index: u64,
    }
}
contract! {
    /// `final_message` of [`OutputDeliveryKind`].
    OutputDeliveryKindFinalMessage {}
}
contract! {
    /// `final_validated_output` of [`OutputDeliveryKind`].
    OutputDeliveryKindFinalValidatedOutput {}
}
variants! {
    /// `output_delivery::OutputDeliveryKind` of the contract.
    OutputDeliveryKind: internal("type") {
        1 StreamChunk(OutputDeliveryKindStreamChunk) = "stream_chunk",
        2 FinalMessage(OutputDeliveryKindFinalMessage) = "final_message",
        3 FinalValidatedOutput(OutputDeliveryKindFinalValidatedOutput) = "final_validated_output",
    }
}
contract! {
    /// `output_delivery::OutputDeliveryReconciliationRecord` of the contract.
    OutputDeliveryReconciliationRecord {
        delivery_id: String,
        intent_record_id: String,
        side_effect_kind: EffectKind,
        maybe idempotency_key: String,
        dedupe_key: String,
        maybe external_operation_id: String,
        terminal_status: OutputDispatchStatus,
        terminal_append_status: TerminalAppendStatus,
        maybe reconciliation_adapter: String,
        unsafe_pending_reason: String,
        replay_decision: ReplayRepairDecision,
        resend_allowed: bool,
    }
}
variants! {
    /// `output_delivery::OutputDeliveryRecord` of the contract.
    OutputDelivery: adjacent("record_type", "record") {
        1 Intent(OutputDeliveryIntentRecord) = "intent",
        2 Result(OutputDeliveryResultRecord) = "result",
        3 Dedupe(OutputDeliveryDedupeRecord) = "dedupe",
        4 Reconciliation(OutputDeliveryReconciliationRecord) = "reconciliation",
        5 Event(OutputDeliveryEventRecord) = "event",
    }
}
contract! {
    /// `output_delivery::OutputDeliveryResultRecord` of the contract.
    OutputDeliveryResultRecord {
        delivery_id: String,
        effect_result: EffectResult,
        destination: DestinationRef,
        sink_ref: String,
        dispatch_status: OutputDispatchStatus,
        maybe ack_ref: String,
        maybe external_operation_id: String,
        maybe error_ref: String,
        many content_refs: String,
        redacted_summary: String,
        retry_classification: RetryClassification,
    }
}
symbols! {
    /// `output_delivery::OutputDispatchStatus` of the contract.
    open OutputDispatchStatus {
        Requested = "requested", Completed = "completed", Failed = "failed", Deduped = "deduped",
        HostConfigurationNeeded = "host_configuration_needed", PolicyDenied = "policy_denied",
        SkippedOptional = "skipped_optional", ReconciliationNeeded = "reconciliation_needed",
    }
}
symbols! {
    /// `output_delivery::ReplayRepairDecision` of the contract.
    open ReplayRepairDecision {
        CompletedByDedupeProof = "completed_by_dedupe_proof",
        RequiresHostReconciliation = "requires_host_reconciliation", UnsafePending = "unsafe_pending",
    }
}
symbols! {
    /// `output_delivery::TerminalAppendStatus` of the contract.
    open TerminalAppendStatus {
        NotAttempted = "not_attempted", Appended = "appended", AppendFailed = "append_failed",
    }
}
