//! One record per payload type, the same on every day, with every field of the envelope and of the payload set.

use runlog_schemas::{
    datum::{Datum, Sha256},
    json::Json,
    messages::MessageSpan,
    payload::{
        CheckpointPrune, ConversationTurn, EffectResolution, Genesis, LoopCheckpoint, Payload, RunClaim, RunLifecycle,
        Skip, StoredPayload, ToolCallAttempt, ToolCallCompleted, ToolCallFailed, ToolCallRequested,
    },
    record::{JournalRecord, Place},
    refs::{
        ArtifactRef, ContentKind, ContentRef, ContentScope, CorrelationEntry, DestinationKind, DestinationRef,
        EntityKind, EntityRef, PrivacyClass, RetentionClass, SourceKind, SourceRef, TrustClass,
    },
};

/// Every payload type, in the order of the schema's union.
pub(crate) fn records() -> Vec<JournalRecord> {
    payloads().into_iter().map(record).collect()
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn payloads() -> [Payload; Payload::TYPES.len()] {
    let request = ToolCallRequested {
        request_id: "req-1".into(),
        call_id: "call_1".into(),
        parent_id: some("msg-2"),
        vendor: some("scripted"),
        tool_name: "book_flight".into(),
        args_sha256: String::new(),
        fingerprint: String::new(),
        arguments: Some(json(r#"{"to":"LHR","seats":2,"id":12345678901234567890123,"price":1.50,"note":null}"#)),
    };
    [
        RunLifecycle { status: "completed".into(), reason: "reward=1.0".into() }.into(),
        ConversationTurn {
            message_id: "msg-1".into(),
            parent_id: some("msg-0"),
            thread_id: some("thread-1"),
            kind: "assistant".into(),
            content: json(r#"[{"type":"text","text":"Grüße \u2013 1\n"},null,1.0]"#),
        }
        .into(),
        request.seal().unwrap().into(),
        ToolCallAttempt {
            request_record_id: "rec-3".into(),
            attempt: 2,
            reason: "has an idempotency or dedupe key".into(),
        }
        .into(),
        completed(),
        ToolCallFailed {
            request_record_id: "rec-3".into(),
            error_kind: "declined".into(),
            error_message: "no seat left".into(),
            latency_ms: Some(7),
        }
        .into(),
        checkpoint().into(),
        RunClaim { writer_id: "writer-1".into(), epoch: 3, claimed_by: "host a, process 1".into() }.into(),
        EffectResolution {
            request_record_id: "rec-3".into(),
            decision: "done".into(),
            result: Some(json("null")),
            who: "jo".into(),
            why: "the desk has it".into(),
        }
        .into(),
        Skip { offset: 41, who: "jo".into(), why: "written by a reader of schema 9".into() }.into(),
        Genesis { journal_id: "3f0c3b3e-6a52-4f7e-9d53-2f1f64f2f3aa".into(), partitions: 16 }.into(),
        CheckpointPrune { prune_covered_before: 7, preserve_latest_terminal: true }.into(),
        StoredPayload::of("tool_call_completed", &completed().to_bytes()).into(),
    ]
}

fn completed() -> Payload {
    ToolCallCompleted {
        request_record_id: "rec-3".into(),
        result: Some(json(r#"{"booking":"B1"}"#)),
        latency_ms: Some(1234),
    }
    .into()
}

fn checkpoint() -> LoopCheckpoint {
    let mut checkpoint = LoopCheckpoint {
        checkpoint_id: "cp-2".into(),
        checkpoint_seq: 2,
        covers_journal_seq: 6,
        base: some("cp-1"),
        unanswered: vec!["rec-3".into(), "rec-5".into()],
        schema_version: 1,
        session_id: "session-1".into(),
        turn: 3,
        messages: vec![json(r#"{"role":"user","content":null}"#), json(r#"{"role":"assistant","content":"1"}"#)],
        spans: vec![
            MessageSpan { from_base: true, from: 0, count: 3 },
            MessageSpan { from_base: false, from: 0, count: 2 },
        ],
        total_usage: Some(json(r#"{"input":10,"output":20}"#)),
        tool_calls_count: 4,
        verification_reports: vec![json(r#"{"ok":true}"#)],
        state: Some(json(r#"{"step":4}"#)),
        state_hash: String::new(),
        created_at_millis: 1_700_000_000_000,
    };
    checkpoint.state_hash = checkpoint.content_hash();
    checkpoint
}

fn source() -> SourceRef {
    let correlation = vec![CorrelationEntry { key: "trace".into(), value: "t-1".into() }];
    SourceRef {
        kind: SourceKind::ExternalRuntime,
        id: "runtime-1".into(),
        trust: TrustClass::External,
        privacy: PrivacyClass::Sensitive,
        correlation,
        redacted_summary: some("a runtime"),
    }
}

fn destination() -> DestinationRef {
    DestinationRef {
        kind: DestinationKind::EventStream,
        id: "stream-1".into(),
        privacy: PrivacyClass::ContentRefsOnly,
        retention: RetentionClass::HostPolicy,
        correlation: vec![CorrelationEntry { key: "k".into(), value: "v".into() }],
        redacted_summary: some("a stream"),
    }
}

fn entity() -> EntityRef {
    EntityRef {
        kind: EntityKind::OutputDelivery,
        id: "delivery-1".into(),
        source: Some(source()),
        privacy: PrivacyClass::Secret,
        redacted_summary: some("a delivery"),
    }
}

fn content() -> ContentRef {
    let artifact = ArtifactRef {
        artifact_id: "artifact-1".into(),
        version: "v2".into(),
        scope: ContentScope::HostWorkspace,
        storage_ref: "store-1".into(),
        mime: some("text/plain"),
        size_bytes: Some(5),
        content_hash: some("sha256:00"),
        producer_ref: entity(),
        source_ref: source(),
        destination_ref: Some(destination()),
        privacy_class: PrivacyClass::Public,
        retention_class: RetentionClass::Ephemeral,
        trust_class: TrustClass::Untrusted,
        redacted_summary: "an artifact".into(),
    };
    ContentRef {
        content_id: "content-1".into(),
        version: "v1".into(),
        kind: ContentKind::ToolResult,
        artifact_ref: Some(artifact),
        scope: ContentScope::PersistentStore,
        producer_ref: entity(),
        source_ref: source(),
        destination_ref: Some(destination()),
        mime: some("application/json"),
        size_bytes: Some(1 << 40),
        content_hash: some("sha256:01"),
        privacy_class: PrivacyClass::Internal,
        retention_class: RetentionClass::RunScoped,
        trust_class: TrustClass::SdkGenerated,
        resolver_ref: "resolver-1".into(),
        redacted_summary: "a content".into(),
    }
}

fn record(payload: Payload) -> JournalRecord {
    let run_id = if matches!(payload, Payload::Skip(_) | Payload::Genesis(_)) { "" } else { "run-1" };
    // What is stored was taken out of a whole record.
    let (whole, stored) = match payload {
        Payload::StoredPayload(_) => (completed(), Some(payload)),
        payload => (payload, None),
    };
    let mut record = JournalRecord::new(run_id, "rec-7", "agent-1", whole);
    record.payload = stored.unwrap_or(record.payload);
    record.place = Place {
        writer_id: "writer-1".into(),
        writer_epoch: 3,
        writer_seq: 7,
        prev_hash: Some(Sha256::of(b"the record before")),
        journal_seq: 9,
        timestamp_millis: 1_700_000_000_123,
    };
    let body = &mut record.body;
    body.session_id = some("session-1");
    body.turn_id = some("turn-1");
    body.attempt_id = some("attempt-1");
    body.subject_ref = entity();
    body.related_refs = vec![entity(), EntityRef::new(EntityKind::Run, "run-0")];
    body.causal_refs = vec!["rec-5".into(), "rec-6".into()];
    body.source = source();
    body.destination = Some(destination());
    body.correlation_keys = vec![CorrelationEntry { key: "ticket".into(), value: "T-1".into() }];
    body.tags = vec!["golden".into(), "ü".into()];
    body.runtime_package_fingerprint = "package-1".into();
    body.privacy = PrivacyClass::Sensitive;
    body.content_refs = vec![content()];
    body.idempotency_key = some("key-1");
    body.dedupe_key = some("dedupe-1");
    body.checkpoint_ref = some("cp-1");
    body.key_id = some("key-2024");
    body.unknown_fields = some(r#"{"/vendor_extension":{"a":[1,null]}}"#);
    let index = &mut body.event_index;
    index.session_id = some("session-1");
    index.turn_id = some("turn-1");
    index.source = source();
    index.destination = Some(destination());
    index.subject_ref = entity();
    index.related_refs = vec![entity()];
    index.correlation_keys = vec![CorrelationEntry { key: "ticket".into(), value: "T-1".into() }];
    index.tags = vec!["golden".into()];
    index.privacy_class = PrivacyClass::Sensitive;
    record
}
