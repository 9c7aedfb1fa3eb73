//! Where status and key are in the payloads of other SDKs' contracts.

use crate::payload::{contract::ContractPayload, payload_type::PayloadType};

/// The source of a fact of a contract payload.
enum Source {
    Nowhere,
    /// This text.
    Is(&'static str),
    /// The text at this path ([`ContractPayload::text`]).
    At(&'static str),
}

/// Any variant, also a payload without variants.
const ANY: &str = "";

/// The sources of status and key, by payload type and variant.
const SOURCES: [(PayloadType, &str, Source, Source); 36] = {
    use PayloadType as Of;
    use Source::{At, Is, Nowhere};
    [
        (Of::TurnLifecycle, ANY, At("status"), At("turn_id")),
        (Of::ContextProjection, ANY, Nowhere, At("projection_id")),
        (Of::ModelAttempt, ANY, At("stop_reason"), Nowhere),
        (Of::Message, ANY, Nowhere, At("message_id")),
        (Of::StructuredOutput, ANY, At(""), Nowhere),
        // The status is the contract's `ApprovalLifecycleStatus`, for each of its record variants.
        (Of::Approval, "requested", Is("requested"), At("request/approval_request_id")),
        (Of::Approval, "dispatch_intent", Is("dispatch_intent_recorded"), At("request_id")),
        (Of::Approval, "dispatch_result", At("lifecycle_status"), At("request_id")),
        (Of::Approval, "responded", At("decision"), At("request_id")),
        (Of::Approval, "denied", Is("denied"), At("request_id")),
        (Of::Approval, ANY, At(""), Nowhere),
        (Of::Tool, ANY, At("status"), At("tool_call_id")),
        // The status is the contract's `OutputDispatchStatus`. An event only mirrors other records and has no such status.
        (Of::OutputDelivery, "intent", Is("requested"), At("delivery_id")),
        (Of::OutputDelivery, "result", At("dispatch_status"), At("delivery_id")),
        (Of::OutputDelivery, "dedupe", At("current_status"), At("delivery_id")),
        (Of::OutputDelivery, "reconciliation", At("terminal_status"), At("delivery_id")),
        (Of::OutputDelivery, "event", Is("event"), At("delivery_id")),
        (Of::OutputDelivery, ANY, At(""), Nowhere),
        (Of::Hook, ANY, At("payload"), At("hook_id")),
        (Of::StreamRule, ANY, At("record_kind"), At("rule_id")),
        (Of::RealtimeSession, ANY, At("status"), At("session_id")),
        (Of::Isolation, ANY, At(""), Nowhere),
        (Of::ChildLifecycle, ANY, At("status"), At("child_run_id")),
        (Of::AgentPool, ANY, At("lifecycle_status"), At("pool_id")),
        (Of::RunMessage, ANY, At("delivery_status"), At("message_id")),
        (Of::Wake, ANY, At("trigger_status"), At("condition_id")),
        (Of::Subagent, ANY, At(""), Nowhere),
        (Of::ExtensionAction, ANY, At("status"), At("request_id")),
        (Of::EffectIntent, ANY, Is("intent"), At("effect_id")),
        (Of::EffectResult, ANY, At("terminal_status"), At("effect_id")),
        (Of::Checkpoint, ANY, Nowhere, Nowhere),
        (Of::Recovery, ANY, Nowhere, Nowhere),
        (Of::TerminalResult, ANY, At("terminal_status"), At("effect_id")),
        (Of::WriteBackStaged, ANY, Is("staged"), At("txn")),
        (Of::WriteBackCommitted, ANY, Is("committed"), At("txn")),
        (Of::WriteBackRejected, ANY, Is("rejected"), At("txn")),
    ]
};

/// The decisions on an approval.
const DECISIONS: [&str; 3] = ["approved", "approved_for_session", "denied"];

/// Returns the status and the key of a payload of another SDK's contract.
pub(super) fn status_and_key(payload: &ContractPayload) -> (Option<String>, Option<String>) {
    let (payload_type, variant) = (payload.payload_type(), payload.variant());
    let fits = |of: PayloadType, name: &str| of == payload_type && (name == ANY || Some(name) == variant);
    let Some((.., status, key)) = SOURCES.iter().find(|(of, name, ..)| fits(*of, name)) else { return (None, None) };
    let (mut status, key) = (status.read(payload), key.read(payload));
    if payload_type == PayloadType::Approval && variant == Some("responded") {
        // A decision of a later version is `unrecognized`.
        let is_known = |status: &String| DECISIONS.contains(&status.as_str());
        status = status.map(|status| if is_known(&status) { status } else { "unrecognized".into() });
    }
    (status, key)
}

impl Source {
    fn read(&self, payload: &ContractPayload) -> Option<String> {
        match self {
            Self::Nowhere => None,
            Self::Is(text) => Some((*text).to_owned()),
            Self::At(path) => payload.text(path),
        }
    }
}
