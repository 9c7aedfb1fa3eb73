//! The shapes of contract payloads, read from the newest schema. Each version has the same shapes.

use crate::{payload::payload_type::PayloadType, schema};
use serde_json::Value;
use std::{collections::HashMap, sync::LazyLock};

/// The form of a value in JSON and Avro.
#[derive(Debug)]
pub(super) enum Shape {
    Bool,
    /// An Avro `int`. Contracts have 32 bits without a sign; larger numbers saturate.
    Int,
    /// An Avro `long`. Contracts have 64 bits without a sign; larger numbers saturate.
    Long,
    Text,
    /// Symbols in the schema's order. The first replaces symbols that the schema lacks.
    Symbols(Vec<Box<str>>),
    List(&'static Self),
    Maybe(&'static Self),
    Record(Vec<Field>),
    /// An enum with data: the branches after the first, which contains a variant that the schema lacks.
    Variants(Form, Vec<(Box<str>, &'static Self)>),
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: Box<str>,
    pub(super) shape: &'static Shape,
    pub(super) absent: Absent,
}

/// The JSON of a null or an empty list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// The field is required.
    Refused,
    Omitted,
    Null,
}

/// Serde's representation of an enum with data.
#[derive(Debug)]
pub(super) enum Form {
    /// The variant's name is a member among its fields.
    Internal(Box<str>),
    /// The variant's name and its content are two members.
    Adjacent(Box<str>, Box<str>),
    /// An object with one member, named as the variant; without fields a string.
    External,
}

/// Returns the shape of a payload type, which must be a contract's.
pub(super) fn of(payload_type: PayloadType) -> &'static Shape {
    static SHAPES: LazyLock<Vec<Option<&'static Shape>>> = LazyLock::new(|| read(schema::JOURNAL_RECORD_V3));
    SHAPES[payload_type as usize].expect("the type of a contract payload")
}

/// Reads the shapes of the payload types in the order of the schema's union. `None` for Runlog's own types.
fn read(schema: &str) -> Vec<Option<&'static Shape>> {
    let schema: Value = serde_json::from_str(schema).expect("a compiled-in schema is JSON");
    let mut types = Types { defined: HashMap::new(), read: HashMap::new() };
    types.collect(&schema);
    let branches = schema["fields"].as_array().and_then(|fields| fields.last()?["type"].as_array());
    let branches = branches.expect("the last field of a record is a union").iter().zip(PayloadType::ALL);
    branches.map(|(branch, of)| of.is_of_contract().then(|| types.shape(branch))).collect()
}

struct Types<'a> {
    /// The definitions of named types.
    defined: HashMap<&'a str, &'a Value>,
    read: HashMap<&'a str, &'static Shape>,
}

impl<'a> Types<'a> {
    fn collect(&mut self, value: &'a Value) {
        match value {
            Value::Object(members) => {
                if let ("record" | "enum" | "fixed", Some(name)) = (text(&value["type"]), value["name"].as_str()) {
                    self.defined.insert(name, value);
                }
                members.values().for_each(|member| self.collect(member));
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            _ => {}
        }
    }

    fn shape(&mut self, avro: &'a Value) -> &'static Shape {
        let shape = match (avro, text(&avro["type"])) {
            (Value::Array(branches), _) => Shape::Maybe(self.shape(&branches[1])),
            (_, "array") => Shape::List(self.shape(&avro["items"])),
            (Value::Object(_), _) => return self.shape(&avro["name"]),
            _ => match text(avro) {
                "boolean" => Shape::Bool,
                "int" => Shape::Int,
                "long" => Shape::Long,
                "string" => Shape::Text,
                name => return self.named(name),
            },
        };
        Box::leak(Box::new(shape))
    }

    fn named(&mut self, name: &'a str) -> &'static Shape {
        if let Some(shape) = self.read.get(name) {
            return shape;
        }
        let avro = self.defined[name];
        let shape = match (items(&avro["symbols"]), avro.get("json")) {
            ([], None) => Shape::Record(items(&avro["fields"]).iter().map(|field| self.field(field)).collect()),
            ([], Some(form)) => {
                let branches = items(&avro["fields"][0]["type"]).iter().skip(1).map(|branch| self.shape(branch));
                Shape::Variants(Form::read(form), items(&form["variants"]).iter().map(owned).zip(branches).collect())
            }
            (symbols, _) => Shape::Symbols(symbols.iter().map(owned).collect()),
        };
        let shape: &'static Shape = Box::leak(Box::new(shape));
        self.read.insert(name, shape);
        shape
    }

    fn field(&mut self, field: &'a Value) -> Field {
        let absent = match (field.get("default"), field.get("absent")) {
            (None, _) => Absent::Refused,
            (Some(_), None) => Absent::Omitted,
            (Some(_), Some(_)) => Absent::Null,
        };
        Field { name: owned(&field["name"]), shape: self.shape(&field["type"]), absent }
    }
}

impl Form {
    fn read(form: &Value) -> Self {
        match (form.get("tag"), form.get("content")) {
            (Some(tag), Some(content)) => Self::Adjacent(owned(tag), owned(content)),
            (Some(tag), None) => Self::Internal(owned(tag)),
            (None, _) => Self::External,
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn owned(value: &Value) -> Box<str> {
    text(value).into()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_the_same_shapes() {
        let shapes = |text: &str| {
            // Only version 3 names the members that are written as null.
            let schema = text.replace("\"absent\"", "\"absent before\"");
            format!("{:?}", read(&schema))
        };
        let [first, others @ ..] = schema::TEXTS else { panic!("no version") };
        let first = shapes(first.1);
        assert!(first.contains("effect_intent") && others.iter().all(|(_, text)| shapes(text) == first));
    }
}
