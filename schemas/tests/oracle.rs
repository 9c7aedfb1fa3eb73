//! Our codec against `apache-avro`, which knows nothing but the `.avsc` file.
//!
//! ```text
//!   record ─▶ our codec ──────────────────────────▶ bytes ─┐
//!      └───▶ its JSON ─▶ Avro value by the schema ─▶ bytes ─┴─▶ equal, and each reads the other's
//! ```
//!
//! A field's JSON name is its name in the schema, and a string field whose doc says "JSON text" holds the text of what
//! stands in the JSON: nothing else is assumed, as by a foreign client.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

#[path = "vocabulary/generate.rs"]
mod generate;

use std::{collections::HashMap, sync::LazyLock};

use apache_avro::{
    GenericSingleObjectReader, GenericSingleObjectWriter, Schema, rabin::Rabin, reader::datum::GenericDatumReader,
    types::Value as Avro, writer::datum::GenericDatumWriter,
};
use proptest::prelude::*;
use runlog_schemas::{
    codec,
    datum::{Datum, Input, put_bytes, put_long},
    draft::Draft,
    payload::Payload,
    record::JournalRecord,
    refs::CorrelationEntry,
    schema,
};
use serde_json::Value;

struct Oracle {
    schema: Schema,
    /// Named types by their names without namespace, of which the schema has one.
    named: HashMap<String, Schema>,
}

static ORACLE: LazyLock<Oracle> = LazyLock::new(Oracle::new);

impl Oracle {
    fn new() -> Self {
        let schema = Schema::parse_str(schema::JOURNAL_RECORD).unwrap();
        let mut named = HashMap::new();
        name(&schema, &mut named);
        Self { schema, named }
    }

    fn value(&self, record: &JournalRecord) -> Avro {
        self.of(&self.schema, Some(&serde_json::to_value(record).unwrap()), false)
    }

    /// `json` is none where the member is absent; `text` where the field holds JSON text.
    fn of(&self, schema: &Schema, json: Option<&Value>, text: bool) -> Avro {
        let present = || json.unwrap_or_else(|| panic!("absent, and the schema wants {schema:?}"));
        match schema {
            Schema::Null => Avro::Null,
            Schema::Int => Avro::Int(present().as_i64().unwrap().try_into().unwrap()),
            Schema::Boolean => Avro::Boolean(present().as_bool().unwrap()),
            Schema::Long => Avro::Long(present().as_i64().unwrap()),
            Schema::String if text => Avro::String(present().to_string()),
            Schema::String => Avro::String(present().as_str().unwrap().to_owned()),
            Schema::Fixed(fixed) => {
                let digits = present().as_str().unwrap();
                assert_eq!(digits.len(), 2 * fixed.size);
                let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
                Avro::Fixed(fixed.size, (0..digits.len()).step_by(2).map(byte).collect())
            }
            Schema::Enum(symbols) => {
                let symbol = present().as_str().unwrap();
                let at = symbols.symbols.iter().position(|known| known == symbol);
                Avro::Enum(at.unwrap_or_else(|| panic!("{symbol}")).try_into().unwrap(), symbol.to_owned())
            }
            Schema::Array(array) => {
                let items = json.map(|json| json.as_array().unwrap().as_slice()).unwrap_or_default();
                Avro::Array(items.iter().map(|item| self.of(&array.items, Some(item), text)).collect())
            }
            Schema::Union(union) => self.union(union.variants(), json, text),
            Schema::Record(record) => {
                let field = |field: &apache_avro::schema::RecordField| {
                    let text = field.doc.as_ref().is_some_and(|doc| doc.contains("JSON text"));
                    (field.name.clone(), self.of(&field.schema, present().get(&field.name), text))
                };
                Avro::Record(record.fields.iter().map(field).collect())
            }
            Schema::Ref { name } => self.of(&self.named[name.name()], json, text),
            other => panic!("the vocabulary does not use {other:?}"),
        }
    }

