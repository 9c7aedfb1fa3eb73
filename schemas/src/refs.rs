//! References of the run-journal contract (agent-sdk-core 0.1.0-alpha.4, `domain::refs` and `records::content`).

use crate::{datum, symbols};
use serde::{Deserialize, Serialize};

symbols! {
    /// A privacy class.
    open PrivacyClass {
        Public = "public", Internal = "internal", ContentRefsOnly = "content_refs_only", Sensitive = "sensitive",
        Secret = "secret",
    }
}
symbols! {
    /// A retention class.
    open RetentionClass {
        Ephemeral = "ephemeral", RunScoped = "run_scoped", SessionScoped = "session_scoped", Durable = "durable",
        Persistent = "persistent", HostPolicy = "host_policy",
    }
}
symbols! {
    /// A trust class.
    open TrustClass {
        Trusted = "trusted", SdkGenerated = "sdk_generated", HostProvided = "host_provided",
        UserProvided = "user_provided", External = "external", Untrusted = "untrusted",
    }
}
symbols! {
    /// The kind of an [`EntityRef`]'s target.
    open EntityKind {
        Run = "run", Turn = "turn", Attempt = "attempt", Agent = "agent", AgentPool = "agent_pool", Topic = "topic",
        Event = "event", Message = "message", WakeCondition = "wake_condition",
        ContextContribution = "context_contribution", ContextItem = "context_item",
        ContextProjection = "context_projection", Content = "content", Artifact = "artifact",
        Capability = "capability", PackageSidecar = "package_sidecar", RuntimePackage = "runtime_package",
        PolicyDecision = "policy_decision", Effect = "effect", EffectIntent = "effect_intent",
        EffectResult = "effect_result", ToolCall = "tool_call", ApprovalRequest = "approval_request",
        StreamRule = "stream_rule", RealtimeSession = "realtime_session", Hook = "hook",
        ExecutionEnvironment = "execution_environment", ChildArtifact = "child_artifact",
        SubagentRun = "subagent_run", ExtensionAction = "extension_action", OutputDelivery = "output_delivery",
    }
}
symbols! {
    /// The kind of a source.
    open SourceKind {
        Sdk = "sdk", Host = "host", User = "user", System = "system", Developer = "developer", Memory = "memory",
        Compaction = "compaction", Hook = "hook", Extension = "extension", Tool = "tool",
        RemoteChannel = "remote_channel", ScheduledTask = "scheduled_task", Subagent = "subagent",
        ExternalRuntime = "external_runtime", Replay = "replay",
    }
}
symbols! {
    /// The kind of a destination.
    open DestinationKind {
        Agent = "agent", AgentPool = "agent_pool", Topic = "topic", Provider = "provider",
        ContextProjection = "context_projection", Journal = "journal", EventStream = "event_stream",
        Telemetry = "telemetry", OutputSink = "output_sink", Host = "host", User = "user",
        RemoteChannel = "remote_channel", Tool = "tool", Extension = "extension", Subagent = "subagent",
        ExternalRuntime = "external_runtime",
    }
}
/// A key and a value that connect records of several systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CorrelationEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}
datum!(CorrelationEntry { key, value });

/// A source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SourceRef {
    /// The source's kind.
    pub kind: SourceKind,
    /// Its id.
    pub id: String,
    /// The trust class.
    pub trust: TrustClass,
    /// The privacy class.
    pub privacy: PrivacyClass,
    /// Correlation entries, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub correlation: Vec<CorrelationEntry>,
    /// A summary that is safe to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted_summary: Option<String>,
}
datum!(SourceRef { kind, id, trust, privacy, correlation, redacted_summary });

impl SourceRef {
    /// Creates a source of `kind` with this `id`, host-provided and internal.
    pub fn new(kind: SourceKind, id: impl Into<String>) -> Self {
        Self {
            kind,
            id: id.into(),
            trust: TrustClass::HostProvided,
            privacy: PrivacyClass::Internal,
            correlation: Vec::new(),
            redacted_summary: None,
        }
    }
}

/// A destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DestinationRef {
    /// The destination's kind.
    pub kind: DestinationKind,
    /// Its id.
    pub id: String,
    /// The privacy class.
    pub privacy: PrivacyClass,
    /// The retention class of the destination.
    pub retention: RetentionClass,
    /// Correlation entries, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub correlation: Vec<CorrelationEntry>,
    /// A summary that is safe to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted_summary: Option<String>,
}
datum!(DestinationRef { kind, id, privacy, retention, correlation, redacted_summary });

/// A typed reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EntityRef {
    /// The kind of the target.
    pub kind: EntityKind,
    /// The id of the target.
    pub id: String,
    /// The source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceRef>,
    /// The privacy class.
    pub privacy: PrivacyClass,
    /// A summary that is safe to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted_summary: Option<String>,
}
datum!(EntityRef { kind, id, source, privacy, redacted_summary });

impl EntityRef {
    /// Creates an internal reference to `id` of `kind`.
    pub fn new(kind: EntityKind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into(), source: None, privacy: PrivacyClass::Internal, redacted_summary: None }
    }
}
