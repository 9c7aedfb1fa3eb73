//! Lists a run's records in log order.

use super::{Content, Order, Span, Stored, TopicPartition, events::Filter, time};
use crate::index::{
    content::Contents,
    error::Error,
    principal::Proofs,
    store::{self, Parts, Rows, horizons::Horizons, records::RecordRow},
};
use runlog_schemas::{
    answer::{ErrorKind, EvidenceError, Line, Lines},
    depth,
    id::{Offset, RunId},
    json::Json,
    payload::{Payload, PayloadType, ToolCallFailed, wrapped::BATCH_RECORDS_MAX},
    record::JournalRecord,
    refs::PrivacyClass,
};
use serde_json::Value;
use std::cell::Cell;

/// The bytes of records that one page reads, and of content that it fetches. The page ends after the record that reaches
/// the limit.
pub const BYTES_MAX: u64 = 16 << 20;

/// The content that a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// All content masked.
    Hidden,
    /// Content masked by its privacy class.
    Masked,
    /// Unmasked content, fetched from the content store if it is there.
    Raw,
    /// Like `Raw`, with the whole record beside its line.
    Whole,
}

/// How records are shown.
#[derive(Clone, Copy, Debug)]
pub struct Showing<'k> {
    /// The part of each record.
    pub show: Show,
    /// Verifies who made a decision; without it, answers omit that.
    pub proofs: Option<&'k Proofs>,
}

impl From<Show> for Showing<'_> {
    fn from(show: Show) -> Self {
        Self { show, proofs: None }
    }
}

impl Show {
    /// `Raw` or `Masked`.
    pub fn raw(raw: bool) -> Self {
        if raw { Self::Raw } else { Self::Masked }
    }

    fn is_unmasked(self) -> bool {
        matches!(self, Self::Raw | Self::Whole)
    }
}

/// The query's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Query<'k> {
    /// The maximum number of records of a page.
    pub limit: usize,
    /// How records are shown.
    pub show: Showing<'k>,
    /// As of this offset (inclusive). Applied records do not change, so the timeline as of an offset is its prefix up
    /// to it.
    pub as_of: Option<Offset>,
    /// Log order, or its reverse.
    pub order: Order,
}

/// A page of the timeline after `cursor`: a get, one seek, then a step and a decode per record. Unless masked, content is
/// fetched too. The page may be shorter than the limit if its records or their content are large.
pub fn page<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    query: Query<'_>,
    cursor: Option<&[u8]>,
) -> Result<Lines, Error> {
    page_within(rows, contents, place, run_id, (query, BYTES_MAX), cursor)
}

/// Like [`page`]; ends after the record that reaches `bytes_max`.
pub fn page_within<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    (Query { limit, show, as_of, order }, bytes_max): (Query<'_>, u64),
    cursor: Option<&[u8]>,
) -> Result<Lines, Error> {
    let prefix = store::records::prefix(run_id);
    let end = as_of.map(|offset| prefix.clone().offset(offset.saturating_add(1)));
    let (page, next) = scan_page(rows, Span { prefix: &prefix, end: end.as_ref(), cursor, order }, (limit, bytes_max))?;
    lines(contents, place, run_id, page, next, (show, bytes_max))
}

/// A page of the run's records that match `filter`, which names the run, after `cursor`. Cost: see
/// [`events::page`](super::events::page), and a decode per line.
pub fn page_matching<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    (run_id, filter): (RunId<&str>, &Filter),
    Query { limit, show, as_of, order }: Query<'_>,
    cursor: Option<&[u8]>,
) -> Result<Lines, Error> {
    let (horizons, budget) = (Horizons::read(|key| rows.get(key))?, Budget::new(BYTES_MAX));
    let (page, next) = super::events::page_of(rows, filter, (cursor, order), limit, &mut |key, (_, at, row)| {
        if as_of.is_some_and(|as_of| at.0 > as_of) {
            return Ok(None);
        }
        let line = store::records::key(run_id, at.0, at.1);
        PageRecord::new((key, line.bytes()), at, &row, &horizons, &budget).map(Some)
    })?;
    lines(contents, place, run_id, page.into_iter().flatten().collect(), next, (show, BYTES_MAX))
}

