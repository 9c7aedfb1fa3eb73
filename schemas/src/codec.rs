//! From the wire to an envelope, and back.
//!
//! ```text
//!   C3 01 <Rabin fingerprint, 8 bytes LE> <datum>    Avro single-object encoding: written
//!   00    <schema id, 4 bytes BE>         <datum>    Confluent framing: recognised
//! ```
//!
//! Reading is two steps: [`read`] checks the whole datum and borrows the envelope; the payload is decoded on demand.

use crate::{
    datum::{self, Datum, Input, Malformed, Sha256},
    payload::{Payload, StoredPayload},
    record::{EventIndexProjection, Facts, JournalRecord, RecordKind, Validity},
    refs::{CorrelationEntry, DestinationRef, EntityRef, PrivacyClass, SourceRef},
    schema,
};

/// The largest framed record, bytes: what a producer may append and a reader takes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// Bytes that a reader cannot take, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Neither framing: a dead letter.
    #[error("neither Avro single-object encoding nor Confluent framing")]
    NotFramed,
    /// A known schema that does not decode: a dead letter.
    #[error("does not decode by its schema: {0}")]
    Undecodable(Malformed),
    /// Over [`RECORD_BYTES_MAX`]: a dead letter.
    #[error("{0} bytes, more than {RECORD_BYTES_MAX}")]
    TooLarge(usize),
    /// A schema that this build does not know: the partition stops.
    #[error("unknown schema {0}; start a reader that knows it, or append a skip for the record")]
    UnknownSchema(String),
    /// A payload branch that the known schema does not have: the partition stops.
    #[error("unknown payload branch {0}; start a reader that knows it, or append a skip for the record")]
    UnknownBranch(i64),
}

impl Unreadable {
    /// Whether the partition stops here; otherwise the record is a dead letter and the partition goes on.
    pub fn stops(&self) -> bool {
        matches!(self, Self::UnknownSchema(_) | Self::UnknownBranch(_))
    }

    /// The dead letter's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFramed => "not_framed",
            Self::Undecodable(_) => "undecodable",
            Self::TooLarge(_) => "too_large",
            Self::UnknownSchema(_) | Self::UnknownBranch(_) => "unknown_schema",
        }
    }
}

impl From<Malformed> for Unreadable {
    fn from(malformed: Malformed) -> Self {
        Self::Undecodable(malformed)
    }
}

/// Frames `record` as an Avro single object.
pub fn encode(record: &JournalRecord) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(&[0xC3, 0x01]);
    out.extend_from_slice(&schema::fingerprint());
    record.put(&mut out);
    out
}

/// Strips the framing; the rest is a datum of the current schema.
pub fn unframe(bytes: &[u8]) -> Result<&[u8], Unreadable> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(Unreadable::TooLarge(bytes.len()));
    }
    match bytes {
        [0xC3, 0x01, rest @ ..] if rest.len() >= 8 => {
            let (fingerprint, datum) = rest.split_at(8);
            if fingerprint == schema::fingerprint() {
                Ok(datum)
            } else {
                Err(Unreadable::UnknownSchema(format!("fingerprint {}", datum::hex(fingerprint))))
            }
        }
        // No registry is configured in this version: an id names a schema that nobody here can look up.
        [0x00, a, b, c, d, ..] => Err(Unreadable::UnknownSchema(format!(
            "id {} (no registry is configured)",
            u32::from_be_bytes([*a, *b, *c, *d])
        ))),
        _ => Err(Unreadable::NotFramed),
    }
}

