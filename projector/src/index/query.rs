//! Queries: each reads one view of one partition. A query writes nothing, and waits only for content
//! ([`Contents`](crate::index::Contents)).
//!
//! Every list is bounded and returns a cursor: the key of the page's last row, hexadecimal. It stays valid after
//! writes, because keys do not change.

use super::{
    error::Error,
    store::{
        self, Key, Rows,
        horizons::Horizons,
        records::{Bytes, RecordRow},
    },
};
use runlog_schemas::{
    answer::{Dropped, ErrorKind, MissingContent, OrOther, Position},
    codec::{self, Envelope},
    datum::hex,
    id::{LogId, Offset, PartitionId, RecordId, RunId, split_log},
    payload::{Payload, PayloadType},
    record::{self, Body, JournalRecord, RecordKind},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{ops::ControlFlow, str::FromStr};

pub mod anomalies;
pub mod checkpoint;
mod claims;
pub mod contents;
pub mod copies;
pub mod counts;
pub mod dead_letters;
pub mod effects;
pub mod events;
pub mod facts;
pub mod horizons;
pub mod lookup;
pub mod open_items;
pub mod outcome;
pub mod recovery;
pub mod runs;
pub mod timeline;
pub mod visible;

/// Default number of a page's rows.
pub const LIMIT: usize = 100;
/// The maximum number of rows of a page.
pub const LIMIT_MAX: usize = 1000;

/// The topic and partition of an answer's positions.
#[derive(Clone, Copy, Debug)]
pub struct TopicPartition<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: PartitionId,
    /// The log, if positions must name it.
    pub log: Option<&'a LogId>,
}

impl TopicPartition<'_> {
    /// A position in this partition.
    pub fn position(&self, offset: Offset, index: u32) -> Position {
        let Self { topic, partition, log } = *self;
        Position { topic: topic.to_owned(), partition, offset, index, log: log.cloned() }
    }

    /// The cursor of a list that continues after `key`.
    pub fn cursor(&self, key: &[u8]) -> String {
        with_log(hex(key), self.log)
    }
}

/// A cursor and the log to which it belongs, if cursors must name it.
pub fn with_log(cursor: String, log: Option<&LogId>) -> String {
    match log {
        Some(log) => format!("{cursor}@{log}"),
        None => cursor,
    }
}

/// RFC 3339 in UTC with milliseconds.
pub fn time(millis: u64) -> String {
    // The format ends with the year 9999; a writer's clock may be wrong.
    let millis = millis.min(253_402_300_799_999);
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    humantime::format_rfc3339_millis(at).to_string()
}

/// How far a record's time may be ahead of the reader's clock, milliseconds. The clocks of broker and server differ.
const SKEW_MAX: i64 = 30_000;

/// The age of a record, milliseconds, by the log's time of the record and of now. `None` if it is unknown: the record has
/// no log time, or one [`SKEW_MAX`] or more in the future.
pub(super) fn age_millis(logged_at_millis: i64, now: i64) -> Option<u64> {
    let age = now.checked_sub(logged_at_millis).filter(|age| logged_at_millis > 0 && *age > -SKEW_MAX)?;
    Some(age.max(0).cast_unsigned())
}

/// Parses an RFC 3339 time with an offset from UTC: milliseconds since the Unix epoch, rounded down.
///
/// Errors: `Usage` for other text, and for a time before 1970.
pub fn parse_time(text: &str) -> Result<i64, Error> {
    let usage = || {
        let message = format!("{text:?} is not a time of RFC 3339 from 1970 on, such as 2026-11-22T10:00:00Z");
        Error::new(ErrorKind::Usage, message)
    };
    // The parser of the local part accepts text after a `Z`.
    let ends_in_digit = |(local, _): &(&str, i64)| local.ends_with(|last: char| last.is_ascii_digit());
    let (local, ahead_minutes) = zone(text).filter(ends_in_digit).ok_or_else(usage)?;
    let at = humantime::parse_rfc3339(&format!("{local}Z")).map_err(|error| usage().because(error))?;
    let since = at.duration_since(std::time::UNIX_EPOCH).map_err(|error| usage().because(error))?;
    let millis = i64::try_from(since.as_millis()).map_err(|error| usage().because(error))?;
    Some(millis - ahead_minutes * 60_000).filter(|millis| *millis >= 0).ok_or_else(usage)
}

