//! Frames and reads records as they are in the log.
//!
//! ```text
//!   C3 01 <Rabin fingerprint, 8 bytes LE> <datum>    Avro single-object encoding
//!   00    <schema id, 4 bytes BE>         <datum>    Confluent framing; a registry maps the id to a schema
//! ```
//!
//! [`read`] checks the whole datum and borrows the envelope; the payload is decoded on demand. Bytes from the log go
//! through [`reframe`] first, so that index rows name their schema and need no registry.

use crate::{
    datum::{Datum, Input, Malformed, Sha256},
    id::{ContentHash, Epoch, JournalSeq, PrevHash, RecordId, RunId, WriterId, WriterSeq},
    payload::{Payload, PayloadType, StoredPayload, wrapped::Batch},
    record::{EventIndexProjection, Facts, JournalRecord, RecordKind, Validity},
    refs::{CorrelationEntry, DestinationRef, EntityRef, PrivacyClass, SourceRef},
    schema::Version,
};
use std::sync::OnceLock;

mod event;
mod framing;
mod unreadable;

pub use event::{Entity, Event};
pub use framing::{Framing, NoRegistry, Schemas, Unframed, confluent_id, reframe, reframe_as, size, unframe};
use framing::{SINGLE_OBJECT_BYTES, single_object};
pub use unreadable::{RECORD_BYTES_MAX, Unreadable};

/// Frames `record` as an Avro single object.
pub fn encode(record: &JournalRecord) -> Vec<u8> {
    encode_as(record, Framing::SingleObject)
}

/// Frames `record`. A Confluent id must name the schema of [`JournalRecord::version`].
pub fn encode_as(record: &JournalRecord, framing: Framing) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    framing.put(record.version(), &mut out);
    record.put(&mut out);
    out
}

/// Frames a record that is numbered again, in [`JournalRecord::renumbered_version`]. Its content hash does not change. A
/// Confluent id must be the id of this version.
pub fn encode_renumbered(record: &JournalRecord, framing: Framing) -> Vec<u8> {
    let version = record.renumbered_version();
    let mut out = Vec::with_capacity(1024);
    framing.put(version, &mut out);
    record.put_in(version.number, &mut out);
    out
}

/// The last of the facts that version 2 added, a proof, encoded: its branch and 32 bytes.
const PROOF_BYTES: usize = 33;

/// The last of the facts that version 3 added, a boolean, encoded: its branch and a byte.
const ONLY_OWN_BYTES: usize = 2;

/// A record's envelope, borrowed from its datum: the fields for judging, projecting and numbering.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope<'a> {
    /// The writer. `None` on records that need no claim, and before the first claim.
    pub writer_id: Option<WriterId<&'a str>>,
    /// The writer's epoch.
    pub writer_epoch: Epoch,
    /// The writer's sequence number within the epoch.
    pub writer_seq: WriterSeq,
    /// The run's sequence number.
    pub journal_seq: JournalSeq,
    /// The writer's clock, milliseconds since the Unix epoch.
    pub timestamp_millis: u64,
    /// Unique within the run.
    pub record_id: RecordId<&'a str>,
    /// The kind.
    pub kind: RecordKind,
    /// The run. `None` only on records about a partition.
    pub run_id: Option<RunId<&'a str>>,
    /// The payload's privacy.
    pub privacy: PrivacyClass,
    /// Its receiver's idempotency key, if any.
    pub idempotency_key: Option<&'a str>,
    /// Its receiver's dedupe key, if any.
    pub dedupe_key: Option<&'a str>,
    /// Valid time of the stated fact, if the record has one.
    pub validity: Option<Validity>,
    /// The facts.
    pub facts: Facts,
    stored: Option<StoredPayload>,
    event_at: usize,
    content_at: usize,
    /// The ends of the facts of version 1, 2 and 3. A version that the datum lacks adds no facts.
    facts_end: [usize; 3],
    payload_at: usize,
    version: &'static Version,
    datum: &'a [u8],
    hashes: Hashes,
}

/// Hashes of a record, each computed once. They depend on no public field that a reader may change.
#[derive(Clone, Debug, Default)]
struct Hashes {
    content: OnceLock<ContentHash>,
    payload: OnceLock<Sha256>,
}

