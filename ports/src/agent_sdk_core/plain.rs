//! The SDK's records as Runlog's where neither JSON nor a second look is needed: the envelope and what effects are made of, member
//! by member, every other payload by way of its [`Tape`].
//!
//! No `..` in what is taken apart and no `_` in what is matched: a member or a symbol that a later version of the SDK adds does
//! not compile here. What one of Runlog's fields does not hold is [`Unfit`].

use super::tape::{ITEMS_MAX, Tape, Unfit};
use ::agent_sdk_core as sdk;
use runlog_producer::{
    JournalRecord,
    id::{RecordId, RunId},
    payload::{Payload, effect},
    record::{self, Body, Facts, Place},
    refs::{self, CorrelationEntry, DestinationRef, EntityRef, PolicyRef, SourceRef},
};
use sdk::JournalRecordPayload as Theirs;
use serde::de::value::MapDeserializer;

macro_rules! symbols {
    ($($name:ident: $theirs:ident => $module:ident::$ours:ident { $($symbol:ident)* })*) => {$(
        fn $name(theirs: &sdk::$theirs) -> $module::$ours {
            match theirs { $(sdk::$theirs::$symbol => $module::$ours::$symbol,)* }
        }
    )*};
}

symbols! {
    kind: JournalRecordKind => record::RecordKind {
        Run Turn Context Message ModelAttempt StructuredOutput StreamRule RealtimeSession Hook Approval Tool Isolation
        ChildLifecycle AgentPool RunMessage Wake OutputDispatch Subagent ExtensionAction Telemetry Recovery Checkpoint
        EffectIntent EffectResult
    }
    privacy: PrivacyClass => refs::PrivacyClass { Public Internal ContentRefsOnly Sensitive Secret }
    retention: RetentionClass => refs::RetentionClass { Ephemeral RunScoped SessionScoped Durable Persistent HostPolicy }
    trust: TrustClass => refs::TrustClass { Trusted SdkGenerated HostProvided UserProvided External Untrusted }
    of_source: SourceKind => refs::SourceKind {
        Sdk Host User System Developer Memory Compaction Hook Extension Tool RemoteChannel ScheduledTask Subagent
        ExternalRuntime Replay
    }
    of_destination: DestinationKind => refs::DestinationKind {
        Agent AgentPool Topic Provider ContextProjection Journal EventStream Telemetry OutputSink Host User RemoteChannel Tool
        Extension Subagent ExternalRuntime
    }
    of_entity: EntityKind => refs::EntityKind {
        Run Turn Attempt Agent AgentPool Topic Event Message WakeCondition ContextContribution ContextItem ContextProjection
        Content Artifact Capability PackageSidecar RuntimePackage PolicyDecision Effect EffectIntent EffectResult ToolCall
        ApprovalRequest StreamRule RealtimeSession Hook ExecutionEnvironment ChildArtifact SubagentRun ExtensionAction
        OutputDelivery
    }
    of_policy: PolicyKind => refs::PolicyKind {
        Approval Permission Sandbox Context Privacy Retention Redaction RuntimePackage Host
    }
    of_effect: EffectKind => effect::EffectKind {
        ProviderRequest ToolExecution ApprovalDispatch MemoryWrite ExtensionAction OutputDelivery FileWrite ProcessStart
        ProcessSignal IsolatedProcessStart ChildAgentStart RunMessageDelivery ChildArtifactShutdown DetachTransfer HookMutation
    }
    terminal: EffectTerminalStatus => effect::EffectTerminalStatus {
        Completed Failed TimedOut Cancelled DeniedBeforeExecution Unknown
    }
}

/// The record, without its place, in the log's run `run_id`.
pub(super) fn ours(record: &sdk::JournalRecord, run_id: &RunId) -> Result<JournalRecord, Unfit> {
    let payload = payload(&record.payload)?;
    let facts = Facts::of(&payload);
    let keys = payload.keys();
    let body = envelope(record, run_id, facts, keys)?;
    if !body.record_kind.carries(&body.facts.payload_type) {
        return Err(Unfit);
    }
    Ok(JournalRecord { place: Place::default(), body, payload })
}

