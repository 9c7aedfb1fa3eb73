//! Decisions of policies: outcomes, reasons, and the classes for decisions.

use crate::{
    contract,
    refs::{DestinationRef, EntityRef, PolicyRef, PrivacyClass, RetentionClass, SourceRef},
    symbols, variants,
};

symbols! {
    /// `error::RetryClassification` of the contract.
    open RetryClassification {
        Retryable = "Retryable", NotRetryable = "NotRetryable", RepairNeeded = "RepairNeeded",
        UserActionNeeded = "UserActionNeeded", HostConfigurationNeeded = "HostConfigurationNeeded",
    }
}
symbols! {
    /// `policy::ApprovalDecisionKind` of the contract.
    open ApprovalDecisionKind {
        Approved = "Approved", ApprovedForSession = "ApprovedForSession", Denied = "Denied",
    }
}
contract! {
    /// `policy::ApprovalRequestSpec` of the contract.
    ApprovalRequestSpec {
        source: SourceRef,
        destination: DestinationRef,
        effect_class: EffectClass,
        risk_class: RiskClass,
        dispatcher_scope: DispatcherScope,
        timeout_ms: u64,
        allowed_decisions: Vec<ApprovalDecisionKind>,
        policy_refs: Vec<PolicyRef>,
    }
}
contract! {
    /// `policy::DecisionReason` of the contract.
    DecisionReason {
        code: String,
        null redacted_summary: String,
        policy_refs: Vec<PolicyRef>,
    }
}
symbols! {
    /// `policy::DispatcherScope` of the contract.
    open DispatcherScope {
        Host = "Host", SourceScoped = "SourceScoped", Headless = "Headless",
    }
}
symbols! {
    /// `policy::EffectClass` of the contract.
    open EffectClass {
        Read = "Read", Write = "Write", Process = "Process", Network = "Network",
        ApprovalDispatch = "ApprovalDispatch", OutputDelivery = "OutputDelivery",
    }
}
contract! {
    /// `Allow` of [`PolicyDecision`].
    PolicyDecisionAllow {
        reason: DecisionReason,
    }
}
contract! {
    /// `Deny` of [`PolicyDecision`].
    PolicyDecisionDeny {
        reason: DecisionReason,
    }
}
contract! {
    /// `Ask` of [`PolicyDecision`].
    PolicyDecisionAsk {
        approval: ApprovalRequestSpec,
    }
}
contract! {
    /// `Modify` of [`PolicyDecision`].
    PolicyDecisionModify {
        modification: ToolRequestModification,
    }
}
contract! {
    /// `Defer` of [`PolicyDecision`].
    PolicyDecisionDefer {
        resume_policy: ResumePolicy,
    }
}
contract! {
    /// `Interrupt` of [`PolicyDecision`].
    PolicyDecisionInterrupt {
        reason: DecisionReason,
    }
}
variants! {
    /// `policy::PolicyDecision` of the contract.
    PolicyDecision: external() {
        1 Allow(PolicyDecisionAllow) = "Allow",
        2 Deny(PolicyDecisionDeny) = "Deny",
        3 Ask(PolicyDecisionAsk) = "Ask",
        4 Modify(PolicyDecisionModify) = "Modify",
        5 Defer(PolicyDecisionDefer) = "Defer",
        6 Interrupt(PolicyDecisionInterrupt) = "Interrupt",
    }
}
contract! {
    /// `policy::PolicyOutcome` of the contract.
    PolicyOutcome {
        stage: PolicyStage,
        decision: PolicyDecision,
        null subject: EntityRef,
        null source: SourceRef,
        null destination: DestinationRef,
        policy_refs: Vec<PolicyRef>,
        privacy: PrivacyClass,
        retention: RetentionClass,
    }
}
symbols! {
    /// `policy::PolicyStage` of the contract.
    open PolicyStage {
        Input = "Input", ModelInputProjection = "ModelInputProjection", PreTool = "PreTool", PostTool = "PostTool",
        Output = "Output", Handoff = "Handoff", Stream = "Stream", Delivery = "Delivery",
    }
}
contract! {
    /// `policy::ResumePolicy` of the contract.
    ResumePolicy {
        null resume_after_ms: u64,
        reason: DecisionReason,
    }
}
symbols! {
    /// `policy::RiskClass` of the contract.
    open RiskClass {
        Low = "Low", Medium = "Medium", High = "High", Critical = "Critical",
    }
}
contract! {
    /// `policy::ToolRequestModification` of the contract.
    ToolRequestModification {
        redacted_summary: String,
        policy_refs: Vec<PolicyRef>,
    }
}
