//! Subagents and the lifecycles of children.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectResult},
    payload::event_kind::EventKind,
    refs::{PolicyRef, PrivacyClass},
    symbols, variants,
};

contract! {
    /// `none` of [`ContextHandoffPolicy`].
    ContextHandoffPolicyNone {}
}
contract! {
    /// `summary_only` of [`ContextHandoffPolicy`].
    ContextHandoffPolicySummaryOnly {
        summary_ref: String,
        max_tokens: u64,
        policy_ref: PolicyRef,
    }
}
contract! {
    /// `selected_refs` of [`ContextHandoffPolicy`].
    ContextHandoffPolicySelectedRefs {
        refs: Vec<String>,
        policy_ref: PolicyRef,
    }
}
contract! {
    /// `full_history_with_policy` of [`ContextHandoffPolicy`].
    ContextHandoffPolicyFullHistoryWithPolicy {
        policy_ref: PolicyRef,
        projection_audit_required: bool,
    }
}
variants! {
    /// `package::subagent::ContextHandoffPolicy` of the contract.
    ContextHandoffPolicy: internal("type") {
        1 None(ContextHandoffPolicyNone) = "none",
        2 SummaryOnly(ContextHandoffPolicySummaryOnly) = "summary_only",
        3 SelectedRefs(ContextHandoffPolicySelectedRefs) = "selected_refs",
        4 FullHistoryWithPolicy(ContextHandoffPolicyFullHistoryWithPolicy) = "full_history_with_policy",
    }
}
contract! {
    /// `inherit_allowlist` of [`SubagentToolPolicy`].
    SubagentToolPolicyInheritAllowlist {}
}
contract! {
    /// `read_only` of [`SubagentToolPolicy`].
    SubagentToolPolicyReadOnly {}
}
contract! {
    /// `no_tools` of [`SubagentToolPolicy`].
    SubagentToolPolicyNoTools {}
}
contract! {
    /// `custom_allowlist` of [`SubagentToolPolicy`].
    SubagentToolPolicyCustomAllowlist {
        capability_ids: Vec<String>,
    }
}
variants! {
    /// `package::subagent::SubagentToolPolicy` of the contract.
    SubagentToolPolicy: internal("type") {
        1 InheritAllowlist(SubagentToolPolicyInheritAllowlist) = "inherit_allowlist",
        2 ReadOnly(SubagentToolPolicyReadOnly) = "read_only",
        3 NoTools(SubagentToolPolicyNoTools) = "no_tools",
        4 CustomAllowlist(SubagentToolPolicyCustomAllowlist) = "custom_allowlist",
    }
}
symbols! {
    /// `subagent_records::ChildArtifactKind` of the contract.
    open ChildArtifactKind {
        SubagentRun = "subagent_run",
    }
}
symbols! {
    /// `subagent_records::ChildLifecycleAction` of the contract.
    open ChildLifecycleAction {
        ShutdownIntent = "shutdown_intent", ShutdownCompleted = "shutdown_completed",
        DetachIntent = "detach_intent", Detached = "detached",
    }
}
contract! {
    /// `subagent_records::ChildLifecycleRecord` of the contract.
    ChildLifecycle {
        child_run_id: String,
        parent_run_id: String,
        artifact_kind: ChildArtifactKind,
        action: ChildLifecycleAction,
        status: ChildLifecycleStatus,
        many policy_refs: PolicyRef,
        maybe host_ack_ref: String,
        maybe reclaim_policy_ref: PolicyRef,
        maybe effect_intent: EffectIntent,
        maybe effect_result: EffectResult,
        idempotency_key: String,
    }
}
symbols! {
    /// `subagent_records::ChildLifecycleStatus` of the contract.
    open ChildLifecycleStatus {
        Requested = "requested", Completed = "completed", Detached = "detached", Failed = "failed",
    }
}
contract! {
    /// `subagent_records::RunJournalRef` of the contract.
    RunJournalRef {
        run_id: String,
        journal_partition_ref: String,
    }
}
contract! {
    /// `subagent_records::SubagentCompletedRecord` of the contract.
    SubagentCompletedRecord {
        child_run_id: String,
        parent_run_id: String,
        terminal_status: SubagentTerminalStatus,
        maybe result_ref: String,
        maybe error_ref: String,
        policy_outcome: String,
        effect_result: EffectResult,
    }
}
contract! {
    /// `subagent_records::SubagentHandoffRecord` of the contract.
    SubagentHandoffRecord {
        request_id: String,
        parent_run_id: String,
        child_run_id: String,
        handoff_policy: ContextHandoffPolicy,
        many selected_content_refs: String,
        maybe projection_audit_ref: String,
        many policy_refs: PolicyRef,
        redaction_policy_id: String,
    }
}
variants! {
    /// `subagent_records::SubagentRecord` of the contract.
    Subagent: adjacent("record_type", "record") {
        1 Started(SubagentStartedRecord) = "started",
        2 Handoff(SubagentHandoffRecord) = "handoff",
        3 WrappedEvent(SubagentWrappedEventRecord) = "wrapped_event",
        4 UsageRolledUp(SubagentUsageRolledUpRecord) = "usage_rolled_up",
        5 Completed(SubagentCompletedRecord) = "completed",
        6 ChildLifecycle(ChildLifecycle) = "child_lifecycle",
    }
}
contract! {
    /// `subagent_records::SubagentStartedRecord` of the contract.
    SubagentStartedRecord {
        request_id: String,
        parent_run_id: String,
        child_run_id: String,
        parent_tool_call_id: String,
        child_agent_id: String,
        child_package_fingerprint: String,
        child_journal_ref: RunJournalRef,
        handoff_policy: ContextHandoffPolicy,
        tool_policy: SubagentToolPolicy,
        many message_ids: String,
        many wake_condition_ids: String,
        effect_intent: EffectIntent,
    }
}
symbols! {
    /// `subagent_records::SubagentTerminalStatus` of the contract.
    open SubagentTerminalStatus {
        Completed = "completed", Failed = "failed", Cancelled = "cancelled", Detached = "detached",
    }
}
contract! {
    /// `subagent_records::SubagentUsageRolledUpRecord` of the contract.
    SubagentUsageRolledUpRecord {
        child_run_id: String,
        parent_run_id: String,
        child_usage_ref: String,
        parent_usage_ref: String,
        input_tokens: u64,
        output_tokens: u64,
        total_tokens: u64,
        maybe cost_micros: u64,
        maybe currency: String,
        terminal_status: SubagentTerminalStatus,
    }
}
contract! {
    /// `subagent_records::SubagentWrappedEventRecord` of the contract.
    SubagentWrappedEventRecord {
        parent_run_id: String,
        child_run_id: String,
        child_agent_id: String,
        original_child_event_id: String,
        original_child_event_kind: EventKind,
        wrapped_event_ref: String,
        maybe child_journal_cursor: String,
        child_journal_ref: RunJournalRef,
        privacy: PrivacyClass,
    }
}
