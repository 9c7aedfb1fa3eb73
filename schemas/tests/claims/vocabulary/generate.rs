//! Random records of every form in the vocabulary.

use super::sample;
use proptest::{collection::vec, option::of, prelude::*, sample::select};
use runlog_schemas::{
    datum::{Datum, Sha256},
    id::{ContentHash, ID_BYTES_MAX, OrEmpty, PrevHash, RunId},
    json::Json,
    messages::{self, MessageSpan},
    or_other::OrOther,
    payload::{
        CheckpointPrune, ConversationTurn, EffectResolution, Genesis, LoopCheckpoint, Payload, PayloadType, RunClaim,
        RunLifecycle, Skip, StoredPayload, ToolCallAttempt, ToolCallCompleted, ToolCallFailed, ToolCallRequested,
        wrapped::Batch,
    },
    record::{Body, EventIndexProjection, Facts, JournalRecord, RecordKind, Sequencing, Unresolved, Validity},
    refs::{
        CorrelationEntry, DestinationKind, DestinationRef, EntityKind, EntityRef, PrivacyClass, RetentionClass,
        SourceKind, SourceRef, TrustClass,
    },
};
use serde_json::Value;
use std::str::FromStr;

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        3 => vec(any::<char>(), 0..6).prop_map(String::from_iter),
        1 => Just(String::new()),
        // Lengths whose encoding has two or three bytes.
        1 => (60_usize..9000).prop_map(|length| "ü".repeat(length)),
    ]
    .boxed()
}

/// An id of any kind and any legal length.
fn id<T: FromStr<Err: std::fmt::Debug> + std::fmt::Debug + 'static>() -> BoxedStrategy<T> {
    let text = prop_oneof![
        4 => vec(any::<char>(), 1..6).prop_map(String::from_iter),
        1 => (30..=ID_BYTES_MAX / 2).prop_map(|length| "ü".repeat(length)),
    ];
    text.prop_map(|text| text.parse().unwrap()).boxed()
}

/// An id that may be absent.
fn id_or_none<T: FromStr<Err: std::fmt::Debug> + std::fmt::Debug + Clone + 'static>() -> BoxedStrategy<OrEmpty<T>> {
    of(id()).prop_map(OrEmpty).boxed()
}

/// A number of its own type.
fn number<T: TryFrom<u64, Error: std::fmt::Debug> + std::fmt::Debug + 'static>() -> BoxedStrategy<T> {
    long().prop_map(|number| number.try_into().unwrap()).boxed()
}

/// A `u64` that an Avro long can contain.
fn long() -> BoxedStrategy<u64> {
    let max = i64::MAX.cast_unsigned();
    prop_oneof![0..200_u64, 0..=max, Just(max), Just(63), Just(64)].boxed()
}

/// A `u32` that an Avro int can contain.
fn int() -> BoxedStrategy<u32> {
    let max = i32::MAX.cast_unsigned();
    prop_oneof![0..200_u32, 0..=max, Just(max)].boxed()
}

fn symbol<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> BoxedStrategy<T> {
    select(all).boxed()
}

/// JSON whose text `serde_json` writes the same way again.
fn json() -> BoxedStrategy<Json> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        Just(Value::from(0.5)),
        vec(any::<char>(), 0..6).prop_map(|text| Value::from(String::from_iter(text))),
    ];
    let nested = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-z~/ü]{0,3}", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    nested.prop_map(Json::from).boxed()
}

prop_compose! {
    fn correlation()(key in text(), value in text()) -> CorrelationEntry { CorrelationEntry { key, value } }
}

prop_compose! {
    fn source()(
        kind in symbol(SourceKind::ALL), id in text(), trust in symbol(TrustClass::ALL),
        privacy in symbol(PrivacyClass::ALL), correlation in vec(correlation(), 0..3), redacted_summary in of(text()),
    ) -> SourceRef {
        SourceRef { kind, id, trust, privacy, correlation, redacted_summary }
    }
}

prop_compose! {
    fn destination()(
        kind in symbol(DestinationKind::ALL), id in text(), privacy in symbol(PrivacyClass::ALL),
        retention in symbol(RetentionClass::ALL), correlation in vec(correlation(), 0..3),
        redacted_summary in of(text()),
    ) -> DestinationRef {
        DestinationRef { kind, id, privacy, retention, correlation, redacted_summary }
    }
}

