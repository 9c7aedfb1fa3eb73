//! Stream rules: matches and interventions.

use crate::{
    contract,
    payload::effect::{EffectIntent, EffectResult},
    refs::{EntityRef, PolicyRef, PrivacyClass, RetentionClass},
    symbols, variants,
};

symbols! {
    /// `stream_records::PartialOutputPolicy` of the contract.
    open PartialOutputPolicy {
        Keep = "keep", Discard = "discard", Mask = "mask", ContentRefOnly = "content_ref_only",
    }
}
contract! {
    /// `stream_records::RedactedMatch` of the contract.
    RedactedMatch {
        match_id: String,
        channel: StreamChannel,
        maybe direction: StreamDirection,
        cursor: StreamCursor,
        byte_len: u64,
        text_hash: String,
        redacted_summary: String,
        privacy: PrivacyClass,
        retention: RetentionClass,
    }
}
contract! {
    /// `stop_run` of [`StreamAction`].
    StreamActionStopRun {
        reason: String,
        partial_output: PartialOutputPolicy,
    }
}
contract! {
    /// `abort_and_retry` of [`StreamAction`].
    StreamActionAbortAndRetry {
        injection_summary: String,
        retry_policy_ref: PolicyRef,
        partial_output: PartialOutputPolicy,
    }
}
contract! {
    /// `pause_for_approval` of [`StreamAction`].
    StreamActionPauseForApproval {
        approval_policy_ref: PolicyRef,
        resume_policy_ref: PolicyRef,
    }
}
contract! {
    /// `mask_and_continue` of [`StreamAction`].
    StreamActionMaskAndContinue {
        replacement: String,
    }
}
contract! {
    /// `emit_only` of [`StreamAction`].
    StreamActionEmitOnly {
        notice_kind: String,
    }
}
variants! {
    /// `stream_records::StreamAction` of the contract.
    StreamAction: internal("action") {
        1 StopRun(StreamActionStopRun) = "stop_run",
        2 AbortAndRetry(StreamActionAbortAndRetry) = "abort_and_retry",
        3 PauseForApproval(StreamActionPauseForApproval) = "pause_for_approval",
        4 MaskAndContinue(StreamActionMaskAndContinue) = "mask_and_continue",
        5 EmitOnly(StreamActionEmitOnly) = "emit_only",
    }
}
symbols! {
    /// `stream_records::StreamChannel` of the contract.
    open StreamChannel {
        AssistantText = "assistant_text", ReasoningSummary = "reasoning_summary",
        ProviderExposedReasoning = "provider_exposed_reasoning", ToolCallArguments = "tool_call_arguments",
        ToolResultText = "tool_result_text", RealtimeTranscript = "realtime_transcript",
        RealtimeMedia = "realtime_media", HiddenChainOfThought = "hidden_chain_of_thought",
    }
}
contract! {
    /// `stream_records::StreamCursor` of the contract.
    StreamCursor {
        chunk_sequence: u64,
        byte_offset: u64,
        precision: StreamCursorPrecision,
        maybe label: String,
    }
}
symbols! {
    /// `stream_records::StreamCursorPrecision` of the contract.
    open StreamCursorPrecision {
        ByteOffset = "byte_offset", ChunkSequenceOnly = "chunk_sequence_only", Marker = "marker",
    }
}
symbols! {
    /// `stream_records::StreamDirection` of the contract.
    open StreamDirection {
        InputToProvider = "input_to_provider", OutputFromProvider = "output_from_provider",
    }
}
contract! {
    /// `stream_records::StreamIntervention` of the contract.
    StreamIntervention {
        intervention_id: String,
        rule_ref: EntityRef,
        requested_action: StreamAction,
        maybe applied_action: StreamAction,
        match_ref: StreamMatchRef,
        redacted_match: RedactedMatch,
        partial_output_policy: PartialOutputPolicy,
        many policy_refs: PolicyRef,
        maybe effect_intent_ref: String,
        maybe effect_result_ref: String,
        maybe effect_intent: EffectIntent,
        maybe effect_result: EffectResult,
    }
}
contract! {
    /// `stream_records::StreamMatchRef` of the contract.
    StreamMatchRef {
        match_id: String,
        rule_id: String,
        rule_version: u64,
    }
}
contract! {
    /// `stream_records::StreamRuleRecord` of the contract.
    StreamRule {
        record_kind: StreamRuleRecordKind,
        rule_id: String,
        rule_version: u64,
        maybe channel: StreamChannel,
        maybe direction: StreamDirection,
        maybe cursor: StreamCursor,
        maybe redacted_match: RedactedMatch,
        maybe intervention: StreamIntervention,
        maybe repeat_state: StreamRuleRepeatStateSnapshot,
        many policy_refs: PolicyRef,
        redacted_summary: String,
    }
}
symbols! {
    /// `stream_records::StreamRuleRecordKind` of the contract.
    open StreamRuleRecordKind {
        Registered = "registered", CompileFailed = "compile_failed", Matched = "matched",
        InterventionIntent = "intervention_intent", InterventionResult = "intervention_result",
        RepeatState = "repeat_state",
    }
}
contract! {
    /// `stream_records::StreamRuleRepeatStateSnapshot` of the contract.
    StreamRuleRepeatStateSnapshot {
        many seen_match_keys: String,
    }
}