/// The records applied at one offset: several for a batch, none for a refused or unreadable record. One seek, then a
/// step and a decode per record.
pub fn at_offset<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    offset: Offset,
    show: Showing<'_>,
) -> Result<Vec<Line>, Error> {
    let prefix = store::records::prefix(run_id).offset(offset);
    // The size limit of a record covers a whole batch, and records of a batch have no stored content.
    let all = Span { prefix: &prefix, end: None, cursor: None, order: Order::Asc };
    let (page, next) = scan_page(rows, all, (BATCH_RECORDS_MAX, BYTES_MAX))?;
    Ok(lines(contents, place, run_id, page, next, (show, BYTES_MAX))?.records)
}

/// A record of a page.
struct PageRecord {
    /// The key of the row that led to it: the next page's cursor.
    key: Vec<u8>,
    /// The key of its line's cursor.
    line: Vec<u8>,
    /// Its offset and index.
    at: (Offset, u32),
    /// The log's time, milliseconds since the Unix epoch.
    logged_at_millis: i64,
    /// The size of the stored record.
    bytes: usize,
    /// None if it exceeds the budget: the page ends before it.
    record: Option<Stored>,
}

/// The bytes that a page has read. Pages are in memory as a whole, several clients' pages at the same time.
#[derive(Debug)]
pub struct Budget {
    bytes: Cell<u64>,
    bytes_max: u64,
    /// Whether a record was read although the budget was already spent.
    is_over: Cell<bool>,
}

impl Budget {
    /// A budget of `bytes_max`, exceeded by at most one record.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes: Cell::new(0), bytes_max, is_over: Cell::new(false) }
    }

    /// Takes bytes for a record. Returns false if the budget was already spent.
    pub(super) fn take(&self, bytes: u64) -> bool {
        self.is_over.set(self.is_spent());
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        !self.is_over.get()
    }

    /// Whether the budget was already spent before the last record.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Whether the budget is spent.
    pub fn is_spent(&self) -> bool {
        self.bytes.get() >= self.bytes_max
    }
}

impl PageRecord {
    fn new(
        (key, line): (&[u8], &[u8]),
        at: (Offset, u32),
        row: &RecordRow,
        horizons: &Horizons,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let (bytes, logged_at_millis) = (row.framed.0.len(), row.logged_at_millis);
        let record = if budget.take(bytes as u64) { Some(super::decode(row, at.0, horizons)?) } else { None };
        Ok(Self { key: key.to_vec(), line: line.to_vec(), at, logged_at_millis, bytes, record })
    }
}

fn scan_page<R: Rows>(
    rows: &R,
    span: Span<'_>,
    (limit, bytes_max): (usize, u64),
) -> Result<(Vec<PageRecord>, Option<Vec<u8>>), Error> {
    let (horizons, budget) = (Horizons::read(|key| rows.get(key))?, Budget::new(bytes_max));
    super::page_of(
        rows,
        span,
        |items| items == limit || budget.is_over(),
        |key, row| {
            let mut parts = Parts::new(key);
            let (Some(_), Some(offset), Some(index)) = (parts.text(), parts.offset(), parts.u32()) else {
                return Ok(None);
            };
            PageRecord::new((key, key), (offset, index), &store::decode(key, row)?, &horizons, &budget).map(Some)
        },
    )
}

/// A page of the records that state the facts valid at a time and match `filter`, after `cursor`. Cost: see
/// [`valid_at`](super::facts::valid_at), and a decode per line.
pub fn page_valid_at<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    ask: super::facts::Query,
    cursor: Option<&[u8]>,
    (filter, show): (Option<&Filter>, Showing<'_>),
) -> Result<Lines, Error> {
    let (horizons, budget) = (Horizons::read(|key| rows.get(key))?, Budget::new(BYTES_MAX));
    let (page, next) = super::facts::valid_at(rows, run_id, ask, cursor, |key, at, _, row| {
        if let Some(filter) = filter
            && !super::events::matches(filter, run_id, at, row)?
        {
            return Ok(None);
        }
        PageRecord::new((key, key), at, row, &horizons, &budget).map(Some)
    })?;
    lines(contents, place, run_id, page.into_iter().flatten().collect(), next, (show, BYTES_MAX))
}