prop_compose! {
    fn entity()(
        kind in symbol(EntityKind::ALL), id in text(), source in of(source()), privacy in symbol(PrivacyClass::ALL),
        redacted_summary in of(text()),
    ) -> EntityRef {
        EntityRef { kind, id, source, privacy, redacted_summary }
    }
}

prop_compose! {
    fn event_index()(
        (run_id, agent_id, event_family, event_kind, delivery_semantics) in (text(), text(), text(), text(), text()),
        (session_id, turn_id) in (of(text()), of(text())), source in source(), destination in of(destination()),
        subject_ref in entity(), related_refs in vec(entity(), 0..3), correlation_keys in vec(correlation(), 0..3),
        tags in vec(text(), 0..3), privacy_class in symbol(PrivacyClass::ALL),
    ) -> EventIndexProjection {
        EventIndexProjection {
            run_id, session_id, agent_id, turn_id, event_family, event_kind, source, destination, subject_ref,
            related_refs, correlation_keys, tags, privacy_class, delivery_semantics,
        }
    }
}

fn span() -> BoxedStrategy<MessageSpan> {
    let fields = (any::<bool>(), long(), long());
    fields.prop_map(|(from_base, from, count)| MessageSpan { from_base, from, count }).boxed()
}

prop_compose! {
    /// Arbitrary facts, of no payload: they are carried unchanged.
    fn facts()(
        payload_type in text(),
        (status, tool_name, fingerprint, answers) in (of(text()), of(text()), of(id()), of(id())),
        (checkpoint_id, base, key) in (of(text()), of(text()), of(text())),
        (covers_journal_seq, checkpoint_seq, created_at_millis) in (of(number()), of(long()), of(long())),
        (spans, message_bytes) in (vec(span(), 0..3), vec(int(), 0..3)),
    ) -> Facts {
        Facts {
            payload_type: OrOther::of(&payload_type), status, tool_name, fingerprint, answers, checkpoint_id, covers_journal_seq, checkpoint_seq,
            created_at_millis, base, key, spans, message_bytes, ..Facts::default()
        }
    }
}

prop_compose! {
    /// A decision with the state on which it was based.
    pub(crate) fn decision()(
        record_id in id(),
        revision in of(long()),
        evidence in of(id()),
        epoch in of(number()),
        principal in of(text()),
        principal_proof in of(any::<[u8; 32]>().prop_map(Sha256)),
        answers in id(),
    ) -> JournalRecord {
        let payload = EffectResolution {
            request_record_id: answers, decision: "not_done".into(), result: None, who: "w".into(), why: "y".into(),
        };
        let mut record = JournalRecord::new(RunId::new("run").unwrap(), record_id, "agent", payload.into());
        let facts = std::mem::take(&mut record.body.facts);
        record.body.facts = Facts { revision, evidence, epoch, principal, principal_proof, ..facts };
        record
    }
}