/// The local part of a time, and how many minutes it is ahead of UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']) {
        return Some((local, 0));
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let ahead = match offset.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = offset[1..].split_once(':').filter(|(hours, _)| hours.len() == 2)?;
    let (hours, minutes): (i64, i64) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some((local, ahead * (hours * 60 + minutes)))
}

/// A record's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<T> {
    /// Present.
    Available(T),
    /// Dropped by the retention horizon at that offset.
    Dropped(Offset),
}

/// A stored record without dropped content.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its writer and sequence numbers.
    pub place: record::Sequencing,
    /// Its envelope.
    pub body: Body,
    /// Its payload.
    pub payload: Content<Payload>,
}

impl Stored {
    /// The note that the content of this record at `at` (offset, index) was dropped; `None` if it was not.
    pub fn dropped(&self, place: TopicPartition<'_>, at: (Offset, u32)) -> Option<Dropped> {
        match self.payload {
            Content::Available(_) => None,
            Content::Dropped(by) => {
                Some(dropped(place, self.body.record_id.borrow(), &self.body.facts.payload_type, at, by))
            }
        }
    }
}

/// The note that the horizon at the offset `by` dropped a record's content.
pub(crate) fn dropped(
    place: TopicPartition<'_>,
    record_id: RecordId<&str>,
    payload_type: &OrOther<PayloadType>,
    at: (Offset, u32),
    by: Offset,
) -> Dropped {
    Dropped {
        record_id: record_id.to_owned(),
        payload_type: payload_type.clone(),
        position: place.position(at.0, at.1),
        dropped: place.position(by, 0),
    }
}

/// The error for a query whose answer needs missing content.
pub(crate) fn missing_content(what: &str, missing: &MissingContent) -> Error {
    let what = format!("{what}; content {} is {}", missing.sha256, missing.reason);
    Error::new(ErrorKind::MissingContent, what).at(&missing.position).about_record(missing.record_id.borrow())
}

/// Decodes the stored record at an offset. All access to content uses this function, so that no answer contains dropped
/// content.
pub fn decode(row: &RecordRow, offset: Offset, horizons: &Horizons) -> Result<Stored, Error> {
    decode_framed(&row.framed.0, row.logged_at_millis, offset, horizons)
}

/// Like [`decode`], of a record's framed bytes and the log's timestamp, milliseconds since the Unix epoch.
pub(crate) fn decode_framed(
    framed: &[u8],
    logged_at_millis: i64,
    offset: Offset,
    horizons: &Horizons,
) -> Result<Stored, Error> {
    let JournalRecord { place, body, payload } = decode_record(framed)?;
    let payload = match horizons.dropped_by(body.facts.payload_type.as_str(), offset, logged_at_millis) {
        Some(by) => Content::Dropped(by),
        None => Content::Available(payload),
    };
    Ok(Stored { place, body, payload })
}

/// Decodes the envelope of a stored record, for answers without content.
pub fn summary(row: &RecordRow) -> Result<(record::Sequencing, Body), Error> {
    decode_record(&row.framed.0).map(|record| (record.place, record.body))
}

fn decode_record(framed: &[u8]) -> Result<JournalRecord, Error> {
    let damaged = |error: &dyn std::fmt::Display| {
        Error::new(
            ErrorKind::Internal,
            format!("a stored record does not decode ({error}); delete the index folder to rebuild it from the log"),
        )
    };
    let datum = codec::unframe(framed).map_err(|error| damaged(&error))?;
    codec::decode(datum).map_err(|error| damaged(&error))
}

