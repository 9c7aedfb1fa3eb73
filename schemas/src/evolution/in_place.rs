//! Rules for later versions beyond Avro's: our reader reads the bytes of older versions in place, without resolution,
//! so an existing field, symbol or branch keeps its position and type.
//!
//! | allowed | refused |
//! |---|---|
//! | a field added anywhere in a record, with the default null, empty, 0 or false | a field removed, renamed, moved, retyped; a default changed |
//! | a symbol added at the end of an enum | a symbol removed, moved, renamed |
//! | a branch added at the end of a union | a branch removed, moved, retyped; a union in place of another type |
//! | docs and aliases | names of types, sizes of fixed, logical types |
//!
//! In `JournalRecord` itself, the fields before [`CONTENT_BEGINS`] must not change, because content hashes begin after
//! them. [`LAST`] stays last, because payload hashes extend to the end.

use super::{
    incompatibility::{Incompatibility, Rule, broken},
    model::{Body, Field, Schema, Type},
};
use serde_json::Value;
use std::collections::HashSet;

/// The name of the record for these rules.
pub const JOURNAL_RECORD: &str = "runlog.journal.v1.JournalRecord";
/// The record's first field that the content hash covers.
pub const CONTENT_BEGINS: &str = "journal_schema_version";
/// The record's last field.
pub const LAST: &str = "payload";

/// Returns the changes that our reader cannot read in place.
pub(super) fn check(old: &Schema, new: &Schema) -> Vec<Incompatibility> {
    let mut walk = Walk { old, new, seen: HashSet::new(), found: Vec::new() };
    walk.types(&old.root, &new.root, &new.root.to_string());
    walk.envelope();
    walk.found
}

struct Walk<'s> {
    old: &'s Schema,
    new: &'s Schema,
    seen: HashSet<&'s str>,
    found: Vec<Incompatibility>,
}

impl<'s> Walk<'s> {
    fn say(&mut self, path: &str, reason: impl Into<String>) {
        self.found.push(broken(Rule::InPlace, path, reason));
    }

    fn types(&mut self, old: &'s Type, new: &'s Type, path: &str) {
        match (old, new) {
            (Type::Primitive(..), Type::Primitive(..)) if old == new => {}
            (Type::Primitive(from, _), Type::Primitive(to, _)) if from == to => self.say(path, "another logical type"),
            (Type::Array(old), Type::Array(new)) | (Type::Map(old), Type::Map(new)) => {
                self.types(old, new, &format!("{path}[]"));
            }
            (Type::Union(from), Type::Union(to)) => {
                if to.len() < from.len() {
                    self.say(path, format!("the union had {} branches and has {}", from.len(), to.len()));
                }
                for (index, (old, new)) in from.iter().zip(to).enumerate() {
                    self.types(old, new, &format!("{path}[{index}]"));
                }
            }
            (Type::Named(from), Type::Named(to)) if from == to => {
                if self.seen.insert(from) {
                    self.named(from, path);
                }
            }
            _ => self.say(path, format!("was {old}, is {new}")),
        }
    }

    fn named(&mut self, name: &'s str, path: &str) {
        let (Some(old), Some(new)) = (self.old.find_type(name), self.new.find_type(name)) else { return };
        match (&old.body, &new.body) {
            (Body::Record(from), Body::Record(to)) => self.fields(from, to, path),
            (Body::Enum { symbols: from, .. }, Body::Enum { symbols: to, .. }) => {
                if !to.starts_with(from) {
                    self.say(path, "symbols are only added, at the end");
                }
            }
            (Body::Fixed { size: from, logical: a }, Body::Fixed { size: to, logical: b }) => {
                if from != to {
                    self.say(path, format!("the fixed had {from} bytes and has {to}"));
                } else if a != b {
                    self.say(path, "another logical type");
                }
            }
            (old, new) => self.say(path, format!("was {}, is {}", old.what(), new.what())),
        }
    }

    fn fields(&mut self, from: &'s [Field], to: &'s [Field], path: &str) {
        let mut index_min = 0;
        for old in from {
            let at = format!("{path}.{}", old.name);
            let Some(index) = to.iter().position(|new| new.name == old.name) else {
                self.say(&at, "the field is gone or has another name");
                continue;
            };
            if index < index_min {
                self.say(&at, "the field moved before a field that preceded it");
            }
            index_min = index_min.max(index + 1);
            let new = &to[index];
            if old.default.is_some() && old.default != new.default {
                self.say(&at, "the default was changed or removed");
            }
            self.types(&old.of, &new.of, &at);
        }
        for new in to.iter().filter(|new| !from.iter().any(|old| old.name == new.name)) {
            if !new.default.as_ref().is_some_and(absent) {
                let reason = "a new field reads as absent in older records: its default is null, empty, 0 or false";
                self.say(&format!("{path}.{}", new.name), reason);
            }
        }
    }

    /// Checks the fields of the envelope at which hashes begin and end.
    fn envelope(&mut self) {
        let fields = |schema: &'s Schema| match schema.find_type(JOURNAL_RECORD).map(|named| &named.body) {
            Some(Body::Record(fields)) => fields.iter().map(|field| field.name.as_str()).collect(),
            _ => Vec::new(),
        };
        let (old, new): (Vec<&str>, Vec<&str>) = (fields(self.old), fields(self.new));
        let sequencing = |fields: &[&'s str]| -> Vec<&'s str> {
            fields.iter().copied().take_while(|name| *name != CONTENT_BEGINS).collect()
        };
        if sequencing(&old) != sequencing(&new) {
            self.say(JOURNAL_RECORD, format!("the fields before {CONTENT_BEGINS} have changed"));
        }
        if new.last() != Some(&LAST) {
            self.say(JOURNAL_RECORD, format!("{LAST} is not the last field"));
        }
    }
}

/// Returns whether the default equals the `Default` of the field's type in the codec.
fn absent(default: &Value) -> bool {
    match default {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    }
}
