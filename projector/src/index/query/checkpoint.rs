//! Finds and loads checkpoints of an agent's loop.

use super::{Content, Order, Span, TopicPartition, missing_content};
use crate::index::{
    content::{Contents, Lost},
    error::Error,
    store::{
        self, Rows,
        checkpoints::{CheckpointRow, MessageRow, Range, RankRow, by_id, message, message_prefix, page, prefix},
        horizons::Horizons,
        runs::RunRow,
    },
};
use runlog_schemas::{
    answer::{Checkpoint, CheckpointSummary, Checkpoints, ErrorKind, MissingContent},
    id::{JournalSeq, Offset, RunId},
    json::Json,
    messages::{self, MESSAGES_MAX},
    payload::{LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint, Payload, PayloadType},
};
use std::ops::ControlFlow;

/// Maximum number of invalid checkpoints that a search reads. Each costs as much as a valid checkpoint.
const INVALID_MAX: usize = 64;

/// The latest valid checkpoint, and the missing content of later checkpoints.
#[derive(Debug, Default)]
pub struct Latest {
    /// The checkpoint and its row.
    pub checkpoint: Option<(CheckpointRow, LoopCheckpoint)>,
    /// Missing content of later checkpoints.
    pub missing: Vec<MissingContent>,
    /// Whether the search ended after 64 invalid checkpoints: an older checkpoint may be valid.
    pub gave_up: bool,
}

/// The latest valid checkpoint that covers no more than `at_or_before`, with its row and its whole message list. A valid
/// checkpoint is not pruned, has a schema version that this build knows, and covers no more than the run has. Its content
/// and its messages' content are neither missing nor dropped, and its hash is right.
///
/// Cost: two gets, a seek from the end (two if the newest one is invalid), and the cost of [`load`] per checkpoint. A step
/// and a get for each later checkpoint whose own content was dropped.
///
/// Errors: `Unavailable` if the content store does not answer: an older checkpoint would be a wrong answer then.
pub fn latest<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    at_or_before: Option<JournalSeq>,
) -> Result<Latest, Error> {
    let mut latest = Latest::default();
    let run: Option<RunRow> = rows.get(&store::runs::key(run_id))?;
    let Some(run) = run else { return Ok(latest) };
    let covers_max = at_or_before.unwrap_or(JournalSeq::MAX).min(run.head.next_journal_seq.saturating_sub(1));
    let from = prefix(run_id).u64(covers_max.get()).last();
    let horizons = Horizons::read(|key| rows.get(key))?;
    // The first checkpoint is nearly always valid, so it is tried alone.
    for (passed, limit) in [(0, 1), (1, INVALID_MAX)] {
        let ids = ids(rows, &horizons, run_id, from.bytes(), limit)?;
        latest.gave_up = ids.len() == INVALID_MAX;
        for id in ids.into_iter().skip(passed) {
            match load(rows, contents, &horizons, place, run_id, &id)? {
                Loaded::Valid(row, checkpoint) => {
                    latest.checkpoint = Some((row, *checkpoint));
                    latest.gave_up = false;
                    return Ok(latest);
                }
                Loaded::Invalid => {}
                Loaded::Lost(lost) if lost.unknown() => return Err(lost.error),
                Loaded::Lost(lost) => latest.missing.push(lost.missing),
            }
        }
    }
    Ok(latest)
}

/// The answer to a search.
///
/// Errors: `NotFound` if the run has no valid checkpoint there. `MissingContent` if content of a checkpoint is missing,
/// `Internal` if too many are invalid: in both cases an older one may be valid.
pub fn answer_latest(place: TopicPartition<'_>, run_id: RunId<&str>, latest: Latest) -> Result<Checkpoint, Error> {
    if let Some((row, checkpoint)) = latest.checkpoint {
        return Ok(answer(place, &row, checkpoint, true));
    }
    let none = format!("run {run_id} has no valid checkpoint at or before the requested position");
    if let Some(missing) = latest.missing.first() {
        return Err(missing_content(&none, missing));
    }
    if latest.gave_up {
        let what =
            format!("the latest {INVALID_MAX} checkpoints of run {run_id} are not valid; query an older position");
        return Err(Error::new(ErrorKind::Internal, what));
    }
    Err(Error::new(ErrorKind::NotFound, none))
}

