//! Every type, field and variant of the contracts has its path in the schema: `contracts/NAME.json` is the list, read
//! from the sources by `contracts/extract.py` or by a person, and `contracts/NAME.paths.json` says where each one is.
//!
//! ```text
//!   "module::Type.field": "Record.field" | "Enum.symbol" | "Record" | "HostPayload" | "not carried: why"
//! ```

use std::{collections::BTreeMap, fs, path::PathBuf};

use crate::vocabulary::{named::NAMED, sample};
use apache_avro::Schema;
use runlog_schemas::{datum::Datum, payload::Payload};
use serde_json::{Map, Value};

/// The contracts by the stem of their files.
const CONTRACTS: [&str; 6] = [
    "agent-sdk-core-0.1.0-alpha.4",
    "a3s-code-core-3.3.0",
    "a3s-code-core-9.1.3",
    "bob-core-0.3.2",
    "codetether-agent-4.7.4",
    "ploke-db-milestone-0",
];

fn read(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("contracts").join(name);
    serde_json::from_slice(&fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).unwrap()
}

fn types(contract: &str) -> Map<String, Value> {
    read(&format!("{contract}.json"))["types"].as_object().unwrap().clone()
}

fn paths(contract: &str) -> BTreeMap<String, String> {
    serde_json::from_value(read(&format!("{contract}.paths.json"))).unwrap()
}

fn list<'a>(item: &'a Value, name: &str) -> &'a [Value] {
    item.get(name).map(|list| list.as_array().unwrap().as_slice()).unwrap_or_default()
}

fn text<'a>(item: &'a Value, name: &str) -> &'a str {
    item[name].as_str().unwrap()
}

/// The parts of a type that need a path: a struct's fields, an enum's variants and their fields, a newtype itself.
fn parts(name: &str, item: &Value) -> Vec<String> {
    let fields = |of: String, item: &Value| -> Vec<String> {
        list(item, "fields").iter().map(|field| format!("{of}.{}", text(field, "name"))).collect()
    };
    if text(item, "kind") == "transparent" {
        return vec![name.to_owned()];
    }
    let mut parts = fields(name.to_owned(), item);
    for variant in list(item, "variants") {
        let variant_name = format!("{name}.{}", text(variant, "name"));
        parts.push(variant_name.clone());
        parts.extend(fields(variant_name, variant));
    }
    parts
}

/// The schema at a path: `Some(None)` for a symbol, `None` if the path does not exist.
fn find(path: &str) -> Option<Option<&'static Schema>> {
    let (name, member) = path.split_once('.').map_or((path, None), |(name, member)| (name, Some(member)));
    let schema = NAMED.types.get(name)?;
    let Some(member) = member else { return Some(Some(schema)) };
    match schema {
        Schema::Record(record) => {
            record.fields.iter().find(|field| field.name == member).map(|field| Some(&field.schema))
        }
        Schema::Enum(symbols) => symbols.symbols.iter().any(|symbol| symbol == member).then_some(None),
        _ => None,
    }
}

#[test]
fn every_part_of_every_contract_has_a_path_that_exists() {
    for contract in CONTRACTS {
        let (types, mut paths) = (types(contract), paths(contract));
        for (name, item) in &types {
            // A type outside the journal may have one path for all its parts.
            if item["in_journal"] == false && paths.remove(name).is_some_and(|path| exists(&path)) {
                continue;
            }
            for part in parts(name, item) {
                let path = paths.remove(&part).unwrap_or_else(|| panic!("{contract}: {part} has no path"));
                assert!(exists(&path), "{contract}: {part} has the path {path}, which does not exist");
            }
        }
        assert!(paths.is_empty(), "{contract}: paths of parts that are not in the contract: {paths:?}");
    }
}

fn exists(path: &str) -> bool {
    match path.strip_prefix("not carried: ") {
        Some(why) => !why.is_empty(),
        None => find(path).is_some(),
    }
}

