//! The record as `serde` wants it, which is what the two libraries decode into and encode from: the crate's own types have
//! the serde of the journal's JSON. Strings are `S`: owned, or borrowed from the datum. Names and order are the schema's.
//!
//! Of the payloads these are those that an import writes.

use runlog_schemas::symbols;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

symbols! { RecordKind {
    Unrecognized = "unrecognized", Run = "run", Turn = "turn", Context = "context", Message = "message",
    ModelAttempt = "model_attempt", StructuredOutput = "structured_output", StreamRule = "stream_rule",
    RealtimeSession = "realtime_session", Hook = "hook", Approval = "approval", Tool = "tool",
    Isolation = "isolation", ChildLifecycle = "child_lifecycle", AgentPool = "agent_pool", RunMessage = "run_message",
    Wake = "wake", OutputDispatch = "output_dispatch", Subagent = "subagent", ExtensionAction = "extension_action",
    Telemetry = "telemetry", Recovery = "recovery", Checkpoint = "checkpoint", EffectIntent = "effect_intent",
    EffectResult = "effect_result", RunClaim = "run_claim", ToolCall = "tool_call",
    ConversationTurn = "conversation_turn", LoopCheckpoint = "loop_checkpoint",
    EffectResolution = "effect_resolution", Skip = "skip", Genesis = "genesis", Batch = "batch",
    WriteBack = "write_back", CodeEditProposal = "code_edit_proposal", Retraction = "retraction", Erasure = "erasure",
    Fork = "fork", RetentionHorizon = "retention_horizon", HostPayload = "host_payload",
    CheckpointPrune = "checkpoint_prune",
}}
symbols! { EntityKind {
    Unrecognized = "unrecognized", Run = "run", Turn = "turn", Attempt = "attempt", Agent = "agent",
    AgentPool = "agent_pool", Topic = "topic", Event = "event", Message = "message", WakeCondition = "wake_condition",
    ContextContribution = "context_contribution", ContextItem = "context_item",
    ContextProjection = "context_projection", Content = "content", Artifact = "artifact", Capability = "capability",
    PackageSidecar = "package_sidecar", RuntimePackage = "runtime_package", PolicyDecision = "policy_decision",
    Effect = "effect", EffectIntent = "effect_intent", EffectResult = "effect_result", ToolCall = "tool_call",
    ApprovalRequest = "approval_request", StreamRule = "stream_rule", RealtimeSession = "realtime_session",
    Hook = "hook", ExecutionEnvironment = "execution_environment", ChildArtifact = "child_artifact",
    SubagentRun = "subagent_run", ExtensionAction = "extension_action", OutputDelivery = "output_delivery",
}}
symbols! { SourceKind {
    Unrecognized = "unrecognized", Sdk = "sdk", Host = "host", User = "user", System = "system",
    Developer = "developer", Memory = "memory", Compaction = "compaction", Hook = "hook", Extension = "extension",
    Tool = "tool", RemoteChannel = "remote_channel", ScheduledTask = "scheduled_task", Subagent = "subagent",
    ExternalRuntime = "external_runtime", Replay = "replay",
}}
symbols! { TrustClass {
    Unrecognized = "unrecognized", Trusted = "trusted", SdkGenerated = "sdk_generated",
    HostProvided = "host_provided", UserProvided = "user_provided", External = "external", Untrusted = "untrusted",
}}
symbols! { PrivacyClass {
    Unrecognized = "unrecognized", Public = "public", Internal = "internal", ContentRefsOnly = "content_refs_only",
    Sensitive = "sensitive", Secret = "secret",
}}
symbols! { DestinationKind {
    Unrecognized = "unrecognized", Agent = "agent", AgentPool = "agent_pool", Topic = "topic", Provider = "provider",
    ContextProjection = "context_projection", Journal = "journal", EventStream = "event_stream",
    Telemetry = "telemetry", OutputSink = "output_sink", Host = "host", User = "user",
    RemoteChannel = "remote_channel", Tool = "tool", Extension = "extension", Subagent = "subagent",
    ExternalRuntime = "external_runtime",
}}
symbols! { RetentionClass {
    Unrecognized = "unrecognized", Ephemeral = "ephemeral", RunScoped = "run_scoped",
    SessionScoped = "session_scoped", Durable = "durable", Persistent = "persistent", HostPolicy = "host_policy",
}}