fn lines(
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    page: Vec<PageRecord>,
    mut next: Option<Vec<u8>>,
    (Showing { show, proofs }, bytes_max): (Showing<'_>, u64),
) -> Result<Lines, Error> {
    let mut records = Vec::with_capacity(page.len());
    let (mut brought, mut last) = (0, None);
    let mut page = page.into_iter().peekable();
    while let Some(PageRecord { key, line: cursor, at, logged_at_millis, bytes, record }) = page.next() {
        let Some(mut record) = record else {
            next = last;
            break;
        };
        let mut missing = None;
        brought += if show.is_unmasked() { bytes as u64 } else { 0 };
        if show.is_unmasked()
            && let Content::Available(payload) = &record.payload
            && let Payload::StoredPayload(stored) = payload
        {
            brought += stored.bytes;
            match contents.open(place, record.body.record_id.borrow(), at, payload.clone()) {
                Ok(payload) => record.payload = Content::Available(payload),
                Err(lost) => missing = Some(lost.missing),
            }
        }
        let mut line = line(run_id, &record, place, at, place.cursor(&cursor), show)?;
        line.logged_at = (logged_at_millis > 0).then(|| time(logged_at_millis.cast_unsigned()));
        if let Some(decided) = proofs.and_then(|proofs| proofs.check(&record)) {
            (line.principal, line.principal_verified) = (decided.principal, Some(decided.is_verified));
        }
        let is_complete = show == Show::Whole && missing.is_none() && line.unreadable.is_none();
        line.missing_content = missing;
        line.record = if is_complete { whole_record(record)? } else { None };
        records.push(line);
        if brought >= bytes_max && page.peek().is_some() {
            next = Some(key);
            break;
        }
        last = Some(key);
    }
    Ok(Lines { records, next_cursor: next.map(|key| place.cursor(&key)) })
}

/// Parses a cursor of this run's timeline.
///
/// Errors: `Usage` for a cursor of another list.
pub fn cursor(run_id: RunId<&str>, text: Option<&str>) -> Result<Option<Vec<u8>>, Error> {
    let cursor = super::parse_cursor(text)?;
    let own = cursor.as_ref().is_none_or(|cursor| cursor.starts_with(store::records::prefix(run_id).bytes()));
    if own { Ok(cursor) } else { Err(super::foreign_cursor()) }
}

/// The cursor after the run's last record.
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
    show: Show,
) -> Result<Line, Error> {
    let (place, facts) = (&record.place, &record.body.facts);
    Ok(Line {
        cursor,
        position: at.position(offset, index),
        run_id: run_id.to_owned(),
        journal_seq: place.journal_seq,
        writer_seq: place.writer_seq,
        record_id: record.body.record_id.clone(),
        record_kind: record.body.record_kind.as_str().into(),
        // For a stored or encrypted payload, the type of its content.
        payload_type: facts.payload_type.clone(),
        status: facts.status.clone(),
        tool_name: facts.tool_name.clone(),
        answers: facts.answers.clone(),
        epoch: place.writer_epoch,
        timestamp: time(place.timestamp_millis),
        logged_at: None,
        payload: masked_payload(&record.payload, record.body.privacy, at, show)?,
        principal: None,
        principal_verified: None,
        missing_content: None,
        unreadable: unreadable(&record.payload),
        record: None,
    })
}

/// The reason why a record cannot be shown whole. A record from before the depth limit may nest deeper than most JSON
/// parsers accept, which would then fail on the whole page.
fn unreadable(content: &Content<Payload>) -> Option<String> {
    match content {
        Content::Available(payload) => depth::check_payload(payload).err().map(|deep| deep.to_string()),
        Content::Dropped(_) => None,
    }
}

