//! The legal changes of a schema, as a table (`evolution.json`), and the check of this build's schema against every released
//! version.

use std::{collections::BTreeSet, fs, path::Path};

use apache_avro::{
    Schema,
    schema_compatibility::{Compatibility, SchemaCompatibility},
};
use runlog_schemas::{
    codec,
    datum::{Datum, Input, Sha256, hex},
    evolution, headers,
    id::{ContentHash, Secret},
    record::{Facts, Unresolved},
    schema,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    old: Value,
    new: Value,
    incompatible: Vec<Incompatible>,
    /// The verdict of `apache-avro`, if it differs from the verdict by Avro's rules.
    apache_avro_says: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Incompatible {
    path: String,
    rule: String,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("evolution.json")).unwrap()
}

#[test]
fn each_change_of_the_table_has_its_verdict_and_its_paths() {
    let (mut names, mut wrong) = (BTreeSet::new(), Vec::new());
    for case in cases() {
        assert!(names.insert(case.name.clone()), "two cases have the name {}", case.name);
        let actual = match evolution::check(&case.old.to_string(), &case.new.to_string()) {
            Ok(found) => found
                .into_iter()
                .map(|one| (one.path, serde_json::to_value(one.rule).unwrap().as_str().unwrap().to_owned()))
                .collect(),
            Err(error) => BTreeSet::from([(error.which.to_owned(), "no_schema".to_owned())]),
        };
        let expected: BTreeSet<_> = case.incompatible.into_iter().map(|found| (found.path, found.rule)).collect();
        if actual != expected {
            wrong.push(format!("{}: found {actual:?}, expected {expected:?}", case.name));
        }
    }
    assert!(names.len() >= 20 && wrong.is_empty(), "{wrong:#?}");
}

/// The reason why Runlog does not use the check of `apache-avro`: its verdict differs in the marked cases of the table, and
/// in no other case.
#[test]
fn the_library_differs_where_the_table_says_so() {
    let mut wrong = Vec::new();
    for case in cases() {
        let (Ok(old), Ok(new)) = (Schema::parse(&case.old), Schema::parse(&case.new)) else { continue };
        let ours =
            if case.incompatible.iter().any(|found| found.rule == "avro") { "incompatible" } else { "compatible" };
        let theirs = match SchemaCompatibility::can_read(&old, &new) {
            Ok(Compatibility::Full) => "compatible",
            Ok(Compatibility::Partial) | Err(_) => "incompatible",
        };
        let expected = case.apache_avro_says.as_deref().unwrap_or(ours);
        if theirs != expected {
            wrong.push(format!("{}: {theirs}, expected {expected}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_malformed_schema_is_distinguished_from_an_incompatible_one() {
    let error = evolution::check("\"int\"", "{").unwrap_err();
    assert_eq!(error.which, "new");
    assert_eq!(evolution::check("{\"type\": \"recrod\"}", "\"int\"").unwrap_err().which, "old");
}

/// This test must pass before a change of the schema is merged.
#[test]
fn the_schema_of_this_build_reads_every_released_version() {
    assert_eq!(evolution::gate(schema::RELEASED, schema::TEXTS), Vec::<String>::new());
    let folders = |of: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(of)).unwrap().map(|entry| entry.unwrap());
        entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    let compiled: BTreeSet<String> = schema::versions().iter().map(|version| format!("v{}", version.number)).collect();
    let mut golden = folders("golden");
    assert!(golden.remove("payloads"), "payloads are alike in each version");
    assert_eq!((folders("avsc"), golden), (compiled.clone(), compiled), "a folder of each for every version");
    let record = |facts: Facts| {
        let mut record = crate::vocabulary::full::decision();
        record.body.facts = facts;
        let number = headers::of(&record).into_iter().find(|(name, _)| name == "runlog-schema-version").unwrap().1;
        (String::from_utf8(number).unwrap(), codec::encode(&record)[2..10].to_vec())
    };
    let [first, second, third] = schema::versions() else { panic!("the versions that records are written in") };
    assert_eq!(record(Facts::default()), ("1".to_owned(), first.fingerprint.to_vec()));
    for facts in [
        Facts { revision: Some(0), ..Facts::default() },
        Facts { evidence: Some("e".parse().unwrap()), ..Facts::default() },
        Facts { epoch: Some(0.into()), ..Facts::default() },
        Facts { principal: Some("p".into()), ..Facts::default() },
        Facts { principal_proof: Some(Sha256::default()), ..Facts::default() },
    ] {
        assert_eq!(record(facts), ("2".to_owned(), second.fingerprint.to_vec()));
    }
    for facts in [
        Facts { basis: Some(ContentHash::default()), revision: Some(1), ..Facts::default() },
        Facts { attempt: Some(2), ..Facts::default() },
        Facts { unresolved: Some(Unresolved::Allow), ..Facts::default() },
        Facts { repeatable: Some(true), ..Facts::default() },
        Facts { observed: Some(true), ..Facts::default() },
        Facts { commitment: Some(Sha256::default()), ..Facts::default() },
        Facts { shown: Some(Secret::default()), ..Facts::default() },
        Facts { only_own: Some(true), ..Facts::default() },
        Facts { approver: Some("p".into()), ..Facts::default() },
    ] {
        assert_eq!(record(facts), ("3".to_owned(), third.fingerprint.to_vec()));
    }
}

#[test]
fn golden_bytes_of_every_version_are_read() {
    for version in schema::versions() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{}", version.number));
        let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let mut read = 0;
        for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "avro")) {
            let bytes = fs::read(file).unwrap();
            let unframed = codec::unframe(&bytes).unwrap();
            assert_eq!(unframed.version, version, "{}", file.display());
            let record = codec::decode(unframed).unwrap();
            assert_eq!(codec::read(&bytes).unwrap().payload().unwrap(), record.payload, "{}", file.display());
            let json: Value = serde_json::from_slice(&fs::read(file.with_extension("json")).unwrap()).unwrap();
            let printed = serde_json::to_value(&record).unwrap();
            // A later version may print more members, but prints each member of the golden JSON unchanged.
            for (name, value) in json.as_object().unwrap() {
                assert_eq!(printed.get(name), Some(value), "{} of {}", name, file.display());
            }
            read += 1;
        }
        assert!(read > 0, "golden/v{} holds no records", version.number);
    }
}

