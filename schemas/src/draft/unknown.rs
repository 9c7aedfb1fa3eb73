//! Finds the members of a JSON record that the schema has no field for.
//!
//! ```text
//!   given text ──┐
//!                ├─▶ compared as texts, and member by member only where they differ ─▶ pointer → value
//!   record ──────┘   (printed)
//! ```
//!
//! Texts are compared, because parsed values would need many times the memory of a text.

use crate::{
    canonical::escape,
    codec::RECORD_BYTES_MAX,
    json::{self, Invalid, Json, invalid},
    payload::Payload,
    record::JournalRecord,
};
use serde_json::{Map, Value, value::RawValue};
use std::collections::BTreeMap;

/// The symbol that replaces unknown symbols.
pub(super) const UNRECOGNIZED: &str = "unrecognized";

/// Returns the members without a field in the schema, as a JSON object from pointer to value. `None` without such members.
///
/// Errors: members that are too large for a record; a value that clients cannot read; an array in place of an object, which
/// serde reads as the members in the order of the source.
pub(super) fn members(
    members: &BTreeMap<String, Box<RawValue>>,
    record: &JournalRecord,
) -> Result<Option<String>, Invalid> {
    let taken = serde_json::to_string(record).map_err(|e| invalid(e, ""))?;
    let taken: BTreeMap<String, &str> = json::members(&taken).map_err(|e| invalid(e, ""))?.into_iter().collect();
    let mut left = Unknown { is_batch: matches!(record.payload, Payload::Batch(_)), ..Unknown::default() };
    for (name, raw) in members {
        let at = format!("/{}", escape(name));
        let there = taken.get(name).copied();
        // A member that equals its own serialisation has no unknown members.
        if name == "unknown_fields" || there == Some(raw.get()) {
            continue;
        }
        json::check_value(raw.get()).map_err(|e| invalid(e, &at))?;
        let given = Json::parse(raw.get()).map_err(|e| invalid(e, &at))?;
        // Facts are derived from the payload; given facts are checked and not kept.
        let mut ignored = Unknown::default();
        let target = if name == "facts" { &mut ignored } else { &mut left };
        target.compare(given.as_str(), there, &mut at.clone())?;
    }
    if let Some(raw) = members.get("unknown_fields") {
        // Runlog printed this record. Its unknown members are kept.
        let text: String = serde_json::from_str(raw.get()).map_err(|e| invalid(e, "/unknown_fields"))?;
        match parse_kept(&text, "/unknown_fields")? {
            Value::Object(kept) => left.found.extend(kept),
            _ => return Err(invalid("not a JSON object", "/unknown_fields")),
        }
    }
    let left = (!left.found.is_empty()).then(|| Value::Object(left.found).to_string());
    if left.as_ref().is_some_and(|left| left.contains('\u{fffd}')) {
        // Unknown members are kept as values: a lone surrogate would become another character, so it is refused.
        for (name, raw) in members {
            json::check_plain(raw.get()).map_err(|e| invalid(e, &format!("/{name}")))?;
        }
    }
    Ok(left)
}

/// Returns pointers to the stated facts that the record does not have, of a record and of each record of a batch. `text` is the
/// record's JSON.
///
/// Errors: as [`members`].
pub(super) fn facts(text: &str, record: &JournalRecord) -> Result<Vec<String>, Invalid> {
    let mut pointers = Vec::new();
    facts_at("", text, record, &mut pointers)?;
    Ok(pointers)
}

fn facts_at(at: &str, text: &str, record: &JournalRecord, pointers: &mut Vec<String>) -> Result<(), Invalid> {
    let members = named(text, at)?;
    if let Some(given) = members.get("facts") {
        let given = Json::parse(given).map_err(|e| invalid(e, at))?;
        let taken = serde_json::to_string(&record.body.facts).map_err(|e| invalid(e, at))?;
        let mut ignored = Unknown::default();
        ignored.compare(given.as_str(), Some(&taken), &mut format!("{at}/facts"))?;
        pointers.extend(ignored.found.into_iter().map(|(pointer, _)| pointer));
    }
    let Payload::Batch(batch) = &record.payload else { return Ok(()) };
    let payload = members.get("payload").map_or(Ok(BTreeMap::new()), |payload| named(payload, at))?;
    let texts = payload.get("records").map_or(Ok(Vec::new()), |records| listed(records, at))?;
    for (nth, (text, record)) in texts.iter().zip(&batch.records).enumerate() {
        facts_at(&format!("{at}/payload/records/{nth}"), text.get(), record, pointers)?;
    }
    Ok(())
}

