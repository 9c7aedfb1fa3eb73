//! Records of each payload type, the same on every day: the first of each with every field of the envelope and of the
//! payload set, then one for each further variant that its payload has.

use super::sample;
use runlog_schemas::{
    datum::{Datum, Sha256},
    id::{ContentHash, Illegal, OrEmpty, PrevHash, RunId},
    json::Json,
    messages::MessageSpan,
    payload::{
        ConversationTurn, EffectResolution, Genesis, LoopCheckpoint, Payload, PayloadType, RunClaim, RunLifecycle,
        Skip, StoredPayload, ToolCallAttempt, ToolCallCompleted, ToolCallFailed, ToolCallRequested, wrapped::Batch,
    },
    record::{Facts, JournalRecord, RecordKind, Sequencing, Unresolved, Validity},
    refs::{
        CorrelationEntry, DestinationKind, DestinationRef, EntityKind, EntityRef, PrivacyClass, RetentionClass,
        SourceKind, SourceRef, TrustClass,
    },
};
use serde_json::Value;
use std::str::FromStr;

/// Every payload type, in the order of the schema's union, by the stem of its files.
pub(crate) fn records() -> Vec<(String, JournalRecord)> {
    let mut records = Vec::new();
    let mut by_hand = payloads().into_iter();
    for (index, tag) in Payload::TYPES.iter().enumerate() {
        let Some(payload) = by_hand.next() else {
            records.extend(of_schema(index, tag));
            continue;
        };
        assert_eq!(payload.payload_type().as_str(), *tag);
        records.push(((*tag).to_owned(), record(payload)));
    }
    records
}

/// A decision with the state on which it was based: the record of version 2.
pub(crate) fn decision() -> JournalRecord {
    let index = Payload::TYPES.iter().position(|tag| *tag == "effect_resolution").unwrap();
    let mut record = record(payloads().into_iter().nth(index).unwrap());
    record.place.writer_seq = 0.into();
    let facts = &mut record.body.facts;
    facts.revision = Some(3);
    facts.evidence = Some(id("evidence-1"));
    facts.epoch = Some(2.into());
    facts.principal = Some("principal-1".into());
    facts.principal_proof = Some(Sha256::of(b"proof-1"));
    record
}

/// An approval with the principal that gave it.
pub(crate) fn approval() -> JournalRecord {
    let index = Payload::TYPES.iter().position(|tag| *tag == "approval").unwrap();
    let mut approval = of_schema(index, "approval").remove(0).1;
    approval.body.facts.approver = Some("principal-1".into());
    approval
}

/// The records that need this version: decisions of version 2; attempts, decisions and requests of version 3, alone and in
/// a batch whose other records need version 1.
pub(crate) fn of_version(number: u16) -> Vec<(&'static str, JournalRecord)> {
    if number == 2 {
        return vec![("effect_resolution", decision())];
    }
    let of = |tag: &str| {
        record(payloads().into_iter().nth(Payload::TYPES.iter().position(|at| *at == tag).unwrap()).unwrap())
    };
    let basis = Some(ContentHash(Sha256::of(b"newest")));
    let (mut decided, mut attempt, mut request) = (decision(), of("tool_call_attempt"), of("tool_call_requested"));
    let (mut result, mut claim) = (of("tool_call_completed"), of("run_claim"));
    result.body.facts.only_own = Some(true);
    claim.body.facts.commitment = Some(Sha256::of(b"secret"));
    decided.body.facts.basis = basis;
    let Payload::ToolCallAttempt(ToolCallAttempt { attempt: nth, .. }) = attempt.payload else { panic!("an attempt") };
    (attempt.body.facts.basis, attempt.body.facts.attempt) = (basis, Some(nth));
    (request.body.facts.unresolved, request.body.facts.repeatable) = (Some(Unresolved::Refuse), Some(true));
    request.body.facts.observed = Some(false);
    let records = vec![of("conversation_turn"), request.clone(), attempt.clone()];
    let batch = record(Batch { records }.into());
    vec![
        ("effect_resolution", decided),
        ("tool_call_attempt", attempt),
        ("tool_call_requested", request),
        ("tool_call_completed", result),
        ("run_claim", claim),
        ("approval", approval()),
        ("batch", batch),
    ]
}

/// The records of a payload type, made from the schema: one for each variant. Records after the first have a plain
/// envelope.
fn of_schema(index: usize, tag: &str) -> Vec<(String, JournalRecord)> {
    if tag == "batch" {
        let records = payloads().into_iter().take(3).map(plain).collect();
        return vec![(tag.to_owned(), record(Batch { records }.into()))];
    }
    if tag == PayloadType::StoredPayload.as_str() {
        let stored = StoredPayload::of(PayloadType::ToolCallCompleted, &completed().to_bytes());
        return vec![(tag.to_owned(), record(stored.into()))];
    }
    let mut records = Vec::new();
    let mut variants = 1;
    for round in 0.. {
        let mut fullest = Fullest { round, variants: 1, next: 0 };
        let payload = Payload::from_bytes(&sample::payload(index, &mut fullest)).unwrap();
        variants = variants.max(fullest.variants);
        records.push(match round {
            0 => (tag.to_owned(), record(payload)),
            _ => (format!("{tag}.{round}"), plain(payload)),
        });
        if round + 1 == variants {
            break;
        }
    }
    records
}

