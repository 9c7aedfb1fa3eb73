//! Rows as JSON. A key is an object: the name of its row family (`rows`) and its parts, which identify the row within
//! its index. Ids and states are text. Records are masked, as in `runlog show`; other rows with content (messages,
//! evidence) are shown without it.

use crate::index::{
    error::Error,
    principal::Proofs,
    query::{self, TopicPartition, time, timeline},
    store::{
        self, INDICES, Index, KeyPart, Parts, RowFamily, RowType, horizons::Horizons, index_of, records::RecordRow,
    },
};
use runlog_schemas::{answer::ErrorKind, datum::hex};
use serde_json::{Map, Value, json};

/// The context for a record's JSON, in addition to its row.
#[derive(Clone, Copy, Debug)]
pub struct Shows<'a> {
    /// The partition of the records.
    pub place: TopicPartition<'a>,
    /// The horizons that dropped content.
    pub horizons: &'a Horizons,
    /// Verifies who made a decision, as in `runlog show`.
    pub proofs: Option<&'a Proofs>,
}

/// The index with this name, as `verify` prints it; `None` if its rows do not each belong to a run.
pub fn index(name: &str) -> Option<Index> {
    followed().find(|index| index.name == name)
}

/// The names of the indices that can be followed.
pub fn names() -> impl Iterator<Item = &'static str> {
    followed().map(|index| index.name)
}

fn followed() -> impl Iterator<Item = Index> {
    INDICES.into_iter().filter(|index| !index.families.is_empty())
}

/// A key as JSON.
///
/// Errors: `Internal` for a key that no index has.
pub fn key(key: &[u8]) -> Result<Value, Error> {
    let family = family_of(key)?;
    let mut rest = Parts::new(key);
    let mut named = Map::from_iter([("rows".to_owned(), Value::from(family.name))]);
    for part in family.key {
        let (name, value) = match part {
            KeyPart::Run => (&"run_id", rest.text().map(Value::from)),
            KeyPart::Text(name) => (name, rest.text().map(Value::from)),
            KeyPart::U64(name) => (name, rest.u64().map(Value::from)),
            KeyPart::U32(name) => (name, rest.u32().map(Value::from)),
            KeyPart::Hash(name) => (name, rest.hash().map(|hash| Value::from(hash.to_string()))),
            KeyPart::Word(name, word) => (name, rest.u8().and_then(word).map(Value::from)),
        };
        named.insert((*name).to_owned(), value.ok_or_else(|| no_key(key))?);
    }
    Ok(named.into())
}

/// A row as JSON, by its key.
///
/// Errors: `Internal` for a row that does not decode.
pub fn row_of(key: &[u8], row: &[u8], shows: Shows<'_>) -> Result<Value, Error> {
    match family_of(key)?.row {
        RowType::Fields(to_json) => Ok(to_json(row).map_err(|source| store::damaged(key, source))?),
        RowType::Empty => Ok(json!({})),
        RowType::Record => record(key, row, shows),
    }
}

fn family_of(key: &[u8]) -> Result<&'static RowFamily, Error> {
    index_of(key).and_then(|index| index.family_of(key)).ok_or_else(|| no_key(key))
}

fn no_key(key: &[u8]) -> Error {
    Error::new(ErrorKind::Internal, format!("no index has the key {}", hex(key)))
}

/// A record, masked as in `runlog show`.
fn record(key: &[u8], row: &[u8], shows: Shows<'_>) -> Result<Value, Error> {
    let row: RecordRow = store::decode(key, row)?;
    let mut parts = Parts::new(key);
    let offset = parts.text().and_then(|_| parts.offset()).ok_or_else(|| no_key(key))?;
    let record = query::decode(&row, offset, shows.horizons)?;
    let (place, body) = (&record.place, &record.body);
    let mut row = json!({
        "logged_at": time(row.logged_at_millis.max(0).cast_unsigned()),
        "journal_seq": place.journal_seq,
        "writer_seq": place.writer_seq,
        "record_id": body.record_id,
        "record_kind": body.record_kind.as_str(),
        "payload_type": body.facts.payload_type,
        "epoch": place.writer_epoch,
        "timestamp": time(place.timestamp_millis),
        "payload": timeline::masked_payload(&record.payload, body.privacy, shows.place, timeline::Show::Masked)?.to_value(),
    });
    if let Some(decided) = shows.proofs.and_then(|proofs| proofs.check(&record)) {
        if let Some(principal) = decided.principal {
            row["principal"] = principal.into();
        }
        row["principal_verified"] = decided.is_verified.into();
    }
    Ok(row)
}
