//! A run's records in log order.

use super::{Content, Stored, TopicPartition, events::Filter, time};
use crate::index::{
    Contents, Error,
    store::{self, Key, Parts, Rows, horizons::Horizons, records::RecordRow},
};
use runlog_schemas::{
    answer::{ErrorKind, Line, Lines},
    datum::hex,
    depth,
    id::{Offset, RunId},
    json::Json,
    payload::{Payload, wrapped::BATCH_RECORDS_MAX},
    record::JournalRecord,
    refs::PrivacyClass,
};
use serde_json::Value;

/// Content that one page brings back, bytes; a page ends behind the record that reaches it.
const CONTENT_BYTES_MAX: u64 = 16 << 20;

/// How much of a record a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Content masked by its privacy class.
    Masked,
    /// Content as it is, brought back where it is in the content store.
    Raw,
    /// The same, and the whole record beside its line.
    Whole,
}

impl Show {
    /// Content as it is where `raw`; otherwise masked.
    pub fn raw(raw: bool) -> Self {
        if raw { Self::Raw } else { Self::Masked }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Records of a page at the most.
    pub limit: usize,
    /// How much of them.
    pub show: Show,
    /// As of this offset, inclusive. An applied record stays as and where it is, so that the timeline as of an offset is
    /// what stands up to it.
    pub as_of: Option<Offset>,
}

/// A page of the timeline behind `cursor`: a get, one seek, then a step and a decode per record; unless masked, content is
/// brought back too, and the page may be shorter for it.
pub fn page<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    Query { limit, show, as_of }: Query,
    cursor: Option<&[u8]>,
) -> Result<Lines, Error> {
    let prefix = store::records::prefix(run_id);
    let end = as_of.map(|offset| prefix.clone().offset(offset.saturating_add(1)));
    let (found, next) = stored(rows, &prefix, end.as_ref(), cursor, limit)?;
    lines(contents, place, run_id, found, next, show)
}

/// A page of those of the run's records that `filter` takes, behind `cursor`: what [`events::page`](super::events::page) costs,
/// and a decode per line. Its filter names the run.
pub fn selected<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    (run_id, filter): (RunId<&str>, &Filter),
    Query { limit, show, as_of }: Query,
    cursor: Option<&[u8]>,
) -> Result<Lines, Error> {
    let horizons = Horizons::of(rows)?;
    let (found, next) = super::events::page_of(rows, filter, cursor, limit, &mut |key, (_, at, row)| {
        if as_of.is_some_and(|as_of| at.0 > as_of) {
            return Ok(None);
        }
        let line = store::records::key(run_id, at.0, at.1);
        Found::of(key, line.bytes(), at, &row, &horizons).map(Some)
    })?;
    lines(contents, place, run_id, found.into_iter().flatten().collect(), next, show)
}

/// All that was applied of one offset: none of what was refused or cannot be read, several records of a batch. One seek,
/// then a step and a decode per record.
pub fn at_offset<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    offset: Offset,
    show: Show,
) -> Result<Vec<Line>, Error> {
    let prefix = store::records::prefix(run_id).offset(offset);
    // A record is within its limit, and so are all of a batch: content is not brought back for more than one.
    let (found, next) = stored(rows, &prefix, None, None, BATCH_RECORDS_MAX)?;
    Ok(lines(contents, place, run_id, found, next, show)?.records)
}

/// A record that a page found.
struct Found {
    /// The key that it was found under, behind which the page goes on.
    key: Vec<u8>,
    /// The key that its line's cursor is.
    line: Vec<u8>,
    /// Its place.
    at: (Offset, u32),
    /// Of the record as it is stored.
    bytes: usize,
    record: Stored,
}

impl Found {
    fn of(key: &[u8], line: &[u8], at: (Offset, u32), row: &RecordRow, horizons: &Horizons) -> Result<Self, Error> {
        let (bytes, record) = (row.framed.0.len(), super::decode(row, at.0, horizons)?);
        Ok(Self { key: key.to_vec(), line: line.to_vec(), at, bytes, record })
    }
}

fn stored<R: Rows>(
    rows: &R,
    prefix: &Key,
    end: Option<&Key>,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Found>, Option<Vec<u8>>), Error> {
    let horizons = Horizons::of(rows)?;
    super::page_before(rows, prefix, end.map(Key::bytes), cursor, limit, |key, row| {
        let mut parts = Parts::new(key);
        let (Some(_), Some(offset), Some(index)) = (parts.text(), parts.offset(), parts.u32()) else { return Ok(None) };
        Found::of(key, key, (offset, index), &store::decode(key, row)?, &horizons).map(Some)
    })
}

/// A page of the records that state the facts which hold at a time (those that `filter` takes), behind `cursor`: what [`held`](super::facts::valid_at) costs,
/// and a decode per line.
pub fn held<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    ask: super::facts::Query,
    cursor: Option<&[u8]>,
    (filter, show): (Option<&Filter>, Show),
) -> Result<Lines, Error> {
    let horizons = Horizons::of(rows)?;
    let (found, next) = super::facts::valid_at(rows, run_id, ask, cursor, |key, at, _, row| {
        if let Some(filter) = filter
            && !super::events::matches(filter, run_id, at, row)?
        {
            return Ok(None);
        }
        Found::of(key, key, at, row, &horizons).map(Some)
    })?;
    lines(contents, place, run_id, found.into_iter().flatten().collect(), next, show)
}