/// A record's envelope, borrowed from its datum; the fields that judging, projecting and numbering need.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope<'a> {
    /// The writer.
    pub writer_id: &'a str,
    /// Its epoch.
    pub writer_epoch: u64,
    /// Its sequence number within the epoch.
    pub writer_seq: u64,
    /// The run's sequence number.
    pub journal_seq: u64,
    /// The writer's clock, milliseconds since the Unix epoch.
    pub timestamp_millis: u64,
    /// Unique within the run.
    pub record_id: &'a str,
    /// The kind.
    pub kind: RecordKind,
    /// The run; empty for a partition's records.
    pub run_id: &'a str,
    /// The payload's privacy.
    pub privacy: PrivacyClass,
    /// Makes a pending effect safe to run again.
    pub idempotency_key: Option<String>,
    /// Likewise.
    pub dedupe_key: Option<String>,
    /// What statuses are judged by.
    pub facts: Facts,
    content_at: usize,
    payload_at: usize,
    datum: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads the envelope at the start of a datum and leaves the payload unread.
    pub fn read(datum: &'a [u8]) -> Result<Self, Malformed> {
        let mut input = Input::new(datum);
        let at = &mut input;
        let writer_id = at.str()?;
        let (writer_epoch, writer_seq) = (u64::take(at)?, u64::take(at)?);
        Option::<Sha256>::skip(at)?;
        let (journal_seq, timestamp_millis) = (u64::take(at)?, u64::take(at)?);
        let content_at = at.position();
        u16::skip(at)?;
        let record_id = at.str()?;
        let kind = RecordKind::take(at)?;
        let run_id = at.str()?;
        Option::<String>::skip(at)?; // session_id
        String::skip(at)?; // agent_id
        Option::<String>::skip(at)?; // turn_id
        Option::<String>::skip(at)?; // attempt_id
        EntityRef::skip(at)?; // subject_ref
        Vec::<EntityRef>::skip(at)?; // related_refs
        Vec::<String>::skip(at)?; // causal_refs
        SourceRef::skip(at)?;
        Option::<DestinationRef>::skip(at)?;
        Vec::<CorrelationEntry>::skip(at)?;
        Vec::<String>::skip(at)?; // tags
        String::skip(at)?; // delivery_semantics
        EventIndexProjection::skip(at)?;
        String::skip(at)?; // runtime_package_fingerprint
        let privacy = PrivacyClass::take(at)?;
        Vec::<String>::skip(at)?; // content_refs
        String::skip(at)?; // redaction_policy_id
        let idempotency_key = Datum::take(at)?;
        let dedupe_key = Datum::take(at)?;
        Option::<String>::skip(at)?; // checkpoint_ref
        Option::<String>::skip(at)?; // key_id
        Option::<Validity>::skip(at)?;
        let facts = Facts::take(at)?;
        Option::<String>::skip(at)?; // unknown_fields
        let payload_at = at.position();
        Ok(Self {
            writer_id,
            writer_epoch,
            writer_seq,
            journal_seq,
            timestamp_millis,
            record_id,
            kind,
            run_id,
            privacy,
            idempotency_key,
            dedupe_key,
            facts,
            content_at,
            payload_at,
            datum,
        })
    }

    /// SHA-256 over the body and [`Envelope::payload_hash`]: the same wherever the payload is held.
    pub fn content_hash(&self) -> Sha256 {
        let body = &self.datum[self.content_at..self.payload_at];
        Sha256::of_parts(&[body, &self.payload_hash().0])
    }

    /// SHA-256 of the whole datum, which the run hash is made of.
    pub fn record_hash(&self) -> Sha256 {
        Sha256::of(self.datum)
    }

    /// SHA-256 of the payload's encoding, wherever that is held: what "the same completion" is compared by.
    pub fn payload_hash(&self) -> Sha256 {
        self.stored().map_or_else(|| Sha256::of(&self.datum[self.payload_at..]), |stored| stored.sha256)
    }

    /// The claim check, where the payload is in the content store.
    pub fn stored(&self) -> Option<StoredPayload> {
        let mut input = Input::new(&self.datum[self.payload_at..]);
        let branch = input.branch(Payload::TYPES.len()).ok()?;
        (Payload::TYPES[branch] == Payload::STORED).then(|| StoredPayload::take(&mut input).ok())?
    }

    /// Decodes the payload, or its claim check where it is in the content store.
    pub fn payload(&self) -> Result<Payload, Malformed> {
        Payload::from_bytes(&self.datum[self.payload_at..])
    }

    /// The datum that it was read from.
    pub fn datum(&self) -> &'a [u8] {
        self.datum
    }
}

/// Unframes `bytes`, reads the envelope and checks the payload to the last byte.
pub fn read(bytes: &[u8]) -> Result<Envelope<'_>, Unreadable> {
    let envelope = Envelope::read(unframe(bytes)?)?;
    let rest = &envelope.datum[envelope.payload_at..];
    let branch = Input::new(rest).long()?;
    if usize::try_from(branch).map_or(true, |branch| branch >= Payload::TYPES.len()) {
        return Err(Unreadable::UnknownBranch(branch));
    }
    let mut input = Input::new(rest);
    Payload::skip(&mut input)?;
    if input.left() > 0 {
        return Err(input.malformed("bytes left over").into());
    }
    if let Some(stored) = envelope.stored()
        && (!envelope.kind.may_be_stored() || stored.payload_type != envelope.facts.payload_type)
    {
        return Err(Malformed { what: "a stored payload does not fit its record", at: envelope.payload_at }.into());
    }
    if envelope.run_id.is_empty() != envelope.kind.of_partition() {
        return Err(input.malformed("run_id does not fit the record's kind").into());
    }
    // A reader judges by kind and facts alone, so these must not tell another story than the payload does.
    if !envelope.kind.carries(&envelope.facts.payload_type) {
        return Err(input.malformed("record_kind does not fit the payload type").into());
    }
    let payload_type = usize::try_from(branch).ok().and_then(|branch| Payload::TYPES.get(branch).copied());
    if !payload_type.is_some_and(|found| Payload::hides(found) || found == envelope.facts.payload_type) {
        return Err(input.malformed("the payload is not of the type that the facts name").into());
    }
    Ok(envelope)
}

/// Decodes a datum whole.
pub fn decode(datum: &[u8]) -> Result<JournalRecord, Malformed> {
    JournalRecord::from_bytes(datum)
}