/// Reads the envelope of a stored record.
pub fn envelope(framed: &[u8]) -> Result<Envelope<'_>, Error> {
    codec::read(framed).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            format!("a stored record does not decode ({error}); delete the index folder to rebuild it from the log"),
        )
    })
}

/// The stored record at an offset and index.
pub fn record<R: Rows>(
    rows: &R,
    horizons: &Horizons,
    run_id: RunId<&str>,
    at: (Offset, u32),
) -> Result<Option<Stored>, Error> {
    record_row(rows, run_id, at)?.map(|row| decode(&row, at.0, horizons)).transpose()
}

/// The row of the record at an offset and index, also if the record was refused or voided: then it is in `deliveries`, perhaps
/// in a batch. One or two gets.
pub fn record_row<R: Rows>(
    rows: &R,
    run_id: RunId<&str>,
    (offset, index): (Offset, u32),
) -> Result<Option<RecordRow>, Error> {
    if let Some(row) = rows.get(&store::records::key(run_id, offset, index))? {
        return Ok(Some(row));
    }
    let Some(row) = rows.get::<RecordRow>(&store::deliveries::key(run_id, offset))? else { return Ok(None) };
    let delivered = envelope(&row.framed.0)?;
    if delivered.kind != RecordKind::Batch {
        return Ok(Some(row));
    }
    let records = delivered.records().unwrap_or_default();
    let part = usize::try_from(index).ok().and_then(|index| records.get(index));
    Ok(part.map(|part| RecordRow { framed: Bytes(part.framed()), ..row }))
}

/// The order of a list whose keys grow with the log. A cursor is valid in both orders: it is the key of a row, and
/// the page begins after that row in the requested order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Oldest first.
    #[default]
    Asc,
    /// Newest first.
    Desc,
}

/// A part of a list: the keys that start with `prefix`, come after `cursor` in the order, and are below `end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) prefix: &'a Key,
    /// Exclusive.
    pub(crate) end: Option<&'a Key>,
    /// Exclusive, in either order.
    pub(crate) cursor: Option<&'a [u8]>,
    pub(crate) order: Order,
}

impl Span<'_> {
    /// Visits the rows in order: one seek, then one step per visited row.
    ///
    /// Errors: `Usage` for a cursor of another list.
    fn scan<R: Rows>(self, rows: &R, visit: &mut store::Visit<'_>) -> Result<(), Error> {
        let Self { prefix, end, cursor, order } = self;
        if cursor.is_some_and(|cursor| !cursor.starts_with(prefix.bytes())) {
            return Err(foreign_cursor());
        }
        let end = end.map(Key::bytes);
        match order {
            Order::Asc => {
                let start = cursor.map_or_else(|| prefix.bytes().to_vec(), |cursor| [cursor, &[0]].concat());
                rows.scan(prefix.bytes(), &start, rocksdb::Direction::Forward, &mut |key, row| {
                    if end.is_some_and(|end| key >= end) { Ok(ControlFlow::Break(())) } else { visit(key, row) }
                })?;
            }
            Order::Desc => {
                let last = prefix.clone().last();
                let start = [cursor, end].into_iter().flatten().min().unwrap_or(last.bytes());
                rows.scan(prefix.bytes(), start, rocksdb::Direction::Reverse, &mut |key, row| {
                    // The scan includes the key that it starts at.
                    if key >= start { Ok(ControlFlow::Continue(())) } else { visit(key, row) }
                })?;
            }
        }
        Ok(())
    }
}

/// Visits the rows of a span until one breaks. An error of `visit` ends it.
fn visit<R: Rows>(
    rows: &R,
    span: Span<'_>,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let mut failed = None;
    span.scan(rows, &mut |key, row| {
        Ok(visit(key, row).unwrap_or_else(|error| {
            failed = Some(error);
            ControlFlow::Break(())
        }))
    })?;
    failed.map_or(Ok(()), Err)
}

