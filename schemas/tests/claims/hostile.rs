//! Malformed bytes: every golden record cut short at every byte and with every bit flipped, and worse. The reader does
//! not panic, and allocates at most a small multiple of the input.

use std::{fs, path::PathBuf};

use crate::counting;
use proptest::prelude::*;
use runlog_schemas::{
    canonical::DEPTH_MAX,
    codec::{self, Framing, NoRegistry, RECORD_BYTES_MAX, Schemas, Unreadable},
    datum::{Datum, ITEMS_MAX, Input, put_bytes, put_long},
    id::{ID_BYTES_MAX, RunId},
    json::Json,
    payload::{Payload, PayloadType, RunLifecycle, ToolCallCompleted},
    record::JournalRecord,
    schema::{self, Version},
};

/// Memory per byte of input for the densest values: one byte can encode an empty string.
const FACTOR: usize = 64;
/// Memory that does not depend on the input: messages, and the few small vectors of a record.
const FIXED: usize = 16 << 10;

/// Reads `framed` in both ways, within bounds. Returns an error unless it is a record.
fn read(framed: &[u8]) -> Result<(), Unreadable> {
    // Computed once, from the schema: versions, and the shapes of contract payloads.
    schema::lowest();
    let _ = Payload::from_bytes(&[2 * PayloadType::TurnLifecycle as u8]);
    let ((read, decoded), allocated) = counting::during(|| {
        let read = codec::read(framed).map(drop);
        (read, codec::unframe(framed).map(|datum| codec::decode(datum).map(drop)))
    });
    let peak = allocated.peak;
    assert!(peak <= FACTOR * framed.len() + FIXED, "{peak} bytes for {} of input", framed.len());
    // A reader that skips a payload finds the same errors as a reader that decodes it.
    if let Ok(Ok(decoded)) = &decoded.map(|decoded| decoded.map_err(Unreadable::from)) {
        let () = decoded;
        if let Err(error) = &read {
            let record_checks = ["run_id", "record_kind", "the facts name", "does not fit"];
            let message = error.to_string();
            assert!(
                record_checks.iter().any(|what| message.contains(what)),
                "only a check of the whole record refuses it: {message}"
            );
        }
    } else {
        assert!(read.is_err(), "the envelope was accepted, but its record does not decode");
    }
    read
}

fn golden() -> Vec<(&'static str, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1");
    let files = Payload::TYPES.iter().map(|tag| (*tag, fs::read(folder.join(format!("{tag}.avro"))).unwrap()));
    files.collect()
}

/// The framing, then `datum`.
fn framed(datum: &[u8]) -> Vec<u8> {
    [&[0xC3, 0x01], &schema::lowest().fingerprint[..], datum].concat()
}

#[test]
fn no_golden_record_can_be_cut_short() {
    for (tag, bytes) in golden() {
        assert_eq!(read(&bytes), Ok(()), "{tag}");
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{tag} cut to {length} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(read(&longer).is_err(), "{tag} with a byte more");
    }
}

