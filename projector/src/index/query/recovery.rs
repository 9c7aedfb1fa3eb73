//! Collects the state that a process needs to resume a run, from one view.

use super::{TopicPartition, checkpoint, effects, open_items};
use crate::index::{
    content::{Contents, Named},
    error::Error,
    store::{
        self, Index, Rows,
        contents::{self, ContentRow},
        evolving,
        horizons::Horizons,
        runs::RunRow,
        tool_calls::{self, CallRow, from_number, key, order_prefix},
        write_backs,
    },
};
use runlog_schemas::{
    answer::{Done, ErrorKind, MissingContent, Recovery, Standing},
    id::{JournalSeq, Offset, RecordId, RunId},
    judge::{CallStatus, RunStatus},
    payload::PayloadType,
};
use std::{cmp::Ordering, ops::ControlFlow};

/// The query's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Return the checkpoint's messages.
    pub full: bool,
    /// Ignore checkpoints: for an agent that starts over.
    pub from_start: bool,
    /// Read evidence from the content store, and check that the run's content exists.
    pub content: bool,
    /// Maximum number of completed calls and open objects of one page, counted together.
    pub limit: usize,
    /// Maximum number of pending effects of one page.
    pub pending: usize,
    /// The log's time, milliseconds since the Unix epoch. None as of a position: the state of effects is then unknown.
    pub now: Option<i64>,
}

/// The maximum number of contents that one page looks up in the content store.
pub const CONTENTS_MAX: usize = 256;
/// Maximum number of pending effects in a server's page, independent of the limit, so that one page usually contains
/// all of them.
pub const PENDING_MAX: usize = 1000;

type Cursor = Option<Vec<u8>>;

/// The state to resume a run from; `None` for a run without applied records and pending effects.
///
/// Cost: one get for the run, a seek to its last anomaly, and the checkpoint's seek. In addition:
///
/// * two steps per pending effect, and a decode per piece of its evidence;
/// * a seek plus two gets per call that the checkpoint does not cover;
/// * a seek for each list of open objects, and a step per item; calls and items are at most `limit` in all;
/// * with `content`, one lookup in the content store per content, at most [`CONTENTS_MAX`].
///
/// Pages list `pending` first, then `completed`, approvals, wakes, messages, write-backs, and `missing_content`.
/// `resumable` considers all pending effects, and the missing content of the pages read so far.
///
/// A cursor is valid only as long as the run's last record is still the first page's. So all pages show one state.
///
/// Errors: `Unavailable` if the content store does not answer. `Conflict` if the run has new records since the cursor was
/// returned: query as of [`cursor_offset`] instead.
pub fn get<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    ask: Query,
    cursor: Option<&[u8]>,
) -> Result<Option<Recovery>, Error> {
    let Query { full, from_start, content, limit, pending: pending_max, now } = ask;
    let Some(run) = rows.get::<RunRow>(&store::runs::key(run_id))? else { return Ok(None) };
    // A skip of the first claim voids or displaces all records of a run. Their effects still wait for decisions.
    if run.head.records == 0 && !effects::any_pending(rows, run_id)? {
        return Ok(None);
    }
    let last = last_offset(rows, run_id, &run)?;
    let cursor = cursor.map(|cursor| check_cursor(run_id, cursor, last)).transpose()?;
    let checkpoint::Latest { checkpoint: latest, missing: unusable, .. } = if from_start {
        checkpoint::Latest::default()
    } else {
        checkpoint::latest(rows, contents, place, run_id, None)?
    };
    let covers = latest.as_ref().map_or(JournalSeq::ZERO, |(row, _)| row.covers_journal_seq);
    let unanswered = latest.as_ref().map(|(_, checkpoint)| checkpoint.unanswered.clone()).unwrap_or_default();
    // The checkpoint's unanswered calls are on the first page.
    let unanswered = if cursor.is_none() { unanswered } else { Vec::new() };
    let mut completed = unanswered_calls(rows, place, run_id, covers, &unanswered)?;
    let mut state = PageState::new(cursor);
    let mut left = limit;
    let mut pending = Vec::new();
    if let Some(cursor) = state.cursor_of(store::effects::INDEX) {
        let more;
        let contents = content.then_some(contents);
        (pending, more) = effects::pending(rows, contents, place, run_id, (cursor, pending_max), now)?;
        state.record_read(more);
    }
    if let Some(cursor) = state.cursor_of(tool_calls::INDEX) {
        let (calls, more) = completed_after(rows, place, run_id, covers, cursor, left)?;
        left -= calls.len();
        completed.extend(calls);
        state.record_read(more);
    }
    let mut open = |index: Index| -> Result<Vec<Standing>, Error> {
        let Some(cursor) = state.cursor_of(index) else { return Ok(Vec::new()) };
        if left == 0 {
            state.record_read(Some(store::evolving::open_of(index, run_id).into_bytes()));
            return Ok(Vec::new());
        }
        let (page, more) = open_items::page(rows, place, index, (Some(run_id), false), cursor, left)?;
        left -= page.len();
        state.record_read(more);
        Ok(page.into_iter().map(|(_, standing)| standing).collect())
    };
    let approvals = open(evolving::APPROVALS)?;
    let wakes = open(evolving::WAKES)?;
    let messages = open(evolving::MESSAGES)?;
    let write_backs = open(write_backs::INDEX)?;
    // Later checkpoints with missing content are listed on the first page.
    let mut missing_content = if cursor.is_none() { unusable } else { Vec::new() };
    if content && let Some(cursor) = state.cursor_of(contents::INDEX) {
        let (missing, more) = missing_content_of(rows, contents, place, run_id, cursor)?;
        missing_content.extend(missing);
        state.record_read(more);
    }
    let head = &run.head;
    let reason = not_resumable(head.status, effects::any_unsafe(rows, run_id)?, &missing_content);
    Ok(Some(Recovery {
        run_id: run_id.to_owned(),
        status: head.status.into(),
        position: place.position(run.offset, run.index),
        records_after: latest.as_ref().map_or(head.records, |(row, _)| head.records.saturating_sub(row.records)),
        checkpoint: latest.map(|(row, checkpoint)| checkpoint::answer(place, &row, checkpoint, full)),
        unclaimed: completed.len() as u64,
        completed,
        pending,
        approvals,
        wakes,
        messages,
        write_backs,
        missing_content,
        next_journal_seq: head.next_journal_seq,
        next_writer_seq: head.next_writer_seq,
        next_checkpoint_seq: head.checkpoint_seq + 1,
        epoch: head.epoch,
        writer_id: head.writer_id.clone(),
        hash: head.hash,
        resumable: reason.is_none(),
        reason,
        next_cursor: state.next.map(|key| place.cursor(&[&last.get().to_be_bytes()[..], &key].concat())),
    }))
}

