//! Golden bytes of version 1: they stay readable, and the encoder still writes them.
//!
//! `RUNLOG_GOLDEN=write cargo test --package runlog-schemas --test claims golden` writes the files again. Once version
//! 1 is released, the files must not change.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::vocabulary::full;
use runlog_schemas::{
    codec,
    datum::{Datum, hex},
    draft::Draft,
    payload::Payload,
    record::JournalRecord,
    schema,
};
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1")
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn text(record: &JournalRecord) -> String {
    format!("{}\n", serde_json::to_string_pretty(record).unwrap())
}

fn names() -> Vec<String> {
    full::records().into_iter().map(|(name, _)| name).collect()
}

/// Writes the files once, before a test reads them, if `RUNLOG_GOLDEN` is `write` and the version is not released.
fn write_golden_files() {
    static WRITTEN: std::sync::Once = std::sync::Once::new();
    WRITTEN.call_once(|| {
        if std::env::var("RUNLOG_GOLDEN").as_deref() != Ok("write") || schema::lowest().released {
            return;
        }
        let _ = fs::remove_dir_all(folder());
        fs::create_dir_all(folder()).unwrap();
        fs::write(folder().join("fingerprint"), format!("{}\n", hex(&schema::lowest().fingerprint))).unwrap();
        for (name, record) in full::records() {
            fs::write(folder().join(format!("{name}.avro")), codec::encode(&record)).unwrap();
            fs::write(folder().join(format!("{name}.json")), text(&record)).unwrap();
        }
    });
}

#[test]
fn every_golden_record_is_read_and_written_again_byte_for_byte() {
    write_golden_files();
    for tag in names() {
        let framed = bytes(&format!("{tag}.avro"));
        let record = codec::decode(codec::unframe(&framed).unwrap()).unwrap();
        assert_eq!(Some(record.payload.payload_type().as_str()), tag.split('.').next());
        assert_eq!(codec::encode(&record), framed, "{tag}");
        assert_eq!(codec::read(&framed).unwrap().payload().unwrap(), record.payload, "{tag}");
        let json = String::from_utf8(bytes(&format!("{tag}.json"))).unwrap();
        assert_eq!(text(&record), json, "{tag}");
        let again = Draft::parse(&json).unwrap().record;
        assert_eq!(again, record, "{tag}");
        assert_eq!(codec::encode(&again), framed, "{tag}");
    }
}

#[test]
fn this_build_writes_the_golden_records() {
    write_golden_files();
    for (tag, record) in full::records() {
        assert_eq!(hex(&codec::encode(&record)), hex(&bytes(&format!("{tag}.avro"))), "{tag}");
    }
    assert_eq!(String::from_utf8(bytes("fingerprint")).unwrap().trim(), hex(&schema::lowest().fingerprint));
}

#[test]
fn the_folder_holds_two_files_for_each_record_and_nothing_else() {
    write_golden_files();
    let files: BTreeSet<String> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut expected: BTreeSet<String> =
        names().iter().flat_map(|tag| [format!("{tag}.avro"), format!("{tag}.json")]).collect();
    expected.insert("fingerprint".into());
    assert!(Payload::TYPES.iter().all(|tag| expected.contains(&format!("{tag}.avro"))));
    assert_eq!(files, expected);
}

#[test]
fn a_golden_record_leaves_no_field_empty() {
    for (_, record) in full::records().into_iter().filter(|(name, _)| !name.contains('.')) {
        let json = serde_json::to_value(&record).unwrap();
        let mut missing = Vec::new();
        for schema in apache_avro::Schema::parse_str(schema::JOURNAL_RECORD).iter() {
            let apache_avro::Schema::Record(fields) = schema else { panic!("a record") };
            missing
                .extend(fields.fields.iter().filter(|field| json.get(&field.name).is_none()).map(|f| f.name.clone()));
        }
        assert_eq!(missing, Vec::<String>::new());
        let payload = json.get("payload").and_then(Value::as_object).unwrap();
        assert!(payload.values().all(|value| !matches!(value, Value::String(text) if text.is_empty())), "{payload:?}");
        assert!(!record.to_bytes().is_empty());
    }
}

#[test]
fn the_golden_records_of_later_versions_are_read_and_written_again_byte_for_byte() {
    for version in &schema::versions()[1..] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{}", version.number));
        let records = full::of_version(version.number);
        if std::env::var("RUNLOG_GOLDEN").as_deref() == Ok("write") && !version.released {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("fingerprint"), format!("{}\n", hex(&version.fingerprint))).unwrap();
            for (name, record) in &records {
                fs::write(folder.join(format!("{name}.avro")), codec::encode(record)).unwrap();
                fs::write(folder.join(format!("{name}.json")), text(record)).unwrap();
            }
        }
        for (name, record) in &records {
            let framed = fs::read(folder.join(format!("{name}.avro"))).unwrap();
            assert_eq!(hex(&codec::encode(record)), hex(&framed), "{name}");
            assert_eq!(&codec::decode(codec::unframe(&framed).unwrap()).unwrap(), record, "{name}");
            assert_eq!(codec::read(&framed).unwrap().content_hash(), record.content_hash(), "{name}");
            let json = fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
            assert_eq!(text(record), json, "{name}");
            assert_eq!(codec::encode(&Draft::parse(&json).unwrap().record), framed, "{name}");
        }
        let fingerprint = fs::read_to_string(folder.join("fingerprint")).unwrap();
        assert_eq!(fingerprint.trim(), hex(&version.fingerprint));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1 + 2 * records.len());
    }
}