const V1: &str = r#"{"type": "record", "name": "runlog.journal.v1.JournalRecord", "fields": [
    {"name": "journal_schema_version", "type": "int"}, {"name": "payload", "type": "string"}]}"#;
const V2: &str = r#"{"type": "record", "name": "runlog.journal.v1.JournalRecord", "fields": [
    {"name": "journal_schema_version", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": null},
    {"name": "payload", "type": "string"}]}"#;

/// The line that releases [`V1`].
fn line() -> &'static str {
    let fingerprint = hex(&schema::fingerprint_of(V1).unwrap());
    format!("# comment\nv1 {fingerprint} {}\n", Sha256::of(V1.as_bytes())).leak()
}

#[test]
fn before_its_release_a_version_may_change_and_afterwards_it_may_not() {
    let changed = V1.replace("\"string\"", "\"long\"");
    assert_eq!(evolution::gate("# nothing\n", &[(1, &changed)]), Vec::<String>::new());
    assert_eq!(evolution::gate(line(), &[(1, V1)]), Vec::<String>::new());
    assert_eq!(evolution::gate(line(), &[(1, V1), (2, V2)]), Vec::<String>::new());
    for (versions, wrong) in [
        (vec![(1, changed.as_str())], "v1 is released and was changed"),
        (vec![(2, V2)], "v1 is released and not compiled in"),
        (vec![(1, V1), (2, &changed)], "v1: runlog.journal.v1.JournalRecord.payload"),
        (vec![(1, V1), (2, V2), (3, V2)], "v2 is not released although there is a later version"),
    ] {
        let problems = evolution::gate(line(), &versions);
        assert!(problems.iter().any(|one| one.contains(wrong)), "{wrong}: {problems:?}");
    }
    // A released version includes its docs and defaults, although the fingerprint does not.
    let documented = V1.replace("\"type\": \"int\"", "\"type\": \"int\", \"doc\": \"d\"");
    assert_eq!(evolution::gate(line(), &[(1, &documented)]).len(), 1);
}

#[derive(Debug, PartialEq)]
struct Grown {
    first: i64,
    second: Option<String>,
    third: String,
}
runlog_schemas::datum!(Grown { first, second since 2, third });

#[test]
fn a_field_of_a_later_version_is_absent_from_an_older_datum_and_nothing_moves() {
    let grown = Grown { first: 7, second: Some("x".into()), third: "y".into() };
    let new = grown.to_bytes();
    let mut old = 7i64.to_bytes();
    "y".to_owned().put(&mut old);
    let mut input = Input::of_version(&old, 1);
    assert_eq!(Grown::take(&mut input).unwrap(), Grown { second: None, ..grown });
    assert_eq!(input.left(), 0);
    let mut input = Input::of_version(&old, 1);
    Grown::skip(&mut input).unwrap();
    assert_eq!(input.left(), 0);
    assert!(Grown::take(&mut Input::of_version(&old, 2)).is_err(), "the field is read where it should be");
    for version in [2, u16::MAX] {
        assert_eq!(Grown::take(&mut Input::of_version(&new, version)).unwrap().second.as_deref(), Some("x"));
    }
}