/// The checkpoint with an id, whole. Cost: see [`load`].
///
/// Errors: `NotFound` if the run has no valid checkpoint with that id; `MissingContent` or `Unavailable` if its content
/// cannot be read.
pub fn get<R: Rows>(
    rows: &R,
    contents: &Contents,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    id: &str,
) -> Result<Checkpoint, Error> {
    let none = || format!("run {run_id} has no valid checkpoint {id:?}");
    match load(rows, contents, &Horizons::read(|key| rows.get(key))?, place, run_id, id)? {
        Loaded::Valid(row, checkpoint) => Ok(answer(place, &row, *checkpoint, true)),
        Loaded::Invalid => Err(Error::new(ErrorKind::NotFound, none())),
        Loaded::Lost(lost) if lost.unknown() => Err(lost.error),
        Loaded::Lost(lost) => Err(missing_content(&none(), &lost.missing)),
    }
}

/// A page of a run's checkpoints, newest first: in the order in which [`latest`] tries them, by covered number and then by
/// checkpoint number. None for a run without applied records. Omits checkpoints that are pruned or whose own content was
/// dropped. The others may still be invalid, which only loading them shows.
///
/// Cost: a get, a seek from the end, and a step and a get per checkpoint. No record is read.
pub fn newest_first<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    at_or_before: Option<JournalSeq>,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<Option<Checkpoints>, Error> {
    if rows.get::<RunRow>(&store::runs::key(run_id))?.is_none_or(|run| run.head.records == 0) {
        return Ok(None);
    }
    let (prefix, horizons) = (prefix(run_id), Horizons::read(|key| rows.get(key))?);
    let end = at_or_before.map(|covers_max| prefix.clone().u64(covers_max.get()).last());
    let span = Span { prefix: &prefix, end: end.as_ref(), cursor, order: Order::Desc };
    let (checkpoints, next) = super::page_of(
        rows,
        span,
        |items| items == limit,
        |key, row| {
            let id = store::decode::<RankRow>(key, row)?.checkpoint_id;
            let Some(row) = rows.get::<CheckpointRow>(&by_id(run_id, &id))? else { return Ok(None) };
            let dropped = horizons.dropped_by(LOOP_CHECKPOINT, row.offset, row.logged_at_millis).is_some();
            Ok((!dropped).then(|| summary(place, row)))
        },
    )?;
    Ok(Some(Checkpoints { run_id: run_id.to_owned(), checkpoints, next_cursor: next.map(|key| place.cursor(&key)) }))
}

fn summary(place: TopicPartition<'_>, row: CheckpointRow) -> CheckpointSummary {
    CheckpointSummary {
        position: place.position(row.offset, row.index),
        checkpoint_id: row.checkpoint_id,
        covers_journal_seq: row.covers_journal_seq,
        checkpoint_seq: row.checkpoint_seq,
        created_at: super::time(row.created_at_millis),
        message_count: row.list.messages,
        message_bytes: row.list.bytes,
    }
}

/// The payload type of checkpoints.
const LOOP_CHECKPOINT: &str = PayloadType::LoopCheckpoint.as_str();

