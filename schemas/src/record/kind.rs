//! Kinds of records, their payloads, and the rules that apply to them.

use crate::{
    or_other::OrOther,
    payload::{Payload, PayloadType},
    symbols,
};

symbols! {
    /// The contract's record kinds, then Runlog's own.
    open RecordKind {
        Run = "run", Turn = "turn", Context = "context", Message = "message", ModelAttempt = "model_attempt",
        StructuredOutput = "structured_output", StreamRule = "stream_rule", RealtimeSession = "realtime_session",
        Hook = "hook", Approval = "approval", Tool = "tool", Isolation = "isolation",
        ChildLifecycle = "child_lifecycle", AgentPool = "agent_pool", RunMessage = "run_message", Wake = "wake",
        OutputDispatch = "output_dispatch", Subagent = "subagent", ExtensionAction = "extension_action",
        Telemetry = "telemetry", Recovery = "recovery", Checkpoint = "checkpoint", EffectIntent = "effect_intent",
        EffectResult = "effect_result",
        RunClaim = "run_claim", ToolCall = "tool_call", ConversationTurn = "conversation_turn",
        LoopCheckpoint = "loop_checkpoint", EffectResolution = "effect_resolution", Skip = "skip",
        Genesis = "genesis", Batch = "batch", WriteBack = "write_back", CodeEditProposal = "code_edit_proposal",
        Retraction = "retraction", Erasure = "erasure", Fork = "fork", RetentionHorizon = "retention_horizon",
        HostPayload = "host_payload", CheckpointPrune = "checkpoint_prune",
    }
}

impl RecordKind {
    /// Returns the kind for a payload. It is `unrecognized` for a stored or encrypted payload, whose kind only the writer knows.
    pub fn from_payload(payload: &Payload) -> Self {
        of_type(payload.payload_type()).unwrap_or(Self::Unrecognized)
    }

    /// Returns whether the run-journal contract defines it, or a later version of the contract may (`unrecognized`).
    pub fn of_contract(self) -> bool {
        (self as usize) <= Self::EffectResult as usize
    }

    /// Returns whether records of this kind may have payloads of `payload_type`.
    ///
    /// The contract has no kind for some payloads and no payload for some kinds, so each of its kinds may have each of
    /// its payloads. Runlog's own kinds have only their own payloads, so that a writer cannot choose the rules for a record.
    pub fn carries(self, payload_type: &OrOther<PayloadType>) -> bool {
        match payload_type.known().copied().and_then(of_type) {
            None => false,
            Some(Self::HostPayload) => self == Self::HostPayload || self.of_contract(),
            Some(kind) if kind.of_contract() => self.of_contract(),
            Some(kind) => self == kind,
        }
    }

    /// Returns whether records of this kind are numbered by `journal_seq`: the contract's, and Runlog's tool calls and turns.
    pub fn numbered(self) -> bool {
        self.of_contract() || matches!(self, Self::ToolCall | Self::ConversationTurn)
    }

    /// Returns whether records of this kind are about a partition instead of a run.
    pub fn of_partition(self) -> bool {
        matches!(self, Self::Skip | Self::Genesis | Self::RetentionHorizon)
    }

    /// Returns whether its payload may be in the content store. The projection cannot read that store, so payloads that it
    /// needs stay inline (partition-level records, claims, batches).
    pub fn may_be_stored(self) -> bool {
        !self.of_partition() && !matches!(self, Self::RunClaim | Self::Batch)
    }

    /// Returns whether any process may write it without a claim, with `writer_seq` 0.
    pub fn unclaimed(self) -> bool {
        matches!(self, Self::EffectResolution | Self::Retraction | Self::Erasure)
    }
}

/// Returns the kind for a payload type, or `None` for a stored or encrypted payload.
fn of_type(payload_type: PayloadType) -> Option<RecordKind> {
    Some(match payload_type {
        PayloadType::RunLifecycle | PayloadType::TerminalResult => RecordKind::Run,
        PayloadType::TurnLifecycle => RecordKind::Turn,
        PayloadType::ContextProjection => RecordKind::Context,
        PayloadType::ModelAttempt => RecordKind::ModelAttempt,
        PayloadType::Message => RecordKind::Message,
        PayloadType::StructuredOutput => RecordKind::StructuredOutput,
        PayloadType::Approval => RecordKind::Approval,
        PayloadType::Tool => RecordKind::Tool,
        PayloadType::OutputDelivery => RecordKind::OutputDispatch,
        PayloadType::Hook => RecordKind::Hook,
        PayloadType::StreamRule => RecordKind::StreamRule,
        PayloadType::RealtimeSession => RecordKind::RealtimeSession,
        PayloadType::Isolation => RecordKind::Isolation,
        PayloadType::ChildLifecycle => RecordKind::ChildLifecycle,
        PayloadType::AgentPool => RecordKind::AgentPool,
        PayloadType::RunMessage => RecordKind::RunMessage,
        PayloadType::Wake => RecordKind::Wake,
        PayloadType::Subagent => RecordKind::Subagent,
        PayloadType::ExtensionAction => RecordKind::ExtensionAction,
        PayloadType::EffectIntent => RecordKind::EffectIntent,
        PayloadType::EffectResult => RecordKind::EffectResult,
        PayloadType::Checkpoint => RecordKind::Checkpoint,
        PayloadType::Recovery => RecordKind::Recovery,
        PayloadType::ConversationTurn => RecordKind::ConversationTurn,
        PayloadType::ToolCallRequested
        | PayloadType::ToolCallAttempt
        | PayloadType::ToolCallCompleted
        | PayloadType::ToolCallFailed
        | PayloadType::ToolJournalEntry => RecordKind::ToolCall,
        PayloadType::LoopCheckpoint => RecordKind::LoopCheckpoint,
        PayloadType::CheckpointPrune => RecordKind::CheckpointPrune,
        PayloadType::RunClaim => RecordKind::RunClaim,
        PayloadType::EffectResolution => RecordKind::EffectResolution,
        PayloadType::Skip => RecordKind::Skip,
        PayloadType::Genesis => RecordKind::Genesis,
        PayloadType::WriteBackStaged | PayloadType::WriteBackCommitted | PayloadType::WriteBackRejected => {
            RecordKind::WriteBack
        }
        PayloadType::CodeEditProposal => RecordKind::CodeEditProposal,
        PayloadType::Retraction => RecordKind::Retraction,
        PayloadType::Erasure => RecordKind::Erasure,
        PayloadType::Fork => RecordKind::Fork,
        PayloadType::RetentionHorizon => RecordKind::RetentionHorizon,
        PayloadType::Batch => RecordKind::Batch,
        PayloadType::HostPayload => RecordKind::HostPayload,
        PayloadType::Encrypted | PayloadType::StoredPayload => return None,
    })
}