/// The whole record as JSON; `None` if its content was dropped.
fn whole_record(Stored { place, body, payload }: Stored) -> Result<Option<Json>, Error> {
    let Content::Available(payload) = payload else { return Ok(None) };
    let json = Json::of(&JournalRecord { place, body, payload });
    json.map(Some).map_err(|error| {
        Error::new(ErrorKind::Internal, format!("a stored record cannot be converted to JSON: {error}"))
    })
}

/// The payload members that are content.
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

/// A record's payload as JSON, masked as `show` says. The horizon's position replaces dropped content; the reason replaces
/// content that nests too deep.
pub(crate) fn masked_payload(
    content: &Content<Payload>,
    privacy: PrivacyClass,
    at: TopicPartition<'_>,
    show: Show,
) -> Result<Json, Error> {
    match content {
        Content::Available(content) => match depth::check_payload(content) {
            Ok(()) => payload(content, privacy, show),
            Err(deep) => Ok(Json::from(serde_json::json!({ "unreadable": deep.to_string() }))),
        },
        Content::Dropped(by) => Ok(Json::from(serde_json::json!({ "dropped": at.position(*by, 0) }))),
    }
}

/// Whether content of this privacy class is masked. Content of an unknown class is masked.
fn is_masked(privacy: PrivacyClass, show: Show) -> bool {
    match show {
        Show::Raw | Show::Whole => false,
        Show::Masked => !matches!(privacy, PrivacyClass::Public | PrivacyClass::Internal),
        Show::Hidden => true,
    }
}

/// The arguments of a tool call's request, masked as `show` says; `None` for a request without arguments, or for another
/// request. Dropped content and content that nests too deep are replaced as by [`shown`], stored content by its claim
/// check.
pub(crate) fn arguments(request: &Stored, at: TopicPartition<'_>, show: Show) -> Result<Option<Json>, Error> {
    let (content, privacy) = (&request.payload, request.body.privacy);
    let Content::Available(payload @ Payload::ToolCallRequested(call)) = content else {
        let is_call = request.body.facts.payload_type == PayloadType::ToolCallRequested;
        return is_call.then(|| masked_payload(content, privacy, at, show)).transpose();
    };
    match &call.arguments {
        None => Ok(None),
        Some(_) if is_masked(privacy, show) => Ok(Some(masked(privacy).into())),
        Some(_) if depth::check_payload(payload).is_err() => masked_payload(content, privacy, at, show).map(Some),
        Some(arguments) => Ok(Some(arguments.clone())),
    }
}

/// The result or the failure in the payload of a refused result, masked as `show` says. `None` if [`masked_payload`] shows no such
/// payload.
pub(crate) fn result_and_error(
    content: &Content<Payload>,
    privacy: PrivacyClass,
    show: Show,
) -> (Option<Json>, Option<EvidenceError>) {
    let Content::Available(payload) = content else { return (None, None) };
    let shown = |content: Json| if is_masked(privacy, show) { masked(privacy).into() } else { content };
    match payload {
        _ if depth::check_payload(payload).is_err() => (None, None),
        Payload::ToolCallCompleted(done) => (done.result.clone().map(shown), None),
        Payload::ToolCallFailed(ToolCallFailed { error_kind, error_message, .. }) => {
            let message = shown(Value::from(error_message.as_str()).into());
            (None, Some(EvidenceError { kind: error_kind.clone(), message }))
        }
        _ => (None, None),
    }
}

/// The replacement for masked content.
fn masked(privacy: PrivacyClass) -> Value {
    serde_json::json!({ "masked": privacy.as_str() })
}

/// The payload as JSON, its content masked as `show` says.
fn payload(payload: &Payload, privacy: PrivacyClass, show: Show) -> Result<Json, Error> {
    let failed = |error: serde_json::Error| {
        Error::new(runlog_schemas::answer::ErrorKind::Internal, "a stored payload cannot be converted to JSON")
            .because(error)
    };
    if !is_masked(privacy, show) {
        return Json::of(payload).map_err(failed);
    }
    let mut value = serde_json::to_value(payload).map_err(failed)?;
    if let Value::Object(members) = &mut value {
        for name in CONTENT {
            if let Some(content) = members.get_mut(name) {
                *content = masked(privacy);
            }
        }
    }
    Ok(Json::from(value))
}