/// A record that needs version 3: an attempt or a decision with a basis, or a request that states its needs.
pub(crate) fn of_version_3() -> impl Strategy<Value = JournalRecord> {
    let stated = (
        decision(),
        any::<[u8; 32]>().prop_map(|hash| ContentHash(Sha256(hash))),
        of(select(Unresolved::ALL)),
        any::<i32>().prop_map(|number| number.unsigned_abs() & 0x7fff_ffff),
        0..6_u8,
        text(),
    );
    stated.prop_map(|(decision, basis, unresolved, attempt, which, approver)| {
        let run_id = decision.body.run_id.borrow().unwrap();
        let record_id = decision.body.record_id.clone();
        let request_record_id = decision.body.facts.answers.clone().unwrap();
        let mut record = match which {
            0 => decision,
            1 => {
                let payload = ToolCallAttempt { request_record_id, attempt, reason: "r".into() };
                let mut record = JournalRecord::new(run_id, record_id, "agent", payload.into());
                record.body.facts.attempt = Some(attempt);
                record
            }
            2 => {
                let result = Json::of(&attempt).unwrap();
                let payload = ToolCallCompleted { request_record_id, result: Some(result), latency_ms: None };
                let mut record = JournalRecord::new(run_id, record_id, "agent", payload.into());
                record.body.facts.only_own = Some(unresolved.is_none());
                return record;
            }
            3 => {
                let claim = RunClaim { writer_id: "w".parse().unwrap(), epoch: 1.into(), claimed_by: "c".into() };
                let mut record = JournalRecord::new(run_id, record_id, "agent", claim.into());
                record.body.facts.commitment = Some(basis.0);
                return record;
            }
            4 => {
                let mut record = super::full::approval();
                record.body.record_id = record_id;
                record.body.facts.approver = Some(approver);
                record.body.facts.principal_proof = decision.body.facts.principal_proof;
                return record;
            }
            _ => {
                let request = ToolCallRequested {
                    request_id: "q".into(),
                    call_id: "c".into(),
                    parent_id: None,
                    vendor: None,
                    tool_name: "t".into(),
                    args_sha256: String::new(),
                    fingerprint: OrEmpty::NONE,
                    arguments: Some(Json::of(&1).unwrap()),
                };
                let mut record = JournalRecord::new(run_id, record_id, "agent", request.seal().unwrap().into());
                let facts = &mut record.body.facts;
                (facts.unresolved, facts.repeatable) = (unresolved, Some(unresolved.is_none()));
                facts.observed = (attempt % 2 == 0).then_some(true);
                return record;
            }
        };
        record.body.facts.basis = Some(basis);
        record.body.facts.only_own = (which == 0 && attempt % 2 == 0).then_some(true);
        record
    })
}

prop_compose! {
    fn sequencing()(
        writer_id in id_or_none(), (writer_epoch, writer_seq, journal_seq, timestamp_millis) in
            (number(), number(), number(), long()),
        prev_hash in of(any::<[u8; 32]>().prop_map(|hash| PrevHash(Sha256(hash)))),
    ) -> Sequencing {
        Sequencing { writer_id, writer_epoch, writer_seq, prev_hash, journal_seq, timestamp_millis }
    }
}

prop_compose! {
    fn body()(
        (journal_schema_version, record_kind, privacy) in
            (any::<u16>(), symbol(RecordKind::ALL), symbol(PrivacyClass::ALL)),
        (record_id, run_id, agent_id, delivery_semantics, runtime_package_fingerprint, redaction_policy_id) in
            (id(), id_or_none(), text(), text(), text(), text()),
        (session_id, turn_id, attempt_id, idempotency_key, dedupe_key, checkpoint_ref, key_id) in
            (of(text()), of(text()), of(text()), of(text()), of(text()), of(text()), of(text())),
        (subject_ref, related_refs, causal_refs) in (entity(), vec(entity(), 0..3), vec(text(), 0..3)),
        (source, destination) in (source(), of(destination())),
        (correlation_keys, tags, content_refs) in
            (vec(correlation(), 0..3), vec(text(), 0..3), vec(text(), 0..3)),
        (event_index, facts) in (event_index(), facts()),
        validity in of((any::<i64>(), any::<bool>()).prop_map(|(at, is_valid)| Validity { at, is_valid })),
        unknown_fields in of(json().prop_map(|json| serde_json::json!({"/x": json}).to_string())),
    ) -> Body {
        Body {
            journal_schema_version, record_id, record_kind, run_id, session_id, agent_id, turn_id, attempt_id,
            subject_ref, related_refs, causal_refs, source, destination, correlation_keys, tags, delivery_semantics,
            event_index, runtime_package_fingerprint, privacy, content_refs, redaction_policy_id, idempotency_key,
            dedupe_key, checkpoint_ref, key_id, validity, facts, unknown_fields,
        }
    }
}

prop_compose! {
    fn checkpoint()(
        (checkpoint_id, session_id, state_hash) in (text(), text(), text()),
        (checkpoint_seq, covers_journal_seq, turn, tool_calls_count, created_at_millis) in
            (long(), number(), long(), long(), long()),
        base in of(text()), unanswered in vec(id(), 0..3), schema_version in int(), messages in vec(json(), 0..4),
        (total_usage, state) in (of(json()), of(json())), verification_reports in vec(json(), 0..3),
        spans in vec(span(), 0..3),
    ) -> LoopCheckpoint {
        LoopCheckpoint {
            checkpoint_id, checkpoint_seq, covers_journal_seq, base, unanswered, schema_version, session_id, turn,
            messages, spans, total_usage, tool_calls_count, verification_reports, state, state_hash, created_at_millis,
        }
    }
}

