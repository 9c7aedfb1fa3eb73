//! Kinds of records: which payloads they carry, and which rules apply to them.

use crate::{payload::Payload, symbols};

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
    /// The kind for a payload; `unrecognized` for a stored or encrypted one, whose kind only its writer knows.
    pub fn of(payload: &Payload) -> Self {
        of_type(payload.payload_type()).unwrap_or(Self::Unrecognized)
    }

    /// Whether the run-journal contract defines it, or a later version of it may (`unrecognized`).
    pub fn of_contract(self) -> bool {
        (self as usize) <= Self::EffectResult as usize
    }

    /// Whether records of this kind carry payloads of `payload_type`.
    ///
    /// The contract has no kind for some payloads and no payload for some kinds, so any of its kinds carries any of its
    /// payloads. A kind of Runlog's own carries only its own payloads: a writer cannot choose the rules for a record.
    pub fn carries(self, payload_type: &str) -> bool {
        match of_type(payload_type) {
            None => false,
            Some(Self::HostPayload) => self == Self::HostPayload || self.of_contract(),
            Some(kind) if kind.of_contract() => self.of_contract(),
            Some(kind) => self == kind,
        }
    }

    /// Whether records of this kind are numbered by `journal_seq`: the contract's, and Runlog's tool calls and turns.
    pub fn numbered(self) -> bool {
        self.of_contract() || matches!(self, Self::ToolCall | Self::ConversationTurn)
    }

    /// Whether records of this kind belong to a partition and not to a run.
    pub fn of_partition(self) -> bool {
        matches!(self, Self::Skip | Self::Genesis | Self::RetentionHorizon)
    }

    /// Whether its payload may be in the content store, which the projection cannot read: not those that it reads
    /// itself (partition-level records, claims, batches).
    pub fn may_be_stored(self) -> bool {
        !self.of_partition() && !matches!(self, Self::RunClaim | Self::Batch)
    }

    /// Whether any process may write it without a claim, with `writer_seq` 0.
    pub fn unclaimed(self) -> bool {
        matches!(self, Self::EffectResolution | Self::Retraction | Self::Erasure)
    }
}

/// The kind for a payload type; none for an unknown, stored or encrypted one.
fn of_type(payload_type: &str) -> Option<RecordKind> {
    Some(match payload_type {
        "run_lifecycle" | "terminal_result" => RecordKind::Run,
        "turn_lifecycle" => RecordKind::Turn,
        "context_projection" => RecordKind::Context,
        "model_attempt" => RecordKind::ModelAttempt,
        "message" => RecordKind::Message,
        "structured_output" => RecordKind::StructuredOutput,
        "approval" => RecordKind::Approval,
        "tool" => RecordKind::Tool,
        "output_delivery" => RecordKind::OutputDispatch,
        "hook" => RecordKind::Hook,
        "stream_rule" => RecordKind::StreamRule,
        "realtime_session" => RecordKind::RealtimeSession,
        "isolation" => RecordKind::Isolation,
        "child_lifecycle" => RecordKind::ChildLifecycle,
        "agent_pool" => RecordKind::AgentPool,
        "run_message" => RecordKind::RunMessage,
        "wake" => RecordKind::Wake,
        "subagent" => RecordKind::Subagent,
        "extension_action" => RecordKind::ExtensionAction,
        "effect_intent" => RecordKind::EffectIntent,
        "effect_result" => RecordKind::EffectResult,
        "checkpoint" => RecordKind::Checkpoint,
        "recovery" => RecordKind::Recovery,
        "conversation_turn" => RecordKind::ConversationTurn,
        "tool_call_requested"
        | "tool_call_attempt"
        | "tool_call_completed"
        | "tool_call_failed"
        | "tool_journal_entry" => RecordKind::ToolCall,
        "loop_checkpoint" => RecordKind::LoopCheckpoint,
        "checkpoint_prune" => RecordKind::CheckpointPrune,
        "run_claim" => RecordKind::RunClaim,
        "effect_resolution" => RecordKind::EffectResolution,
        "skip" => RecordKind::Skip,
        "genesis" => RecordKind::Genesis,
        "write_back_staged" | "write_back_committed" | "write_back_rejected" => RecordKind::WriteBack,
        "code_edit_proposal" => RecordKind::CodeEditProposal,
        "retraction" => RecordKind::Retraction,
        "erasure" => RecordKind::Erasure,
        "fork" => RecordKind::Fork,
        "retention_horizon" => RecordKind::RetentionHorizon,
        "batch" => RecordKind::Batch,
        "host_payload" => RecordKind::HostPayload,
        _ => return None,
    })
}