/// The offset of the run's last applied or refused record. Refused records count, because they may be evidence.
fn last_offset<R: Rows>(rows: &R, run_id: RunId<&str>, run: &RunRow) -> Result<Offset, Error> {
    let prefix = store::anomalies::run_prefix(run_id);
    let mut last = run.offset;
    rows.scan(prefix.bytes(), prefix.clone().last().bytes(), rocksdb::Direction::Reverse, &mut |key, _| {
        let mut parts = store::Parts::new(key);
        last = last.max(parts.text().and_then(|_| parts.offset()).unwrap_or_default());
        Ok(ControlFlow::Break(()))
    })?;
    Ok(last)
}

/// The cursor's offset if the run has newer records: the cursor continues on the run as of that offset.
///
/// Errors: `Usage` for a cursor of another list.
pub fn cursor_offset<R: Rows>(rows: &R, run_id: RunId<&str>, cursor: &[u8]) -> Result<Option<Offset>, Error> {
    let Some(run) = rows.get::<RunRow>(&store::runs::key(run_id))? else { return Err(super::foreign_cursor()) };
    let (offset, _) = split_cursor(cursor)?;
    match offset.cmp(&last_offset(rows, run_id, &run)?) {
        Ordering::Less => Ok(Some(offset)),
        Ordering::Equal => Ok(None),
        Ordering::Greater => Err(super::foreign_cursor()),
    }
}

/// A cursor's offset, and the key that it continues after.
fn split_cursor(cursor: &[u8]) -> Result<(Offset, &[u8]), Error> {
    let (offset, key) = cursor.split_first_chunk().ok_or_else(super::foreign_cursor)?;
    Ok((Offset::new(u64::from_be_bytes(*offset)).map_err(|_| super::foreign_cursor())?, key))
}

/// The key of a cursor whose offset is still the run's last.
fn check_cursor<'c>(run_id: RunId<&str>, cursor: &'c [u8], last: Offset) -> Result<&'c [u8], Error> {
    let (offset, key) = split_cursor(cursor)?;
    if !key.first().is_some_and(|first| ORDER.iter().any(|list| list.byte == *first)) {
        return Err(super::foreign_cursor());
    }
    if offset == last {
        return Ok(key);
    }
    let message =
        format!("run {run_id} has new records since this cursor was returned; start again with the first page");
    Err(Error::new(ErrorKind::Conflict, message))
}

/// The order in which the lists are read, page by page.
const ORDER: [Index; 7] = [
    store::effects::INDEX,
    tool_calls::INDEX,
    evolving::APPROVALS,
    evolving::WAKES,
    evolving::MESSAGES,
    write_backs::INDEX,
    contents::INDEX,
];

