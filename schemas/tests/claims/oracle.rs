//! Compares our codec with `apache-avro`, which reads only the `.avsc` file.
//!
//! ```text
//!   record ─▶ our codec ──────────────────────────▶ bytes ─┐
//!      └───▶ its JSON ─▶ Avro value by the schema ─▶ bytes ─┴─▶ equal, and each reads the other's
//! ```
//!
//! A field's JSON name is its name in the schema, and a string field whose doc says "JSON text" holds the JSON value's
//! text. The test assumes nothing else, like a foreign client.

use std::{
    collections::{BTreeSet, HashMap},
    sync::LazyLock,
};

use crate::vocabulary::{
    full,
    generate::{self, Dice},
    named::{NAMED, name},
    sample::{self, Choose},
};
use apache_avro::{
    GenericSingleObjectReader, GenericSingleObjectWriter, Schema, rabin::Rabin, reader::datum::GenericDatumReader,
    schema::RecordSchema, types::Value as Avro, writer::datum::GenericDatumWriter,
};
use proptest::prelude::*;
use runlog_schemas::{
    codec::{self, Unframed},
    datum::{Datum, Input, Sha256, put_bytes, put_long},
    draft::Draft,
    id::{RunId, Secret, WriterSeq},
    payload::{Payload, RunClaim, wrapped::Batch},
    record::JournalRecord,
    refs::CorrelationEntry,
    schema,
};
use serde_json::Value;

struct Oracle;

impl Oracle {
    fn value(record: &JournalRecord) -> Avro {
        Self::encode(root(record), Some(&serde_json::to_value(record).unwrap()), false)
    }

    /// Encodes a value. `json` is `None` for an absent member. `text` is set for a field that contains JSON text.
    fn encode(schema: &Schema, json: Option<&Value>, text: bool) -> Avro {
        let present = || json.unwrap_or_else(|| panic!("absent, and the schema wants {schema:?}"));
        match schema {
            Schema::Null => Avro::Null,
            Schema::Boolean => Avro::Boolean(present().as_bool().unwrap()),
            Schema::Int => Avro::Int(present().as_i64().unwrap().try_into().unwrap()),
            Schema::Long => Avro::Long(present().as_i64().unwrap()),
            Schema::Double => Avro::Double(present().as_f64().unwrap()),
            Schema::String if text => Avro::String(present().to_string()),
            Schema::String => Avro::String(present().as_str().unwrap().to_owned()),
            Schema::Bytes => Avro::Bytes(unhex(present().as_str().unwrap())),
            Schema::Fixed(fixed) => Avro::Fixed(fixed.size, unhex(present().as_str().unwrap())),
            Schema::Enum(symbols) => {
                let symbol = present().as_str().unwrap();
                let at = symbols.symbols.iter().position(|known| known == symbol);
                Avro::Enum(at.unwrap_or_else(|| panic!("{symbol}")).try_into().unwrap(), symbol.to_owned())
            }
            Schema::Array(array) => {
                let items = json.map(|json| json.as_array().unwrap().as_slice()).unwrap_or_default();
                Avro::Array(items.iter().map(|item| Self::encode(&array.items, Some(item), text)).collect())
            }
            Schema::Union(union) => Self::union(union.variants(), json, text),
            Schema::Record(record) if record.attributes.contains_key("json") => {
                Avro::Record(vec![("variant".into(), Self::variant(record, present()))])
            }
            Schema::Record(record) => {
                let field = |field: &apache_avro::schema::RecordField| {
                    let text = field.doc.as_ref().is_some_and(|doc| doc.contains("JSON text"));
                    (field.name.clone(), Self::encode(&field.schema, present().get(&field.name), text))
                };
                Avro::Record(record.fields.iter().map(field).collect())
            }
            Schema::Ref { .. } => Self::encode(NAMED.follow(schema), json, text),
            other => panic!("the vocabulary does not use {other:?}"),
        }
    }

    fn union(variants: &[Schema], json: Option<&Value>, text: bool) -> Avro {
        let tag = json.and_then(|json| json.get("type")).and_then(Value::as_str);
        let at = match (variants, json) {
            // An absent value and null are the null branch. In a field of JSON text, null is a value.
            ([Schema::Null, _], None) => 0,
            ([Schema::Null, _], Some(Value::Null)) if !text => 0,
            ([Schema::Null, _], Some(_)) => 1,
            _ => variants.iter().position(|variant| name(variant).map(snake).as_deref() == tag).unwrap(),
        };
        Avro::Union(at.try_into().unwrap(), Box::new(Self::encode(&variants[at], json, text)))
    }

