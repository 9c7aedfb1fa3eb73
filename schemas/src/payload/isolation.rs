//! Isolated execution environments: request, preparation, run and cleanup.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectResult},
    payload::policy::RetryClassification,
    refs::{DestinationRef, PolicyRef, SourceRef},
    symbols, variants,
};

symbols! {
    /// `application_isolation::PolicyDecisionScope` of the contract.
    open PolicyDecisionScope {
        IsolationDowngrade = "IsolationDowngrade", ToolApproval = "ToolApproval",
    }
}
symbols! {
    /// `package_isolation::IsolationCapability` of the contract.
    open IsolationCapability {
        ReadOnlyRoot = "read_only_root", WritableLayer = "writable_layer",
        MountReadOnlyEnforcement = "mount_read_only_enforcement",
        SingleFileMountExpansionAudit = "single_file_mount_expansion_audit",
        NoNetworkGuarantee = "no_network_guarantee", EgressAllowlist = "egress_allowlist",
        SecretIsolation = "secret_isolation", SecretMount = "secret_mount", SecretRedaction = "secret_redaction",
        ProcessTimeout = "process_timeout", ProcessSignal = "process_signal", ProcessRlimits = "process_rlimits",
        ContentRefIo = "content_ref_io", IoRedaction = "io_redaction", ProcessStats = "process_stats",
        Cleanup = "cleanup", Detach = "detach", Reclaim = "reclaim", AuditLog = "audit_log",
    }
}
symbols! {
    /// `package_isolation::IsolationClass` of the contract.
    open IsolationClass {
        HostProcess = "host_process", Sandbox = "sandbox", Container = "container",
        LightweightVm = "lightweight_vm", RemoteSandbox = "remote_sandbox",
    }
}
symbols! {
    /// `package_isolation::IsolationTrustField` of the contract.
    open IsolationTrustField {
        Locality = "locality", Tenancy = "tenancy", Auditability = "auditability", Cleanup = "cleanup",
        DataResidency = "data_residency", SecretIsolation = "secret_isolation",
    }
}
symbols! {
    /// `ports_isolation::CleanupStatus` of the contract.
    open CleanupStatus {
        Completed = "completed", RepairNeeded = "repair_needed",
    }
}
contract! {
    /// `ports_isolation::ProcessIoFrame` of the contract.
    ProcessIoFrame {
        stream_ref: String,
        stream: ProcessIoStream,
        cursor: u64,
        byte_count: u64,
        content_hash: String,
        many content_refs: String,
        raw_content_present: bool,
        truncated: bool,
        redacted_summary: String,
    }
}
symbols! {
    /// `ports_isolation::ProcessIoStream` of the contract.
    open ProcessIoStream {
        Stdin = "stdin", Stdout = "stdout", Stderr = "stderr",
    }
}
contract! {
    /// `records_isolation::IsolationCapabilityMatchRecord` of the contract.
    IsolationCapabilityMatchRecord {
        environment_id: String,
        adapter_ref: String,
        requested_class: IsolationClass,
        selected_class: IsolationClass,
        many missing_capabilities: IsolationCapability,
        many trust_gaps: IsolationTrustField,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationCapabilityReportedRecord` of the contract.
    IsolationCapabilityReportedRecord {
        environment_id: String,
        adapter_ref: String,
        capability_report_ref: String,
        health: String,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationCleanupIntentRecord` of the contract.
    IsolationCleanupIntentRecord {
        environment_id: String,
        cleanup_plan_ref: String,
        effect_intent: EffectIntent,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationCleanupResultRecord` of the contract.
    IsolationCleanupResultRecord {
        environment_id: String,
        cleanup_plan_ref: String,
        status: CleanupStatus,
        effect_result: EffectResult,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationDowngradeDecisionRecord` of the contract.
    IsolationDowngradeDecisionRecord {
        environment_id: String,
        adapter_ref: String,
        requested_class: IsolationClass,
        selected_class: IsolationClass,
        many capability_gaps: IsolationCapability,
        many trust_gaps: IsolationTrustField,
        approved: bool,
        null policy_decision_scope: PolicyDecisionScope,
        many policy_decision_refs: String,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationEnvironmentPrepareIntentRecord` of the contract.
    IsolationEnvironmentPrepareIntentRecord {
        environment_id: String,
        effect_intent: EffectIntent,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationEnvironmentPrepareResultRecord` of the contract.
    IsolationEnvironmentPrepareResultRecord {
        environment_id: String,
        prepared_environment_ref: String,
        effect_result: EffectResult,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationFailureRecord` of the contract.
    IsolationFailureRecord {
        environment_id: String,
        null adapter_ref: String,
        reason: String,
        retry_classification: RetryClassification,
    }
}
contract! {
    /// `records_isolation::IsolationProcessStartIntentRecord` of the contract.
    IsolationProcessStartIntentRecord {
        environment_id: String,
        process_ref: String,
        effect_intent: EffectIntent,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationProcessStartResultRecord` of the contract.
    IsolationProcessStartResultRecord {
        environment_id: String,
        process_ref: String,
        effect_result: EffectResult,
        many content_refs: String,
        redacted_summary: String,
    }
}
contract! {
    /// `records_isolation::IsolationProcessStatsRecord` of the contract.
    IsolationProcessStatsRecord {
        environment_id: String,
        snapshot_ref: String,
        redacted_summary: String,
    }
}
variants! {
    /// `records_isolation::IsolationRecord` of the contract.
    Isolation: adjacent("record_type", "record") {
        1 Requested(IsolationRequestedRecord) = "requested",
        2 AdapterCapabilityReported(IsolationCapabilityReportedRecord) = "adapter_capability_reported",
        3 CapabilityMatch(IsolationCapabilityMatchRecord) = "capability_match",
        4 DowngradeDecision(IsolationDowngradeDecisionRecord) = "downgrade_decision",
        5 EnvironmentPrepareIntent(IsolationEnvironmentPrepareIntentRecord) = "environment_prepare_intent",
        6 EnvironmentPrepareResult(IsolationEnvironmentPrepareResultRecord) = "environment_prepare_result",
        7 ProcessStartIntent(IsolationProcessStartIntentRecord) = "process_start_intent",
        8 ProcessStartResult(IsolationProcessStartResultRecord) = "process_start_result",
        9 ProcessIoFrame(ProcessIoFrame) = "process_io_frame",
        10 ProcessStatsSnapshot(IsolationProcessStatsRecord) = "process_stats_snapshot",
        11 CleanupIntent(IsolationCleanupIntentRecord) = "cleanup_intent",
        12 CleanupResult(IsolationCleanupResultRecord) = "cleanup_result",
        13 Failed(IsolationFailureRecord) = "failed",
    }
}
contract! {
    /// `records_isolation::IsolationRequestedRecord` of the contract.
    IsolationRequestedRecord {
        environment_id: String,
        requirement_ref: String,
        requested_class: IsolationClass,
        source: SourceRef,
        destination: DestinationRef,
        many policy_refs: PolicyRef,
        redacted_summary: String,
    }
}