    fn union(&self, variants: &[Schema], json: Option<&Value>, text: bool) -> Avro {
        let tag = json.and_then(|json| json.get("type")).and_then(Value::as_str);
        let at = match (variants, json) {
            ([Schema::Null, _], None) => 0,
            // Null is a JSON text like any other.
            ([Schema::Null, _], Some(_)) => 1,
            _ => variants.iter().position(|variant| named(variant).map(snake).as_deref() == tag).unwrap(),
        };
        Avro::Union(at.try_into().unwrap(), Box::new(self.of(&variants[at], json, text)))
    }
}

fn named(schema: &Schema) -> Option<&str> {
    match schema {
        Schema::Record(record) => Some(record.name.name()),
        Schema::Enum(symbols) => Some(symbols.name.name()),
        Schema::Fixed(fixed) => Some(fixed.name.name()),
        _ => None,
    }
}

fn name(schema: &Schema, into: &mut HashMap<String, Schema>) {
    if let Some(name) = named(schema) {
        into.insert(name.to_owned(), schema.clone());
    }
    match schema {
        Schema::Record(record) => record.fields.iter().for_each(|field| name(&field.schema, into)),
        Schema::Array(array) => name(&array.items, into),
        Schema::Union(union) => union.variants().iter().for_each(|variant| name(variant, into)),
        _ => {}
    }
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for char in name.chars() {
        if char.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(char.to_lowercase());
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn our_bytes_are_those_of_apache_avro(record in generate::record()) {
        let oracle = &*ORACLE;
        let value = oracle.value(&record);
        let theirs = GenericDatumWriter::builder(&oracle.schema).build().unwrap().write_value_to_vec(value.clone()).unwrap();
        let ours = record.to_bytes();
        prop_assert_eq!(&ours, &theirs);
        let reader = GenericDatumReader::builder(&oracle.schema).build().unwrap();
        prop_assert_eq!(reader.read_value(&mut ours.as_slice()).unwrap(), value);
        prop_assert_eq!(codec::decode(&theirs).unwrap(), record);
    }

    #[test]
    fn an_envelope_read_in_place_says_what_the_record_says(record in generate::written()) {
        let framed = codec::encode(&record);
        let envelope = codec::read(&framed).unwrap();
        let JournalRecord { place, body, payload } = &record;
        prop_assert_eq!((envelope.writer_id, envelope.writer_epoch), (place.writer_id.as_str(), place.writer_epoch));
        prop_assert_eq!((envelope.writer_seq, envelope.journal_seq), (place.writer_seq, place.journal_seq));
        prop_assert_eq!((envelope.timestamp_millis, envelope.kind), (place.timestamp_millis, body.record_kind));
        prop_assert_eq!((envelope.record_id, envelope.run_id), (body.record_id.as_str(), body.run_id.as_str()));
        prop_assert_eq!((&envelope.idempotency_key, &envelope.dedupe_key), (&body.idempotency_key, &body.dedupe_key));
        prop_assert_eq!((envelope.privacy, &envelope.facts), (body.privacy, &body.facts));
        prop_assert_eq!(&envelope.payload().unwrap(), payload);
        prop_assert_eq!(envelope.content_hash(), record.content_hash());
        // Where a record stands is no part of its content, and its payload is.
        let mut moved = record.clone();
        moved.place.writer_seq = place.writer_seq.wrapping_add(1) >> 1;
        moved.place.timestamp_millis ^= 1;
        prop_assert_eq!(moved.content_hash(), record.content_hash());
        let mut renamed = record.clone();
        renamed.body.record_id.push('x');
        prop_assert_ne!(renamed.content_hash(), record.content_hash());
    }

    #[test]
    fn a_record_sent_as_json_is_the_record_that_was_written(record in generate::written()) {
        let draft = Draft::parse(&serde_json::to_string(&record).unwrap()).unwrap();
        prop_assert_eq!(&draft.record, &record);
        // Its bytes too: the content hash is the same whichever way it was sent.
        prop_assert_eq!(codec::encode(&draft.record), codec::encode(&record));
    }

    #[test]
    fn arrays_in_any_blocks_are_read(items in prop::collection::vec("[a-z]{0,3}", 1..9), cut in 0_usize..9) {
        let items: Vec<CorrelationEntry> =
            items.iter().map(|item| CorrelationEntry { key: item.clone(), value: item.repeat(2) }).collect();
        let cut = cut.min(items.len());
        let mut bytes = Vec::new();
        for (sized, block) in [(false, &items[..cut]), (true, &items[cut..])] {
            if block.is_empty() {
                continue;
            }
            let mut content = Vec::new();
            block.iter().for_each(|item| item.put(&mut content));
            let count = i64::try_from(block.len()).unwrap();
            if sized {
                // A negative count is followed by the block's size in bytes.
                put_long(-count, &mut bytes);
                put_bytes(&content, &mut bytes);
            } else {
                put_long(count, &mut bytes);
                bytes.extend_from_slice(&content);
            }
        }
        put_long(0, &mut bytes);
        prop_assert_eq!(&Vec::<CorrelationEntry>::from_bytes(&bytes).unwrap(), &items);
        let mut input = Input::new(&bytes);
        Vec::<CorrelationEntry>::skip(&mut input).unwrap();
        prop_assert_eq!(input.left(), 0);
    }
}

#[test]
fn our_framing_is_apache_avros_single_object_encoding() {
    let oracle = &*ORACLE;
    let mut writer = GenericSingleObjectWriter::new_with_capacity(&oracle.schema, 1024).unwrap();
    let reader = GenericSingleObjectReader::builder().schema(oracle.schema.clone()).build().unwrap();
    for tag in Payload::TYPES {
        let text = std::fs::read_to_string(format!("{}/examples/{tag}.json", env!("CARGO_MANIFEST_DIR"))).unwrap();
        // With keys in the order in which `serde_json` writes them.
        let text = serde_json::from_str::<Value>(&text).unwrap().to_string();
        let record = Draft::parse(&text).unwrap().record;
        let value = oracle.value(&record);
        let mut theirs = Vec::new();
        writer.write_value_ref(&value, &mut theirs).unwrap();
        let ours = codec::encode(&record);
        assert_eq!(ours, theirs, "{tag}");
        assert_eq!(reader.read_value(&mut ours.as_slice()).unwrap(), value, "{tag}");
        assert_eq!(codec::decode(codec::unframe(&theirs).unwrap()).unwrap(), record, "{tag}");
    }
}

/// CRC-64-AVRO as the specification's appendix gives it, computed bit by bit.
fn rabin(bytes: &[u8]) -> u64 {
    const EMPTY: u64 = 0xc15d_213a_a4d7_a795;
    bytes.iter().fold(EMPTY, |mut hash, byte| {
        hash ^= u64::from(*byte);
        for _ in 0..8 {
            hash = (hash >> 1) ^ (EMPTY & (hash & 1).wrapping_neg());
        }
        hash
    })
}

#[test]
fn the_fingerprint_is_rabins_over_the_parsing_canonical_form() {
    let schema = Schema::parse_str(schema::JOURNAL_RECORD).unwrap();
    let expected = rabin(schema.canonical_form().as_bytes()).to_le_bytes();
    assert_eq!(schema::fingerprint(), expected);
    assert_eq!(schema.fingerprint::<Rabin>().bytes, expected);
}

#[test]
fn the_union_of_the_schema_has_our_payloads_in_our_order() {
    let Schema::Record(record) = Schema::parse_str(schema::JOURNAL_RECORD).unwrap() else { panic!("a record") };
    let payload = record.fields.last().unwrap();
    assert_eq!(payload.name, "payload");
    let Schema::Union(union) = &payload.schema else { panic!("a union") };
    let names: Vec<_> = union.variants().iter().map(|variant| snake(named(variant).unwrap())).collect();
    assert_eq!(names, Payload::TYPES);
}
