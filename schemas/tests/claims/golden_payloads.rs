//! Golden payloads: each variant (also nested variants) and each symbol, with JSON and facts.
//! `golden/payloads/TYPE.jsonl` has one payload a line.
//!
//! `RUNLOG_GOLDEN=write cargo test --package runlog-schemas --test claims golden_payloads` appends the missing lines. A
//! line never changes, because its payload can be in a log.

use crate::vocabulary::{
    every::{self, Used},
    full,
    named::NAMED,
};
use apache_avro::Schema;
use runlog_schemas::{
    codec::{self, Framing},
    datum::{Datum, hex},
    payload::{Payload, PayloadType, wrapped::Batch},
    record::{Facts, RecordKind},
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::{collections::BTreeSet, fs, path::PathBuf};

#[derive(Deserialize)]
struct Line<'a> {
    avro: &'a str,
    #[serde(borrow)]
    json: &'a RawValue,
}

impl Line<'_> {
    fn payload(&self) -> Payload {
        let digits = self.avro.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        Payload::from_bytes(&bytes).unwrap()
    }
}

/// The types that have no rules beyond the schema. The others have no variants and no symbols.
fn types() -> impl Iterator<Item = PayloadType> {
    let of_schema = PayloadType::ALL.iter().copied().skip(PayloadType::Genesis as usize + 1);
    of_schema.filter(|of| !matches!(of, PayloadType::Batch | PayloadType::StoredPayload))
}

fn golden(of: PayloadType) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/payloads/{of}.jsonl"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{of}: {error}"))
}

fn line(payload: &Payload) -> String {
    let (avro, json) = (hex(&payload.to_bytes()), serde_json::to_string(payload).unwrap());
    let (facts, (idempotency_key, dedupe_key)) = (Facts::from_payload(payload), payload.keys());
    let derived = json!({ "facts": facts, "idempotency_key": idempotency_key, "dedupe_key": dedupe_key });
    format!("{{\"avro\":\"{avro}\",\"json\":{json},\"derived\":{derived}}}")
}

#[test]
fn golden_payloads_are_read_from_bytes_and_from_json_and_written_again() {
    let mut used = Used::new();
    for of in types() {
        if std::env::var("RUNLOG_GOLDEN").as_deref() == Ok("write") {
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/payloads/{of}.jsonl"));
            let mut lines = fs::read_to_string(&path).unwrap_or_default();
            for encoding in every::encodings(of as usize, &mut used) {
                let line = line(&Payload::from_bytes(&encoding).unwrap());
                if !lines.lines().any(|golden| golden == line) {
                    lines += &format!("{line}\n");
                }
            }
            fs::write(path, lines).unwrap();
        }
        for golden in golden(of).lines() {
            let read: Line<'_> = serde_json::from_str(golden).unwrap();
            let payload = read.payload();
            assert_eq!(payload.payload_type(), of);
            assert_eq!(line(&payload), golden);
            assert_eq!(Payload::from_json(read.json).unwrap(), payload, "{golden}");
        }
    }
}

/// Alone, in a record that is numbered again, and in a batch of version 3.
#[test]
fn a_payload_has_the_same_bytes_in_each_version() {
    let (_, later) = full::of_version(3).pop().unwrap();
    for of in types() {
        for golden in golden(of).lines() {
            let payload = serde_json::from_str::<Line<'_>>(golden).unwrap().payload();
            let (mut record, mut batch) = (later.clone(), later.clone());
            record.body.record_kind = RecordKind::from_payload(&payload);
            record.body.facts = Facts::from_payload(&payload);
            record.payload = payload;
            let bytes = record.payload.to_bytes();
            for framed in [codec::encode(&record), codec::encode_renumbered(&record, Framing::SingleObject)] {
                assert!(framed.ends_with(&bytes), "{golden}");
                assert_eq!(codec::decode(codec::unframe(&framed).unwrap()).unwrap(), record, "{golden}");
            }
            let Payload::Batch(Batch { records }) = &mut batch.payload else { panic!("a batch") };
            records.push(record);
            let framed = codec::encode(&batch);
            let unframed = codec::unframe(&framed).unwrap();
            assert!(framed[..framed.len() - 1].ends_with(&bytes), "{golden}");
            assert_eq!(unframed.version.number, 3);
            assert_eq!(codec::decode(unframed).unwrap(), batch, "{golden}");
        }
    }
}

#[test]
fn each_variant_and_each_symbol_has_a_golden_payload() {
    let mut texts = BTreeSet::new();
    types().for_each(|of| {
        golden(of).lines().for_each(|line| collect(&serde_json::from_str(line).unwrap(), &mut texts));
    });
    let mut missing = Vec::new();
    for (name, schema) in &NAMED.types {
        let names: Vec<&str> = match schema {
            Schema::Enum(symbols) if name != "RecordKind" => symbols.symbols.iter().map(String::as_str).collect(),
            Schema::Record(record) => {
                let variants = record.attributes.get("json").and_then(|form| form["variants"].as_array());
                variants.into_iter().flatten().map(|variant| variant.as_str().unwrap()).collect()
            }
            _ => Vec::new(),
        };
        missing.extend(names.into_iter().filter(|name| !texts.contains(*name)).map(|one| format!("{name}.{one}")));
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Collects the texts of a JSON value, names of members included.
fn collect(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => drop(texts.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            texts.insert(name.clone());
            collect(value, texts);
        }),
        _ => {}
    }
}