fn envelope(
    record: &sdk::JournalRecord,
    run_id: &RunId,
    facts: Facts,
    of_payload: (Option<String>, Option<String>),
) -> Result<Body, Unfit> {
    let sdk::JournalRecord {
        journal_schema_version,
        // The caller keeps these three beside what Runlog has of its own, and the payload is read already.
        journal_seq: _,
        timestamp_millis: _,
        run_id: _,
        payload: _,
        record_id,
        record_kind,
        session_id,
        agent_id,
        turn_id,
        attempt_id,
        subject_ref,
        related_refs,
        causal_refs,
        source: from,
        destination: to,
        correlation_keys,
        tags,
        delivery_semantics,
        event_index,
        runtime_package_fingerprint,
        privacy: class,
        content_refs,
        redaction_policy_id,
        idempotency_key,
        dedupe_key,
        checkpoint_ref,
    } = record;
    let (of_its_own, deduped) = of_payload;
    Ok(Body {
        journal_schema_version: *journal_schema_version,
        record_id: RecordId::new(record_id.clone()).map_err(|_| Unfit)?,
        record_kind: kind(record_kind),
        run_id: run_id.clone().into(),
        session_id: session_id.as_ref().map(|id| id.as_str().to_owned()),
        agent_id: agent_id.as_str().to_owned(),
        turn_id: turn_id.as_ref().map(|id| id.as_str().to_owned()),
        attempt_id: attempt_id.as_ref().map(|id| id.as_str().to_owned()),
        subject_ref: entity(subject_ref)?,
        related_refs: all(related_refs, entity)?,
        causal_refs: all(causal_refs, |text| Ok(text.clone()))?,
        source: source(from)?,
        destination: to.as_ref().map(destination).transpose()?,
        correlation_keys: all(correlation_keys, correlation)?,
        tags: all(tags, |text| Ok(text.clone()))?,
        delivery_semantics: delivery_semantics.clone(),
        event_index: index(event_index)?,
        runtime_package_fingerprint: runtime_package_fingerprint.clone(),
        privacy: privacy(class),
        content_refs: all(content_refs, |id| Ok(id.as_str().to_owned()))?,
        redaction_policy_id: redaction_policy_id.clone(),
        idempotency_key: idempotency_key.as_ref().map(|key| key.as_str().to_owned()).or(of_its_own),
        dedupe_key: dedupe_key.as_ref().map(|key| key.as_str().to_owned()).or(deduped),
        checkpoint_ref: checkpoint_ref.clone(),
        key_id: None,
        validity: None,
        facts,
        unknown_fields: None,
    })
}

fn index(theirs: &sdk::EventIndexProjection) -> Result<record::EventIndexProjection, Unfit> {
    let sdk::EventIndexProjection {
        run_id,
        session_id,
        agent_id,
        turn_id,
        event_family,
        event_kind,
        source: from,
        destination: to,
        subject_ref,
        related_refs,
        correlation_keys,
        tags,
        privacy_class,
        delivery_semantics,
    } = theirs;
    Ok(record::EventIndexProjection {
        run_id: run_id.as_str().to_owned(),
        session_id: session_id.as_ref().map(|id| id.as_str().to_owned()),
        agent_id: agent_id.as_str().to_owned(),
        turn_id: turn_id.as_ref().map(|id| id.as_str().to_owned()),
        event_family: event_family.clone(),
        event_kind: event_kind.clone(),
        source: source(from)?,
        destination: to.as_ref().map(destination).transpose()?,
        subject_ref: entity(subject_ref)?,
        related_refs: all(related_refs, entity)?,
        correlation_keys: all(correlation_keys, correlation)?,
        tags: all(tags, |text| Ok(text.clone()))?,
        privacy_class: privacy(privacy_class),
        delivery_semantics: delivery_semantics.clone(),
    })
}

fn payload(theirs: &sdk::JournalRecordPayload) -> Result<Payload, Unfit> {
    match theirs {
        Theirs::EffectIntent(theirs) => Ok(Payload::EffectIntent(intent(theirs)?)),
        Theirs::EffectResult(theirs) => Ok(Payload::EffectResult(result(theirs)?)),
        other => {
            let tape = Tape::of(other)?;
            let payload_type = tape.root().member("type")?.text().ok_or(Unfit)?;
            let members = tape.root().members().filter(|(name, _)| *name != "type");
            Payload::of_type(payload_type, MapDeserializer::new(members))
        }
    }
}

