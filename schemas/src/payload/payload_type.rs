//! The list of payload types.

use crate::symbols;

/// Calls a macro with the list: the names of types and their JSON tags, in the order of the schema's union.
macro_rules! payload_list {
    ($each:ident) => {
        $each! {
            own {
                RunLifecycle = "run_lifecycle",
                ConversationTurn = "conversation_turn",
                ToolCallRequested = "tool_call_requested",
                ToolCallAttempt = "tool_call_attempt",
                ToolCallCompleted = "tool_call_completed",
                ToolCallFailed = "tool_call_failed",
                LoopCheckpoint = "loop_checkpoint",
                RunClaim = "run_claim",
                EffectResolution = "effect_resolution",
                Skip = "skip",
                Genesis = "genesis",
            }
            contract {
                TurnLifecycle = "turn_lifecycle",
                ContextProjection = "context_projection",
                ModelAttempt = "model_attempt",
                Message = "message",
                StructuredOutput = "structured_output",
                Approval = "approval",
                Tool = "tool",
                OutputDelivery = "output_delivery",
                Hook = "hook",
                StreamRule = "stream_rule",
                RealtimeSession = "realtime_session",
                Isolation = "isolation",
                ChildLifecycle = "child_lifecycle",
                AgentPool = "agent_pool",
                RunMessage = "run_message",
                Wake = "wake",
                Subagent = "subagent",
                ExtensionAction = "extension_action",
                EffectIntent = "effect_intent",
                EffectResult = "effect_result",
                Checkpoint = "checkpoint",
                Recovery = "recovery",
                TerminalResult = "terminal_result",
            }
            own {
                ToolJournalEntry = "tool_journal_entry",
            }
            contract {
                WriteBackStaged = "write_back_staged",
                WriteBackCommitted = "write_back_committed",
                WriteBackRejected = "write_back_rejected",
            }
            own {
                CodeEditProposal = "code_edit_proposal",
                Retraction = "retraction",
                Erasure = "erasure",
                Fork = "fork",
                RetentionHorizon = "retention_horizon",
                Batch = "batch",
                Encrypted = "encrypted",
                HostPayload = "host_payload",
                CheckpointPrune = "checkpoint_prune",
                StoredPayload = "stored_payload",
            }
            contract {}
        }
    };
}

macro_rules! payload_types {
    ($(own { $($name:ident = $tag:literal),* $(,)? } contract { $($contract:ident = $contract_tag:literal),* $(,)? })*) => {
        symbols! {
            /// The type of a payload: its JSON tag and the stem of its example file.
            PayloadType { $($($name = $tag,)* $($contract = $contract_tag,)*)* }
        }

        impl PayloadType {
            /// Returns whether a payload of this type is a [`ContractPayload`](super::contract::ContractPayload).
            pub fn is_of_contract(self) -> bool {
                [$($(Self::$contract,)*)*].contains(&self)
            }
        }
    };
}

payload_list!(payload_types);

impl PayloadType {
    /// Returns whether a payload of this type hides another payload, whose type the facts name.
    pub fn hides(self) -> bool {
        matches!(self, Self::Encrypted | Self::StoredPayload)
    }

    /// Returns whether a payload of this type is the result of a tool call.
    pub fn is_call_result(self) -> bool {
        matches!(self, Self::ToolCallCompleted | Self::ToolCallFailed)
    }
}