prop_compose! {
    fn request()(
        (request_id, call_id, tool_name, args_sha256, fingerprint) in (text(), text(), text(), text(), id_or_none()),
        (parent_id, vendor) in (of(text()), of(text())), arguments in of(json()),
    ) -> ToolCallRequested {
        ToolCallRequested { request_id, call_id, parent_id, vendor, tool_name, args_sha256, fingerprint, arguments }
    }
}

/// Chooses at random from a seed (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.roll() % u64::try_from(count).unwrap()).unwrap()
    }
}

impl sample::Choose for Dice {
    fn symbol(&mut self, _: &str, count: usize) -> usize {
        self.below(count)
    }
    fn variant(&mut self, _: &str, count: usize) -> usize {
        self.below(count)
    }
    fn is_present(&mut self) -> bool {
        self.below(2) == 1
    }
    fn items(&mut self) -> usize {
        self.below(3)
    }
    fn text(&mut self, name: &str) -> String {
        if matches!(name, "from_run_id" | "request_record_id" | "unanswered" | "writer_id") {
            return format!("{name}-{}", self.below(4));
        }
        [String::new(), name.to_owned(), "\u{1f980}\n\"\u{0}".to_owned(), "ü".repeat(70)][self.below(4)].clone()
    }
    fn long(&mut self) -> i64 {
        [0, 1, 63, 64, 1_700_000_000_000, i64::MAX][self.below(6)]
    }
    fn json(&mut self, name: &str) -> Value {
        [Value::Null, 0.5.into(), u64::MAX.into(), serde_json::json!({name: [1, {}]})][self.below(4)].clone()
    }
}

/// A payload of the branch at `index` of [`Payload::TYPES`].
fn payload_of(index: usize) -> BoxedStrategy<Payload> {
    match Payload::TYPES[index] {
        "run_lifecycle" => (text(), text()).prop_map(|(status, reason)| RunLifecycle { status, reason }.into()).boxed(),
        "conversation_turn" => (text(), of(text()), of(text()), text(), json())
            .prop_map(|(message_id, parent_id, thread_id, kind, content)| {
                ConversationTurn { message_id, parent_id, thread_id, kind, content }.into()
            })
            .boxed(),
        "tool_call_requested" => request().prop_map(Payload::from).boxed(),
        "tool_call_attempt" => (id(), int(), text())
            .prop_map(|(request_record_id, attempt, reason)| {
                ToolCallAttempt { request_record_id, attempt, reason }.into()
            })
            .boxed(),
        "tool_call_completed" => (id(), of(json()), of(any::<i64>()))
            .prop_map(|(request_record_id, result, latency_ms)| {
                ToolCallCompleted { request_record_id, result, latency_ms }.into()
            })
            .boxed(),
        "tool_call_failed" => (id(), text(), text(), of(any::<i64>()))
            .prop_map(|(request_record_id, error_kind, error_message, latency_ms)| {
                ToolCallFailed { request_record_id, error_kind, error_message, latency_ms }.into()
            })
            .boxed(),
        "loop_checkpoint" => checkpoint().prop_map(Payload::from).boxed(),
        "run_claim" => (id(), number(), text())
            .prop_map(|(writer_id, epoch, claimed_by)| RunClaim { writer_id, epoch, claimed_by }.into())
            .boxed(),
        "effect_resolution" => (id(), text(), of(json()), text(), text())
            .prop_map(|(request_record_id, decision, result, who, why)| {
                EffectResolution { request_record_id, decision, result, who, why }.into()
            })
            .boxed(),
        "skip" => (number(), text(), text()).prop_map(|(offset, who, why)| Skip { offset, who, why }.into()).boxed(),
        "genesis" => {
            (text(), int()).prop_map(|(journal_id, partitions)| Genesis { journal_id, partitions }.into()).boxed()
        }
        "checkpoint_prune" => (number(), any::<bool>())
            .prop_map(|(prune_covered_before, preserve_latest_terminal)| {
                CheckpointPrune { prune_covered_before, preserve_latest_terminal }.into()
            })
            .boxed(),
        "stored_payload" => (text(), any::<[u8; 32]>(), long())
            .prop_map(|(payload_type, sha256, bytes)| {
                StoredPayload { payload_type: OrOther::of(&payload_type), sha256: Sha256(sha256), bytes }.into()
            })
            .boxed(),
        "batch" => vec(plain(), 0..3).prop_map(|records| Batch { records }.into()).boxed(),
        _ => any::<u64>()
            .prop_map(move |seed| Payload::from_bytes(&sample::payload(index, &mut Dice(seed))).unwrap())
            .boxed(),
    }
}

