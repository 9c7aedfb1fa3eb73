//! Rows as JSON. Keys are objects of their parts, behind the name of the rows that they are keys of (`rows`): together they
//! name a row within its index. Ids are text, states their words. Records are shown as `show` shows them, masked; what else
//! holds content (messages, evidence) is shown without it.

use crate::index::{
    Error,
    query::{self, Place, time, timeline},
    store::{
        self, Index, Parts,
        anomalies::AnomalyRow,
        checkpoints::{ArrayRow, CheckpointRow, MessageRow, Range, RankRow},
        contents::ContentRow,
        dead_letters::DeadLetterRow,
        effects::{EffectKind, EffectRow},
        evolving::{FactRow, StateRow},
        horizons::Horizons,
        markers::MarkerRow,
        records::RecordRow,
        runs::RunRow,
        tool_calls::CallRow,
        turns::TurnRow,
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    datum::{Datum, hex},
    id::{RecordId, RunId},
    judge::Seen,
    record::Validity,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A part of a key.
#[derive(Clone, Copy, Debug)]
enum Part {
    Text(&'static str),
    Number(&'static str),
    Small(&'static str),
    /// The kind of an effect.
    Kind,
    /// A hash.
    Hash(&'static str),
}

use Part::{Hash, Number, Small, Text};

/// What decides of a record's content how it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Shows<'a> {
    /// Where the records are.
    pub place: Place<'a>,
    /// What retention took away of them.
    pub horizons: &'a Horizons,
}

/// A row as JSON, of its key and its bytes.
type Read = fn(&[u8], &[u8], Shows<'_>) -> Result<Value, Error>;

/// Rows that are keyed alike.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    parts: &'static [Part],
    row: Read,
}

const RUN: Part = Text("run_id");
const OFFSET: Part = Number("offset");
const INDEX: Part = Small("index");
const RECORD: Part = Text("record_id");

/// How the rows of an index are keyed, by the byte behind the index' own.
fn shape(index: Index, order: u8) -> Option<Shape> {
    let shape = |name, parts, row| Some(Shape { name, parts, row });
    match (index, order) {
        (Index::Runs, 0) => shape("runs", &[RUN], row::<RunRow>),
        (Index::Records, 0) => shape("records", &[RUN, OFFSET, INDEX], record),
        (Index::Records, 1) => shape("by_id", &[RUN, RECORD], row::<Seen>),
        (Index::Deliveries, 0) => shape("deliveries", &[RUN, OFFSET], record),
        (Index::ToolCalls, 0) => {
            shape("by_fingerprint", &[RUN, Text("fingerprint"), Small("occurrence")], row::<RecordId>)
        }
        (Index::ToolCalls, 1) => shape("calls", &[RUN, RECORD], row::<CallRow>),
        (Index::ToolCalls, 2) => shape("by_order", &[RUN, Number("journal_seq")], row::<RecordId>),
        (Index::ToolCalls, 3) => shape("counts", &[RUN, Text("fingerprint")], row::<u32>),
        (Index::ToolCalls, 4) => shape("stated", &[RUN, RECORD, OFFSET, INDEX], row::<Validity>),
        (Index::Checkpoints, 0) => shape("ranks", RANK, row::<RankRow>),
        (Index::Checkpoints, 1) => shape("checkpoints", &[RUN, Text("checkpoint_id")], row::<CheckpointRow>),
        (Index::Checkpoints, 2) => shape("arrays", &[RUN], row::<ArrayRow>),
        (Index::Checkpoints, 3) => shape("messages", &[RUN, Number("number")], row::<MessageRow>),
        (Index::Checkpoints, 4) => shape("pages", &[RUN, Number("number")], row::<Vec<Range>>),
        (Index::Effects, 0) => shape("pending", &[RUN, Part::Kind, Text("id")], row::<EffectRow>),
        (Index::Effects, 1) => shape("ended", &[RUN, Part::Kind, Text("id")], row::<EffectRow>),
        (Index::Anomalies, 0) => shape("anomalies", &[OFFSET, INDEX], row::<AnomalyRow>),
        (Index::Anomalies, 1) => shape("by_run", &[RUN, OFFSET, INDEX], mark),
        (Index::Anomalies, 2) => shape("by_id", &[RUN, RECORD], row::<Seen>),
        (Index::Anomalies, 3) => shape("by_content", &[RUN, RECORD, Hash("content_hash")], row::<Seen>),
        (Index::Anomalies, 4) => shape("repeats", &[RUN, OFFSET], row::<Seen>),
        (Index::DeadLetters, 0) => shape("dead_letters", &[OFFSET], row::<DeadLetterRow>),
        (Index::Contents, 0) => shape("contents", &[RUN, OFFSET, INDEX], row::<ContentRow>),
        (Index::Markers, 0) => shape("markers", &[RUN, OFFSET, INDEX], row::<MarkerRow>),
        (Index::Turns, 0) => shape("turns", &[RUN, Text("message_id"), OFFSET, INDEX], row::<TurnRow>),
        (Index::Keys, 0) => {
            let parts = &[RUN, Text("tool_name"), Text("idempotency_key"), OFFSET, INDEX];
            shape("requests", parts, row::<RecordId>)
        }
        (Index::Pools, 3) => shape("members", &[Text("pool_id"), RUN], mark),
        (Index::Events, order) => event(order),
        (
            Index::Approvals | Index::Wakes | Index::Messages | Index::Pools | Index::WriteBacks | Index::Proposals,
            order,
        ) => match order {
            0 => shape("open", &[RUN, Text("key")], row::<StateRow>),
            1 => shape("ended", &[RUN, Text("key")], row::<StateRow>),
            2 => shape("facts", &[RUN, Text("key"), OFFSET, INDEX], row::<FactRow>),
            _ => None,
        },
        _ => None,
    }
}

const RANK: &[Part] =
    &[RUN, Number("covers_journal_seq"), Number("checkpoint_seq"), Number("created_at_millis"), OFFSET, INDEX];

fn event(order: u8) -> Option<Shape> {
    let (name, parts): (_, &'static [Part]) = match order {
        0 => ("by_kind", &[Text("family"), Text("kind"), OFFSET, INDEX]),
        1 => ("by_subject", &[Text("kind"), Text("id"), OFFSET, INDEX]),
        2 => ("by_related", &[Text("kind"), Text("id"), OFFSET, INDEX]),
        3 => ("by_correlation", &[Text("key"), Text("value"), OFFSET, INDEX]),
        4 => ("by_tag", &[Text("tag"), OFFSET, INDEX]),
        _ => return None,
    };
    Some(Shape { name, parts, row: row::<RunId> })
}

/// The index of a name that `verify` prints; none for what is no run's, whose rows follow from no run.
pub fn index(name: &str) -> Option<Index> {
    Index::COMPARED.into_iter().find(|index| index.name() == name && *index != Index::Horizons)
}

/// The index that a key is of.
pub fn index_of(key: &[u8]) -> Option<Index> {
    Index::COMPARED.into_iter().find(|index| Some(&(*index as u8)) == key.first())
}

/// A key as JSON.
///
/// Errors: `Internal` for a key that no index has.
pub fn key(key: &[u8]) -> Result<Value, Error> {
    let shape = shape_of(key)?;
    let mut rest = Parts::new(key);
    let mut named = Map::from_iter([("rows".to_owned(), Value::from(shape.name))]);
    for part in shape.parts {
        let (name, value) = match part {
            Text(name) => (name, rest.text().map(Value::from)),
            Number(name) => (name, rest.u64().map(Value::from)),
            Small(name) => (name, rest.u32().map(Value::from)),
            Hash(name) => (name, rest.hash().map(|hash| Value::from(hash.to_string()))),
            Part::Kind => {
                let kind = rest.u8().and_then(|byte| EffectKind::ALL.get(usize::from(byte)).copied());
                (&"kind", kind.map(|kind| Value::from(kind.as_str())))
            }
        };
        named.insert((*name).to_owned(), value.ok_or_else(|| no_key(key))?);
    }
    Ok(named.into())
}

/// A row as JSON, by its key.
///
/// Errors: `Internal` for a row that does not decode.
pub fn row_of(key: &[u8], row: &[u8], shows: Shows<'_>) -> Result<Value, Error> {
    (shape_of(key)?.row)(key, row, shows)
}

fn shape_of(key: &[u8]) -> Result<Shape, Error> {
    let shape = index_of(key).zip(key.get(1)).and_then(|(index, order)| shape(index, *order));
    shape.ok_or_else(|| no_key(key))
}

fn no_key(key: &[u8]) -> Error {
    Error::new(ErrorKind::Internal, format!("no index has the key {}", hex(key)))
}

fn row<T: Datum + Serialize>(key: &[u8], row: &[u8], _: Shows<'_>) -> Result<Value, Error> {
    let row: T = store::decode(key, row)?;
    serde_json::to_value(row)
        .map_err(|error| Error::new(ErrorKind::Internal, "a row does not serialise").because(error))
}

/// A row that says no more than its key.
fn mark(_: &[u8], _: &[u8], _: Shows<'_>) -> Result<Value, Error> {
    Ok(json!({}))
}

/// A record as `show` shows it.
fn record(key: &[u8], row: &[u8], shows: Shows<'_>) -> Result<Value, Error> {
    let row: RecordRow = store::decode(key, row)?;
    let mut parts = Parts::new(key);
    let offset = parts.text().and_then(|_| parts.offset()).ok_or_else(|| no_key(key))?;
    let record = query::decode(&row, offset, shows.horizons)?;
    let (place, body) = (&record.place, &record.body);
    Ok(json!({
        "logged_at": time(row.logged_at_millis.max(0).cast_unsigned()),
        "journal_seq": place.journal_seq,
        "writer_seq": place.writer_seq,
        "record_id": body.record_id,
        "record_kind": body.record_kind.as_str(),
        "payload_type": body.facts.payload_type,
        "epoch": place.writer_epoch,
        "timestamp": time(place.timestamp_millis),
        "payload": timeline::shown(&record.payload, body.privacy, shows.place, false)?.to_value(),
    }))
}
