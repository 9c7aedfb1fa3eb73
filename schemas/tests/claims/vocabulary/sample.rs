//! Bytes of any type in the schema, made from the `.avsc` file and a source of choices.

use super::named::NAMED;
use apache_avro::Schema;
use runlog_schemas::datum::{put_bytes, put_long};
use serde_json::{Value, json};

/// A source of choices.
pub(crate) trait Choose {
    /// A symbol of the enum `name`, which has `count` symbols.
    fn symbol(&mut self, name: &str, count: usize) -> usize;
    /// A branch of the record `name`, whose JSON is an enum with data; branch 0 is for unknown variants.
    fn variant(&mut self, name: &str, count: usize) -> usize;
    /// Whether an optional value is present.
    fn is_present(&mut self) -> bool;
    /// The number of items in an array.
    fn items(&mut self) -> usize;
    /// Text for the field `name`.
    fn text(&mut self, name: &str) -> String;
    /// A non-negative Avro long.
    fn long(&mut self) -> i64;
    /// JSON for the field `name`.
    fn json(&mut self, name: &str) -> Value;
}

/// A payload type's encoding with its union branch.
pub(crate) fn payload(index: usize, from: &mut impl Choose) -> Vec<u8> {
    let mut out = Vec::new();
    branch(index, &mut out);
    put(&payloads()[index], "payload", false, from, &mut out);
    out
}

/// The branches of the payload union.
pub(crate) fn payloads() -> &'static [Schema] {
    let Schema::Record(record) = &NAMED.root else { panic!("a record") };
    let Schema::Union(union) = &record.fields.last().unwrap().schema else { panic!("a union") };
    union.variants()
}

fn branch(index: usize, out: &mut Vec<u8>) {
    put_long(index.try_into().unwrap(), out);
}

/// Appends a value of `schema`, the schema of the field `field`. `holds_json`: its strings contain JSON.
fn put(schema: &Schema, field: &str, holds_json: bool, from: &mut impl Choose, out: &mut Vec<u8>) {
    match NAMED.follow(schema) {
        Schema::Boolean => out.push(from.is_present().into()),
        Schema::Int => put_long(from.long() & i64::from(i32::MAX), out),
        Schema::Long => put_long(from.long(), out),
        // Numbers that no parser rounds.
        Schema::Double => out.extend_from_slice(&(f64::from(from.long() as u8) / 8.0).to_le_bytes()),
        Schema::String if holds_json => put_bytes(from.json(field).to_string().as_bytes(), out),
        Schema::Bytes | Schema::String => put_bytes(from.text(field).as_bytes(), out),
        Schema::Fixed(fixed) => out.extend((0..fixed.size).map(|_| from.long() as u8)),
        Schema::Enum(symbols) => branch(from.symbol(symbols.name.name(), symbols.symbols.len()), out),
        Schema::Array(array) => {
            let count = from.items();
            if count > 0 {
                branch(count, out);
                (0..count).for_each(|_| put(&array.items, field, holds_json, from, out));
            }
            branch(0, out);
        }
        Schema::Union(union) => match union.variants() {
            [Schema::Null, _] if !from.is_present() => branch(0, out),
            [Schema::Null, some] => {
                branch(1, out);
                put(some, field, holds_json, from, out);
            }
            other => panic!("{field} is a union of {other:?}"),
        },
        Schema::Record(record) => match record.attributes.get("json") {
            Some(form) => variant(record, form, from, out),
            None => record.fields.iter().for_each(|field| {
                let holds_json = field.doc.as_ref().is_some_and(|doc| doc.contains("JSON text"));
                put(&field.schema, &field.name, holds_json, from, out);
            }),
        },
        other => panic!("the vocabulary does not use {other:?}"),
    }
}

/// A record whose JSON is an enum with data.
fn variant(record: &apache_avro::schema::RecordSchema, form: &Value, from: &mut impl Choose, out: &mut Vec<u8>) {
    let Schema::Union(union) = &record.fields[0].schema else { panic!("{record:?} has no union") };
    let chosen = from.variant(record.name.name(), union.variants().len());
    branch(chosen, out);
    if chosen > 0 {
        return put(&union.variants()[chosen], "variant", false, from, out);
    }
    let inner = from.json("content");
    let content = match (form.get("tag").and_then(Value::as_str), form.get("content")) {
        (Some(tag), None) => json!({tag: "of_a_later_version", "with": inner}),
        (Some(_), Some(_)) => inner,
        (None, _) => json!({"of_a_later_version": inner}),
    };
    put_bytes(b"of_a_later_version", out);
    put_bytes(content.to_string().as_bytes(), out);
}
