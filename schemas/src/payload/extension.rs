//! Actions of extensions.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectResult},
    payload::policy::RiskClass,
    refs::{DestinationRef, PolicyRef, PrivacyClass, RetentionClass, SourceRef},
    symbols,
};

contract! {
    /// `extension_records::ExtensionActionRecord` of the contract.
    ExtensionAction {
        request_id: String,
        run_id: String,
        maybe turn_id: String,
        action_ref: ExtensionActionRef,
        action_kind: ExtensionActionKind,
        source: SourceRef,
        destination: DestinationRef,
        many policy_refs: PolicyRef,
        risk_class: RiskClass,
        privacy: PrivacyClass,
        retention: RetentionClass,
        many input_refs: String,
        redacted_input_summary: String,
        maybe idempotency_key: String,
        status: ExtensionActionRecordStatus,
        maybe approval_request_ref: String,
        maybe effect_intent: EffectIntent,
        maybe effect_result: EffectResult,
        maybe denied_reason: String,
        maybe unsafe_pending_reason: String,
    }
}
symbols! {
    /// `extension_records::ExtensionActionRecordStatus` of the contract.
    open ExtensionActionRecordStatus {
        Submitted = "submitted", Started = "started", Completed = "completed", Failed = "failed",
        TimedOut = "timed_out", Cancelled = "cancelled", Denied = "denied", Unknown = "unknown",
        RecoveryRequired = "recovery_required",
    }
}
symbols! {
    /// `package_extension::ExtensionActionKind` of the contract.
    open ExtensionActionKind {
        HostAction = "host_action", OutputDelivery = "output_delivery", ToolRequest = "tool_request",
    }
}
contract! {
    /// `package_extension::ExtensionActionRef` of the contract.
    ExtensionActionRef {
        extension_id: String,
        action_id: String,
        capability_id: String,
    }
}
