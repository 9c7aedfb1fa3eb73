//! A run's turns, model attempts, messages and context projections.

use crate::{contract, refs::DestinationRef, symbols};

contract! {
    /// `journal::ContextProjectionRecord` of the contract.
    ContextProjection {
        projection_id: String,
        selected_item_count: u64,
        provider_destination: DestinationRef,
    }
}
contract! {
    /// `journal::MessageRecord` of the contract.
    Message {
        message_id: String,
        role: String,
        redacted_summary: String,
    }
}
contract! {
    /// `journal::ModelAttemptRecord` of the contract.
    ModelAttempt {
        provider_route_id: String,
        provider_model_id: String,
        request_message_count: u64,
        maybe stop_reason: ProviderStopReason,
        maybe usage: ProviderUsage,
    }
}
contract! {
    /// `journal::TurnLifecycleRecord` of the contract.
    TurnLifecycle {
        turn_id: String,
        many run_ids: String,
        status: TurnLifecycleStatus,
        maybe input_message_id: String,
        maybe output_message_id: String,
        maybe context_projection_id: String,
        redacted_summary: String,
    }
}
symbols! {
    /// `journal::TurnLifecycleStatus` of the contract.
    open TurnLifecycleStatus {
        Started = "started", Completed = "completed", Failed = "failed",
    }
}
symbols! {
    /// `provider::ProviderStopReason` of the contract.
    open ProviderStopReason {
        EndTurn = "end_turn", MaxTokens = "max_tokens", ToolUse = "tool_use", Cancelled = "cancelled",
        ProviderError = "provider_error", Unknown = "unknown",
    }
}
contract! {
    /// `provider::ProviderUsage` of the contract.
    ProviderUsage {
        null input_tokens: u64,
        null output_tokens: u64,
        null total_tokens: u64,
    }
}
