//! Claims about all bytes: checked by the fuzz targets, and by `replay` over a corpus without a fuzzer.

#[path = "../../tests/claims/counting.rs"]
mod counting;

use runlog_schemas::{
    codec::{self, Framing, Schemas, Unreadable},
    datum::{Datum, Sha256},
    draft::Draft,
    payload::{Payload, PayloadType},
    record::JournalRecord,
    schema::{self, Version},
};
use std::time::Duration;

/// Memory per byte of input for the densest values: one byte can encode an empty string.
const FACTOR: usize = 64;
/// Memory that does not depend on the input: messages, and the few small vectors of a record.
const FIXED: usize = 16 << 10;

/// Runs `read` and checks that its peak memory is at most a small multiple of its input.
fn bounded<T>(input: usize, read: impl FnOnce() -> T) -> T {
    let (out, allocated) = counting::during(read);
    let peak = allocated.peak;
    assert!(peak <= FACTOR * input + FIXED, "{peak} bytes held for {input} of input");
    out
}

/// A registry with a single id, for the lowest schema version.
#[derive(Debug)]
struct OneId;

/// That id.
pub const ID: u32 = 1;

impl Schemas for OneId {
    fn version(&self, id: u32) -> Result<&'static Version, Unreadable> {
        let unknown = || Unreadable::UnknownSchema(id.to_string());
        if id == ID { Ok(schema::lowest()) } else { Err(unknown()) }
    }

    fn framing(&self, _: &'static Version) -> Result<Framing, String> {
        Ok(Framing::Confluent(ID))
    }

    fn wait(&self, _: Duration) {}
}

/// Reads bytes as they are, and their datum in either framing. So a mutation of the framing does not hide the datum.
pub fn wire(bytes: &[u8]) {
    // The first use reads the schema. Its memory must not count for the input.
    let _ = Payload::from_bytes(&[2 * PayloadType::TurnLifecycle as u8]);
    let single = [&[0xC3, 0x01], &schema::lowest().fingerprint[..]].concat();
    framed(bytes);
    let datum = bytes.get(single.len()..).unwrap_or_default();
    let single = [&single[..], datum].concat();
    let confluent = [&[0x00], &ID.to_be_bytes()[..], datum].concat();
    framed(&confluent);
    assert_eq!(reframed(&confluent), reframed(&single), "the framing is no part of a record");
}

fn reframed(bytes: &[u8]) -> Result<Vec<u8>, Unreadable> {
    codec::reframe(bytes, &OneId).map(std::borrow::Cow::into_owned)
}

fn framed(bytes: &[u8]) {
    let Ok(single) = bounded(bytes.len(), || reframed(bytes)) else { return };
    let read = bounded(single.len(), || codec::read(&single).map(drop));
    let decoded = bounded(single.len(), || codec::unframe(&single).map(codec::decode));
    let Ok(Ok(record)) = decoded else {
        assert!(read.is_err(), "the envelope was accepted, but its record does not decode");
        return;
    };
    let written = codec::encode(&record);
    let unframed = codec::unframe(&written).expect("the written record is framed");
    let datum = unframed.datum;
    assert_eq!(codec::decode(unframed).as_ref(), Ok(&record), "written and read again");
    if record.version() == schema::lowest() {
        assert_eq!(Ok(written.clone()), reframed(&codec::encode_as(&record, Framing::Confluent(ID))));
    }
    let Ok(envelope) = codec::read(&single) else { return };
    assert_eq!(envelope.payload().as_ref(), Ok(&record.payload));
    assert_eq!((envelope.writer_id, envelope.run_id), (record.place.writer_id.borrow(), record.body.run_id.borrow()));
    assert_eq!((envelope.record_id, envelope.kind), (record.body.record_id.borrow(), record.body.record_kind));
    assert_eq!(envelope.facts, record.body.facts);
    if written == single {
        assert_eq!(envelope.content_hash(), record.content_hash());
        assert_eq!(envelope.record_hash(), Sha256::of(datum));
        let hash = match &record.payload {
            Payload::StoredPayload(stored) => stored.sha256,
            Payload::Batch(batch) => {
                let hashes: Vec<_> = batch.records.iter().map(JournalRecord::content_hash).collect();
                Sha256::of_parts(&hashes.iter().map(|hash| hash.0.0.as_slice()).collect::<Vec<_>>())
            }
            payload => Sha256::of(&payload.to_bytes()),
        };
        assert_eq!(envelope.payload_hash(), hash, "of the payload, wherever it is held");
    }
    as_json(&record);
}

/// Prints a record that was read. If the JSON is accepted, checks that the parsed record stays equal.
fn as_json(record: &JournalRecord) {
    let text = serde_json::to_string(record).expect("a record serialises");
    if let Ok(draft) = Draft::parse(&text) {
        settled(&draft.record);
    }
}

/// Checks that a record from JSON prints, parses, encodes and decodes to itself.
fn settled(record: &JournalRecord) {
    let text = serde_json::to_string(record).expect("a record serialises");
    let again = Draft::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(again.record, *record, "printed and parsed again");
    let written = codec::encode(record);
    if written.len() <= codec::RECORD_BYTES_MAX {
        let envelope = codec::read(&written).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(envelope.facts, record.body.facts, "read in place");
        assert_eq!(
            codec::decode(codec::unframe(&written).expect("it was read")).as_ref(),
            Ok(record),
            "written and read again"
        );
    }
}

/// JSON as a client sends it.
pub fn draft(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(draft) = Draft::parse(text) {
        settled(&draft.record);
    }
}