#[test]
fn a_flipped_bit_is_refused_or_read_as_something_else() {
    for (at, (_, bytes)) in golden().into_iter().enumerate() {
        let mut flipped = bytes.clone();
        // All records have the same envelope, so one is enough.
        let payload = codec::decode(codec::unframe(&bytes).unwrap()).unwrap().payload.to_bytes().len();
        let first = if at == 0 { 0 } else { bytes.len() - payload };
        for bit in 8 * first..8 * bytes.len() {
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The reader must not panic. The bit decides whether the bytes are still a record.
            let _ = read(&flipped);
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn a_length_or_a_count_that_is_a_lie_allocates_nothing() {
    let record = golden().swap_remove(0).1;
    let end = record.len() - 10;
    for lie in [i64::MAX, i64::MIN, -1, 1 << 40, i64::from(i32::MAX), 1 << 20] {
        let mut number = Vec::new();
        put_long(lie, &mut number);
        for at in 0..end {
            let bytes = [&record[..10 + at], &number, &record[11 + at..]].concat();
            let _ = read(&bytes);
        }
    }
}

#[test]
fn each_framing_is_recognised() {
    let other = [&[0xC3, 0x01], &[7; 8][..], &[0; 40]].concat();
    let unknown = |bytes: &[u8]| matches!(read(bytes), Err(error @ Unreadable::UnknownSchema(_)) if error.stops());
    assert!(unknown(&other));
    assert!(unknown(&[0, 0, 0, 1, 2, 9, 9]), "Confluent's framing, without a registry");
    for bytes in [&b""[..], b"\0", b"\0\0\0\0", b"{}", b"\xC3", b"\xC3\x01", b"\xC3\x01\x01\x02", &[0xC3; 30]] {
        assert_eq!(read(bytes), Err(Unreadable::NotFramed), "{bytes:?}");
    }
    let large = framed(&vec![0; RECORD_BYTES_MAX]);
    assert_eq!(read(&large), Err(Unreadable::TooLarge(large.len())));
}

/// A registry that gave this build's schema the id 7.
#[derive(Debug)]
struct Seven;

impl Schemas for Seven {
    fn version(&self, id: u32) -> Result<&'static Version, Unreadable> {
        if id == 7 { Ok(schema::lowest()) } else { NoRegistry.version(id) }
    }

    fn framing(&self, _: &'static Version) -> Result<Framing, String> {
        Ok(Framing::Confluent(7))
    }

    fn wait(&self, _: std::time::Duration) {}
}

#[test]
fn what_is_a_record_in_one_framing_is_the_same_record_in_the_other() {
    let sized = |bytes: usize| {
        let of = |length: usize| {
            let payload = Payload::from(RunLifecycle { status: "started".into(), reason: "x".repeat(length) });
            JournalRecord::new(RunId::new("r").unwrap(), "s".parse().unwrap(), "a", payload)
        };
        let near = bytes - 1000;
        let record = of(near + bytes - codec::encode(&of(near)).len());
        assert_eq!(codec::encode(&record).len(), bytes);
        record
    };
    for (bytes, taken) in [(2000, true), (RECORD_BYTES_MAX, true), (RECORD_BYTES_MAX + 1, false)] {
        let record = sized(bytes);
        let (single, confluent) = (codec::encode(&record), codec::encode_as(&record, Framing::Confluent(7)));
        assert_eq!((codec::size(&single), codec::size(&confluent)), (bytes, bytes));
        for framed in [&single, &confluent] {
            let reframed = codec::reframe(framed, &Seven);
            assert_eq!(reframed.is_ok(), taken, "{bytes}");
            assert!(reframed.is_ok_and(|reframed| *reframed == single && read(&reframed).is_ok()) == taken, "{bytes}");
        }
        assert!(codec::reframe(&codec::encode_as(&record, Framing::Confluent(8)), &Seven).is_err());
    }
    assert_eq!(codec::reframe(b"\0\0\0\0", &Seven), Ok(b"\0\0\0\0".into()), "too short for an id");
    assert_eq!(codec::read(&codec::reframe(&[0, 0, 0, 0, 7], &Seven).unwrap()).unwrap_err().reason(), "undecodable");
}

/// Replaces the first string `from` of a framed record.
fn respelled(framed: &[u8], from: &str, to: &str) -> Vec<u8> {
    let encoded = |text: &str| {
        let mut bytes = Vec::new();
        put_bytes(text.as_bytes(), &mut bytes);
        bytes
    };
    let old = encoded(from);
    let at = framed.windows(old.len()).position(|bytes| bytes == old).unwrap();
    [&framed[..at], &encoded(to), &framed[at + old.len()..]].concat()
}

#[test]
fn text_is_proven_to_be_utf8_at_every_length_and_every_offset() {
    let refused = |bytes: &[u8]| {
        let mut datum = Vec::new();
        put_bytes(bytes, &mut datum);
        let (taken, skipped) = (String::take(&mut Input::new(&datum)), String::skip(&mut Input::new(&datum)));
        assert_eq!(taken.as_ref().err(), skipped.as_ref().err(), "{bytes:?}");
        taken.is_err()
    };
    for length in 0..40 {
        let text = vec![b'a'; length];
        assert!(!refused(&text));
        for at in 0..length {
            let mut broken = text.clone();
            broken[at] = 0xff;
            assert!(refused(&broken), "byte {at} of {length}");
            let accented = [&text[..at], "é".as_bytes(), &text[at..]].concat();
            assert!(!refused(&accented), "byte {at} of {length}");
        }
    }
}

#[test]
fn an_illegal_id_on_the_wire_is_a_dead_letter_that_names_it() {
    let lost = ToolCallCompleted { request_record_id: "REQUEST".parse().unwrap(), result: None, latency_ms: None };
    let mut record = JournalRecord::new(RunId::new("RUN").unwrap(), "RECORD".parse().unwrap(), "a", lost.into());
    record.place.writer_id = "WRITER".parse().unwrap();
    let framed = codec::encode(&record);
    let long = "x".repeat(ID_BYTES_MAX + 1);
    for (id, illegal, what) in [
        ("RECORD", "", "an empty record id"),
        ("RECORD", &long, "a record id over its limit"),
        ("RUN", &long, "a run id over its limit"),
        ("WRITER", &long, "a writer id over its limit"),
        ("REQUEST", "", "an empty record id"),
    ] {
        // The request id is first in the subject, which accepts any text.
        let framed = if id == "REQUEST" { respelled(&framed, id, "SUBJECT") } else { framed.clone() };
        let framed = if id == "REQUEST" { respelled(&framed, id, "SUBJECT") } else { framed };
        let why = codec::read(&respelled(&framed, id, illegal)).unwrap_err();
        assert!(!why.stops() && why.reason() == "undecodable", "{id}: {why}");
        assert!(why.to_string().contains(what), "{id}: {why}");
    }
    // A run's record needs a run id. Before a claim it needs no writer id.
    assert_eq!(codec::read(&respelled(&framed, "RUN", "")).unwrap_err().reason(), "undecodable");
    let unclaimed = respelled(&framed, "WRITER", "");
    assert_eq!(codec::read(&unclaimed).unwrap().writer_id, None);
}

#[test]
fn a_payload_branch_of_a_later_schema_stops_and_a_negative_one_too() {
    // A lifecycle's payload is its last field: branch 0, then two strings.
    let (_, bytes) = golden().swap_remove(0);
    let payload = [&[0, 18][..], b"completed", &[20], b"reward=1.0"].concat();
    let envelope = bytes.strip_suffix(&payload[..]).unwrap();
    for branch in [i64::try_from(Payload::TYPES.len()).unwrap(), 99, -1] {
        let mut later = envelope.to_vec();
        put_long(branch, &mut later);
        let error = read(&later).unwrap_err();
        assert_eq!(error, Unreadable::UnknownBranch(branch));
        assert!(error.stops());
    }
}

#[test]
fn json_that_is_none_or_nests_without_end_is_survived() {
    for text in ["", "{", "nul", "1 2", "\u{0}", "[1,]"] {
        let mut bytes = Vec::new();
        put_bytes(text.as_bytes(), &mut bytes);
        assert!(Json::from_bytes(&bytes).is_err(), "{text:?}");
    }
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let taken = |text: &str| {
        let mut bytes = Vec::new();
        put_bytes(text.as_bytes(), &mut bytes);
        let taken = Json::from_bytes(&bytes).is_ok();
        assert_eq!(Json::skip(&mut Input::new(&bytes)).is_ok(), taken, "stepping over it finds the same");
        assert_eq!(Json::parse(text).is_ok(), taken, "writer and reader accept the same texts");
        taken
    };
    for deep in ["[".repeat(500_000), nested(400_000), nested(DEPTH_MAX + 1)] {
        assert!(!taken(&deep), "{} brackets", deep.len());
    }
    assert!(taken(&nested(DEPTH_MAX)));
    // Many brackets side by side, and in a string, are not deep.
    assert!(taken(&format!("[{}[]]", "[],".repeat(1000))) && taken(&format!("\"{}\"", "[".repeat(1000))));
}

#[test]
fn an_array_has_a_most_of_items_in_one_block_or_in_many() {
    let array = |blocks: usize, items: usize| {
        let mut bytes = Vec::new();
        for _ in 0..blocks {
            put_long(i64::try_from(items).unwrap(), &mut bytes);
            bytes.extend(std::iter::repeat_n(0, items));
        }
        put_long(0, &mut bytes);
        bytes
    };
    for (blocks, items) in [(1, ITEMS_MAX), (4, ITEMS_MAX / 4)] {
        assert_eq!(Vec::<String>::from_bytes(&array(blocks, items)).unwrap().len(), ITEMS_MAX);
    }
    for (blocks, items) in [(1, ITEMS_MAX + 1), (4, ITEMS_MAX / 4 + 1)] {
        let bytes = array(blocks, items);
        assert_eq!(Vec::<String>::from_bytes(&bytes).unwrap_err().what, "too many items");
        assert!(Vec::<String>::skip(&mut Input::new(&bytes)).is_err());
    }
}

proptest! {
    #[test]
    fn random_bytes_after_the_framing_never_panic_the_reader(noise in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&framed(&noise));
        let _ = read(&noise);
    }

    #[test]
    fn a_piece_put_into_another_record_is_survived(
        from in 0..Payload::TYPES.len(), into in 0..Payload::TYPES.len(), start in 0_usize..4000,
        length in 0_usize..200, at in 10_usize..4000,
    ) {
        let golden = golden();
        let (from, into) = (&golden[from].1, &golden[into].1);
        let start = start.min(from.len());
        let piece = &from[start..(start + length).min(from.len())];
        let at = at.min(into.len());
        let _ = read(&[&into[..at], piece, &into[at..]].concat());
    }
}