#[test]
fn the_run_journal_contract_has_its_24_kinds_and_24_payloads_each_with_a_type_of_its_own() {
    let (types, paths) = (types(CONTRACTS[0]), paths(CONTRACTS[0]));
    assert_eq!(list(&types["journal::JournalRecordKind"], "variants").len(), 24);
    let payloads = list(&types["journal::JournalRecordPayload"], "variants");
    assert_eq!(payloads.len(), 24);
    for payload in payloads {
        let path = &paths[&format!("journal::JournalRecordPayload.{}", text(payload, "name"))];
        assert!(matches!(find(path), Some(Some(Schema::Record(_)))), "{path}");
        assert_ne!(path, "HostPayload");
    }
}

/// Whether the Avro type can contain each value of a contract's type, and no other form.
fn fits(types: &Map<String, Value>, of: &str, schema: &Schema) -> bool {
    let inner = |wrapper: &str| of.strip_prefix(wrapper).and_then(|of| of.strip_suffix('>'));
    let schema = NAMED.follow(schema);
    if let Some(inner) = inner("Option<") {
        return matches!(schema, Schema::Union(union) if matches!(union.variants(), [Schema::Null, some] if fits(types, inner, some)));
    }
    if let Some(inner) = inner("Vec<") {
        return matches!(schema, Schema::Array(array) if fits(types, inner, &array.items));
    }
    match of {
        "String" => matches!(schema, Schema::String),
        "bool" => matches!(schema, Schema::Boolean),
        "u8" | "u16" => matches!(schema, Schema::Int),
        "u32" | "u64" | "usize" => matches!(schema, Schema::Long),
        _ => match (text(&types[of], "kind"), schema) {
            ("transparent", schema) => fits(types, text(&types[of], "of"), schema),
            ("struct", Schema::Record(record)) => {
                let names = |name: &str| list(&types[of], "fields").iter().any(|field| text(field, "name") == name);
                !record.attributes.contains_key("json")
                    && list(&types[of], "fields").len() <= record.fields.len()
                    && record.fields.iter().filter(|field| names(&field.name)).count()
                        == list(&types[of], "fields").len()
            }
            ("enum", schema) => fits_enum(&types[of], schema),
            _ => false,
        },
    }
}

/// Whether symbols or variants have the contract's spelling and order, after a first symbol for unknown values.
fn fits_enum(item: &Value, schema: &Schema) -> bool {
    let names: Vec<&str> = list(item, "variants").iter().map(|variant| text(variant, "json")).collect();
    match (text(item, "tag"), schema) {
        ("unit", Schema::Enum(symbols)) => {
            symbols.default.as_deref() == Some("unrecognized")
                && symbols.symbols.first().is_some_and(|symbol| symbol == "unrecognized")
                && symbols.symbols[1..].iter().take(names.len()).eq(names.iter())
        }
        (tag, Schema::Record(record)) => {
            let Some(form) = record.attributes.get("json") else { return false };
            let member = |name: &str| form.get(name).map(|member| format!(":{}", member.as_str().unwrap()));
            let written = match (member("tag"), member("content")) {
                (None, _) => "external".to_owned(),
                (Some(tag), None) => format!("internal{tag}"),
                (Some(tag), Some(content)) => format!("adjacent{tag}{content}"),
            };
            tag == written && list(form, "variants").iter().map(|name| name.as_str().unwrap()).eq(names)
        }
        _ => false,
    }
}

#[test]
fn the_schema_holds_what_serde_writes_in_the_types_that_it_has_for_it() {
    let (types, paths) = (types(CONTRACTS[0]), paths(CONTRACTS[0]));
    let mut fields = 0;
    for (name, item) in types.iter().filter(|(_, item)| item["in_journal"] == true) {
        let of_variants = list(item, "variants")
            .iter()
            .flat_map(|variant| list(variant, "fields").iter().map(|field| (text(variant, "name"), field)));
        let own = list(item, "fields").iter().map(|field| ("", field));
        for (variant, field) in own.chain(of_variants) {
            let dot = if variant.is_empty() { "" } else { "." };
            let part = format!("{name}{dot}{variant}.{}", text(field, "name"));
            let Some(Some(schema)) = find(&paths[&part]) else { panic!("{part} is at {}", paths[&part]) };
            // The payload is our own union, and the envelope's version an int.
            if part != "journal::JournalRecord.payload" {
                assert!(fits(&types, text(field, "type"), schema), "{part}: {} is not {schema:?}", field["type"]);
            }
            fields += 1;
        }
    }
    assert!(fields > 500, "{fields} fields were looked at");
}

