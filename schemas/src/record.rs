//! The record: one Avro record whose fields form three groups, which are read separately:
//!
//! ```text
//!   sequencing (writer, epoch, sequence numbers)     judged, not part of the content hash
//!   content (the contract's envelope, then `facts`)  judged
//!   payload (a union, last)                          decoded on demand
//! ```

use crate::{
    datum,
    datum::{Datum, Input, Malformed, Sha256},
    id::{ContentHash, Epoch, JournalSeq, OrEmpty, PrevHash, RecordId, RunId, WriterId, WriterSeq},
    payload::{Payload, PayloadType, StoredPayload},
    refs::{CorrelationEntry, DestinationRef, EntityKind, EntityRef, PrivacyClass, SourceKind, SourceRef},
    schema::{self, RENUMBERED_SINCE, Version},
};
use serde::{Deserialize, Serialize};

mod facts;
mod kind;

pub(crate) use facts::StatedFacts;
pub use facts::{Facts, PRESERVE_LATEST_TERMINAL, Unresolved};
pub use kind::RecordKind;

/// The redaction policy of records without redaction.
pub const REDACTION_DEFAULT: &str = "redaction.default";

/// A record's writer and sequence numbers. First in the schema; not part of the content hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequencing {
    /// Random per open. Empty on records that need no claim, and before the run's first claim.
    pub writer_id: OrEmpty<WriterId>,
    /// 0 for a run that was never claimed.
    pub writer_epoch: Epoch,
    /// 1, 2, 3 … within the epoch; 0 for claims and for records that need no claim.
    pub writer_seq: WriterSeq,
    /// The content hash of this writer's previous record; for the first record after a claim, the run hash after that
    /// claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_hash: Option<PrevHash>,
    /// 1, 2, 3 … within the run for numbered kinds, otherwise 0.
    pub journal_seq: JournalSeq,
    /// The writer's clock, milliseconds since the Unix epoch.
    pub timestamp_millis: u64,
}
datum!(Sequencing { writer_id, writer_epoch, writer_seq, prev_hash, journal_seq, timestamp_millis });

/// Valid time as in the observability contract: the time from which a fact is, or is no longer, claimed to be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// Milliseconds since the Unix epoch, inclusive; negative before it.
    pub at: i64,
    /// Whether it is asserted; otherwise it is retracted.
    pub is_valid: bool,
}
datum!(Validity { at, is_valid });

/// The contract's summary of a record for event streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EventIndexProjection {
    /// The run.
    pub run_id: String,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The agent.
    pub agent_id: String,
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The event's family.
    pub event_family: String,
    /// The event's kind within its family.
    pub event_kind: String,
    /// The source.
    pub source: SourceRef,
    /// The destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<DestinationRef>,
    /// The subject.
    pub subject_ref: EntityRef,
    /// Other related entities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_refs: Vec<EntityRef>,
    /// Correlation entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub correlation_keys: Vec<CorrelationEntry>,
    /// Tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The privacy class.
    pub privacy_class: PrivacyClass,
    /// The delivery semantics.
    pub delivery_semantics: String,
}
datum!(EventIndexProjection {
    run_id,
    session_id,
    agent_id,
    turn_id,
    event_family,
    event_kind,
    source,
    destination,
    subject_ref,
    related_refs,
    correlation_keys,
    tags,
    privacy_class,
    delivery_semantics,
});

/// One record of a journal. [`crate::draft::Draft`] parses it from JSON and fills in absent members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalRecord {
    /// Its writer and sequence numbers.
    #[serde(flatten)]
    pub place: Sequencing,
    /// The envelope's content.
    #[serde(flatten)]
    pub body: Body,
    /// The payload.
    pub payload: Payload,
}