/// Includes every optional value, and one item in each list. `round` selects symbols and variants.
struct Fullest {
    round: usize,
    /// The largest number of variants of an enum so far.
    variants: usize,
    next: i64,
}

impl sample::Choose for Fullest {
    fn symbol(&mut self, _: &str, count: usize) -> usize {
        count - 1 - self.round % count
    }
    fn variant(&mut self, _: &str, count: usize) -> usize {
        self.variants = self.variants.max(count);
        // The variant for unknown values comes last.
        (self.round + 1) % count
    }
    fn is_present(&mut self) -> bool {
        true
    }
    fn items(&mut self) -> usize {
        1
    }
    fn text(&mut self, name: &str) -> String {
        format!("{name}-1")
    }
    fn long(&mut self) -> i64 {
        self.next += 1;
        self.next
    }
    fn json(&mut self, name: &str) -> Value {
        serde_json::json!({ name: [1, null] })
    }
}

fn record_of(record_id: &str, payload: Payload) -> JournalRecord {
    let record_id = record_id.parse().unwrap();
    if RecordKind::from_payload(&payload).of_partition() {
        return JournalRecord::of_partition(record_id, "agent-1", payload);
    }
    JournalRecord::new(RunId::new("run-1").unwrap(), record_id, "agent-1", payload)
}

fn id<T: FromStr<Err = Illegal>>(text: &str) -> T {
    text.parse().unwrap()
}

/// A record without optional members.
fn plain(payload: Payload) -> JournalRecord {
    let mut record = record_of("rec-1", payload);
    record.place.writer_id = id("writer-1");
    record
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// The payload of the union's first branch, written by hand.
fn payloads() -> [Payload; 11] {
    let request = ToolCallRequested {
        request_id: "req-1".into(),
        call_id: "call_1".into(),
        parent_id: some("msg-2"),
        vendor: some("scripted"),
        tool_name: "book_flight".into(),
        args_sha256: String::new(),
        fingerprint: OrEmpty::NONE,
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
            request_record_id: id("rec-3"),
            attempt: 2,
            reason: "has an idempotency or dedupe key".into(),
        }
        .into(),
        completed(),
        ToolCallFailed {
            request_record_id: id("rec-3"),
            error_kind: "declined".into(),
            error_message: "no seat left".into(),
            latency_ms: Some(7),
        }
        .into(),
        checkpoint().into(),
        RunClaim { writer_id: id("writer-1"), epoch: 3.into(), claimed_by: "host a, process 1".into() }.into(),
        EffectResolution {
            request_record_id: id("rec-3"),
            decision: "done".into(),
            result: Some(json("null")),
            who: "jo".into(),
            why: "the desk has it".into(),
        }
        .into(),
        Skip { offset: 41.into(), who: "jo".into(), why: "written by a reader of schema 9".into() }.into(),
        Genesis { journal_id: "3f0c3b3e-6a52-4f7e-9d53-2f1f64f2f3aa".into(), partitions: 16 }.into(),
    ]
}

fn completed() -> Payload {
    ToolCallCompleted {
        request_record_id: id("rec-3"),
        result: Some(json(r#"{"booking":"B1"}"#)),
        latency_ms: Some(1234),
    }
    .into()
}

fn checkpoint() -> LoopCheckpoint {
    let mut checkpoint = LoopCheckpoint {
        checkpoint_id: "cp-2".into(),
        checkpoint_seq: 2,
        covers_journal_seq: 6.into(),
        base: some("cp-1"),
        unanswered: vec![id("rec-3"), id("rec-5")],
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

fn record(payload: Payload) -> JournalRecord {
    // A stored payload replaces the payload of a whole record.
    let (whole, stored) = match payload {
        Payload::StoredPayload(_) => (completed(), Some(payload)),
        payload => (payload, None),
    };
    let mut record = record_of("rec-7", whole);
    record.payload = stored.unwrap_or(record.payload);
    if matches!(record.payload, Payload::Encrypted(_)) {
        // Ciphertext does not reveal kind and facts, so they are set here.
        record.body.record_kind = RecordKind::Message;
        record.body.facts =
            Facts { payload_type: PayloadType::Message.into(), key: some("message-1"), ..Facts::default() };
    }
    record.place = Sequencing {
        writer_id: id("writer-1"),
        writer_epoch: 3.into(),
        writer_seq: 7.into(),
        prev_hash: Some(PrevHash(Sha256::of(b"the record before"))),
        journal_seq: 9.into(),
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
    body.content_refs = vec!["content-1".into(), "content-2".into()];
    body.idempotency_key = some("key-1");
    body.dedupe_key = some("dedupe-1");
    body.checkpoint_ref = some("cp-1");
    body.key_id = some("key-2024");
    body.validity = Some(Validity { at: -1, is_valid: true });
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