/// Equal records have equal hashes, whether or not these are computed.
impl PartialEq for Hashes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<'a> Envelope<'a> {
    /// Reads the envelope at the start of a datum. Of the payload it reads only a claim check.
    ///
    /// Allocates only for the facts and a claim check; other fields are borrowed, or checked and not kept.
    pub fn read(datum: Unframed<'a>) -> Result<Self, Malformed> {
        let Unframed { version, datum } = datum;
        let mut input = Input::of_version(datum, version.number);
        let at = &mut input;
        let writer_id = WriterId::take_or_empty(at)?;
        let (writer_epoch, writer_seq) = (Epoch::take(at)?, WriterSeq::take(at)?);
        Option::<PrevHash>::skip(at)?;
        let (journal_seq, timestamp_millis) = (JournalSeq::take(at)?, u64::take(at)?);
        let content_at = at.position();
        u16::skip(at)?;
        let record_id = RecordId::take_borrowed(at)?;
        let kind = RecordKind::take(at)?;
        let run_id = RunId::take_or_empty(at)?;
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
        let event_at = at.position();
        EventIndexProjection::skip(at)?;
        String::skip(at)?; // runtime_package_fingerprint
        let privacy = PrivacyClass::take(at)?;
        Vec::<String>::skip(at)?; // content_refs
        String::skip(at)?; // redaction_policy_id
        let idempotency_key = at.optional_str()?;
        let dedupe_key = at.optional_str()?;
        Option::<String>::skip(at)?; // checkpoint_ref
        Option::<String>::skip(at)?; // key_id
        let validity = Datum::take(at)?;
        let mut facts = Facts::take_version_1(at)?;
        let mut facts_end = [at.position(); 3];
        facts.take_version_2(at)?;
        facts_end[1] = at.position();
        facts.take_version_3(at)?;
        facts_end[2] = at.position();
        Option::<String>::skip(at)?; // unknown_fields
        let payload_at = at.position();
        let stored = claim_check(at);
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
            validity,
            facts,
            stored,
            event_at,
            content_at,
            facts_end,
            payload_at,
            version,
            datum,
            hashes: Hashes::default(),
        })
    }

    /// Returns the SHA-256 over the body and [`Envelope::payload_hash`], which does not depend on whether the payload is inline or
    /// stored. The body is hashed in the lowest version that expresses it, so that a renumbered record has the same hash.
    /// `principal_proof`, `only_own` and `approver` are hashed as null, so that a resent record has the same hash after a change of
    /// the server's key or of the client's credential.
    pub fn content_hash(&self) -> ContentHash {
        *self.hashes.content.get_or_init(|| self.compute_content_hash())
    }

    fn compute_content_hash(&self) -> ContentHash {
        let [_, second, last] = self.facts_end;
        let version = self.facts.version_of_content();
        let end = self.facts_end[usize::from(version) - 1];
        let (has_only_own, has_proof) =
            (version >= 3 && self.facts.only_own.is_some(), version >= 2 && self.facts.principal_proof.is_some());
        let approver = if version >= 3 { end - self.facts.approver.to_bytes().len() } else { end };
        let only_own = if has_only_own { approver - ONLY_OWN_BYTES } else { approver };
        let proof = if has_proof { second - PROOF_BYTES..second } else { only_own..only_own };
        let null = |is_cut| if is_cut { [0].as_slice() } else { &[] };
        let parts =
            [self.content_at..proof.start, proof.end..only_own, last..self.payload_at].map(|at| &self.datum[at]);
        let [before, between, after] = parts;
        let payload = self.payload_hash();
        let nulls = [null(has_proof), null(has_only_own), null(version >= 3)];
        ContentHash(Sha256::of_parts(&[before, nulls[0], between, nulls[1], nulls[2], after, &payload.0]))
    }

    /// Returns the SHA-256 of the whole datum, the input of the run hash.
    pub fn record_hash(&self) -> Sha256 {
        Sha256::of(self.datum)
    }

    /// Returns the SHA-256 of the payload's encoding, inline or stored. Equal completions have equal hashes. A batch's hash covers
    /// the content hashes of its records, so that it does not depend on their numbers.
    pub fn payload_hash(&self) -> Sha256 {
        *self.hashes.payload.get_or_init(|| self.compute_payload_hash())
    }

    fn compute_payload_hash(&self) -> Sha256 {
        if self.kind == RecordKind::Batch
            && let Ok(records) = self.records()
        {
            return ContentHash::of_batch(records.iter().map(Self::content_hash));
        }
        self.stored.as_ref().map_or_else(|| Sha256::of(&self.datum[self.payload_at..]), |stored| stored.sha256)
    }

    /// Returns the claim check, if the payload is in the content store.
    pub fn stored(&self) -> Option<&StoredPayload> {
        self.stored.as_ref()
    }

    /// Decodes the payload, or its claim check if it is in the content store.
    pub fn payload(&self) -> Result<Payload, Malformed> {
        decode_to_end(self.payload_input())
    }

    /// Returns the records of a batch.
    ///
    /// Errors: the payload is not a readable batch.
    pub fn records(&self) -> Result<Vec<Envelope<'a>>, Malformed> {
        let mut records = Vec::new();
        self.each_record(|record| {
            records.push(record);
            Ok(())
        })?;
        Ok(records)
    }

    /// Visits the records of a batch.
    fn each_record(&self, mut visit: impl FnMut(Envelope<'a>) -> Result<(), Malformed>) -> Result<(), Malformed> {
        let mut input = self.payload_input();
        if PayloadType::ALL[input.branch(PayloadType::ALL.len())?] != PayloadType::Batch {
            return Err(input.malformed("no batch"));
        }
        let payload = &self.datum[self.payload_at..];
        Batch::spans(&mut input, |at| visit(Envelope::read(Unframed { version: self.version, datum: &payload[at] })?))
    }

    /// Returns the record as an Avro single object.
    pub fn framed(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SINGLE_OBJECT_BYTES + self.datum.len());
        single_object(self.version, &mut out);
        out.extend_from_slice(self.datum);
        out
    }

    /// Reads the summary for event streams.
    pub fn event(&self) -> Result<Event<'a>, Malformed> {
        Event::read(&mut Input::of_version(&self.datum[self.event_at..], self.version.number))
    }

    fn payload_input(&self) -> Input<'a> {
        Input::of_version(&self.datum[self.payload_at..], self.version.number)
    }

    /// Returns the schema version of the record's datum.
    pub fn version(&self) -> &'static Version {
        self.version
    }

    /// Returns the datum of the record.
    pub fn datum(&self) -> &'a [u8] {
        self.datum
    }
}