/// The envelope between sequencing and payload. Field names are the run-journal contract's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// The contract's `JOURNAL_SCHEMA_VERSION`: 1.
    pub journal_schema_version: u16,
    /// Unique within the run.
    pub record_id: RecordId,
    /// The kind.
    pub record_kind: RecordKind,
    /// The run; absent on records about a partition.
    pub run_id: OrEmpty<RunId>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The agent.
    pub agent_id: String,
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// The subject.
    pub subject_ref: EntityRef,
    /// Other related entities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_refs: Vec<EntityRef>,
    /// The causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causal_refs: Vec<String>,
    /// The source.
    pub source: SourceRef,
    /// The destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<DestinationRef>,
    /// Correlation entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub correlation_keys: Vec<CorrelationEntry>,
    /// Tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The delivery semantics.
    pub delivery_semantics: String,
    /// The summary for event streams.
    pub event_index: EventIndexProjection,
    /// The runtime package in force.
    pub runtime_package_fingerprint: String,
    /// The privacy class of the payload.
    pub privacy: PrivacyClass,
    /// Ids of content held elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content_refs: Vec<String>,
    /// The redaction policy in force.
    pub redaction_policy_id: String,
    /// The idempotency key. The receiver runs an effect with this key once, so a pending effect is safe to run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The dedupe key, for receivers that deduplicate deliveries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<String>,
    /// A checkpoint that it refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_ref: Option<String>,
    /// Reserved: the key that the payload is encrypted under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// Valid time of the stated fact. If absent, the fact is valid from the writer's timestamp on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// The facts, in clear beside the payload.
    pub facts: Facts,
    /// JSON members without a field in the schema: a JSON object from JSON pointer to value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_fields: Option<String>,
}
datum!(Body {
    journal_schema_version,
    record_id,
    record_kind,
    run_id,
    session_id,
    agent_id,
    turn_id,
    attempt_id,
    subject_ref,
    related_refs,
    causal_refs,
    source,
    destination,
    correlation_keys,
    tags,
    delivery_semantics,
    event_index,
    runtime_package_fingerprint,
    privacy,
    content_refs,
    redaction_policy_id,
    idempotency_key,
    dedupe_key,
    checkpoint_ref,
    key_id,
    validity,
    facts,
    unknown_fields,
});

/// Encoded in [`JournalRecord::version`].
impl Datum for JournalRecord {
    fn put(&self, out: &mut Vec<u8>) {
        self.put_in(self.version().number, out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self { place: Datum::take(input)?, body: Datum::take(input)?, payload: Datum::take(input)? })
    }
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        Sequencing::skip(input)?;
        Body::skip(input)?;
        Payload::skip(input)
    }
}

impl JournalRecord {
    /// Creates a record of a run with Runlog's defaults around `payload`. The caller must set its sequencing.
    pub fn new(run_id: RunId<&str>, record_id: RecordId, agent_id: &str, payload: Payload) -> Self {
        let (kind, facts) = (RecordKind::from_payload(&payload), Facts::from_payload(&payload));
        let body = Body::new(Some(run_id), record_id, agent_id, kind, facts).with_keys_of(&payload);
        Self { place: Sequencing::default(), body, payload }
    }

    /// Like [`Self::new`], for a record about a partition.
    pub fn of_partition(record_id: RecordId, agent_id: &str, payload: Payload) -> Self {
        let (kind, facts) = (RecordKind::from_payload(&payload), Facts::from_payload(&payload));
        Self { place: Sequencing::default(), body: Body::new(None, record_id, agent_id, kind, facts), payload }
    }

    /// Returns the schema version for writing: the lowest version that can express the record and, for a batch, its records.
    pub fn version(&self) -> &'static Version {
        let own = self.body.facts.version();
        schema::numbered(match &self.payload {
            Payload::Batch(batch) => batch.version().max(own),
            _ => own,
        })
    }

    /// Returns the schema version for writing a record that is numbered again.
    pub fn renumbered_version(&self) -> &'static Version {
        schema::numbered(self.version().number.max(RENUMBERED_SINCE))
    }

    /// Appends the datum in a version that expresses the record.
    pub(crate) fn put_in(&self, version: u16, out: &mut Vec<u8>) {
        self.place.put(out);
        self.body.put(out);
        let unset = facts::unset_bytes(self.body.facts.version(), version);
        if unset > 0 {
            // Only `unknown_fields` follows the facts.
            let facts_end = out.len() - self.body.unknown_fields.to_bytes().len();
            out.splice(facts_end..facts_end, std::iter::repeat_n(0, unset));
        }
        match &self.payload {
            Payload::Batch(batch) => {
                datum::put_long(PayloadType::Batch as i64, out);
                batch.put_in(version, out);
            }
            payload => payload.put(out),
        }
    }

    /// SHA-256 over the body and the payload's SHA-256: the same whether the payload is inline or in the content store.
    /// `principal_proof`, `only_own` and `approver` count as null. For a batch, the content hashes of its records replace the payload's, so
    /// renumbering it does not change the hash.
    pub fn content_hash(&self) -> ContentHash {
        content_hash(&self.body, &self.payload)
    }

    /// Returns whether the payload is in the record and can be moved to the content store.
    pub fn may_detach(&self) -> bool {
        let stays = matches!(self.payload, Payload::StoredPayload(_) | Payload::ToolCallAttempt(_));
        !stays && self.body.record_kind.may_be_stored()
    }

    /// Replaces a payload longer than `above` bytes by its claim check, and returns its encoding for the content store.
    /// `None`: the payload is short enough, or must stay inline, such as an attempt, whose number a server checks.
    /// Kind, facts and content hash do not change.
    pub fn detach(&mut self, above: usize) -> Option<Vec<u8>> {
        if !self.may_detach() {
            return None;
        }
        let content = self.payload.to_bytes();
        if content.len() <= above {
            return None;
        }
        self.payload = StoredPayload::of(self.payload.payload_type(), &content).into();
        Some(content)
    }
}

