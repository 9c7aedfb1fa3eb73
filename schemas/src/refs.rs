//! References of the run-journal contract (agent-sdk-core 0.1.0-alpha.4, `domain::refs` and `records::content`).

use crate::{contract, datum, symbols};
use serde::{Deserialize, Serialize};

symbols! {
    /// How private something is.
    open PrivacyClass {
        Public = "public", Internal = "internal", ContentRefsOnly = "content_refs_only", Sensitive = "sensitive",
        Secret = "secret",
    }
}
symbols! {
    /// How long something is kept.
    open RetentionClass {
        Ephemeral = "ephemeral", RunScoped = "run_scoped", SessionScoped = "session_scoped", Durable = "durable",
        Persistent = "persistent", HostPolicy = "host_policy",
    }
}
symbols! {
    /// How far something is trusted.
    open TrustClass {
        Trusted = "trusted", SdkGenerated = "sdk_generated", HostProvided = "host_provided",
        UserProvided = "user_provided", External = "external", Untrusted = "untrusted",
    }
}
symbols! {
    /// What an [`EntityRef`] points at.
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
    /// Where something came from.
    open SourceKind {
        Sdk = "sdk", Host = "host", User = "user", System = "system", Developer = "developer", Memory = "memory",
        Compaction = "compaction", Hook = "hook", Extension = "extension", Tool = "tool",
        RemoteChannel = "remote_channel", ScheduledTask = "scheduled_task", Subagent = "subagent",
        ExternalRuntime = "external_runtime", Replay = "replay",
    }
}
symbols! {
    /// Where something goes.
    open DestinationKind {
        Agent = "agent", AgentPool = "agent_pool", Topic = "topic", Provider = "provider",
        ContextProjection = "context_projection", Journal = "journal", EventStream = "event_stream",
        Telemetry = "telemetry", OutputSink = "output_sink", Host = "host", User = "user",
        RemoteChannel = "remote_channel", Tool = "tool", Extension = "extension", Subagent = "subagent",
        ExternalRuntime = "external_runtime",
    }
}
symbols! {
    /// What content is.
    open ContentKind {
        Text = "text", Document = "document", Image = "image", Audio = "audio", Video = "video", File = "file",
        ToolResult = "tool_result", Schema = "schema", Stdout = "stdout", Stderr = "stderr",
        OutputPayload = "output_payload", MemoryRecord = "memory_record", External = "external",
    }
}
symbols! {
    /// Where content lives.
    open ContentScope {
        Run = "run", Session = "session", HostWorkspace = "host_workspace", External = "external",
        PersistentStore = "persistent_store",
    }
}

/// A key and a value that tie records of several systems together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CorrelationEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}
datum!(CorrelationEntry { key, value });

/// Where something came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SourceRef {
    /// The source's kind.
    pub kind: SourceKind,
    /// Its id.
    pub id: String,
    /// How far it is trusted.
    pub trust: TrustClass,
    /// How private it is.
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
    /// A source of `kind` named `id`, host-provided and internal.
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

/// Where something goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DestinationRef {
    /// The destination's kind.
    pub kind: DestinationKind,
    /// Its id.
    pub id: String,
    /// How private it is.
    pub privacy: PrivacyClass,
    /// How long it keeps things.
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
    /// What it points at.
    pub kind: EntityKind,
    /// The id there.
    pub id: String,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceRef>,
    /// How private it is.
    pub privacy: PrivacyClass,
    /// A summary that is safe to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted_summary: Option<String>,
}
datum!(EntityRef { kind, id, source, privacy, redacted_summary });

impl EntityRef {
    /// A reference to `kind` `id`, internal.
    pub fn new(kind: EntityKind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into(), source: None, privacy: PrivacyClass::Internal, redacted_summary: None }
    }
}

/// A stored artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRef {
    /// Its id.
    pub artifact_id: String,
    /// Its version.
    pub version: String,
    /// Where it lives.
    pub scope: ContentScope,
    /// The adapter that stores it.
    pub storage_ref: String,
    /// Media type.
    #[serde(default)]
    pub mime: Option<String>,
    /// Size, bytes.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Hash, as its producer wrote it.
    #[serde(default)]
    pub content_hash: Option<String>,
    /// Who made it.
    pub producer_ref: EntityRef,
    /// Where it came from.
    pub source_ref: SourceRef,
    /// Where it goes.
    #[serde(default)]
    pub destination_ref: Option<DestinationRef>,
    /// How private it is.
    pub privacy_class: PrivacyClass,
    /// How long it is kept.
    pub retention_class: RetentionClass,
    /// How far it is trusted.
    pub trust_class: TrustClass,
    /// A summary that is safe to show.
    pub redacted_summary: String,
}
datum!(ArtifactRef {
    artifact_id,
    version,
    scope,
    storage_ref,
    mime,
    size_bytes,
    content_hash,
    producer_ref,
    source_ref,
    destination_ref,
    privacy_class,
    retention_class,
    trust_class,
    redacted_summary,
});

/// Content that a record names and another store holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentRef {
    /// Its id.
    pub content_id: String,
    /// Its version.
    pub version: String,
    /// What it is.
    pub kind: ContentKind,
    /// The artifact that it is part of.
    #[serde(default)]
    pub artifact_ref: Option<ArtifactRef>,
    /// Where it lives.
    pub scope: ContentScope,
    /// Who made it.
    pub producer_ref: EntityRef,
    /// Where it came from.
    pub source_ref: SourceRef,
    /// Where it goes.
    #[serde(default)]
    pub destination_ref: Option<DestinationRef>,
    /// Media type.
    #[serde(default)]
    pub mime: Option<String>,
    /// Size, bytes.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Hash, as its producer wrote it.
    #[serde(default)]
    pub content_hash: Option<String>,
    /// How private it is.
    pub privacy_class: PrivacyClass,
    /// How long it is kept.
    pub retention_class: RetentionClass,
    /// How far it is trusted.
    pub trust_class: TrustClass,
    /// The adapter that resolves it.
    pub resolver_ref: String,
    /// A summary that is safe to show.
    pub redacted_summary: String,
}
datum!(ContentRef {
    content_id,
    version,
    kind,
    artifact_ref,
    scope,
    producer_ref,
    source_ref,
    destination_ref,
    mime,
    size_bytes,
    content_hash,
    privacy_class,
    retention_class,
    trust_class,
    resolver_ref,
    redacted_summary,
});

contract! {
    /// Where something descends from.
    LineageRef {
        lineage_id: String,
        source: SourceRef,
        maybe destination: DestinationRef,
        many policy_refs: PolicyRef,
    }
}
symbols! {
    /// What a policy decides.
    open PolicyKind {
        Approval = "approval", Permission = "permission", Sandbox = "sandbox", Context = "context",
        Privacy = "privacy", Retention = "retention", Redaction = "redaction", RuntimePackage = "runtime_package",
        Host = "host",
    }
}
contract! {
    /// A policy.
    PolicyRef {
        kind: PolicyKind,
        id: String,
        maybe version: String,
    }
}