fn lines(
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    found: Vec<Found>,
    mut next: Option<Vec<u8>>,
    show: Show,
) -> Result<Lines, Error> {
    let mut records = Vec::with_capacity(found.len());
    let mut brought = 0;
    let mut found = found.into_iter().peekable();
    while let Some(Found { key, line: cursor, at, bytes, mut record }) = found.next() {
        let mut missing = None;
        brought += if show == Show::Masked { 0 } else { bytes as u64 };
        if show != Show::Masked
            && let Content::Available(payload) = &record.payload
            && let Payload::StoredPayload(stored) = payload
        {
            brought += stored.bytes;
            match contents.open(place, record.body.record_id.borrow(), at, payload.clone()) {
                Ok(payload) => record.payload = Content::Available(payload),
                Err(lost) => missing = Some(lost.missing),
            }
        }
        let mut line = line(run_id, &record, place, at, hex(&cursor), show != Show::Masked)?;
        let there = show == Show::Whole && missing.is_none() && line.unreadable.is_none();
        line.missing_content = missing;
        line.record = if there { whole(record)? } else { None };
        records.push(line);
        if brought >= CONTENT_BYTES_MAX && found.peek().is_some() {
            next = Some(key);
            break;
        }
    }
    Ok(Lines { records, next_cursor: next.map(|key| hex(&key)) })
}

/// Reads a cursor of this run's timeline.
///
/// Errors: `Usage` for one of another list.
pub fn cursor(run_id: RunId<&str>, text: Option<&str>) -> Result<Option<Vec<u8>>, Error> {
    let cursor = super::parse_cursor(text)?;
    let own = cursor.as_ref().is_none_or(|cursor| cursor.starts_with(store::records::prefix(run_id).bytes()));
    if own { Ok(cursor) } else { Err(super::foreign_cursor()) }
}

/// The cursor behind everything that a run has now.
pub fn end<R: Rows>(rows: &R, run_id: RunId<&str>) -> Result<Option<Vec<u8>>, Error> {
    let prefix = store::records::prefix(run_id);
    let mut last = None;
    rows.scan(prefix.bytes(), prefix.clone().last().bytes(), rocksdb::Direction::Reverse, &mut |key, _| {
        last = Some(key.to_vec());
        Ok(std::ops::ControlFlow::Break(()))
    })?;
    Ok(last)
}

fn line(
    run_id: RunId<&str>,
    record: &Stored,
    at: TopicPartition<'_>,
    (offset, index): (Offset, u32),
    cursor: String,
    raw: bool,
) -> Result<Line, Error> {
    let place = &record.place;
    Ok(Line {
        cursor,
        position: at.position(offset, index),
        run_id: run_id.to_owned(),
        journal_seq: place.journal_seq,
        writer_seq: place.writer_seq,
        record_id: record.body.record_id.clone(),
        record_kind: record.body.record_kind.as_str().into(),
        // That of what is hidden too.
        payload_type: record.body.facts.payload_type.clone(),
        epoch: place.writer_epoch,
        timestamp: time(place.timestamp_millis),
        payload: shown(&record.payload, record.body.privacy, at, raw)?,
        missing_content: None,
        unreadable: unreadable(&record.payload),
        record: None,
    })
}

/// Why a record cannot be shown whole, one that was written before its writer was held to that: JSON that most readers of JSON
/// would fail at, and with it at all that stands on its page.
fn unreadable(content: &Content<Payload>) -> Option<String> {
    match content {
        Content::Available(payload) => depth::check_payload(payload).err().map(|deep| deep.to_string()),
        Content::Dropped(_) => None,
    }
}

/// The whole record as JSON; none where its content was taken away.
fn whole(Stored { place, body, payload }: Stored) -> Result<Option<Json>, Error> {
    let Content::Available(payload) = payload else { return Ok(None) };
    let json = Json::of(&JournalRecord { place, body, payload });
    json.map(Some).map_err(|error| Error::new(ErrorKind::Internal, format!("a record does not serialise: {error}")))
}

/// Members of payloads that are content.
const CONTENT: [&str; 10] = [
    "arguments",
    "result",
    "content",
    "messages",
    "state",
    "error_message",
    "total_usage",
    "verification_reports",
    "diffs",
    "bytes",
];

/// A record's payload as it is shown: masked by its privacy class unless `raw`; what retention took away, in any case, as the
/// position of the horizon; what nests too deep as why that is not shown.
pub(crate) fn shown(
    content: &Content<Payload>,
    privacy: PrivacyClass,
    at: TopicPartition<'_>,
    raw: bool,
) -> Result<Json, Error> {
    match content {
        Content::Available(content) => match depth::check_payload(content) {
            Ok(()) => payload(content, privacy, raw),
            Err(deep) => Ok(Json::from(serde_json::json!({ "unreadable": deep.to_string() }))),
        },
        Content::Dropped(by) => Ok(Json::from(serde_json::json!({ "dropped": at.position(*by, 0) }))),
    }
}

/// The payload as JSON; content is replaced by its class unless it may be shown.
fn payload(payload: &Payload, privacy: PrivacyClass, raw: bool) -> Result<Json, Error> {
    let failed = |error: serde_json::Error| {
        Error::new(runlog_schemas::answer::ErrorKind::Internal, "a payload does not serialise").because(error)
    };
    // A class that this build does not know may be any.
    let hidden = !matches!(privacy, PrivacyClass::Public | PrivacyClass::Internal);
    if raw || !hidden {
        return Json::of(payload).map_err(failed);
    }
    let mut value = serde_json::to_value(payload).map_err(failed)?;
    if let Value::Object(members) = &mut value {
        for name in CONTENT {
            if let Some(content) = members.get_mut(name) {
                *content = serde_json::json!({ "masked": privacy.as_str() });
            }
        }
    }
    Ok(Json::from(value))
}