    /// An enum with data: the schema's attributes define how its JSON names the variant.
    fn variant(record: &RecordSchema, json: &Value) -> Avro {
        let Schema::Union(union) = &record.fields[0].schema else { panic!("{record:?} has no union") };
        let form = &record.attributes["json"];
        let member = |name: &str| form.get(name).map(|name| json.get(name.as_str().unwrap()).unwrap());
        let (variant, content) = match (member("tag"), member("content")) {
            (Some(tag), content) => (tag.as_str().unwrap(), content.unwrap_or(json)),
            (None, _) => json.as_object().unwrap().iter().next().map(|(name, value)| (name.as_str(), value)).unwrap(),
        };
        let index = form["variants"].as_array().unwrap().iter().position(|known| known == variant);
        let branch = index.map_or(0, |at| at + 1);
        let value = if branch > 0 {
            Self::encode(&union.variants()[branch], Some(content), false)
        } else {
            // The content if it is separate from the name, otherwise the whole value.
            let content_json = if form.get("content").is_some() { content } else { json };
            let text = |text: String| Avro::String(text);
            Avro::Record(vec![
                ("variant".into(), text(variant.into())),
                ("content".into(), text(content_json.to_string())),
            ])
        };
        Avro::Union(branch.try_into().unwrap(), Box::new(value))
    }
}

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
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

/// The later versions. Their types equal the types of version 1, except the facts.
static LATER: LazyLock<[Schema; 2]> = LazyLock::new(|| {
    [schema::JOURNAL_RECORD_V2, schema::JOURNAL_RECORD_V3].map(|text| Schema::parse_str(text).unwrap())
});

/// The schema that a record is written in.
fn root(record: &JournalRecord) -> &'static Schema {
    match record.version().number {
        1 => &NAMED.root,
        later => &LATER[usize::from(later) - 2],
    }
}

/// Writes and reads a record with both codecs.
fn as_apache_avro_does(record: &JournalRecord) {
    let (root, value) = (root(record), Oracle::value(record));
    let writer = GenericDatumWriter::builder(root).build().unwrap();
    let theirs = writer.write_value_to_vec(value.clone()).unwrap();
    let ours = record.to_bytes();
    assert_eq!(ours, theirs);
    let reader = GenericDatumReader::builder(root).build().unwrap();
    assert_eq!(reader.read_value(&mut ours.as_slice()).unwrap(), value);
    assert_eq!(&codec::decode(Unframed { version: record.version(), datum: &theirs }).unwrap(), record);
}

#[test]
fn a_record_that_is_numbered_again_is_one_of_version_2_with_the_same_content() {
    for (name, record) in full::records() {
        let framed = codec::encode_renumbered(&record, codec::Framing::SingleObject);
        let unframed = codec::unframe(&framed).unwrap();
        assert_eq!(unframed.version.number, schema::RENUMBERED_SINCE, "{name}");
        let mut left = unframed.datum;
        GenericDatumReader::builder(&LATER[0]).build().unwrap().read_value(&mut left).unwrap();
        assert!(left.is_empty(), "{name}: apache-avro leaves {} bytes", left.len());
        let (envelope, before) = (codec::read(&framed).unwrap(), codec::encode(&record));
        assert_eq!(envelope.content_hash(), codec::read(&before).unwrap().content_hash(), "{name}");
        assert_eq!(codec::decode(unframed).unwrap(), record, "{name}");
    }
}

