//! Reading a record allocates the envelope's facts, each once, and no memory for any other field.

use crate::{counting, vocabulary::full};
use runlog_schemas::{
    codec::{self, Envelope},
    id::{Fingerprint, RecordId},
    payload::PayloadType,
    record::Facts,
    schema,
};

/// Counts the expected allocations: one for each string that is not empty, and one for each list.
fn count_allocations(facts: &Facts) -> usize {
    // Lists all fields, so that a new field does not compile until this test considers it.
    let Facts {
        payload_type,
        status,
        tool_name,
        fingerprint,
        answers,
        checkpoint_id,
        covers_journal_seq: _,
        checkpoint_seq: _,
        created_at_millis: _,
        base,
        key,
        spans,
        message_bytes,
        revision: _,
        evidence,
        epoch: _,
        principal,
        principal_proof: _,
        basis: _,
        attempt: _,
        unresolved: _,
        repeatable: _,
        observed: _,
        commitment: _,
        shown: _,
        only_own: _,
        approver,
    } = facts;
    assert!(spans.len() <= 4 && message_bytes.len() <= 4, "lists that do not grow while they are read");
    let ids = [answers, evidence].map(|id| id.as_ref().map(RecordId::as_str));
    let ids = ids.into_iter().chain([fingerprint.as_ref().map(Fingerprint::as_str)]);
    let texts = [status, tool_name, checkpoint_id, base, key, principal, approver]
        .map(Option::as_deref)
        .into_iter()
        .chain(ids)
        .flatten();
    // A known type is no text.
    let unknown = payload_type.known().is_none().then(|| payload_type.as_str());
    let texts = texts.chain(unknown).filter(|text| !text.is_empty());
    texts.count() + usize::from(!spans.is_empty()) + usize::from(!message_bytes.is_empty())
}

#[test]
fn an_envelope_allocates_for_its_facts_and_for_no_other_field() {
    // Computed once, from the schema.
    schema::lowest();
    for (name, record) in full::records() {
        let framed = codec::encode(&record);
        let datum = codec::unframe(&framed).unwrap();
        let (envelope, allocated) = counting::during(|| Envelope::read(datum).unwrap());
        assert_eq!(envelope.facts, record.body.facts);
        assert_eq!(allocated.count, count_allocations(&envelope.facts), "{name}");
        // Its strings are as long as they are in the datum, and its lists have room for four.
        assert!(allocated.bytes < framed.len() + 256, "{name}: {} bytes", allocated.bytes);
        // The payload is checked to its last byte without keeping memory: JSON text allocates a byte per open bracket
        // and frees it.
        let (_, checked) = counting::during(|| codec::read(&framed).unwrap());
        // The records of a batch are checked like single records, one at a time.
        let checks = if envelope.facts.payload_type == PayloadType::Batch { framed.len() } else { 8 };
        assert!(checked.peak <= allocated.peak + checks, "{name}: {checked:?}, the envelope {allocated:?}");
    }
}

#[test]
fn a_field_that_is_not_kept_costs_no_memory_however_long_it_is() {
    schema::lowest();
    for (name, mut record) in full::records() {
        let read = |framed: &[u8]| counting::during(|| codec::read(framed).map(drop).unwrap()).1;
        let before = read(&codec::encode(&record));
        record.body.tags = vec!["tag".repeat(100); 300];
        record.body.unknown_fields = Some(format!("{{\"/\":\"{}\"}}", "x".repeat(100_000)));
        record.body.redaction_policy_id = "policy".repeat(1000);
        record.body.subject_ref.id = "subject".repeat(1000);
        record.body.idempotency_key = Some("key".repeat(1000));
        assert_eq!(read(&codec::encode(&record)), before, "{name}");
    }
}