fn intent(theirs: &sdk::EffectIntent) -> Result<effect::EffectIntent, Unfit> {
    let sdk::EffectIntent {
        effect_id,
        kind,
        subject_ref,
        source: from,
        destination: to,
        policy_refs,
        idempotency_key,
        dedupe_key,
        content_refs,
        redacted_summary,
    } = theirs;
    Ok(effect::EffectIntent {
        effect_id: effect_id.as_str().to_owned(),
        kind: of_effect(kind),
        subject_ref: entity(subject_ref)?,
        source: source(from)?,
        destination: to.as_ref().map(destination).transpose()?,
        policy_refs: all(policy_refs, policy)?,
        idempotency_key: idempotency_key.as_ref().map(|key| key.as_str().to_owned()),
        dedupe_key: dedupe_key.as_ref().map(|key| key.as_str().to_owned()),
        content_refs: all(content_refs, |id| Ok(id.as_str().to_owned()))?,
        redacted_summary: redacted_summary.clone(),
    })
}

fn result(theirs: &sdk::EffectResult) -> Result<effect::EffectResult, Unfit> {
    let sdk::EffectResult {
        effect_id,
        terminal_status,
        external_operation_id,
        reconciliation_ref,
        error_ref,
        content_refs,
        redacted_summary,
    } = theirs;
    Ok(effect::EffectResult {
        effect_id: effect_id.as_str().to_owned(),
        terminal_status: terminal(terminal_status),
        external_operation_id: external_operation_id.clone(),
        reconciliation_ref: reconciliation_ref.clone(),
        error_ref: error_ref.clone(),
        content_refs: all(content_refs, |id| Ok(id.as_str().to_owned()))?,
        redacted_summary: redacted_summary.clone(),
    })
}

fn entity(theirs: &sdk::EntityRef) -> Result<EntityRef, Unfit> {
    let sdk::EntityRef { kind, id, source: from, privacy: class, redacted_summary } = theirs;
    Ok(EntityRef {
        kind: of_entity(kind),
        id: id.as_str().to_owned(),
        source: from.as_ref().map(source).transpose()?,
        privacy: privacy(class),
        redacted_summary: redacted_summary.clone(),
    })
}

fn source(theirs: &sdk::SourceRef) -> Result<SourceRef, Unfit> {
    let sdk::SourceRef { kind, id, trust: class, privacy: private, correlation: entries, redacted_summary } = theirs;
    Ok(SourceRef {
        kind: of_source(kind),
        id: id.as_str().to_owned(),
        trust: trust(class),
        privacy: privacy(private),
        correlation: all(entries, correlation)?,
        redacted_summary: redacted_summary.clone(),
    })
}

fn destination(theirs: &sdk::DestinationRef) -> Result<DestinationRef, Unfit> {
    let sdk::DestinationRef { kind, id, privacy: private, retention: kept, correlation: entries, redacted_summary } =
        theirs;
    Ok(DestinationRef {
        kind: of_destination(kind),
        id: id.as_str().to_owned(),
        privacy: privacy(private),
        retention: retention(kept),
        correlation: all(entries, correlation)?,
        redacted_summary: redacted_summary.clone(),
    })
}

fn policy(theirs: &sdk::PolicyRef) -> Result<PolicyRef, Unfit> {
    let sdk::PolicyRef { kind, id, version } = theirs;
    Ok(PolicyRef { kind: of_policy(kind), id: id.as_str().to_owned(), version: version.clone() })
}

fn correlation(theirs: &sdk::CorrelationEntry) -> Result<CorrelationEntry, Unfit> {
    let sdk::CorrelationEntry { key, value } = theirs;
    Ok(CorrelationEntry { key: key.as_str().to_owned(), value: value.as_str().to_owned() })
}

/// A list as ours, unless it is long.
fn all<T, U>(theirs: &[T], ours: impl Fn(&T) -> Result<U, Unfit>) -> Result<Vec<U>, Unfit> {
    if theirs.len() > ITEMS_MAX { Err(Unfit) } else { theirs.iter().map(ours).collect() }
}