/// A payload of any type.
pub(crate) fn payload() -> impl Strategy<Value = Payload> {
    (0..Payload::TYPES.len()).prop_flat_map(payload_of)
}

prop_compose! {
    /// A record that the codec can encode, legal or not.
    pub(crate) fn record()(place in sequencing(), body in body(), payload in payload()) -> JournalRecord {
        JournalRecord { place, body, payload }
    }
}

/// A record that is no batch, as a producer writes it.
fn plain() -> BoxedStrategy<JournalRecord> {
    let batch = Payload::TYPES.iter().position(|tag| *tag == "batch").unwrap();
    let others: Vec<usize> = (0..Payload::TYPES.len()).filter(|index| *index != batch).collect();
    let record = (sequencing(), body(), select(others).prop_flat_map(payload_of))
        .prop_map(|(place, body, payload)| JournalRecord { place, body, payload });
    as_written(record.boxed())
}

/// A record as a producer writes it: kind and facts follow from the payload, and run or partition from the kind.
pub(crate) fn written() -> impl Strategy<Value = JournalRecord> {
    as_written(record().boxed())
}

fn as_written(record: BoxedStrategy<JournalRecord>) -> BoxedStrategy<JournalRecord> {
    let strategy = (record, id::<RunId>()).prop_filter_map("requests name a tool", |(mut record, run_id)| {
        let payload = match record.payload {
            Payload::ToolCallRequested(request) if request.tool_name.is_empty() => return None,
            Payload::ToolCallRequested(request) => {
                let sealed = ToolCallRequested { fingerprint: OrEmpty::NONE, args_sha256: String::new(), ..request };
                let sealed = sealed.seal().ok()?;
                if sealed.fingerprint.is_none() { return None } else { sealed.into() }
            }
            Payload::EffectResolution(resolution) => {
                let decision = match (&resolution.result, resolution.decision.len() % 3) {
                    (Some(_), _) => "done",
                    (None, 0) => "adopt",
                    (None, 1) => "not_done",
                    (None, _) => "give_up",
                };
                let (who, why) = (format!("w{}", resolution.who), format!("y{}", resolution.why));
                EffectResolution { decision: decision.into(), who, why, ..resolution }.into()
            }
            Payload::LoopCheckpoint(mut checkpoint) => {
                let own = checkpoint.messages.len() as u64;
                if checkpoint.base.is_none() && messages::resolve(0, own, &checkpoint.spans).is_none() {
                    checkpoint.spans.clear();
                }
                checkpoint.state_hash = checkpoint.content_hash();
                checkpoint.into()
            }
            Payload::StoredPayload(stored) => {
                StoredPayload { payload_type: PayloadType::Message.into(), ..stored }.into()
            }
            other => other,
        };
        if matches!(payload, Payload::StoredPayload(_)) {
            // Kind and facts still describe the payload that moved to the content store.
            record.body.facts.payload_type = PayloadType::Message.into();
            record.body.record_kind = RecordKind::Message;
        } else if matches!(payload, Payload::Encrypted(_)) {
            record.body.facts = Facts { payload_type: PayloadType::Message.into(), ..Facts::default() };
            record.body.record_kind = RecordKind::Message;
        } else {
            record.body.facts = Facts::from_payload(&payload);
            record.body.record_kind = RecordKind::from_payload(&payload);
        }
        record.body.run_id = if record.body.record_kind.of_partition() { OrEmpty::NONE } else { run_id.into() };
        record.payload = payload;
        Some(record)
    });
    strategy.boxed()
}