/// A SHA-256: Avro's `fixed` of 32 bytes, which serde's arrays are not.
pub struct Sha256([u8; 32]);

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Sha256;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("32 bytes")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Sha256, E> {
                bytes.try_into().map(Sha256).map_err(|_| E::invalid_length(bytes.len(), &self))
            }
        }
        d.deserialize_bytes(Visitor)
    }
}

#[derive(Deserialize, Serialize)]
pub struct CorrelationEntry<S> {
    key: S,
    value: S,
}

#[derive(Deserialize, Serialize)]
pub struct SourceRef<S> {
    kind: SourceKind,
    id: S,
    trust: TrustClass,
    privacy: PrivacyClass,
    correlation: Vec<CorrelationEntry<S>>,
    redacted_summary: Option<S>,
}

#[derive(Deserialize, Serialize)]
pub struct DestinationRef<S> {
    kind: DestinationKind,
    id: S,
    privacy: PrivacyClass,
    retention: RetentionClass,
    correlation: Vec<CorrelationEntry<S>>,
    redacted_summary: Option<S>,
}

#[derive(Deserialize, Serialize)]
pub struct EntityRef<S> {
    kind: EntityKind,
    id: S,
    source: Option<SourceRef<S>>,
    privacy: PrivacyClass,
    redacted_summary: Option<S>,
}

#[derive(Deserialize, Serialize)]
pub struct EventIndexProjection<S> {
    run_id: S,
    session_id: Option<S>,
    agent_id: S,
    turn_id: Option<S>,
    event_family: S,
    event_kind: S,
    source: SourceRef<S>,
    destination: Option<DestinationRef<S>>,
    subject_ref: EntityRef<S>,
    related_refs: Vec<EntityRef<S>>,
    correlation_keys: Vec<CorrelationEntry<S>>,
    tags: Vec<S>,
    privacy_class: PrivacyClass,
    delivery_semantics: S,
}

#[derive(Deserialize, Serialize)]
pub struct Validity {
    at: i64,
    is_valid: bool,
}

#[derive(Deserialize, Serialize)]
pub struct MessageSpan {
    from_base: bool,
    from: i64,
    count: i64,
}

#[derive(Deserialize, Serialize)]
pub struct Facts<S> {
    pub payload_type: S,
    pub status: Option<S>,
    tool_name: Option<S>,
    fingerprint: Option<S>,
    pub answers: Option<S>,
    checkpoint_id: Option<S>,
    covers_journal_seq: Option<i64>,
    checkpoint_seq: Option<i64>,
    created_at_millis: Option<i64>,
    base: Option<S>,
    key: Option<S>,
    spans: Vec<MessageSpan>,
    message_bytes: Vec<i32>,
}

#[derive(Deserialize, Serialize)]
pub struct RunLifecycle<S> {
    status: S,
    reason: S,
}

#[derive(Deserialize, Serialize)]
pub struct ConversationTurn<S> {
    message_id: S,
    parent_id: Option<S>,
    thread_id: Option<S>,
    kind: S,
    content: S,
}

#[derive(Deserialize, Serialize)]
pub struct ToolCallRequested<S> {
    request_id: S,
    call_id: S,
    parent_id: Option<S>,
    vendor: Option<S>,
    tool_name: S,
    args_sha256: S,
    fingerprint: S,
    arguments: Option<S>,
}

#[derive(Deserialize, Serialize)]
pub struct ToolCallAttempt<S> {
    request_record_id: S,
    attempt: i32,
    reason: S,
}

#[derive(Deserialize, Serialize)]
pub struct ToolCallCompleted<S> {
    request_record_id: S,
    result: Option<S>,
    latency_ms: Option<i64>,
}

#[derive(Deserialize, Serialize)]
pub struct ToolCallFailed<S> {
    request_record_id: S,
    error_kind: S,
    error_message: S,
    latency_ms: Option<i64>,
}

