//! Realtime sessions.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectResult},
    payload::stream_rule::{StreamChannel, StreamCursor, StreamDirection},
    refs::{PolicyRef, PrivacyClass, RetentionClass},
    symbols,
};

symbols! {
    /// `realtime_records::RealtimeBackpressureAction` of the contract.
    open RealtimeBackpressureAction {
        Block = "block", Gate = "gate", DropNoncritical = "drop_noncritical", Summarize = "summarize",
        FailSend = "fail_send",
    }
}
contract! {
    /// `realtime_records::RealtimeBackpressureState` of the contract.
    RealtimeBackpressureState {
        capacity: u64,
        queued_frames: u64,
        dropped_frames: u64,
        gated_frames: u64,
        maybe last_action: RealtimeBackpressureAction,
        policy_ref: PolicyRef,
    }
}
symbols! {
    /// `realtime_records::RealtimeCloseReason` of the contract.
    open RealtimeCloseReason {
        Normal = "normal", Cancel = "cancel", ProviderFailure = "provider_failure", PolicyDenial = "policy_denial",
        HostOwnedDetach = "host_owned_detach",
    }
}
symbols! {
    /// `realtime_records::RealtimeMediaKind` of the contract.
    open RealtimeMediaKind {
        Audio = "audio", Text = "text", Image = "image", Video = "video", Transcript = "transcript",
    }
}
contract! {
    /// `realtime_records::RealtimeSessionRecord` of the contract.
    RealtimeSession {
        kind: RealtimeSessionRecordKind,
        session_id: String,
        maybe connection_id: String,
        maybe response_id: String,
        run_id: String,
        agent_id: String,
        provider_route_ref: String,
        send_cursor: StreamCursor,
        receive_cursor: StreamCursor,
        restart_count: u64,
        backpressure_state: RealtimeBackpressureState,
        status: RealtimeSessionStatus,
        maybe close_reason: RealtimeCloseReason,
        channel: StreamChannel,
        maybe direction: StreamDirection,
        media_kind: RealtimeMediaKind,
        many content_refs: String,
        many policy_refs: PolicyRef,
        privacy: PrivacyClass,
        retention: RetentionClass,
        redacted_summary: String,
        maybe effect_intent_ref: String,
        maybe effect_result_ref: String,
        maybe effect_intent: EffectIntent,
        maybe effect_result: EffectResult,
    }
}
symbols! {
    /// `realtime_records::RealtimeSessionRecordKind` of the contract.
    open RealtimeSessionRecordKind {
        ConnectRequested = "connect_requested", Connected = "connected",
        InputSendRequested = "input_send_requested", InputSent = "input_sent",
        OutputReceiveRequested = "output_receive_requested", OutputReceived = "output_received",
        InterruptRequested = "interrupt_requested", Interrupted = "interrupted",
        RestartRequested = "restart_requested", RestartStarted = "restart_started",
        RestartCompleted = "restart_completed", RestartFailed = "restart_failed",
        CloseRequested = "close_requested", Closed = "closed", BackpressureApplied = "backpressure_applied",
    }
}
symbols! {
    /// `realtime_records::RealtimeSessionStatus` of the contract.
    open RealtimeSessionStatus {
        Connecting = "connecting", Connected = "connected", InputSent = "input_sent",
        OutputReceived = "output_received", Interrupted = "interrupted", RestartRequested = "restart_requested",
        RestartStarted = "restart_started", RestartCompleted = "restart_completed",
        RestartFailed = "restart_failed", Closed = "closed", Failed = "failed", Detached = "detached",
        BackpressureApplied = "backpressure_applied",
    }
}