#[test]
fn the_secret_of_a_claim_is_in_its_bytes_and_in_no_text() {
    let claim = RunClaim { writer_id: "w".parse().unwrap(), epoch: 2.into(), claimed_by: String::new() };
    let mut record =
        JournalRecord::new("run".parse::<RunId>().unwrap().borrow(), "claim".parse().unwrap(), "agent", claim.into());
    record.body.facts.commitment = Some(Sha256::of(b"next"));
    record.body.facts.shown = Some(Secret::new([0xab; 32]));
    let framed = codec::encode(&record);
    let unframed = codec::unframe(&framed).unwrap();
    assert_eq!(codec::decode(codec::unframe(&framed).unwrap()).unwrap(), record);
    let mut left = unframed.datum;
    let read = GenericDatumReader::builder(&LATER[1]).build().unwrap().read_value(&mut left).unwrap();
    assert!(left.is_empty() && format!("{read:?}").contains("Fixed(32, [171, 171"), "{read:?}");
    for text in [serde_json::to_string(&record).unwrap(), format!("{record:?}")] {
        assert!(!text.contains("abab") && !text.contains("171"), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn our_bytes_equal_the_bytes_of_apache_avro(record in generate::record()) {
        as_apache_avro_does(&record);
    }

    #[test]
    fn our_bytes_of_a_decision_equal_the_bytes_of_apache_avro(record in generate::decision()) {
        as_apache_avro_does(&record);
        let draft = Draft::parse(&serde_json::to_string(&record).unwrap()).unwrap();
        prop_assert_eq!(codec::encode(&draft.record), codec::encode(&record));
        let framed = codec::encode(&record);
        let envelope = codec::read(&framed).unwrap();
        prop_assert_eq!(envelope.content_hash(), record.content_hash());
        prop_assert_eq!(&envelope.facts, &record.body.facts);
        let mut unproven = record.clone();
        unproven.body.facts.principal_proof = None;
        prop_assert_eq!(unproven.content_hash(), record.content_hash());
    }

    #[test]
    fn our_bytes_of_version_3_equal_the_bytes_of_apache_avro(record in generate::of_version_3()) {
        prop_assert_eq!(record.version().number, 3);
        as_apache_avro_does(&record);
        let draft = Draft::parse(&serde_json::to_string(&record).unwrap()).unwrap();
        prop_assert_eq!(codec::encode(&draft.record), codec::encode(&record));
        let framed = codec::encode(&record);
        prop_assert_eq!(codec::read(&framed).unwrap().content_hash(), record.content_hash());
        let mut unlimited = record.clone();
        (unlimited.body.facts.only_own, unlimited.body.facts.approver) = (None, None);
        prop_assert_eq!(unlimited.content_hash(), record.content_hash());
    }

    /// A record of a batch has the version of the batch, and the content hash that it has alone.
    #[test]
    fn a_record_has_the_same_content_hash_in_a_batch_of_a_later_version(
        record in generate::decision(),
        later in generate::of_version_3(),
        plain in generate::written(),
    ) {
        prop_assume!(!matches!(plain.payload, Payload::Batch(_)));
        let mut batch = full::records().into_iter().find(|(name, _)| name == "batch").unwrap().1;
        let records = vec![plain, record, later];
        batch.payload = Batch { records: records.clone() }.into();
        let framed = codec::encode(&batch);
        let envelope = codec::unframe(&framed).and_then(|datum| Ok(codec::Envelope::read(datum)?)).unwrap();
        prop_assert_eq!(envelope.version().number, 3);
        let hashes = envelope.records().unwrap().iter().map(|record| record.content_hash()).collect::<Vec<_>>();
        prop_assert_eq!(hashes, records.iter().map(JournalRecord::content_hash).collect::<Vec<_>>());
        prop_assert_eq!(envelope.content_hash(), batch.content_hash());
    }

    #[test]
    fn an_envelope_read_in_place_says_what_the_record_says(record in generate::written()) {
        let framed = codec::encode(&record);
        let envelope = codec::read(&framed).unwrap();
        let JournalRecord { place, body, payload } = &record;
        prop_assert_eq!((envelope.writer_id, envelope.writer_epoch), (place.writer_id.borrow(), place.writer_epoch));
        prop_assert_eq!((envelope.writer_seq, envelope.journal_seq), (place.writer_seq, place.journal_seq));
        prop_assert_eq!((envelope.timestamp_millis, envelope.kind), (place.timestamp_millis, body.record_kind));
        prop_assert_eq!((envelope.record_id, envelope.run_id), (body.record_id.borrow(), body.run_id.borrow()));
        prop_assert_eq!((envelope.idempotency_key, envelope.dedupe_key), (body.idempotency_key.as_deref(), body.dedupe_key.as_deref()));
        prop_assert_eq!((envelope.privacy, &envelope.facts), (body.privacy, &body.facts));
        prop_assert_eq!(&envelope.payload().unwrap(), payload);
        prop_assert_eq!(envelope.content_hash(), record.content_hash());
        // The content hash covers the payload and not the place.
        let mut moved = record.clone();
        moved.place.writer_seq = if place.writer_seq == WriterSeq::ZERO { 1.into() } else { WriterSeq::ZERO };
        moved.place.timestamp_millis ^= 1;
        prop_assert_eq!(moved.content_hash(), record.content_hash());
        let mut renamed = record.clone();
        renamed.body.record_id = format!("x{}", place.timestamp_millis).parse().unwrap();
        prop_assert_ne!(renamed.content_hash(), record.content_hash());
    }

    #[test]
    fn a_record_sent_as_json_is_the_record_that_was_written(record in generate::written()) {
        let draft = Draft::parse(&serde_json::to_string(&record).unwrap()).unwrap();
        prop_assert_eq!(&draft.record, &record);
        // The bytes are equal too: the content hash does not depend on the way of sending.
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
fn a_draft_has_its_payloads_keys_and_a_written_record_keeps_its_keys() {
    let text = std::fs::read_to_string(format!("{}/examples/effect_intent.json", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    json.as_object_mut().unwrap().retain(|name, _| name != "idempotency_key" && name != "dedupe_key");
    let mut record = Draft::parse(&json.to_string()).unwrap().record;
    let of_payload = json["payload"]["idempotency_key"].as_str();
    assert!(of_payload.is_some() && record.body.idempotency_key.as_deref() == of_payload);
    record.body.idempotency_key = None;
    assert_eq!(Draft::parse(&serde_json::to_string(&record).unwrap()).unwrap().record, record);
}

#[test]
fn our_framing_is_apache_avros_single_object_encoding() {
    for tag in Payload::TYPES {
        let text = std::fs::read_to_string(format!("{}/examples/{tag}.json", env!("CARGO_MANIFEST_DIR"))).unwrap();
        // With keys in the order in which `serde_json` writes them.
        let text = serde_json::from_str::<Value>(&text).unwrap().to_string();
        let record = Draft::parse(&text).unwrap().record;
        let mut writer = GenericSingleObjectWriter::new_with_capacity(root(&record), 1024).unwrap();
        let reader = GenericSingleObjectReader::builder().schema(root(&record).clone()).build().unwrap();
        let value = Oracle::value(&record);
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
    assert_eq!(schema::lowest().fingerprint, expected);
    assert_eq!(schema.fingerprint::<Rabin>().bytes, expected);
}

#[test]
fn the_union_of_the_schema_has_our_payloads_in_our_order() {
    let names: Vec<_> = sample::payloads().iter().map(|variant| snake(name(variant).unwrap())).collect();
    assert_eq!(names, Payload::TYPES);
}

/// Chooses at random, except symbols and variants: it chooses each of them in turn.
struct Turns {
    dice: Dice,
    next: HashMap<String, usize>,
}

impl Turns {
    fn next_index(&mut self, name: &str, count: usize) -> usize {
        let next = self.next.entry(name.to_owned()).or_default();
        *next += 1;
        (*next - 1) % count
    }

    /// The number of different symbols and variants so far.
    fn seen(&self) -> usize {
        self.next.iter().map(|(name, next)| (*next).min(choices(&NAMED.types[name]))).sum()
    }
}

impl Choose for Turns {
    fn symbol(&mut self, name: &str, count: usize) -> usize {
        self.next_index(name, count)
    }
    fn variant(&mut self, name: &str, count: usize) -> usize {
        self.next_index(name, count)
    }
    fn is_present(&mut self) -> bool {
        self.dice.is_present()
    }
    fn items(&mut self) -> usize {
        self.dice.items()
    }
    fn text(&mut self, name: &str) -> String {
        self.dice.text(name)
    }
    fn long(&mut self) -> i64 {
        self.dice.long()
    }
    fn json(&mut self, name: &str) -> Value {
        self.dice.json(name)
    }
}

/// How many symbols an enum has, or variants a record whose JSON is an enum with data.
fn choices(schema: &Schema) -> usize {
    match schema {
        Schema::Enum(symbols) => symbols.symbols.len(),
        Schema::Record(record) if record.attributes.contains_key("json") => match &record.fields[0].schema {
            Schema::Union(union) => union.variants().len(),
            other => panic!("{other:?}"),
        },
        _ => 0,
    }
}

#[test]
fn every_symbol_and_every_variant_goes_both_ways_in_avro_and_in_json() {
    // Other tests cover the types of the envelope and the record within a batch.
    let envelope = BTreeSet::from(["RecordKind"]);
    let mut turns = Turns { dice: Dice(1), next: HashMap::new() };
    for (index, tag) in Payload::TYPES.iter().enumerate().filter(|(_, tag)| **tag != "batch") {
        let (mut quiet, mut seen) = (0, 0);
        // Ends when many rounds have no new symbol: a variant with the contract's 119 event kinds is in every seventh round.
        while quiet < 30 {
            let payload = Payload::from_bytes(&sample::payload(index, &mut turns)).unwrap();
            let json = serde_json::to_string(&payload).unwrap();
            let again = serde_json::from_str::<Payload>(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
            assert_eq!(again, payload, "{tag}");
            as_apache_avro_does(&JournalRecord::new(RunId::new("r").unwrap(), "a".parse().unwrap(), "agent", payload));
            quiet = if turns.seen() > seen { 0 } else { quiet + 1 };
            seen = turns.seen();
        }
    }
    let left: Vec<_> = NAMED
        .types
        .iter()
        .filter(|(name, schema)| !envelope.contains(name.as_str()) && choices(schema) > 0)
        .filter(|(name, schema)| turns.next.get(*name).is_none_or(|next| *next < choices(schema)))
        .map(|(name, _)| name)
        .collect();
    assert!(left.is_empty(), "not all of {left:?}");
}