/// A page of the rows that start with `prefix`, from `cursor` (exclusive) or the beginning. `take` converts a row to an
/// item, or omits it. Returns the next page's cursor, if any: the key of the page's last item. A cursor, or its absence,
/// therefore reveals nothing about omitted rows.
///
/// Errors: `Usage` for a cursor of another list.
pub fn page<R: Rows, T>(
    rows: &R,
    prefix: &Key,
    cursor: Option<&[u8]>,
    limit: usize,
    take: impl FnMut(&[u8], &[u8]) -> Result<Option<T>, Error>,
) -> Result<(Vec<T>, Option<Vec<u8>>), Error> {
    page_of(rows, Span { prefix, end: None, cursor, order: Order::Asc }, |items| items == limit, take)
}

/// Like [`page`], for a span. The page ends when `full` returns true for its number of items; it must be false for 0.
fn page_of<R: Rows, T>(
    rows: &R,
    span: Span<'_>,
    full: impl Fn(usize) -> bool,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<Option<T>, Error>,
) -> Result<(Vec<T>, Option<Vec<u8>>), Error> {
    let mut items = Vec::new();
    let mut next = None;
    let mut last: Vec<u8> = Vec::new();
    let mut failed = None;
    span.scan(rows, &mut |key, row| {
        match take(key, row) {
            Ok(None) => {}
            // A row that does not decode fails the page that it is on.
            Ok(Some(_)) | Err(_) if full(items.len()) => {
                next = Some(std::mem::take(&mut last));
                return Ok(ControlFlow::Break(()));
            }
            Ok(Some(item)) => {
                items.push(item);
                key.clone_into(&mut last);
            }
            Err(error) => {
                failed = Some(error);
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    failed.map_or(Ok((items, next)), Err)
}

/// Parses a cursor of one partition.
pub fn parse_cursor(text: Option<&str>) -> Result<Option<Vec<u8>>, Error> {
    let Some(text) = text else { return Ok(None) };
    let bad = || Error::new(ErrorKind::Usage, format!("{text:?} is not a cursor that this server gave"));
    let (text, _) = split_log(text);
    if text.len() % 2 != 0 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(bad());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| bad()))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// The cursor of a list across partitions: a partition, and the key of its last row; `None` at its beginning.
pub type PartitionCursor = (PartitionId, Option<Vec<u8>>);

/// Parses a cursor across partitions, `P:…`.
pub fn parse_partition_cursor(text: Option<&str>) -> Result<Option<PartitionCursor>, Error> {
    let Some(text) = text else { return Ok(None) };
    let bad = || Error::new(ErrorKind::Usage, format!("{text:?} is not a cursor that this server gave"));
    let (partition, rest) = split_log(text).0.split_once(':').ok_or_else(bad)?;
    let rest = parse_cursor(Some(rest))?.filter(|key| !key.is_empty());
    Ok(Some((number(partition).ok_or_else(bad)?, rest)))
}

/// The error for a cursor that belongs to another query.
pub fn foreign_cursor() -> Error {
    Error::new(
        ErrorKind::Usage,
        "the cursor belongs to another query; repeat the query that returned it, with this cursor",
    )
}

/// Parses a number of digits only: the standard library's parsers accept a sign.
pub fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_form_of_rfc_3339_alone() {
        let at = |text: &str| parse_time(text).ok();
        assert_eq!(at("1970-01-01T01:00:01.5+01:00"), Some(1500));
        assert_eq!(at("1970-01-01T00:30:00+00:31"), None, "before 1970");
        assert_eq!(at("9999-12-31T23:59:59-23:59"), Some(253_402_387_139_000));
        for text in [
            "",
            "Z",
            "+00:00",
            "é+0:000",
            "2026-11-22",
            "2026-11-22T10:00:00",
            "2026-11-22T10:00:00ZZ",
            "2026-11-22T10:00:00Z+00:00",
            "2026-11-22T10:00:00+1:000",
            "2026-11-22T10:00:00+0100",
            "2026-11-22T10:00:00+24:00",
            "2026-11-22T10:00:00+00:60",
            "2026-11-22T10:00:00++0:00",
            "2026-11-22T10:00:00é0:00",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