/// The unknown members that were found so far.
#[derive(Default)]
struct Unknown {
    found: Map<String, Value>,
    /// The length of their texts.
    bytes: usize,
    /// Whether the payload is a batch, whose records keep their own unknown members.
    is_batch: bool,
}

impl Unknown {
    /// Collects the members, symbols and numbers of the compact text `given` that `taken` lacks. Null and an empty list count
    /// as absent.
    fn compare(&mut self, given: &str, taken: Option<&str>, pointer: &mut String) -> Result<(), Invalid> {
        let Some(taken) = taken else {
            return if matches!(given, "null" | "[]") { Ok(()) } else { self.add(given, pointer) };
        };
        if given == taken {
            return Ok(());
        }
        match (first(given), first(taken)) {
            (b'{', b'{') => {
                let [given, taken] = [named(given, pointer)?, named(taken, pointer)?];
                for (name, value) in &given {
                    if self.is_batch && pointer.as_str() == "/payload" && name == "records" {
                        continue;
                    }
                    self.within(value, taken.get(name).copied(), pointer, &escape(name))?;
                }
            }
            (b'[', b'[') => {
                let [given, taken] = [listed(given, pointer)?, listed(taken, pointer)?];
                for (index, value) in given.iter().enumerate() {
                    let taken = taken.get(index).map(|value| value.get());
                    self.within(value.get(), taken, pointer, &index.to_string())?;
                }
            }
            (b'[', b'{') => return Err(invalid("an array, not an object", pointer)),
            (b'{' | b'[', _) | (_, b'{' | b'[') => {}
            _ => {
                let taken = parse_kept(taken, pointer)?;
                let differs = match parse_kept(given, pointer)? {
                    given @ Value::String(_) => taken == UNRECOGNIZED && given != taken,
                    given @ Value::Number(_) => taken.is_number() && given != taken,
                    _ => false,
                };
                if differs {
                    self.add(given, pointer)?;
                }
            }
        }
        Ok(())
    }

    /// Compares the values at a step below `pointer`.
    fn within(&mut self, given: &str, taken: Option<&str>, pointer: &mut String, step: &str) -> Result<(), Invalid> {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(step);
        self.compare(given, taken, pointer)?;
        pointer.truncate(length);
        Ok(())
    }

    fn add(&mut self, given: &str, pointer: &str) -> Result<(), Invalid> {
        self.bytes += given.len();
        if self.bytes > RECORD_BYTES_MAX {
            let what =
                format!("members that the schema does not have are over {RECORD_BYTES_MAX} bytes; leave them out");
            return Err(invalid(what, pointer));
        }
        let value = parse_kept(given, pointer)?;
        self.found.insert(pointer.to_owned(), value);
        Ok(())
    }
}

/// Parses a text that is kept, or a scalar.
fn parse_kept(text: &str, pointer: &str) -> Result<Value, Invalid> {
    if first(text) == b'{' && text.len() > RECORD_BYTES_MAX {
        return Err(invalid(format!("over {RECORD_BYTES_MAX} bytes, the most that a record can hold"), pointer));
    }
    json::value(text).map_err(|e| invalid(e, pointer))
}

fn first(text: &str) -> u8 {
    text.bytes().next().unwrap_or_default()
}

/// Returns the members of an object by name. The last of several members with one name counts.
fn named<'a>(text: &'a str, pointer: &str) -> Result<BTreeMap<String, &'a str>, Invalid> {
    json::members(text).map(|members| members.into_iter().collect()).map_err(|e| invalid(e, pointer))
}

fn listed<'a>(text: &'a str, pointer: &str) -> Result<Vec<&'a RawValue>, Invalid> {
    serde_json::from_str(text).map_err(|e| invalid(e, pointer))
}