/// Computes the [`JournalRecord::content_hash`] of a record with this body and payload.
pub fn content_hash(body: &Body, payload: &Payload) -> ContentHash {
    let payload = match payload {
        Payload::StoredPayload(stored) => stored.sha256,
        Payload::Batch(batch) => ContentHash::of_batch(batch.records.iter().map(JournalRecord::content_hash)),
        payload => Sha256::of(&payload.to_bytes()),
    };
    let facts = &body.facts;
    let mut bytes = if facts.principal_proof.is_some() || facts.only_own.is_some() || facts.approver.is_some() {
        let mut content = body.clone();
        (content.facts.principal_proof, content.facts.only_own, content.facts.approver) = (None, None, None);
        content.to_bytes()
    } else {
        body.to_bytes()
    };
    payload.put(&mut bytes);
    ContentHash(Sha256::of(&bytes))
}

impl Body {
    /// Copies the payload's own keys into the envelope, as the contract's constructors do.
    #[must_use]
    pub(crate) fn with_keys_of(mut self, payload: &Payload) -> Self {
        (self.idempotency_key, self.dedupe_key) = payload.keys();
        self
    }

    /// Returns the defaults around a payload of this kind with these facts.
    pub(crate) fn new(
        run_id: Option<RunId<&str>>,
        record_id: RecordId,
        agent_id: &str,
        kind: RecordKind,
        facts: Facts,
    ) -> Self {
        let run_id = OrEmpty::<RunId>::from(run_id);
        let source = SourceRef::new(SourceKind::Host, "runlog");
        let subject = match (&facts.answers, &facts.fingerprint) {
            (Some(request), _) => EntityRef::new(EntityKind::ToolCall, request.as_str()),
            (None, Some(_)) => EntityRef::new(EntityKind::ToolCall, record_id.as_str()),
            (None, None) => EntityRef::new(EntityKind::Run, run_id.as_str()),
        };
        Self {
            journal_schema_version: 1,
            record_kind: kind,
            session_id: None,
            agent_id: agent_id.to_owned(),
            turn_id: None,
            attempt_id: None,
            subject_ref: subject.clone(),
            related_refs: Vec::new(),
            causal_refs: Vec::new(),
            source: source.clone(),
            destination: None,
            correlation_keys: Vec::new(),
            tags: Vec::new(),
            delivery_semantics: "journal_backed".into(),
            event_index: EventIndexProjection {
                run_id: run_id.as_str().to_owned(),
                session_id: None,
                agent_id: agent_id.to_owned(),
                turn_id: None,
                event_family: kind.as_str().into(),
                event_kind: facts.status.clone().unwrap_or_else(|| facts.payload_type.to_string()),
                source,
                destination: None,
                subject_ref: subject,
                related_refs: Vec::new(),
                correlation_keys: Vec::new(),
                tags: Vec::new(),
                privacy_class: PrivacyClass::Internal,
                delivery_semantics: "journal_backed".into(),
            },
            runtime_package_fingerprint: String::new(),
            privacy: PrivacyClass::Internal,
            content_refs: Vec::new(),
            redaction_policy_id: REDACTION_DEFAULT.into(),
            idempotency_key: None,
            dedupe_key: None,
            checkpoint_ref: None,
            key_id: None,
            validity: None,
            facts,
            unknown_fields: None,
            record_id,
            run_id,
        }
    }
}
