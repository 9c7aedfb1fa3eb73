//! Agent pools, messages between runs, wake conditions.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectResult},
    refs::{CorrelationEntry, PolicyRef},
    symbols, variants,
};

contract! {
    /// `event::EventCorrelation` of the contract.
    EventCorrelation {
        many entries: CorrelationEntry,
    }
}
symbols! {
    /// `journal::AgentPoolLifecycleStatus` of the contract.
    open AgentPoolLifecycleStatus {
        Created = "created", RunJoined = "run_joined", RunLeft = "run_left",
    }
}
contract! {
    /// `journal::AgentPoolRecord` of the contract.
    AgentPool {
        pool_id: String,
        many member_run_ids: String,
        many topics: String,
        many policy_refs: PolicyRef,
        lifecycle_status: AgentPoolLifecycleStatus,
    }
}
contract! {
    /// `run` of [`RunMessageAddressTargetRecord`].
    RunMessageAddressTargetRun {
        run_id: String,
    }
}
contract! {
    /// `agent` of [`RunMessageAddressTargetRecord`].
    RunMessageAddressTargetAgent {
        agent_id: String,
    }
}
contract! {
    /// `topic` of [`RunMessageAddressTargetRecord`].
    RunMessageAddressTargetTopic {
        topic_id: String,
    }
}
contract! {
    /// `pool` of [`RunMessageAddressTargetRecord`].
    RunMessageAddressTargetPool {
        pool_id: String,
    }
}
variants! {
    /// `journal::RunMessageAddressTargetRecord` of the contract.
    RunMessageAddressTargetRecord: internal("type") {
        1 Run(RunMessageAddressTargetRun) = "run",
        2 Agent(RunMessageAddressTargetAgent) = "agent",
        3 Topic(RunMessageAddressTargetTopic) = "topic",
        4 Pool(RunMessageAddressTargetPool) = "pool",
    }
}
symbols! {
    /// `journal::RunMessageDeliveryStatus` of the contract.
    open RunMessageDeliveryStatus {
        Accepted = "accepted", Delivered = "delivered", Responded = "responded", Failed = "failed",
        TimedOut = "timed_out", Expired = "expired", Cancelled = "cancelled",
    }
}
contract! {
    /// `journal::RunMessageRecord` of the contract.
    RunMessage {
        message_id: String,
        source_run_id: String,
        address_target: RunMessageAddressTargetRecord,
        content_ref: String,
        correlation: EventCorrelation,
        maybe reply_to: String,
        delivery_status: RunMessageDeliveryStatus,
        many delivered_to: String,
        many policy_refs: PolicyRef,
        idempotency_key: String,
        maybe effect_intent: EffectIntent,
        maybe effect_result: EffectResult,
    }
}
contract! {
    /// `journal::WakeRecord` of the contract.
    Wake {
        condition_id: String,
        run_id: String,
        event_filter_fingerprint: String,
        maybe timeout_millis: u64,
        resume_policy: WakeResumeInputPolicyRecord,
        trigger_status: WakeTriggerStatus,
        many policy_refs: PolicyRef,
        idempotency_key: String,
        maybe matched_event_id: String,
    }
}
symbols! {
    /// `journal::WakeResumeInputPolicyRecord` of the contract.
    open WakeResumeInputPolicyRecord {
        MatchingEventRefs = "matching_event_refs", RedactedSummary = "redacted_summary", None = "none",
    }
}
symbols! {
    /// `journal::WakeTriggerStatus` of the contract.
    open WakeTriggerStatus {
        Registered = "registered", Triggered = "triggered", TimedOut = "timed_out", Cancelled = "cancelled",
        Failed = "failed",
    }
}