/// The ids of up to `limit` checkpoints with undropped content, from a rank (inclusive) downwards.
fn ids<R: Rows>(
    rows: &R,
    horizons: &Horizons,
    run_id: RunId<&str>,
    from: &[u8],
    limit: usize,
) -> Result<Vec<String>, store::Error> {
    let mut ids = Vec::new();
    rows.scan(prefix(run_id).bytes(), from, rocksdb::Direction::Reverse, &mut |key, row| {
        let id = store::decode::<RankRow>(key, row)?.checkpoint_id;
        if horizons.concern(LOOP_CHECKPOINT)
            && let Some(row) = rows.get::<CheckpointRow>(&by_id(run_id, &id))?
            && horizons.dropped_by(LOOP_CHECKPOINT, row.offset, row.logged_at_millis).is_some()
        {
            return Ok(ControlFlow::Continue(()));
        }
        ids.push(id);
        Ok(if ids.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(ids)
}

/// The result of [`load`].
#[derive(Debug)]
pub enum Loaded {
    /// Its row, and the checkpoint with its whole message list and no base.
    Valid(CheckpointRow, Box<LoopCheckpoint>),
    /// It does not exist, or is not valid.
    Invalid,
    /// Its content, or one of its messages' content, is missing.
    Lost(Box<Lost>),
}

/// A checkpoint by id.
///
/// Cost: its row and its record, and a get per page of ranges. Per range a get, or a seek and a step per message from other
/// checkpoints. Each message is read once, and stored content is fetched once per record.
pub fn load<R: Rows>(
    rows: &R,
    contents: &Contents,
    horizons: &Horizons,
    place: TopicPartition<'_>,
    run_id: RunId<&str>,
    id: &str,
) -> Result<Loaded, Error> {
    let row: Option<CheckpointRow> = rows.get(&by_id(run_id, id))?;
    let Some(row) = row.filter(|row| !row.pruned) else { return Ok(Loaded::Invalid) };
    let mut reader = MessageReader { rows, contents, horizons, place, run_id, last: None };
    let mut checkpoint = match reader.checkpoint((row.offset, row.index))? {
        Ok(Some(checkpoint)) if checkpoint.schema_version <= LOOP_CHECKPOINT_SCHEMA_VERSION => checkpoint,
        Ok(_) => return Ok(Loaded::Invalid),
        Err(lost) => return Ok(Loaded::Lost(lost)),
    };
    let list = match list(&mut reader, &row, &checkpoint.messages)? {
        Ok(Some(list)) => list,
        Ok(None) => return Ok(Loaded::Invalid),
        Err(lost) => return Ok(Loaded::Lost(lost)),
    };
    let hashes: Vec<_> = list.iter().map(messages::hash).collect();
    if checkpoint.state_hash != checkpoint.hash_with(&hashes) {
        return Ok(Loaded::Invalid);
    }
    (checkpoint.base, checkpoint.spans, checkpoint.messages) = (None, Vec::new(), list);
    Ok(Loaded::Valid(row, Box::new(checkpoint)))
}

/// An answer, or the missing content.
type OrLost<T> = Result<T, Box<Lost>>;

/// Reads messages. Caches the last payload from the content store, because adjacent messages share it.
struct MessageReader<'a, R> {
    rows: &'a R,
    contents: &'a Contents,
    horizons: &'a Horizons,
    place: TopicPartition<'a>,
    run_id: RunId<&'a str>,
    last: Option<((Offset, u32), Vec<Json>)>,
}

impl<R: Rows> MessageReader<'_, R> {
    /// The checkpoint in the record at an offset and index, fetched if it is stored; `None` if it was dropped.
    fn checkpoint(&self, at: (Offset, u32)) -> Result<OrLost<Option<LoopCheckpoint>>, Error> {
        let Some(record) = super::record(self.rows, self.horizons, self.run_id, at)? else { return Ok(Ok(None)) };
        let Content::Available(payload) = record.payload else { return Ok(Ok(None)) };
        Ok(match self.contents.open(self.place, record.body.record_id.borrow(), at, payload) {
            Ok(Payload::LoopCheckpoint(checkpoint)) => Ok(Some(checkpoint)),
            Ok(_) => Ok(None),
            Err(lost) => Err(lost),
        })
    }

    /// The text of a message; `None` if no record has it, or if it was dropped.
    fn text(&mut self, row: MessageRow) -> Result<OrLost<Option<Json>>, Error> {
        let MessageRow { text, held, offset, logged_at_millis, .. } = row;
        if self.horizons.dropped_by(LOOP_CHECKPOINT, offset, logged_at_millis).is_some() {
            return Ok(Ok(None));
        }
        let (None, Some(held)) = (&text, held) else { return Ok(Ok(text)) };
        let at = (held.offset, held.index);
        if self.last.as_ref().is_none_or(|(last, _)| *last != at) {
            match self.checkpoint(at)? {
                Ok(checkpoint) => self.last = Some((at, checkpoint.map(|held| held.messages).unwrap_or_default())),
                Err(lost) => return Ok(Err(lost)),
            }
        }
        let nth = usize::try_from(held.nth).unwrap_or(usize::MAX);
        Ok(Ok(self.last.as_ref().and_then(|(_, messages)| messages.get(nth)).cloned()))
    }
}

/// The messages of a checkpoint; `own` are the messages in its record. None if one is missing, or has another size than in
/// the facts that the judge used.
fn list<R: Rows>(
    reader: &mut MessageReader<'_, R>,
    row: &CheckpointRow,
    own: &[Json],
) -> Result<OrLost<Option<Vec<Json>>>, Error> {
    let mut ranges = Vec::new();
    for at in &row.list.pages {
        ranges.extend(reader.rows.get::<Vec<Range>>(&page(reader.run_id, at.page))?.unwrap_or_default());
    }
    ranges.extend_from_slice(&row.list.tail);
    // The judge refuses longer lists.
    let mut messages = Vec::with_capacity(row.list.messages.min(MESSAGES_MAX) as usize);
    for range in ranges {
        if let Err(lost) = read(reader, row.own_from, &range, own, &mut messages)? {
            return Ok(Err(lost));
        }
    }
    let bytes: u64 = messages.iter().map(|message| message.as_str().len() as u64).sum();
    let complete = (messages.len() as u64, bytes) == (row.list.messages, row.list.bytes);
    Ok(Ok(complete.then_some(messages)))
}

/// Reads the messages of a range: messages before `own_from` from the run's array, the others from `own`.
fn read<R: Rows>(
    reader: &mut MessageReader<'_, R>,
    own_from: u64,
    range: &Range,
    own: &[Json],
    messages: &mut Vec<Json>,
) -> Result<OrLost<()>, Error> {
    let older = own_from.saturating_sub(range.from).min(range.count);
    let (first, mut left) = (message(reader.run_id, range.from), older);
    let mut message_rows = Vec::new();
    if older == 1 {
        message_rows.extend(reader.rows.get::<MessageRow>(&first)?);
    } else if older > 0 {
        let prefix = message_prefix(reader.run_id);
        reader.rows.scan(prefix.bytes(), first.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
            message_rows.push(store::decode::<MessageRow>(key, row)?);
            left -= 1;
            Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    for row in message_rows {
        match reader.text(row)? {
            Ok(text) => messages.extend(text),
            Err(lost) => return Ok(Err(lost)),
        }
    }
    let index = |number: u64| usize::try_from(number.saturating_sub(own_from)).unwrap_or(usize::MAX);
    let (from, to) = (index(range.from + older), index(range.from + range.count));
    messages.extend_from_slice(own.get(from..to).unwrap_or_default());
    Ok(Ok(()))
}

/// The answer about a checkpoint; with its messages if `full`.
pub fn answer(place: TopicPartition<'_>, row: &CheckpointRow, checkpoint: LoopCheckpoint, full: bool) -> Checkpoint {
    Checkpoint {
        checkpoint_id: checkpoint.checkpoint_id,
        covers_journal_seq: checkpoint.covers_journal_seq,
        checkpoint_seq: checkpoint.checkpoint_seq,
        schema_version: checkpoint.schema_version,
        messages: full.then_some(checkpoint.messages),
        state: checkpoint.state,
        unanswered: checkpoint.unanswered,
        position: place.position(row.offset, row.index),
    }
}