#[derive(Deserialize, Serialize)]
pub struct LoopCheckpoint<S> {
    checkpoint_id: S,
    checkpoint_seq: i64,
    covers_journal_seq: i64,
    base: Option<S>,
    unanswered: Vec<S>,
    schema_version: i32,
    session_id: S,
    turn: i64,
    messages: Vec<S>,
    spans: Vec<MessageSpan>,
    total_usage: Option<S>,
    tool_calls_count: i64,
    verification_reports: Vec<S>,
    state: Option<S>,
    state_hash: S,
    created_at_millis: i64,
}

/// The first branches of the union, which one library tells by their number and the other by their full name.
#[derive(Deserialize, Serialize)]
#[allow(clippy::large_enum_variant, reason = "as the crate's own")]
pub enum Payload<S> {
    #[serde(rename = "runlog.journal.v1.RunLifecycle")]
    RunLifecycle(RunLifecycle<S>),
    #[serde(rename = "runlog.journal.v1.ConversationTurn")]
    ConversationTurn(ConversationTurn<S>),
    #[serde(rename = "runlog.journal.v1.ToolCallRequested")]
    ToolCallRequested(ToolCallRequested<S>),
    #[serde(rename = "runlog.journal.v1.ToolCallAttempt")]
    ToolCallAttempt(ToolCallAttempt<S>),
    #[serde(rename = "runlog.journal.v1.ToolCallCompleted")]
    ToolCallCompleted(ToolCallCompleted<S>),
    #[serde(rename = "runlog.journal.v1.ToolCallFailed")]
    ToolCallFailed(ToolCallFailed<S>),
    #[serde(rename = "runlog.journal.v1.LoopCheckpoint")]
    LoopCheckpoint(LoopCheckpoint<S>),
}

#[derive(Deserialize, Serialize)]
pub struct JournalRecord<S, P = Payload<S>> {
    writer_id: S,
    writer_epoch: i64,
    writer_seq: i64,
    prev_hash: Option<Sha256>,
    journal_seq: i64,
    timestamp_millis: i64,
    journal_schema_version: i32,
    pub record_id: S,
    record_kind: RecordKind,
    pub run_id: S,
    session_id: Option<S>,
    agent_id: S,
    turn_id: Option<S>,
    attempt_id: Option<S>,
    subject_ref: EntityRef<S>,
    related_refs: Vec<EntityRef<S>>,
    causal_refs: Vec<S>,
    source: SourceRef<S>,
    destination: Option<DestinationRef<S>>,
    correlation_keys: Vec<CorrelationEntry<S>>,
    tags: Vec<S>,
    delivery_semantics: S,
    event_index: EventIndexProjection<S>,
    runtime_package_fingerprint: S,
    privacy: PrivacyClass,
    content_refs: Vec<S>,
    redaction_policy_id: S,
    idempotency_key: Option<S>,
    dedupe_key: Option<S>,
    checkpoint_ref: Option<S>,
    key_id: Option<S>,
    validity: Option<Validity>,
    pub facts: Facts<S>,
    unknown_fields: Option<S>,
    pub payload: P,
}

/// By the schema without its last field. `apache-avro` cannot leave out a field whose type holds an enum.
pub type WithoutPayload<S> = JournalRecord<S, Option<()>>;

macro_rules! kept {
    ($(#[$doc:meta])* $name:ident $(, $payload:ident: $type:ty)?) => {
        $(#[$doc])*
        #[derive(Deserialize)]
        #[serde(rename = "JournalRecord")]
        #[allow(dead_code, reason = "that they are decoded is measured")]
        pub struct $name<S> {
            pub writer_id: S,
            pub writer_epoch: i64,
            pub writer_seq: i64,
            pub journal_seq: i64,
            pub timestamp_millis: i64,
            pub record_id: S,
            pub record_kind: RecordKind,
            pub run_id: S,
            pub privacy: PrivacyClass,
            pub idempotency_key: Option<S>,
            pub dedupe_key: Option<S>,
            pub facts: Facts<S>,
            $(pub $payload: $type,)?
        }
    };
}
kept! {
    /// The fields that `codec::Envelope` keeps; the others are stepped over.
    Envelope
}
kept! {
    /// These, and the payload.
    EnvelopeAndPayload, payload: Payload<S>
}