/// Reads the claim check, if the next payload is one.
fn claim_check(input: &mut Input<'_>) -> Option<StoredPayload> {
    let branch = input.branch(PayloadType::ALL.len()).ok()?;
    (PayloadType::ALL[branch] == PayloadType::StoredPayload).then(|| StoredPayload::take(input).ok())?
}

/// Unframes `bytes` and reads the envelope and the payload's branch. [`read`] may still find that the record is a dead letter. It
/// can no longer find a reason to stop the partition.
pub fn read_envelope(bytes: &[u8]) -> Result<Envelope<'_>, Unreadable> {
    let envelope = Envelope::read(unframe(bytes)?)?;
    let branch = envelope.payload_input().long()?;
    if usize::try_from(branch).map_or(true, |branch| branch >= PayloadType::ALL.len()) {
        return Err(Unreadable::UnknownBranch(branch));
    }
    Ok(envelope)
}

/// Unframes `bytes`, reads the envelope and checks the whole payload.
pub fn read(bytes: &[u8]) -> Result<Envelope<'_>, Unreadable> {
    let envelope = read_envelope(bytes)?;
    let mut input = envelope.payload_input();
    let branch = input.clone().long()?;
    Payload::skip(&mut input)?;
    if input.left() > 0 {
        return Err(input.malformed("bytes left over").into());
    }
    consistent(&envelope)?;
    if envelope.kind == RecordKind::Batch && branch_type(branch) == Some(PayloadType::Batch) {
        // The records of a batch are checked like any other.
        envelope.each_record(|record| consistent(&record))?;
    }
    Ok(envelope)
}

fn branch_type(branch: i64) -> Option<PayloadType> {
    usize::try_from(branch).ok().and_then(|branch| PayloadType::ALL.get(branch).copied())
}

/// Checks that kind and facts match the payload, because the judge reads only kind and facts.
fn consistent(envelope: &Envelope<'_>) -> Result<(), Malformed> {
    let malformed = |what| Malformed { what, at: envelope.payload_at };
    if let Some(stored) = envelope.stored()
        && (!envelope.kind.may_be_stored() || !stored.fits(&envelope.facts.payload_type))
    {
        return Err(malformed("a stored payload does not fit its record"));
    }
    if envelope.run_id.is_none() != envelope.kind.of_partition() {
        return Err(malformed("run_id does not fit the record's kind"));
    }
    if !envelope.kind.carries(&envelope.facts.payload_type) {
        return Err(malformed("record_kind does not fit the payload type"));
    }
    let branch = branch_type(envelope.payload_input().long()?);
    if !branch.is_some_and(|branch| branch.hides() || envelope.facts.payload_type == branch) {
        return Err(malformed("the payload is not of the type that the facts name"));
    }
    // Without a fingerprint the call could not be looked up.
    if envelope.facts.payload_type == PayloadType::ToolCallRequested && envelope.facts.fingerprint.is_none() {
        return Err(malformed("a request without a fingerprint"));
    }
    Ok(())
}

/// Decodes a whole datum.
pub fn decode(datum: Unframed<'_>) -> Result<JournalRecord, Malformed> {
    let Unframed { version, datum } = datum;
    decode_to_end(Input::of_version(datum, version.number))
}

/// Reads a value that must fill its input to the end.
fn decode_to_end<T: Datum>(mut input: Input<'_>) -> Result<T, Malformed> {
    let value = T::take(&mut input)?;
    if input.left() > 0 { Err(input.malformed("bytes left over")) } else { Ok(value) }
}