/// The list that a page has reached.
struct PageState<'a> {
    cursor: Option<&'a [u8]>,
    /// The list that the cursor is in, in [`ORDER`].
    from: usize,
    /// The next page's cursor, once this page is full.
    next: Cursor,
}

impl<'a> PageState<'a> {
    fn new(cursor: Option<&'a [u8]>) -> Self {
        let index = cursor.and_then(|cursor| cursor.first());
        let from = ORDER.iter().position(|list| Some(&(list.byte)) == index).unwrap_or(0);
        Self { cursor, from, next: None }
    }

    /// The cursor to read a list from; `None` if the page does not include it.
    fn cursor_of(&self, list: Index) -> Option<Option<&'a [u8]>> {
        let at = ORDER.iter().position(|each| *each == list)?;
        (self.next.is_none() && at >= self.from).then(|| self.cursor.filter(|_| at == self.from))
    }

    /// Records that a list was read, and its next cursor if it is not complete.
    fn record_read(&mut self, more: Cursor) {
        self.next = more;
    }
}

/// Missing contents of a run, after `cursor`. Without checkpoints, because the latest was read and older checkpoints
/// are not needed, and without dropped content.
fn missing_content_of<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    cursor: Option<&[u8]>,
) -> Result<(Vec<MissingContent>, Cursor), Error> {
    let horizons = Horizons::read(|key| rows.get(key))?;
    let (page, next) = super::page(rows, &contents::prefix(run_id), cursor, CONTENTS_MAX, |key, row| {
        let row: ContentRow = store::decode(key, row)?;
        let mut parts = store::Parts::new(key);
        let (Some(_), Some(offset), Some(index)) = (parts.text(), parts.offset(), parts.u32()) else { return Ok(None) };
        let family = &row.stored.payload_type;
        let is_dropped = horizons.dropped_by(family.as_str(), offset, row.logged_at_millis).is_some();
        Ok((*family != PayloadType::LoopCheckpoint && !is_dropped).then_some((row, (offset, index))))
    })?;
    let named: Vec<_> = page
        .iter()
        .map(|(row, at)| Named { record_id: row.record_id.borrow(), at: *at, stored: &row.stored })
        .collect();
    Ok((contents.missing(place, &named)?, next))
}

fn not_resumable(status: RunStatus, unsafe_pending: bool, missing: &[MissingContent]) -> Option<String> {
    if status != RunStatus::Open {
        return Some(format!("the run is {}", status.as_str()));
    }
    if unsafe_pending {
        let reason = "an effect may have happened and nobody recorded its end: reconcile_required, see pending; \
                      `runlog effects resolve` records a decision";
        return Some(reason.to_owned());
    }
    let first = missing.first()?;
    Some(format!(
        "content is missing, see missing_content: restore it in the content store under its name (first {}, the {} \
         of record {})",
        first.sha256, first.payload_type, first.record_id
    ))
}

/// Ended calls that the checkpoint covers, whose results its agent had not received.
fn unanswered_calls<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    covers: JournalSeq,
    ids: &[RecordId],
) -> Result<Vec<Done>, Error> {
    let mut calls: Vec<(&RecordId, CallRow)> = Vec::new();
    for id in ids {
        let row: Option<CallRow> = rows.get(&key(run_id, id.borrow()))?;
        calls.extend(row.filter(|row| row.journal_seq <= covers).map(|row| (id, row)));
    }
    calls.sort_by_key(|(_, row)| (row.journal_seq, row.request_offset, row.request_index));
    Ok(calls.into_iter().filter_map(|(id, row)| completed_call(place, id, row)).collect())
}

fn completed_after<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    covers: JournalSeq,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Done>, Option<Vec<u8>>), Error> {
    let prefix = order_prefix(run_id);
    let covered = from_number(run_id, covers).last();
    let cursor = cursor.map_or_else(|| covered.into_bytes(), <[u8]>::to_vec);
    super::page(rows, &prefix, Some(&cursor), limit, |order, row| {
        let id: RecordId = store::decode(order, row)?;
        let call: Option<CallRow> = rows.get(&key(run_id, id.borrow()))?;
        Ok(call.and_then(|call| completed_call(place, &id, call)))
    })
}

fn completed_call(place: TopicPartition<'_>, id: &RecordId, row: CallRow) -> Option<Done> {
    (row.status != CallStatus::Pending).then(|| Done {
        tool_name: row.tool_name,
        fingerprint: row.fingerprint,
        occurrence: row.occurrence,
        status: row.status.into(),
        position: place.position(row.status_offset, row.status_index),
        id: id.clone(),
        journal_seq: row.journal_seq,
        idempotency_key: row.idempotency_key,
    })
}