/// Leaves out every optional value. `round` selects symbols and variants.
struct Emptiest(usize);

impl sample::Choose for Emptiest {
    fn symbol(&mut self, _: &str, count: usize) -> usize {
        1 + self.0 % (count - 1)
    }
    fn variant(&mut self, _: &str, count: usize) -> usize {
        1 + self.0 % (count - 1)
    }
    fn is_present(&mut self) -> bool {
        false
    }
    fn items(&mut self) -> usize {
        0
    }
    fn text(&mut self, _: &str) -> String {
        String::new()
    }
    fn long(&mut self) -> i64 {
        0
    }
    fn json(&mut self, _: &str) -> Value {
        Value::Null
    }
}

/// The members that serde writes of an empty `of`, by the contract's list.
fn check_empty(types: &Map<String, Value>, of: &str, json: &Value, at: &str) {
    let Some(item) = types.get(of) else { return };
    let members = |fields: &[Value], json: &Value, tags: &[&str]| {
        let keys: Vec<&String> = json.as_object().unwrap_or_else(|| panic!("{at}: {json}")).keys().collect();
        let mut expected: Vec<&str> = tags.to_vec();
        expected
            .extend(fields.iter().filter(|field| text(field, "absent") != "skipped").map(|field| text(field, "name")));
        expected.sort_unstable();
        assert_eq!(keys, expected, "{at}");
        for field in fields.iter().filter(|field| text(field, "absent") == "required") {
            let name = text(field, "name");
            check_empty(types, text(field, "type"), &json[name], &format!("{at}.{name}"));
        }
    };
    let tag = item.get("tag").and_then(Value::as_str).unwrap_or_default();
    match text(item, "kind") {
        "struct" => members(list(item, "fields"), json, &[]),
        "enum" if tag != "unit" => {
            let names: Vec<&str> = tag.split(':').skip(1).collect();
            let (variant, content) = match names[..] {
                [] => json.as_object().unwrap().iter().next().map(|(name, value)| (name.as_str(), value)).unwrap(),
                [tag] => (text(json, tag), json),
                [tag, content] => (text(json, tag), &json[content]),
                _ => panic!("{tag}"),
            };
            let listed = list(item, "variants").iter().find(|known| text(known, "json") == variant);
            let listed = listed.unwrap_or_else(|| panic!("{at}: no variant {variant}"));
            match listed.get("of") {
                Some(of) => check_empty(types, of.as_str().unwrap(), content, &format!("{at}.{variant}")),
                None => members(list(listed, "fields"), content, if names.len() == 1 { &names } else { &[] }),
            }
        }
        _ => {}
    }
}

#[test]
fn what_is_absent_is_written_as_serde_writes_it() {
    let (types, paths) = (types(CONTRACTS[0]), paths(CONTRACTS[0]));
    let index_of = |name: &str| {
        let tag: String = name
            .chars()
            .enumerate()
            .flat_map(|(at, char)| {
                let separator = (char.is_uppercase() && at > 0).then_some('_');
                separator.into_iter().chain(char.to_lowercase())
            })
            .collect();
        Payload::TYPES.iter().position(|known| *known == tag).unwrap_or_else(|| panic!("no payload type {tag}"))
    };
    for payload in list(&types["journal::JournalRecordPayload"], "variants") {
        let name = text(payload, "name");
        let index = index_of(&paths[&format!("journal::JournalRecordPayload.{name}")]);
        for round in 0..24 {
            let payload_read = Payload::from_bytes(&sample::payload(index, &mut Emptiest(round))).unwrap();
            let mut json = serde_json::to_value(&payload_read).unwrap();
            json.as_object_mut().unwrap().remove("type").unwrap();
            check_empty(&types, text(payload, "of"), &json, name);
        }
    }
}
